//! Mounts, from a process's `mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// One line of `mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The device number of its files, `major:minor`.
    pub device: String,
    /// The directory where it is mounted.
    pub dir: PathBuf,
    /// The type of the file system, `ext4` or `fuse.meantime` for example.
    pub kind: String,
    /// The mounted source, usually the path of a block device.
    pub source: PathBuf,
}

/// Parses `text`, and keeps its order: a mount over another comes after it. Skips invalid lines.
pub fn parse(text: &str) -> impl DoubleEndedIterator<Item = MountEntry> {
    text.lines().filter_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let (mut front, mut back) = (front.split(' ').skip(2), back.split(' '));
        Some(MountEntry {
            device: front.next()?.to_owned(),
            dir: unescape(front.nth(1)?),
            kind: back.next()?.to_owned(),
            source: unescape(back.next()?),
        })
    })
}

/// Decodes a path in `text`: the kernel writes a blank as `\040`, for example.
pub(crate) fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.filter(|_| byte == b'\\').and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(code) => {
                bytes.push(code);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{parse, unescape};

    #[test]
    fn blanks_in_paths() {
        assert_eq!(unescape("/mnt/a\\040b\\134c"), Path::new("/mnt/a b\\c"));
        assert_eq!(unescape("\\04"), Path::new("\\04"));
        assert_eq!(unescape("\\999\\"), Path::new("\\999\\"));
    }

    #[test]
    fn lines_are_read_and_bad_ones_left_out() {
        let text = "30 22 0:31 / /mnt/a\\040b rw,relatime shared:1 - fuse.meantime file:x rw\n\
                    not a line\n\
                    31 22 0:32 / /mnt rw - tmpfs tmp rw\n";
        let entries: Vec<_> = parse(text).collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(
            (entries[0].device.as_str(), entries[0].kind.as_str()),
            ("0:31", "fuse.meantime")
        );
        assert_eq!(entries[0].dir, Path::new("/mnt/a b"));
        assert_eq!(entries[1].source, Path::new("tmp"));
    }
}
