//! Writing files.

pub(crate) mod back;
mod buffered;
mod deleting;
mod direct;
mod fsync;
mod many;
mod resize;
mod sending;
#[cfg(all(test, not(loom)))]
mod tests;

use std::io::Write;

use crate::error::Error;
use crate::file::File;
use crate::options::WriteOptions;

impl File {
    /// Whether its content may be changed by it.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        self.node().mount.writer()?;
        if !self.options.write {
            return Err(Error::Invalid("the file is not open for writing"));
        }
        Ok(())
    }

    /// Writes `data` from byte `offset` on (to the end, if it was opened for appending); how many
    /// bytes: fewer than asked for only if a part of them could be written.
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
    pub fn write_at_with(
        &self,
        data: &[u8],
        offset: u64,
        options: &WriteOptions,
    ) -> Result<usize, Error> {
        self.write_somewhere(data, offset, options).map(|(written, _)| written)
    }

    /// Writes `data` to the end of the file, wherever that is; where it went.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at); a part of it may have been written.
    pub fn append(&self, data: &[u8]) -> Result<u64, Error> {
        let options = WriteOptions { append: true, ..WriteOptions::default() };
        match self.write_somewhere(data, 0, &options)? {
            (written, at) if written == data.len() => Ok(at),
            _ => Err(Error::NoSpace),
        }
    }

    /// How many bytes were written, and where.
    fn write_somewhere(
        &self,
        data: &[u8],
        offset: u64,
        options: &WriteOptions,
    ) -> Result<(usize, u64), Error> {
        self.check_writable()?;
        let node = self.node();
        let writable = node.inode.writable.as_ref().ok_or(Error::ReadOnly)?;
        let how = self.options;
        let direct = options.direct || how.direct;
        let (written, at) = {
            let _writer = writable.write();
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

    /// Nothing is kept back: it is the file system that has it then. ([`sync_all`](Self::sync_all)
    /// makes it durable.)
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
