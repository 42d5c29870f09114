//! The target of the data.

use std::io::{self, Write as _};

use meantime_block::{BlockChannel as _, Device, Request};
use meantime_hw::DmaBuf;

use super::Stream;
use crate::failure::{Failure, named};

/// A device that is written behind the caller, or standard output.
pub(super) enum Target {
    Pipe,
    Device(Box<Behind>),
}

impl Target {
    /// Opens `device`, or standard output for `None`.
    pub(super) fn new(device: Option<&Device>) -> Result<Self, Failure> {
        match device {
            None => Ok(Self::Pipe),
            Some(device) => {
                let stream = Stream::new(device)?;
                Ok(Self::Device(Box::new(Behind { stream, filling: None, filled_bytes: 0 })))
            }
        }
    }

    /// Writes the next piece of the data, of any length.
    pub(super) fn put(&mut self, data: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Pipe => io::stdout().lock().write_all(data).map_err(|error| pipe_failed(&error)),
            Self::Device(behind) => behind.put(data),
        }
    }

    /// Finishes after the last piece: everything is written, and durable on a device.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        match self {
            Self::Pipe => io::stdout().lock().flush().map_err(|error| pipe_failed(&error)),
            Self::Device(behind) => behind.finish(),
        }
    }
}

/// Returns the error of a pipe, also if the reader closed it before the end.
fn pipe_failed(error: &io::Error) -> Failure {
    Failure::new(format_args!("cannot write the data to standard output: {error}"))
}

/// A device that is written behind the caller.
pub(super) struct Behind {
    stream: Stream,
    /// The chunk that is being filled, and the bytes in it.
    filling: Option<DmaBuf>,
    filled_bytes: usize,
}

impl Behind {
    fn put(&mut self, mut data: &[u8]) -> Result<(), Failure> {
        while !data.is_empty() {
            let mut buf = match self.filling.take() {
                Some(buf) => buf,
                None => self.empty_buffer()?,
            };
            let bytes = data.len().min(buf.len() - self.filled_bytes);
            buf[self.filled_bytes..self.filled_bytes + bytes].copy_from_slice(&data[..bytes]);
            self.filled_bytes += bytes;
            data = &data[bytes..];
            if self.filled_bytes == buf.len() {
                self.write(buf)?;
            } else {
                self.filling = Some(buf);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        if let Some(mut buf) = self.filling.take() {
            let block_bytes = self.stream.channel.info().block_bytes as usize;
            let rest_bytes = self.filled_bytes % block_bytes;
            if rest_bytes != 0 {
                return Err(self.stream.failed(format_args!(
                    "the data ends {rest_bytes} bytes into a block of {block_bytes}: \
                     its last part was not written; fill it up to a whole block"
                )));
            }
            buf.set_len(self.filled_bytes);
            self.write(buf)?;
        }
        while self.stream.wait()?.is_some() {}
        let Stream { channel, uri, .. } = &mut self.stream;
        channel.flush().map_err(|error| named(uri, &error))
    }

    fn write(&mut self, buf: DmaBuf) -> Result<(), Failure> {
        let info = self.stream.channel.info();
        let blocks = buf.len() as u64 / u64::from(info.block_bytes);
        if blocks > self.stream.blocks_left() {
            return Err(self.stream.failed(format_args!(
                "there is more data than the device has room for, {} bytes: \
                 what did not fit was not written",
                info.bytes()
            )));
        }
        self.filled_bytes = 0;
        self.stream.submit(Request::write(self.stream.next_lba, buf), blocks)
    }

    /// Returns a free buffer of a whole chunk.
    fn empty_buffer(&mut self) -> Result<DmaBuf, Failure> {
        let stream = &mut self.stream;
        while (stream.spare.is_empty() || stream.is_full())
            && let Some(buf) = stream.wait()?
        {
            stream.spare.extend(buf);
        }
        let buf = stream.spare.pop();
        let mut buf =
            buf.ok_or_else(|| stream.failed("the device has kept every buffer: open it again"))?;
        buf.set_len(stream.chunk_bytes);
        Ok(buf)
    }
}
