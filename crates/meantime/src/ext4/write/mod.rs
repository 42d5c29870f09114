//! Writing files.

use std::ops::Range;

use super::error::Error;
use super::file::File;
use super::options::{Allocate, WriteOptions};

const LATER: Error = Error::Invalid("not yet");

impl File {
    /// Writes `data` from byte `offset` on (to the end, if it was opened for appending); how many bytes: fewer than asked for only if a part of
    /// them could be written.
    ///
    /// # Errors
    /// As `pwrite(2)`.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize, Error> {
        self.write_at_with(data, offset, &WriteOptions::default())
    }

    /// As [`write_at`](Self::write_at), as `options` say.
    ///
    /// # Errors
    /// As `pwritev2(2)`.
    pub fn write_at_with(&self, data: &[u8], offset: u64, options: &WriteOptions) -> Result<usize, Error> {
        let _ = (data, offset, options);
        Err(LATER)
    }

    /// Writes `data` to the end of the file, wherever that is; where it went.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at); a part of it may have been written.
    pub fn append(&self, data: &[u8]) -> Result<u64, Error> {
        let _ = data;
        Err(LATER)
    }

    /// Cuts the file off at `bytes`, or has it grow to that by a hole (`ftruncate`).
    ///
    /// # Errors
    /// As `ftruncate(2)`.
    pub fn set_len(&self, bytes: u64) -> Result<(), Error> {
        let _ = bytes;
        Err(LATER)
    }

    /// Sets room aside for `bytes` from `offset` on, or takes it away (`fallocate`).
    ///
    /// # Errors
    /// As `fallocate(2)`.
    pub fn allocate(&self, offset: u64, bytes: u64, how: Allocate) -> Result<(), Error> {
        let _ = (offset, bytes, how);
        Err(LATER)
    }

    /// Makes content and metadata durable (`fsync`).
    ///
    /// # Errors
    /// What could not be written since this file was opened, or last told; once.
    pub fn sync_all(&self) -> Result<(), Error> {
        Err(LATER)
    }

    /// Makes the content durable, and what of the metadata is needed to find it (`fdatasync`).
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> Result<(), Error> {
        Err(LATER)
    }

    /// Writes back what is dirty of `range` (in bytes), and waits for it; no metadata, and no flush of the device's cache: it is not durable after
    /// a power cut (`sync_file_range`).
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_range(&self, range: Range<u64>) -> Result<(), Error> {
        let _ = range;
        Err(LATER)
    }
}
