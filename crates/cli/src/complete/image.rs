//! Names in an image file's ext4 file system, read from the file as it is: this replays no journal,
//! opens no device and takes no lock.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use meantime_ext4::FileType;
use meantime_ext4::format::{Source, SourceError, Volume, VolumeOptions};

/// The inode of the root directory.
const ROOT: u32 = 2;
/// The maximum time to look for names. Names found later are not offered: the user waits after Tab.
const TIME_MAX: Duration = Duration::from_millis(30);

struct Image(File);

impl Source for Image {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        let mut buf = vec![0; bytes];
        self.0.read_exact_at(&mut buf, offset).map_err(|_| SourceError::OutOfRange)?;
        Ok(buf.into())
    }
}

/// Returns names in directory `dir` of the image that begin with `prefix`. Those of directories end
/// in a slash. After an error the names found until then are returned.
pub(super) fn names(image: &Path, dir: &[u8], prefix: &[u8]) -> Vec<OsString> {
    // Devices are not opened, and neither are pipes, whose opening would block.
    if !image.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Vec::new();
    }
    let mut names = Vec::new();
    // Names that were found before an error are of use, too.
    let _ = collect(image, dir, prefix, &mut names);
    names.sort();
    names
}

fn collect(image: &Path, dir: &[u8], prefix: &[u8], names: &mut Vec<OsString>) -> Option<()> {
    let end = Instant::now() + TIME_MAX;
    let file = File::open(image).ok()?;
    let bytes = file.metadata().ok()?.len();
    // After a crash, checksums may not fit before the journal is replayed.
    let options = VolumeOptions { ignore_checksums: true, ..VolumeOptions::default() };
    let volume = Volume::open(Image(file), bytes, options).ok()?;
    let mut inode = volume.inode(ROOT).ok()?;
    for name in dir.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let (ino, _) = volume.lookup(&inode, name).ok()??;
        inode = volume.inode(ino).ok()?;
    }
    let mut cookie = 0;
    while Instant::now() < end {
        let entries = volume.entries(&inode, cookie).ok()?;
        cookie = entries.last()?.cookie;
        for entry in entries {
            let is_dot = entry.name == b"." || entry.name == b"..";
            let is_hidden = entry.name.starts_with(b".") && prefix.is_empty();
            if is_dot || is_hidden || !entry.name.starts_with(prefix) {
                continue;
            }
            let mut name = entry.name;
            if entry.file_type == Some(FileType::Directory) {
                name.push(b'/');
            }
            names.push(OsString::from_vec(name));
        }
    }
    Some(())
}

/// Splits a path at its last slash: the directory with the slash, and the beginning of a name.
pub(super) fn split(path: &Path) -> (&[u8], &[u8]) {
    let bytes = path.as_os_str().as_bytes();
    bytes.split_at(bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1))
}
