//! A device in memory that counts its reads.

use std::cell::Cell;
use std::sync::Arc;

use meantime_ext4::format::{Source, SourceError};

/// The most bytes of one read.
const READ_BYTES_MAX: usize = 1 << 20;

/// An image, and the reads of it.
pub struct Memory<'a> {
    image: &'a [u8],
    /// The device's size, which may be less than the image's.
    device_bytes: u64,
    reads: Cell<u64>,
    left: Cell<u64>,
    broken: Cell<Option<&'static str>>,
}

impl<'a> Memory<'a> {
    pub fn new(image: &'a [u8], device_bytes: u64) -> Self {
        Self {
            image,
            device_bytes,
            reads: Cell::new(0),
            left: Cell::new(u64::MAX),
            broken: Cell::new(None),
        }
    }

    pub fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Allows `reads` reads from here on: an operation that needs more loops.
    pub fn allow(&self, reads: u64) {
        self.left.set(reads);
    }

    pub fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// The invalid request, if there was one.
    pub fn broken(&self) -> Option<&'static str> {
        self.broken.get()
    }
}

impl Source for Memory<'_> {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        self.reads.set(self.reads.get() + 1);
        let Some(left) = self.left.get().checked_sub(1) else {
            self.broken.set(Some("reads without end"));
            return Err(SourceError::Resources("too many reads".into()));
        };
        self.left.set(left);
        if bytes > READ_BYTES_MAX {
            self.broken.set(Some("a read without measure"));
            return Err(SourceError::Resources("too long a read".into()));
        }
        if offset.checked_add(bytes as u64).is_none_or(|end| end > self.device_bytes) {
            self.broken.set(Some("a read beyond the device"));
            return Err(SourceError::OutOfRange);
        }
        let start = offset as usize;
        match self.image.get(start..start + bytes) {
            Some(there) => Ok(there.into()),
            // Images are truncated where only zeroes follow.
            None => {
                let mut padded = vec![0; bytes];
                if let Some(there) = self.image.get(start..) {
                    padded[..there.len()].copy_from_slice(there);
                }
                Ok(padded.into())
            }
        }
    }
}
