//! Where the data comes from.

use std::collections::VecDeque;
use std::io::{self, Read as _};

use meantime_block::{BlockChannel as _, BlockDevice as _, Channel, Device, Request, Ticket};
use meantime_hw::DmaBuf;

use super::{DEPTH, channel, chunk_bytes};
use crate::failure::{Failure, named};
use crate::signal;

/// A device that is read ahead, or standard input.
pub(super) enum Source {
    Pipe(Vec<u8>),
    Device(Box<Ahead>),
}

impl Source {
    /// `None`: standard input.
    pub(super) fn new(device: Option<&Device>) -> Result<Self, Failure> {
        match device {
            None => Ok(Self::Pipe(vec![0; super::CHUNK_BYTES])),
            Some(device) => Ok(Self::Device(Box::new(Ahead::new(device)?))),
        }
    }

    /// The next piece of the data, of any length; `None` at its end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        match self {
            Self::Device(ahead) => ahead.next(),
            Self::Pipe(chunk) => loop {
                match io::stdin().lock().read(chunk) {
                    Ok(0) => return Ok(None),
                    Ok(bytes) => return Ok(Some(&chunk[..bytes])),
                    Err(error)
                        if error.kind() == io::ErrorKind::Interrupted && !signal::stopped() => {}
                    // What has come so far is in order; the caller sees the signal.
                    Err(_) if signal::stopped() => return Ok(Some(&[])),
                    Err(error) => {
                        return Err(Failure::new(format_args!(
                            "cannot read standard input: {error}"
                        )));
                    }
                }
            },
        }
    }
}

/// Reads of a device under way, in order.
pub(super) struct Ahead {
    channel: Channel,
    uri: String,
    reads: VecDeque<Ticket>,
    spare: Vec<DmaBuf>,
    /// What the caller has at present.
    current: Option<DmaBuf>,
    next_lba: u64,
}

impl Ahead {
    fn new(device: &Device) -> Result<Self, Failure> {
        let channel = channel(device)?;
        let uri = device.info().uri.clone();
        let bytes = chunk_bytes(device.info().block_bytes);
        let spare = (0..=DEPTH).map(|_| channel.alloc(bytes)).collect::<Result<_, _>>();
        let spare = spare.map_err(|error| named(&uri, &error))?;
        Ok(Self { channel, uri, reads: VecDeque::new(), spare, current: None, next_lba: 0 })
    }

    fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        self.spare.extend(self.current.take());
        let (blocks, block_bytes) = (self.channel.info().blocks, self.channel.info().block_bytes);
        let chunk_blocks = (chunk_bytes(block_bytes) as u64) / u64::from(block_bytes);
        while self.reads.len() < usize::from(DEPTH)
            && self.next_lba < blocks
            && let Some(mut buf) = self.spare.pop()
        {
            let count = chunk_blocks.min(blocks - self.next_lba);
            buf.set_len((count * u64::from(block_bytes)) as usize);
            let read = self.channel.submit(Request::read(self.next_lba, buf));
            self.reads.push_back(read.map_err(|rejected| named(&self.uri, &rejected.error))?);
            self.next_lba += count;
        }
        let Some(oldest) = self.reads.pop_front() else { return Ok(None) };
        let done = self.channel.wait(oldest);
        done.result.map_err(|error| named(&self.uri, &error))?;
        let Some(buf) = done.buf else {
            // Not the end of the data.
            return Err(Failure::new(format_args!(
                "{}: the device has kept a buffer that it had filled",
                self.uri
            )));
        };
        Ok(Some(self.current.insert(buf)))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // After an error or a signal: these are not asked for.
        for read in self.reads.drain(..) {
            self.channel.detach(read);
        }
    }
}
