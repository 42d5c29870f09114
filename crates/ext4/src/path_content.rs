//! Reads, writes and copies a file's whole content by path, as `std::fs` does.

use std::path::Path;

use super::error::{Error, Result};
use super::file::File;
use super::fs::FileSystem;
use super::inode::setattr::SetMetadata;
use super::options::OpenOptions;
use meantime_ext4_format::FileType;

/// The permissions of a new file.
const FILE_MODE: u16 = 0o644;

/// Creates a file, or truncates an existing one.
const ANEW: OpenOptions = OpenOptions {
    read: false,
    write: true,
    create: true,
    create_new: false,
    truncate: true,
    append: false,
    direct: false,
    no_access_time: false,
    sync: false,
    dsync: false,
    mode: FILE_MODE,
};

/// Writes all of `data` to the empty `file`.
fn write_all(file: &File, data: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < data.len() {
        match file.write_at(&data[done..], done as u64)? {
            0 => return Err(Error::NoSpace),
            bytes => done += bytes,
        }
    }
    Ok(())
}

impl FileSystem {
    /// Returns the content of file `path`.
    ///
    /// # Errors
    /// The errors of `open(2)` and `read(2)`; [`Error::Resources`] if it does not fit into memory.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open(path)?;
        let (mut content, mut end) = (Vec::new(), 0);
        loop {
            // The file may grow meanwhile.
            let more = file.size().saturating_sub(end as u64);
            let more = usize::try_from(more).unwrap_or(usize::MAX).max(1);
            content
                .try_reserve_exact(more)
                .map_err(|_| Error::Resources(format!("{more} bytes for a file's content")))?;
            content.resize(end + more, 0);
            let read = file.read_at(&mut content[end..], end as u64)?;
            end += read;
            content.truncate(end);
            if read == 0 {
                return Ok(content);
            }
        }
    }

    /// Returns the content of file `path` as text.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read); [`Error::Invalid`] if it is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        String::from_utf8(self.read(path)?)
            .map_err(|_| Error::Invalid("the content of the file is not UTF-8"))
    }

    /// Writes `content` as the content of file `path`. Creates the file if it does not exist, with
    /// mode 644, for user and group 0. The content is not durable before a sync.
    ///
    /// # Errors
    /// The errors of `open(2)` and `write(2)`; the file may then have a part of the content.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        write_all(&self.open_with(path, &ANEW)?, content.as_ref())
    }

    /// Copies the content and permissions of file `from` to `to`, which is created or replaced.
    /// Returns the number of bytes. Holes stay holes.
    ///
    /// # Errors
    /// The errors of `open(2)`, `read(2)` and `write(2)`; `to` may then have a part of the content.
    /// [`Error::Invalid`] if both are one file.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let from = self.open(from)?;
        let metadata = from.metadata();
        match metadata.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Special),
        }
        let mode = metadata.mode & 0o7777;
        // Whether both are one file is checked before the file is truncated.
        let to = self.open_with(to, &OpenOptions { truncate: false, mode, ..ANEW })?;
        if to.node().ino() == from.node().ino() {
            return Err(Error::Invalid("a file cannot be copied to itself"));
        }
        let set = SetMetadata { size: Some(0), mode: Some(mode), ..SetMetadata::default() };
        self.set_metadata(to.node(), &set)?;
        from.copy_range(0, &to, 0, u64::MAX)
    }
}
