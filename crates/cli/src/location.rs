//! A place in a file system on a device: `DEVICE:/PATH`, e.g.
//! `file:disk.img?model=zssd:/etc/passwd`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use meantime_block::Uri;

use crate::failure::Failure;

/// The schemes of device URIs, with their colons, and what each is.
pub(crate) const SCHEMES: [(&str, &str); 6] = [
    ("mem:", "software SSD, its medium in memory"),
    ("file:", "software SSD, its medium a file"),
    ("kernel:", "a file or block device by the kernel's own stack"),
    ("vfio:", "a PCIe SSD"),
    ("vfio-user:", "a controller that another process serves"),
    ("nvme+tcp://", "a namespace of an NVMe/TCP target"),
];

/// A device, and a path in its file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// The device's URI.
    pub device: String,
    /// The path in it, which begins with a slash, or `None` if the text names only the device.
    pub path: Option<PathBuf>,
}

impl Location {
    /// Parses `text`. The path begins with the first `:/` after the scheme. If the device is a file
    /// whose name contains `:/`, it begins with the first `:/` that follows the name of an existing
    /// file.
    ///
    /// # Errors
    /// Returns an error if there is no scheme, or the text before the path is not a device URI.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, Failure> {
        Self::parse_with(text, |file| file.exists())
    }

    fn parse_with(text: &OsStr, exists: impl Fn(&Path) -> bool) -> Result<Self, Failure> {
        let bytes = text.as_bytes();
        let is_of = |(scheme, _): &&(&str, &str)| bytes.starts_with(scheme.as_bytes());
        let Some((scheme, _)) = SCHEMES.iter().find(is_of) else {
            let error = text.to_string_lossy().parse::<Uri>().err();
            let what = error.map_or_else(|| "no device".to_owned(), |error| error.what);
            return Err(Failure::usage(format_args!(
                "{}: {what}; write DEVICE:/PATH, e.g. file:disk.img:/etc/passwd",
                text.display()
            )));
        };
        let colons: Vec<usize> = (scheme.len()..bytes.len())
            .filter(|at| bytes[*at] == b':' && bytes.get(at + 1) == Some(&b'/'))
            .collect();
        let is_there = |at: &usize| match device(&bytes[..*at]).map(|(_, uri)| uri) {
            Ok(Uri::File { path, .. } | Uri::Kernel { path, .. } | Uri::VfioUser { path, .. }) => {
                exists(&path)
            }
            _ => false,
        };
        let split = match colons.as_slice() {
            [_, _, ..] => colons.iter().find(|at| is_there(at)).or(colons.first()),
            colons => colons.first(),
        };
        let end = split.copied().unwrap_or(bytes.len());
        let (device, _) = device(&bytes[..end])?;
        let path = split.map(|at| PathBuf::from(OsStr::from_bytes(&bytes[at + 1..])));
        Ok(Self { device, path })
    }

    /// Returns the path, or the root directory if there is none.
    pub(crate) fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new("/"))
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.device, self.path().display())
    }
}

/// Returns the device URI in `bytes`, as text and parsed.
fn device(bytes: &[u8]) -> Result<(String, Uri), Failure> {
    let text = std::str::from_utf8(bytes).map_err(|_| {
        Failure::usage(
            "the device's name is no UTF-8; give it another one, e.g. by a symbolic link",
        )
    })?;
    let uri = text.parse().map_err(Failure::usage)?;
    Ok((text.to_owned(), uri))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (String, Option<String>) {
        let location = Location::parse_with(OsStr::new(text), |_| false).unwrap();
        (location.device, location.path.map(|path| path.to_str().unwrap().to_owned()))
    }

    #[test]
    fn device_and_path() {
        for (text, device, path) in [
            ("file:disk.img:/etc/passwd", "file:disk.img", Some("/etc/passwd")),
            (
                "file:disk.img?model=zssd:/etc/passwd",
                "file:disk.img?model=zssd",
                Some("/etc/passwd"),
            ),
            ("file:/a/b.img:/", "file:/a/b.img", Some("/")),
            ("file:/a/b.img", "file:/a/b.img", None),
            ("file:disk.img", "file:disk.img", None),
            ("file:a:b.img:/c:d", "file:a:b.img", Some("/c:d")),
            ("mem:64M?model=optane&lba=4096:/x", "mem:64M?model=optane&lba=4096", Some("/x")),
            ("mem:64M", "mem:64M", None),
            ("vfio:0000:01:00.0:/x", "vfio:0000:01:00.0", Some("/x")),
            ("vfio:0000:01:00.0", "vfio:0000:01:00.0", None),
            ("vfio-user:/run/ssd.sock:/x/y", "vfio-user:/run/ssd.sock", Some("/x/y")),
            ("kernel:/dev/nvme0n1?direct=0:/a b", "kernel:/dev/nvme0n1?direct=0", Some("/a b")),
            (
                "nvme+tcp://[::1]:4421/nqn.x:y?nsid=2:/z",
                "nvme+tcp://[::1]:4421/nqn.x:y?nsid=2",
                Some("/z"),
            ),
            ("nvme+tcp://box:4420/nqn.x", "nvme+tcp://box:4420/nqn.x", None),
            // A path with colons.
            ("file:disk.img:/a:/b", "file:disk.img", Some("/a:/b")),
            ("file:disk.img://a", "file:disk.img", Some("//a")),
            // A slash in a parameter.
            ("file:disk.img?faults=/tmp/f.toml:/a", "file:disk.img?faults=/tmp/f.toml", Some("/a")),
        ] {
            assert_eq!(parse(text), (device.to_owned(), path.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_there_decides() {
        let there = |text: &str, file: &str| {
            let location =
                Location::parse_with(OsStr::new(text), |path| path == Path::new(file)).unwrap();
            (location.device.clone(), location.path().to_owned())
        };
        let whole = ("file:a:/b.img".to_owned(), PathBuf::from("/c"));
        assert_eq!(there("file:a:/b.img:/c", "a:/b.img"), whole);
        assert_eq!(there("file:a:/b.img:/c", "a"), ("file:a".to_owned(), "/b.img:/c".into()));
    }

    #[test]
    fn a_path_may_be_any_bytes_and_a_device_may_not() {
        let location = Location::parse(OsStr::from_bytes(b"file:disk.img:/a\xff")).unwrap();
        assert_eq!(location.path.unwrap().as_os_str().as_bytes(), b"/a\xff");
        assert!(Location::parse(OsStr::from_bytes(b"file:\xff:/a")).is_err());
    }

    #[test]
    fn what_is_no_device_is_refused() {
        for text in [
            "",
            ":/a",
            "/etc/passwd",
            "disk.img:/etc",
            "nfs:host:/etc",
            "mem:wide:/a",
            "file::/a",
            "file:x?y=1:/a",
        ] {
            assert!(Location::parse(OsStr::new(text)).is_err(), "{text}");
        }
    }
}
