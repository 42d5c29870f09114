//! Where bytes come from, and the bounds of reads.

/// Reads bytes of a disk, or of one partition.
pub trait ReadAt {
    /// Why a read failed.
    type Error;

    /// Reads all of `data`, from the byte `offset` on. Neither needs to be a multiple of a block.
    ///
    /// # Errors
    /// Fails if the disk cannot be read there.
    fn read_at(&mut self, data: &mut [u8], offset: u64) -> Result<(), Self::Error>;
}

impl<F, E> ReadAt for F
where
    F: FnMut(&mut [u8], u64) -> Result<(), E>,
{
    type Error = E;

    fn read_at(&mut self, data: &mut [u8], offset: u64) -> Result<(), E> {
        self(data, offset)
    }
}

/// The size of a disk or of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The size of a logical block, in bytes.
    pub block_bytes: u32,
    /// The number of logical blocks.
    pub blocks: u64,
}

impl Size {
    /// Returns the size in bytes, or the largest number if there are more.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_bytes))
    }
}

/// A disk whose reads stay within its size.
pub(crate) struct Disk<'r, R> {
    reader: &'r mut R,
    pub(crate) size: Size,
}

impl<'r, R: ReadAt> Disk<'r, R> {
    pub(crate) fn new(reader: &'r mut R, size: Size) -> Self {
        Self { reader, size }
    }

    /// Reads `len` bytes from the byte `offset` on, or nothing if the disk ends before.
    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Result<Option<Vec<u8>>, R::Error> {
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > self.size.bytes()) {
            return Ok(None);
        }
        let mut data = vec![0; len];
        self.reader.read_at(&mut data, offset)?;
        Ok(Some(data))
    }

    /// Reads `len` bytes from the beginning of block `lba` on, or nothing if the disk ends before.
    pub(crate) fn read_block(&mut self, lba: u64, len: usize) -> Result<Option<Vec<u8>>, R::Error> {
        match lba.checked_mul(u64::from(self.size.block_bytes)) {
            Some(offset) => self.read(offset, len),
            None => Ok(None),
        }
    }
}
