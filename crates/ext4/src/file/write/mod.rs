//! Writes files.
//!
//! ```text
//!   buffered   write_cached, write_page: into the cache, where a page without a block promises one
//!   back       Writeback. begin_batch: takes dirty pages (take_dirty), and places them (allocate_all)
//!   sending    its send_batch: sends them, waits, and finishes (clean pages, written extents)
//!   many       its writeback of many files in one batch
//!   fsync      its fsync, write_and_commit, commit_with: writeback with a commit in its gap
//!   direct     writes past the cache
//!   resize     sizes, preallocation, holes
//!   deleting   deletes inodes: unused ones by the change that takes the last name
//! ```

mod back;
mod buffered;
mod deleting;
mod direct;
mod fsync;
mod many;
mod resize;
mod sending;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use back::Writeback;

use std::io::Write;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::file::File;
use crate::inode::shared::Inode;
use crate::inode::writable::Writable;
use crate::inode::{Mount, Node};
use crate::options::WriteOptions;

impl File {
    /// Checks that this open file may change the content.
    ///
    /// # Errors
    /// Returns the reason if it may not.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.node().mount.for_writing()?;
        if !self.options.write {
            return Err(Error::Invalid("the file is not open for writing"));
        }
        Ok(())
    }

    /// Returns what a change of the file needs.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] on a mount for reading.
    fn to_change(&self) -> Result<(&Mount, &Arc<Inode>, &Writable)> {
        let Node { mount, inode } = self.node();
        Ok((mount, inode, inode.writable.as_ref().ok_or(Error::ReadOnly)?))
    }

    /// Writes `data` from byte `offset` on, or at the end if the file was opened for appending.
    /// Returns the number of bytes, which is smaller than asked for only if no more could be
    /// written.
    ///
    /// # Errors
    /// The errors of `pwrite(2)`.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.write_at_with(data, offset, &WriteOptions::default())
    }

    /// Writes `data` from byte `offset` on, or at the end if it is to be appended, with `options`.
    /// Returns the number of bytes, which is smaller than asked for only if no more could be
    /// written.
    ///
    /// # Errors
    /// The errors of `pwritev2(2)`.
    pub fn write_at_with(&self, data: &[u8], offset: u64, options: &WriteOptions) -> Result<usize> {
        self.write_at_where(data, offset, options).map(|(written, _)| written)
    }

    /// Writes `data` from byte `offset` on, or at the end if it is to be appended, with `options`.
    /// Returns the number of bytes, which is smaller than asked for only if no more could be
    /// written, and the offset at which they begin.
    ///
    /// # Errors
    /// The errors of `pwritev2(2)`.
    pub fn write_at_where(
        &self,
        data: &[u8],
        offset: u64,
        options: &WriteOptions,
    ) -> Result<(usize, u64)> {
        self.write_somewhere(data, offset, options)
    }

    /// Appends `data` to the file. Returns the offset at which they begin.
    ///
    /// # Errors
    /// The errors of [`write_at`](Self::write_at). Part of `data` may have been written.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        let options = WriteOptions { append: true, ..WriteOptions::default() };
        match self.write_somewhere(data, 0, &options)? {
            (written, at) if written == data.len() => Ok(at),
            _ => Err(Error::NoSpace),
        }
    }

    /// Returns how many bytes were written, and at which offset.
    fn write_somewhere(
        &self,
        data: &[u8],
        offset: u64,
        options: &WriteOptions,
    ) -> Result<(usize, u64)> {
        self.check_writable()?;
        let (_, _, writable) = self.to_change()?;
        let how = self.options;
        let direct = options.direct || how.direct;
        let (written, at) = {
            let _content = writable.lock_content();
            let at = if options.append || how.append { self.size() } else { offset };
            let room = self.most_bytes().saturating_sub(at);
            let data = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
            if data.is_empty() {
                return if room == 0 { Err(Error::FileTooBig) } else { Ok((0, at)) };
            }
            let written = if direct {
                self.write_direct(data, at, options.policy)?
            } else {
                self.write_cached(data, at)?
            };
            (written, at)
        };
        if options.sync || how.sync {
            self.sync_all()?;
        } else if options.dsync || how.dsync {
            self.sync_data()?;
        }
        Ok((written, at))
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let (written, at) = self.write_somewhere(data, self.position, &WriteOptions::default())?;
        self.position = at + written as u64;
        Ok(written)
    }

    /// Does nothing, because [`File`] buffers no data. [`sync_all`](Self::sync_all) makes the data
    /// durable.
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
