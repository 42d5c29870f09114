//! The files that are devices' media. Each belongs to one device, and a file that was created
//! without need is removed again.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::{RunError, fail};

/// Refuses two names for one file, which would be two SSDs on one medium.
pub(super) fn check_files(files: &[(String, PathBuf)]) -> Result<(), RunError> {
    // A file that does not exist yet is identified by its directory.
    let new = |path: &Path| {
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(std::fs::canonicalize(directory).ok()?.join(path.file_name()?))
    };
    let identity =
        |path: &PathBuf| std::fs::canonicalize(path).ok().or_else(|| new(path)).unwrap_or_default();
    for (at, (uri, path)) in files.iter().enumerate() {
        if let Some((other, _)) =
            files[..at].iter().find(|(_, other)| identity(other) == identity(path))
        {
            fail!(
                "{other} and {uri} are the same file: a medium belongs to one SSD; use one URI for \
                 it, a copy of the file, or two runs with --json, which `meantime report` puts \
                 side by side"
            );
        }
    }
    Ok(())
}

/// Files that opening the devices created, each with whether the kernel does the I/O on it. They
/// are removed again if nothing runs on them.
#[derive(Default)]
pub(super) struct Created(pub(super) Vec<(PathBuf, Identity, bool)>);

/// Device and inode number.
pub(super) type Identity = (u64, u64);

/// Returns the identity of `path` itself, without following a link.
pub(super) fn identity(path: &Path) -> std::io::Result<Identity> {
    path.symlink_metadata().map(|meta| (meta.dev(), meta.ino()))
}

/// Returns whether nothing has that name, not even a dangling link. If that cannot be determined,
/// the name counts as taken.
pub(super) fn is_free(path: &Path) -> bool {
    identity(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

impl Drop for Created {
    fn drop(&mut self) {
        for (path, created, _) in &self.0 {
            // Keeps a file that another program has put in its place.
            if identity(path).is_ok_and(|there| there == *created) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}
