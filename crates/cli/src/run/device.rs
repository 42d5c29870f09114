//! The device's URI in the environment of programs: valid in any working directory and in all of
//! their processes.

use std::ffi::OsStr;

use meantime_block::{Uri, UriError};

use super::absolute;
use crate::failure::Failure;

/// Parses `uri`. Refuses devices that cannot have a file system.
pub(super) fn check(uri: &str) -> Result<Uri, Failure> {
    let parsed: Uri = uri.parse().map_err(|error: UriError| Failure::usage(error))?;
    match &parsed {
        Uri::Mem { .. } => Err(Failure::usage(format_args!(
            "{uri}: memory begins empty in each process, without a file system; e.g. file:disk.img"
        ))),
        Uri::File { soft, .. } if soft.create_bytes.is_some() => Err(Failure::usage(format_args!(
            "{uri}: a new file has no file system; leave create= out"
        ))),
        _ => Ok(parsed),
    }
}

/// Returns `uri` with absolute paths; read-only if it is an image.
pub(super) fn for_programs(uri: &str) -> Result<String, Failure> {
    let parsed = check(uri)?;
    let (scheme, rest) = uri.split_once(':').unwrap_or((uri, ""));
    let (target, query) = match rest.split_once('?') {
        Some((target, query)) => (target, Some(query)),
        None => (rest, None),
    };
    let target = match parsed {
        Uri::File { .. } | Uri::VfioUser { .. } | Uri::Kernel { .. } => text(target)?,
        _ => target.to_owned(),
    };
    let mut pairs = Vec::new();
    for pair in query.into_iter().flat_map(|query| query.split('&')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let is_file = key == "faults"
            || (key == "model" && (value.contains('/') || value.ends_with(".toml")));
        pairs.push(if is_file { format!("{key}={}", text(value)?) } else { pair.to_owned() });
    }
    let is_image = matches!(parsed, Uri::File { .. });
    if is_image && !pairs.iter().any(|pair| pair.starts_with("ro=")) {
        // A read-only device needs no write cache.
        pairs.retain(|pair| !pair.starts_with("vwc="));
        pairs.push("ro=1".into());
    }
    let question = if pairs.is_empty() { "" } else { "?" };
    Ok(format!("{scheme}:{target}{question}{}", pairs.join("&")))
}

fn text(name: &str) -> Result<String, Failure> {
    let path = absolute(OsStr::new(name))?;
    let path = path.into_os_string().into_string();
    path.map_err(|path| {
        Failure::new(format_args!("{}: a device's path has to be UTF-8", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_absolute_and_images_shared() {
        let here = std::env::current_dir().unwrap();
        let here = here.to_str().unwrap();
        for (uri, told) in [
            ("file:/d.img", "file:/d.img?ro=1".to_owned()),
            ("file:d.img", format!("file:{here}/d.img?ro=1")),
            ("file:/d.img?model=optane&vwc=1", "file:/d.img?model=optane&ro=1".into()),
            (
                "file:/d.img?model=m.toml&faults=f",
                format!("file:/d.img?model={here}/m.toml&faults={here}/f&ro=1"),
            ),
            ("file:/d.img?ro=0", "file:/d.img?ro=0".into()),
            ("kernel:d.img?direct=0", format!("kernel:{here}/d.img?direct=0")),
            ("vfio-user:s", format!("vfio-user:{here}/s")),
            ("vfio:0000:01:00.0", "vfio:0000:01:00.0".into()),
        ] {
            assert_eq!(for_programs(uri).unwrap(), told);
        }
        for uri in ["mem:64M", "file:d.img?create=1M", "disk.img", "file:d.img?modle=x"] {
            assert!(for_programs(uri).is_err(), "{uri}");
        }
    }
}
