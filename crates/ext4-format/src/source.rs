//! The source of a file system's bytes.

use std::ops::Deref;
use std::sync::Arc;

use crate::{Corruption, Defect, Error};

/// Bytes, and whether they are a whole block whose checksum is known to be right, because it was
/// changed in memory after a check, and sealed.
pub type Checked = (Arc<[u8]>, bool);

/// A source of metadata. Reads are repeatable.
pub trait Source {
    /// Reads `bytes` bytes from byte `offset` of the device.
    ///
    /// # Errors
    /// [`SourceError`] says why the read failed.
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError>;

    /// Reads `bytes` bytes from byte `offset` of the device, which are a part of a table that ends
    /// at byte `end`. A source with a cache may read ahead.
    ///
    /// # Errors
    /// [`SourceError`] says why the read failed.
    fn read_table(&self, offset: u64, bytes: usize, end: u64) -> Result<Arc<[u8]>, SourceError> {
        Ok(self.read_checked(offset, bytes, end)?.0)
    }

    /// Reads as [`read_table`](Self::read_table) does. Also returns what is known of a checksum.
    ///
    /// # Errors
    /// [`SourceError`] says why the read failed.
    fn read_checked(&self, offset: u64, bytes: usize, _end: u64) -> Result<Checked, SourceError> {
        Ok((self.read(offset, bytes)?, false))
    }
}

impl<P: Deref<Target: Source>> Source for P {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        (**self).read(offset, bytes)
    }

    fn read_checked(&self, offset: u64, bytes: usize, end: u64) -> Result<Checked, SourceError> {
        (**self).read_checked(offset, bytes, end)
    }
}

/// The reason why a read failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SourceError {
    /// The bytes are beyond the end of the device.
    #[error("beyond the end of the device")]
    OutOfRange,
    /// The device failed.
    #[error(transparent)]
    Io(IoFailure),
    /// No memory or no queue is available.
    #[error("{0}")]
    Resources(String),
}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Self {
        match error {
            // Every pointer is checked against the file system's size, and that size against the
            // device's.
            SourceError::OutOfRange => Self::Corrupt(Corruption::new(Defect::BlockPointer)),
            error => Self::Source(error),
        }
    }
}

/// A source's own error. This crate knows no device. [`downcast_ref`](Self::downcast_ref) returns
/// the original error of the [`Source`].
#[derive(Debug, Clone)]
pub struct IoFailure(Arc<dyn std::error::Error + Send + Sync>);

impl IoFailure {
    /// Wraps `error`.
    pub fn new(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }

    /// Returns the error, if it is an `E`.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

/// Two failures are equal if they share one error.
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
