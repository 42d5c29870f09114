//! `open`, and calls that would create, remove or change a name.

use std::ffi::c_int;

use super::walk::ResolvedPath;
use super::{Description, Errno, Kind, Posix};
use meantime_ext4::FileType;
use meantime_process::lock::{Mutex, Rank};

impl Posix {
    /// Whether `open` with `flags` follows a link at the end of the path.
    pub fn open_follows(flags: c_int) -> bool {
        let exclusive = libc::O_CREAT | libc::O_EXCL;
        flags & libc::O_NOFOLLOW == 0 && flags & exclusive != exclusive
    }

    /// Opens `place` with `flags`; its path was resolved with links followed as by
    /// [`open_follows`](Self::open_follows).
    ///
    /// # Errors
    /// As open(2) on a read-only mount; ENXIO for devices, pipes and sockets.
    pub fn open(&self, place: ResolvedPath, flags: c_int) -> Result<Description, Errno> {
        let has = |flag| flags & flag == flag;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let path_only = has(libc::O_PATH);
        let creates = has(libc::O_CREAT) && !path_only;
        let found = match place {
            ResolvedPath::Found(found) => found,
            ResolvedPath::Missing { .. } if creates => return Err(Errno(libc::EROFS)),
            ResolvedPath::Missing { .. } | ResolvedPath::Outside(_) => {
                return Err(Errno(libc::ENOENT));
            }
        };
        let file_type = found.node().file_type();
        if path_only {
            if has(libc::O_DIRECTORY) && file_type != FileType::Directory {
                return Err(Errno(libc::ENOTDIR));
            }
            let kept = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
            return Ok(Description::new(found, Kind::Path, flags & kept));
        }
        if has(libc::O_TMPFILE) {
            let errno = match (writes, file_type) {
                (false, _) => libc::EINVAL,
                (true, FileType::Directory) => libc::EROFS,
                (true, _) => libc::ENOTDIR,
            };
            return Err(Errno(errno));
        }
        if creates && has(libc::O_EXCL) {
            return Err(Errno(libc::EEXIST));
        }
        if has(libc::O_DIRECTORY) && file_type != FileType::Directory {
            return Err(Errno(libc::ENOTDIR));
        }
        let kind = match file_type {
            FileType::Symlink => return Err(Errno(libc::ELOOP)),
            FileType::Directory if writes || creates || has(libc::O_TRUNC) => {
                return Err(Errno(libc::EISDIR));
            }
            FileType::Directory => Kind::Directory(Mutex::new(
                Rank::DirectoryPosition,
                self.fs()?.entries(found.node())?,
            )),
            FileType::Regular if writes || has(libc::O_TRUNC) => return Err(Errno(libc::EROFS)),
            FileType::Regular => Kind::File(self.fs()?.open_node(found.node())?),
            FileType::Character | FileType::Block | FileType::Fifo | FileType::Socket => {
                return Err(Errno(libc::ENXIO));
            }
        };
        // F_GETFL returns neither creation flags nor the descriptor's own; it returns O_LARGEFILE,
        // as on every 64-bit Linux.
        let of_open =
            libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY | libc::O_TRUNC | libc::O_CLOEXEC;
        Ok(Description::new(found, kind, flags & !of_open | O_LARGEFILE))
    }

    /// The errno of a call that would create `place`: mkdir, mknod, symlink, link and rename to a
    /// new name.
    pub fn make(&self, place: &ResolvedPath) -> Errno {
        Errno(if matches!(place, ResolvedPath::Found(_)) { libc::EEXIST } else { libc::EROFS })
    }

    /// The errno of a call that would change `place`: chmod, chown, truncate, utimensat, setxattr.
    pub fn change(&self, place: &ResolvedPath) -> Errno {
        Errno(if matches!(place, ResolvedPath::Found(_)) { libc::EROFS } else { libc::ENOENT })
    }
}

/// The kernel's value; libc's is 0.
const O_LARGEFILE: c_int = 0o100_000;
