//! The source of the data.

use std::io::{self, Read as _};

use meantime_block::{BlockChannel as _, Device, Request};
use meantime_hw::DmaBuf;

use super::Stream;
use crate::failure::Failure;
use crate::signal;

/// A device that is read ahead, or standard input.
pub(super) enum Source {
    Pipe(Vec<u8>),
    Device(Box<Ahead>),
}

impl Source {
    /// Opens `device`, or standard input for `None`.
    pub(super) fn new(device: Option<&Device>) -> Result<Self, Failure> {
        match device {
            None => Ok(Self::Pipe(vec![0; super::CHUNK_BYTES])),
            Some(device) => {
                let stream = Stream::new(device)?;
                Ok(Self::Device(Box::new(Ahead { stream, current: None })))
            }
        }
    }

    /// Returns the next piece of the data, of any length; `None` at its end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        match self {
            Self::Device(ahead) => ahead.next(),
            Self::Pipe(chunk) => loop {
                match io::stdin().lock().read(chunk) {
                    Ok(0) => return Ok(None),
                    Ok(bytes) => return Ok(Some(&chunk[..bytes])),
                    Err(error)
                        if error.kind() == io::ErrorKind::Interrupted && !signal::stopped() => {}
                    // The data so far is valid; the caller sees the signal.
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

/// A device that is read ahead.
pub(super) struct Ahead {
    stream: Stream,
    /// The buffer that the caller uses at present.
    current: Option<DmaBuf>,
}

impl Ahead {
    fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        let Self { stream, current } = self;
        stream.spare.extend(current.take());
        let block_bytes = u64::from(stream.channel.info().block_bytes);
        while !stream.is_full()
            && stream.blocks_left() > 0
            && let Some(mut buf) = stream.spare.pop()
        {
            let count = (stream.chunk_bytes as u64 / block_bytes).min(stream.blocks_left());
            buf.set_len((count * block_bytes) as usize);
            stream.submit(Request::read(stream.next_lba, buf), count)?;
        }
        match stream.wait()? {
            None => Ok(None),
            Some(Some(buf)) => Ok(Some(current.insert(buf))),
            // This is not the end of the data.
            Some(None) => Err(stream.failed("the device has kept a buffer that it had filled")),
        }
    }
}
