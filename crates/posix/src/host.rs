//! Paths of the machine that enter the mount point through a link, through `..`, or from a working
//! directory above it.
//!
//! The kernel does not know the mount point, so such paths do not exist for it. Only then, on the
//! slow path of an error, is a path walked here. Nothing is allocated: allocators open files, too,
//! while holding their locks.

use rustix::fs::{CWD, readlinkat_raw};
use rustix::io::Errno;

use super::MountPoint;
use super::mountpoint::next_part;
use super::walk::MAX_LINKS;

const PATH_MAX: usize = libc::PATH_MAX as usize;

/// A path in a fixed buffer, without allocation.
pub struct PathBuffer {
    bytes: [u8; PATH_MAX],
    len: usize,
}

impl Default for PathBuffer {
    fn default() -> Self {
        Self { bytes: [0; PATH_MAX], len: 0 }
    }
}

impl PathBuffer {
    /// The path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Sets the path by `fill`, which returns its length, or `None`.
    #[must_use]
    pub fn fill(&mut self, fill: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<()> {
        self.len = 0;
        self.len = fill(&mut self.bytes).filter(|&len| len < PATH_MAX)?;
        Some(())
    }

    /// Appends `bytes`. `None` if there is no room; room for a NUL is kept.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len.checked_add(bytes.len()).filter(|&end| end < PATH_MAX)?;
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    /// Removes the last name.
    fn pop(&mut self) {
        self.len = self.as_bytes().iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    }

    /// Replaces everything before byte `from` by `target`.
    fn splice(&mut self, target: &[u8], from: usize) -> Option<()> {
        let tail = self.len - from;
        let end = target.len().checked_add(tail).filter(|&end| end < PATH_MAX)?;
        self.bytes.copy_within(from..self.len, target.len());
        self.bytes[..target.len()].copy_from_slice(target);
        self.len = end;
        Some(())
    }

    /// Reads the link `at`: EINVAL if it is not a link.
    fn read_link(&mut self, at: &mut Self) -> Result<(), Errno> {
        at.bytes[at.len] = 0;
        let path =
            std::ffi::CStr::from_bytes_until_nul(&at.bytes).map_err(|_| Errno::NAMETOOLONG)?;
        self.len = readlinkat_raw(CWD, path, &mut self.bytes[..])?;
        // A target that fills the buffer may be truncated.
        if self.len == PATH_MAX { Err(Errno::NAMETOOLONG) } else { Ok(()) }
    }
}

/// The paths of one [`MountPoint::enters`]: too large for a signal handler's stack. All-zero memory
/// is a valid value.
#[derive(Default)]
pub struct Walk {
    /// The directory of relative paths, as an absolute path.
    pub cwd: PathBuffer,
    rest: PathBuffer,
    at: PathBuffer,
    target: PathBuffer,
}

impl Walk {
    /// The rest of the path below the mount point.
    pub fn rest(&self) -> &[u8] {
        self.rest.as_bytes()
    }
}

impl MountPoint {
    /// Whether `path` enters the mount point, after resolving the machine's links and `..` before
    /// that; the rest of it is [`Walk::rest`]. A relative path begins at [`Walk::cwd`]. `follow`:
    /// also resolves the last part if it is a link.
    #[inline(never)]
    pub fn enters(&self, path: &[u8], follow: bool, walk: &mut Walk) -> bool {
        self.walk_in(path, follow, walk).is_some()
    }

    fn walk_in(&self, path: &[u8], follow: bool, walk: &mut Walk) -> Option<()> {
        let Walk { cwd, rest, at, target } = walk;
        (rest.len, at.len, target.len) = (0, 0, 0);
        if path.first() != Some(&b'/') {
            rest.push(cwd.as_bytes())?;
            rest.push(b"/")?;
        }
        rest.push(path)?;
        let mut links = 0;
        loop {
            if at.as_bytes() == self.as_bytes() {
                return Some(());
            }
            let (name, after) = next_part(rest.as_bytes())?;
            let from = rest.len - after.len();
            if name == b".." {
                at.pop();
                rest.splice(b"", from)?;
                continue;
            }
            at.push(b"/")?;
            at.push(name)?;
            if !after.is_empty() || follow {
                match target.read_link(at) {
                    Ok(()) => {
                        links += 1;
                        if links > MAX_LINKS {
                            return None;
                        }
                        if target.as_bytes().first() == Some(&b'/') {
                            at.len = 0;
                        } else {
                            at.pop();
                        }
                        rest.splice(target.as_bytes(), from)?;
                        continue;
                    }
                    // It exists, and is not a link.
                    Err(Errno::INVAL) => {}
                    // The directories above the mount point need not exist.
                    Err(_) if self.has_above(at.as_bytes()) => {}
                    Err(_) => return None,
                }
            }
            rest.splice(b"", from)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_dots_lead_into_it() {
        let dir = tempfile::tempdir().unwrap();
        // Its own path without links.
        let base = dir.path().canonicalize().unwrap();
        let base = base.to_str().unwrap();
        let link = |name: &str, to: &str| {
            std::os::unix::fs::symlink(to, format!("{base}/{name}")).unwrap()
        };
        let mount = MountPoint::new(format!("{base}/not/there").as_bytes()).unwrap();
        std::fs::create_dir_all(format!("{base}/d/e")).unwrap();
        link("in", &format!("{base}/not/there/sub"));
        link("relative", "not/there");
        link("twice", "d/../in");
        link("self", "self");
        link("out", "d");
        let enters = |path: &str, follow: bool| {
            let (path, mut walk) = (path.replace('@', base), Box::<Walk>::default());
            walk.cwd.push(format!("{base}/d").as_bytes()).unwrap();
            let is_in = mount.enters(path.as_bytes(), follow, &mut walk);
            is_in.then(|| String::from_utf8(walk.rest().to_vec()).unwrap())
        };
        for (path, rest) in [
            ("@/not/there/a", Some("/a")),
            ("@/in", Some("/sub")),
            ("@/in/x/../y", Some("/sub/x/../y")),
            ("@/relative/f", Some("/f")),
            ("@/twice/f", Some("/sub/f")),
            ("@/d/../not/there", Some("")),
            ("../relative", Some("")),
            ("../not/./there/", Some("/")),
            ("e/../../in", Some("/sub")),
            ("@/self", None),
            ("@/self/x", None),
            ("@/out/e", None),
            ("@/nothing/there", None),
            ("@/not", None),
            ("@/not/here", None),
            ("e", None),
            ("", None),
        ] {
            assert_eq!(enters(path, true).as_deref(), rest, "{path}");
        }
        // The link itself, not what it leads to.
        assert_eq!(enters("@/in", false), None);
        assert_eq!(enters("@/in/", false).as_deref(), Some("/sub/"));
        assert_eq!(enters(&"x/".repeat(PATH_MAX), true), None);
    }
}
