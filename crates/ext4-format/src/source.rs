//! Where the bytes of a file system come from.

use std::ops::Deref;
use std::sync::Arc;

use crate::{Corruption, Defect, Error};

/// Where metadata come from. The same bytes can be read again: after [`SourceError::NotHere`] the
/// caller repeats the operation later.
pub trait Source {
    /// The `bytes` bytes from byte `offset` of the device on.
    ///
    /// # Errors
    /// [`SourceError`].
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError>;

    /// The same for a part of a table, which goes on up to byte `end` of the device: a source with
    /// a cache may read ahead.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_table(&self, offset: u64, bytes: usize, _end: u64) -> Result<Arc<[u8]>, SourceError> {
        self.read(offset, bytes)
    }

    /// The same for a whole block, and whether it is right as far as its own checksum goes: it was
    /// changed in memory, by who had checked it before and gave it its checksum.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_checked(
        &self,
        offset: u64,
        bytes: usize,
        end: u64,
    ) -> Result<(Arc<[u8]>, bool), SourceError> {
        Ok((self.read_table(offset, bytes, end)?, false))
    }
}

impl<P: Deref<Target: Source>> Source for P {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        (**self).read(offset, bytes)
    }

    fn read_table(&self, offset: u64, bytes: usize, end: u64) -> Result<Arc<[u8]>, SourceError> {
        (**self).read_table(offset, bytes, end)
    }

    fn read_checked(
        &self,
        offset: u64,
        bytes: usize,
        end: u64,
    ) -> Result<(Arc<[u8]>, bool), SourceError> {
        (**self).read_checked(offset, bytes, end)
    }
}

/// Why there are no bytes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SourceError {
    /// Not in memory, and the caller does not wait: they are being fetched, and the operation has
    /// to be repeated.
    #[error("not in memory")]
    NotHere,
    /// Beyond the end of the device.
    #[error("beyond the end of the device")]
    OutOfRange,
    /// The device failed.
    #[error(transparent)]
    Io(IoFailure),
    /// No memory or queue.
    #[error("{0}")]
    Resources(String),
}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Self {
        match error {
            // Every pointer is checked against the file system, and that against the device.
            SourceError::OutOfRange => Self::Corrupt(Corruption::new(Defect::BlockPointer)),
            error => Self::Source(error),
        }
    }
}

/// A source's own error. This crate knows no device: [`downcast_ref`](Self::downcast_ref) returns
/// the error that the [`Source`] gave.
#[derive(Debug, Clone)]
pub struct IoFailure(Arc<dyn std::error::Error + Send + Sync>);

impl IoFailure {
    /// Of `error`.
    pub fn new(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }

    /// The error, if it is an `E`.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

/// Two failures are equal if they are one.
impl PartialEq for IoFailure {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Display for IoFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for IoFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
