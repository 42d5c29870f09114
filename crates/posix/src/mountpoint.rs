//! The mount point of the file system.

/// The default mount point.
pub const DEFAULT_MOUNT_POINT: &str = "/mnt/meantime";

/// An absolute path without `.`, `..` and repeated slashes, and not the root. It need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint(Box<[u8]>);

/// The path cannot be a mount point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("mount point {path:?}: {what}; give an absolute path, e.g. {DEFAULT_MOUNT_POINT}")]
pub struct MountPointError {
    path: String,
    what: &'static str,
}

impl MountPoint {
    /// The mount point at `path`; trailing slashes are ignored.
    ///
    /// # Errors
    /// If the path is not absolute, contains `..`, is the root, or lies in `/proc`, `/dev` or
    /// `/sys`, which programs need unchanged.
    pub fn new(path: &[u8]) -> Result<Self, MountPointError> {
        let wrong =
            |what| MountPointError { path: String::from_utf8_lossy(path).into_owned(), what };
        if path.first() != Some(&b'/') {
            return Err(wrong("it is not absolute"));
        }
        if path.contains(&0) {
            return Err(wrong("it has a NUL in it"));
        }
        if path.len() > libc::PATH_MAX as usize / 2 {
            return Err(wrong("it is too long"));
        }
        let mut clean = Vec::with_capacity(path.len());
        for part in parts(path) {
            if part == b".." {
                return Err(wrong("it has .. in it"));
            }
            clean.push(b'/');
            clean.extend_from_slice(part);
        }
        let wrong_place = match parts(&clean).next() {
            None => Some("it is the root, where everything else is"),
            Some(b"proc" | b"dev" | b"sys") => Some("programs need that directory as it is"),
            Some(_) => None,
        };
        wrong_place.map_or(Ok(Self(clean.into())), |what| Err(wrong(what)))
    }

    /// Its path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The rest of `path` below the mount point, if it is an absolute path through it (empty for
    /// the mount point itself). Compares names only; [`enters`](Self::enters) resolves links and
    /// `..`. Allocates nothing.
    #[inline]
    pub fn strip<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        if path.first() != Some(&b'/') {
            return None;
        }
        // The usual spelling first; for any other path no further byte is read.
        if let Some(rest) = path.strip_prefix(&*self.0) {
            match rest.first() {
                None | Some(b'/') => return Some(rest),
                Some(_) => {}
            }
        }
        let second = path.get(1)?;
        if *second != b'/' && *second != b'.' && *second != self.0[1] {
            return None;
        }
        let mut rest = path;
        for wanted in parts(&self.0) {
            let (part, after) = next_part(rest)?;
            if part != wanted {
                return None;
            }
            rest = after;
        }
        Some(rest)
    }

    /// Whether `path` (absolute, clean) is the mount point or above it.
    pub(super) fn has_above(&self, path: &[u8]) -> bool {
        self.0.strip_prefix(path).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
    }

    /// Its parent directory, which is `..` of the file system's root: an absolute path.
    pub(super) fn parent(&self) -> &[u8] {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            None | Some(0) => b"/",
            Some(at) => &self.0[..at],
        }
    }
}

/// The names in `path`, without `.` and empty parts.
pub(super) fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

/// The first name in `path`, and the rest (with its slash); `None` if there is no name.
pub(super) fn next_part(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = path;
    loop {
        let start = rest.iter().position(|&byte| byte != b'/')?;
        rest = &rest[start..];
        let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        if part != b"." {
            return Some((part, after));
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_paths_are_below_it() {
        let mount = MountPoint::new(b"//mnt/./x/").unwrap();
        assert_eq!(mount.as_bytes(), b"/mnt/x");
        for (path, rest) in [
            (&b"/mnt/x"[..], Some(&b""[..])),
            (b"/mnt/x/", Some(b"/")),
            (b"/mnt/x/a/../b", Some(b"/a/../b")),
            (b"/mnt//x//a", Some(b"//a")),
            (b"//mnt/./x/a", Some(b"/a")),
            (b"/./mnt/x", Some(b"")),
            (b"/mnt/xy", None),
            (b"/mnt", None),
            (b"/mnt/", None),
            (b"/", None),
            (b"", None),
            (b"mnt/x", None),
            (b"/mnt/../mnt/x", None),
            (b"/usr/bin", None),
        ] {
            assert_eq!(mount.strip(path), rest, "{}", String::from_utf8_lossy(path));
        }
        assert!(mount.has_above(b"/mnt") && mount.has_above(b"/mnt/x"));
        assert!(!mount.has_above(b"/mn") && !mount.has_above(b"/mnt/x/a"));
        assert_eq!(mount.parent(), b"/mnt");
        assert_eq!(MountPoint::new(b"/x").unwrap().parent(), b"/");
    }

    #[test]
    fn invalid_mount_points_are_refused() {
        for (path, word) in [
            (&b"mnt"[..], "not absolute"),
            (b"", "not absolute"),
            (b"/", "root"),
            (b"/.//", "root"),
            (b"/a/../b", ".."),
            (b"/proc/x", "as it is"),
            (b"/dev", "as it is"),
            (b"/a\0b", "NUL"),
            (&[b'/'; 5000], "too long"),
        ] {
            let error = MountPoint::new(path).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains(DEFAULT_MOUNT_POINT), "{error}");
        }
    }
}
