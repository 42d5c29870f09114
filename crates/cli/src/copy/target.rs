//! Where the data goes.

use std::collections::VecDeque;
use std::io::{self, Write as _};

use meantime_block::{BlockChannel as _, BlockDevice as _, Channel, Device, Request, Ticket};
use meantime_hw::DmaBuf;

use super::{DEPTH, channel, chunk_bytes};
use crate::failure::{Failure, named};

/// A device that is written behind the caller, or standard output.
pub(super) enum Target {
    Pipe,
    Device(Box<Behind>),
}

impl Target {
    /// `None`: standard output.
    pub(super) fn new(device: Option<&Device>) -> Result<Self, Failure> {
        match device {
            None => Ok(Self::Pipe),
            Some(device) => Ok(Self::Device(Box::new(Behind::new(device)?))),
        }
    }

    /// The next piece of the data, of any length.
    pub(super) fn put(&mut self, data: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Pipe => io::stdout().lock().write_all(data).map_err(|error| pipe_failed(&error)),
            Self::Device(behind) => behind.put(data),
        }
    }

    /// After the last piece: everything is there, and on a device durable.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        match self {
            Self::Pipe => io::stdout().lock().flush().map_err(|error| pipe_failed(&error)),
            Self::Device(behind) => behind.finish(),
        }
    }
}

/// Also if the reader has gone: it has not got everything.
fn pipe_failed(error: &io::Error) -> Failure {
    Failure::new(format_args!("cannot write the data to standard output: {error}"))
}

/// Writes of a device under way, in order.
pub(super) struct Behind {
    channel: Channel,
    uri: String,
    writes: VecDeque<Ticket>,
    spare: Vec<DmaBuf>,
    /// The chunk that is being filled, and how far it is.
    filling: Option<DmaBuf>,
    filled_bytes: usize,
    next_lba: u64,
}

impl Behind {
    fn new(device: &Device) -> Result<Self, Failure> {
        let channel = channel(device)?;
        let uri = device.info().uri.clone();
        let bytes = chunk_bytes(device.info().block_bytes);
        let spare = (0..=DEPTH).map(|_| channel.alloc(bytes)).collect::<Result<_, _>>();
        let spare = spare.map_err(|error| named(&uri, &error))?;
        Ok(Self {
            channel,
            uri,
            writes: VecDeque::new(),
            spare,
            filling: None,
            filled_bytes: 0,
            next_lba: 0,
        })
    }

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
            let block_bytes = self.channel.info().block_bytes as usize;
            let rest_bytes = self.filled_bytes % block_bytes;
            if rest_bytes != 0 {
                return Err(Failure::new(format_args!(
                    "{}: the data ends {rest_bytes} bytes into a block of {block_bytes}: its last part was not written; fill it up \
                     to a whole block",
                    self.uri
                )));
            }
            buf.set_len(self.filled_bytes);
            self.write(buf)?;
        }
        while let Some(oldest) = self.writes.pop_front() {
            self.written(oldest)?;
        }
        self.channel.flush().map_err(|error| named(&self.uri, &error))
    }

    fn write(&mut self, buf: DmaBuf) -> Result<(), Failure> {
        let blocks = buf.len() as u64 / u64::from(self.channel.info().block_bytes);
        let room = self.channel.info().blocks;
        if blocks > room - self.next_lba {
            return Err(Failure::new(format_args!(
                "{}: there is more data than the device has room for, {} bytes: what did not fit was not written",
                self.uri,
                self.channel.info().bytes()
            )));
        }
        let write = self.channel.submit(Request::write(self.next_lba, buf));
        self.writes.push_back(write.map_err(|rejected| named(&self.uri, &rejected.error))?);
        self.next_lba += blocks;
        self.filled_bytes = 0;
        Ok(())
    }

    /// A buffer of a whole chunk, when one is free.
    fn empty_buffer(&mut self) -> Result<DmaBuf, Failure> {
        while self.spare.is_empty() || self.writes.len() == usize::from(DEPTH) {
            let Some(oldest) = self.writes.pop_front() else { break };
            self.written(oldest)?;
        }
        let mut buf = self.spare.pop().ok_or_else(|| {
            Failure::new(format_args!(
                "{}: the device has kept every buffer: open it again",
                self.uri
            ))
        })?;
        buf.set_len(chunk_bytes(self.channel.info().block_bytes));
        Ok(buf)
    }

    fn written(&mut self, write: Ticket) -> Result<(), Failure> {
        let done = self.channel.wait(write);
        self.spare.extend(done.buf);
        done.result.map_err(|error| named(&self.uri, &error))
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        for write in self.writes.drain(..) {
            self.channel.detach(write);
        }
    }
}
