//! Block devices and their channels: what those of every kind do.

use std::sync::Arc;

use super::bytes;
use super::error::{ChannelError, IoError, IoErrorKind, RequestError, SubmitError};
use super::request::{Done, Rejected, Request, Ticket};
use super::stamps::StampSource;
use meantime_completion::Policy;
use meantime_hw::{DmaBuf, EventFd, HwError};
use meantime_nvme::QueueClass;

/// The properties of a block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockInfo {
    /// The device's name, as it was opened.
    pub uri: String,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Size in logical blocks.
    pub blocks: u64,
    /// The most data per command, in bytes; larger requests are split.
    pub max_transfer_bytes: u32,
    /// The most blocks of a compare-and-write
    /// ([`Request::compare_and_write`](super::Request::compare_and_write)); 0 if the device does
    /// not support it.
    pub compare_write_blocks: u32,
    /// Whether completed writes may be lost by a power cut until they are flushed.
    pub volatile_write_cache: bool,
    /// The underlying medium, in a few words. Figures from different media do not compare software.
    pub medium: String,
}

impl BlockInfo {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }

    /// The logical block that begins at this byte; `None` if none does. The block need not be
    /// on the device.
    pub fn lba_of(&self, offset_bytes: u64) -> Option<u64> {
        let block_bytes = u64::from(self.block_bytes);
        offset_bytes.is_multiple_of(block_bytes).then(|| offset_bytes / block_bytes)
    }
}

/// The options of a channel.
#[derive(Debug, Clone, Copy)]
pub struct ChannelOptions {
    /// The most requests in flight: from 1 to a limit of the device, which [`ChannelError::Depth`]
    /// names.
    pub depth: u16,
    /// The policy of requests that name none. `None`: `adaptive`, which then polls, and times each
    /// I/O, until it has to know what sleeping costs: after some 20 ms of I/O. If the process has
    /// not measured that yet, it does so beside one I/O, which takes some 15 ms longer. To avoid
    /// that, name the policy, e.g. `Some("adaptive".parse()?)`: the measurement is then made when
    /// the channel is.
    pub policy: Option<Policy>,
    /// Whether to create a queue with an interrupt beside the polled one. `None`: if the policy
    /// needs it, or can use it and more than half of the controller's queue pairs and interrupt
    /// vectors are free.
    pub interrupt: Option<bool>,
    /// The class of its queues, if the controller arbitrates by class; `None`: by the calling
    /// thread's I/O priority (`ioprio_set(2)`).
    pub class: Option<QueueClass>,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self { depth: 32, policy: None, interrupt: None, class: None }
    }
}

/// A block device. Each thread makes its own channel to it.
pub trait BlockDevice: Send + Sync {
    /// A thread's channel to the device.
    type Channel: BlockChannel;

    /// The device's properties.
    fn info(&self) -> &BlockInfo;

    /// Checks that its I/O can be waited for by `policy`.
    ///
    /// # Errors
    /// [`ChannelError::Policy`], with the reason.
    fn can_wait(&self, policy: Policy) -> Result<(), ChannelError>;

    /// Makes a channel for the calling thread.
    ///
    /// # Errors
    /// No queue or vector left, no memory, device gone, or an unsupported policy.
    fn channel(&self, options: &ChannelOptions) -> Result<Self::Channel, ChannelError>;

    /// The device's own time stamps, if it takes any ([`OpenOptions::stamps`](super::OpenOptions)).
    fn stamps(&self) -> Option<Arc<dyn StampSource>> {
        None
    }
}

/// One thread's access to a device.
///
/// Requests are either *ticketed* ([`submit`](Self::submit), then [`wait`](Self::wait) for that
/// request) or *queued* ([`enqueue`](Self::enqueue), then [`wait_done`](Self::wait_done) for
/// whichever ends first).
pub trait BlockChannel {
    /// The device's properties.
    fn info(&self) -> &BlockInfo;

    /// Allocates a zeroed buffer that the device can reach. Not for the fast path: recycle buffers
    /// there.
    ///
    /// # Errors
    /// If there is no memory.
    fn alloc(&self, bytes: usize) -> Result<DmaBuf, HwError>;

    /// Starts `request`, as [`enqueue`](Self::enqueue) does. Its ticket redeems the result.
    ///
    /// # Errors
    /// [`Rejected`], with the request.
    #[allow(clippy::result_large_err)] // The buffer has to go back, and the path must not allocate.
    fn submit(&mut self, request: Request) -> Result<Ticket, Rejected>;

    /// Starts `request`: sends it at once, or collects it after [`plug`](Self::plug). Its result
    /// comes from [`wait_done`](Self::wait_done) or [`next_done`](Self::next_done).
    ///
    /// # Errors
    /// [`Rejected`], with the request.
    #[allow(clippy::result_large_err)]
    fn enqueue(&mut self, request: Request) -> Result<(), Rejected>;

    /// Collects requests from now on, until [`unplug`](Self::unplug) or the next wait sends them.
    fn plug(&mut self);

    /// Sends all collected requests, and each further request at once.
    fn unplug(&mut self);

    /// Reaps completions, without waiting. Returns the number of ended requests.
    fn poll(&mut self) -> usize;

    /// Waits for the ticket's request.
    ///
    /// # Panics
    /// If the ticket is of another channel.
    fn wait(&mut self, ticket: Ticket) -> Done;

    /// The result of the ticket's request if it has ended; else the ticket. Does not look at the
    /// device.
    ///
    /// # Errors
    /// The ticket, while the request is in flight.
    ///
    /// # Panics
    /// If the ticket is of another channel.
    fn try_take(&mut self, ticket: Ticket) -> Result<Done, Ticket>;

    /// Drops the result of this request when it ends: its slot and buffer are free then.
    ///
    /// # Panics
    /// If the ticket is of another channel.
    fn detach(&mut self, ticket: Ticket);

    /// The next ended queued request. Does not look at the device.
    fn next_done(&mut self) -> Option<Done>;

    /// Waits for a queued request to end; `None` if none is in flight.
    fn wait_done(&mut self) -> Option<Done>;

    /// Waits for a queued request to end, or until `stop` is true. Returns at once if none is in
    /// flight, or if one can be taken by [`next_done`](Self::next_done).
    ///
    /// `stop` is called off the fast path: after each sleep of the policy, after each nap of at
    /// most 1 ms, and after each signal of [`event`](Self::event). A thread that makes it true
    /// signals that event afterwards.
    fn wait_until(&mut self, stop: &dyn Fn() -> bool) {
        let mut looks = 0u32;
        while self.poll() == 0 && self.in_flight() > 0 && !stop() {
            looks += 1;
            if looks > 10_000 {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        }
    }

    /// The event that the device signals when a request with an interrupt has ended; `None` if
    /// there is none. Reading it takes the signal: look at the queue after that, not before. Under
    /// `adaptive`, and under the published rules `ehp` and `dpas` (docs/policies.md), only some of
    /// the I/O uses the interrupt, and a policy can be changed from outside: an event loop has to
    /// look at the queue periodically in any case.
    fn event(&self) -> Option<EventFd> {
        None
    }

    /// The most requests in flight.
    fn depth(&self) -> u16;

    /// Number of requests in flight.
    fn in_flight(&self) -> usize;

    /// The policy of requests that name none.
    fn policy(&self) -> Policy;

    /// Changes the channel's policy from the next request on.
    ///
    /// # Errors
    /// [`SubmitError::NoInterrupt`] if the channel does not support it.
    fn set_policy(&mut self, policy: Policy) -> Result<(), SubmitError>;

    /// The time left before a request is likely to end, in ns, for a caller with its own work for
    /// the gap; [`u64::MAX`] if none is in flight. It is a low quantile of what such I/Os took:
    /// about one in twenty ends sooner.
    ///
    /// `None` if it is unknown, as at the first calls: it takes some I/Os of the same kind, size
    /// and depth. From the first call on, I/O is timed, until 64 I/Os have ended without a call.
    /// While it is unknown, the wait after a call polls, whatever the policy.
    fn gap_left_ns(&mut self) -> Option<u64> {
        if self.in_flight() == 0 { Some(u64::MAX) } else { None }
    }

    /// Reads the device's bytes from `offset` on into all of `data`, at any alignment, and waits.
    ///
    /// The bytes are copied from a buffer that the call allocates. [`read`](Self::read) copies
    /// nothing.
    ///
    /// # Errors
    /// If the range reaches beyond the device's end, or a request was refused or failed. `data` may
    /// have been filled in part.
    fn read_at(&mut self, data: &mut [u8], offset: u64) -> Result<(), RequestError> {
        bytes::read_at(self, data, offset)
    }

    /// Writes all of `data` from the byte `offset` on, and waits. A [`flush`](Self::flush) makes it
    /// durable.
    ///
    /// The bytes are copied to a buffer that the call allocates. [`write`](Self::write) copies
    /// nothing.
    ///
    /// # Errors
    /// If `offset` or the length is no multiple of the device's block size
    /// ([`SubmitError::Unaligned`]): bytes beside them would have to be read and written back, and
    /// what another thread writes there meanwhile would be lost. If the range reaches beyond the
    /// device's end, or a request was refused or failed; `data` may have been written in part.
    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<(), RequestError> {
        bytes::write_at(self, data, offset)
    }

    /// Reads into `buf` and waits. Returns the buffer.
    ///
    /// # Errors
    /// If the request was refused or failed. The buffer is dropped then; [`submit`](Self::submit)
    /// and [`wait`](Self::wait) return it.
    fn read(&mut self, lba: u64, buf: DmaBuf) -> Result<DmaBuf, RequestError> {
        with_buffer(self, Request::read(lba, buf))
    }

    /// Writes `buf` and waits. Returns the buffer.
    ///
    /// # Errors
    /// If the request was refused or failed. The buffer is dropped then; [`submit`](Self::submit)
    /// and [`wait`](Self::wait) return it.
    fn write(&mut self, lba: u64, buf: DmaBuf) -> Result<DmaBuf, RequestError> {
        with_buffer(self, Request::write(lba, buf))
    }

    /// Writes the second half of `buf` from `lba` on if the first half equals the data there, and
    /// waits; see [`Request::compare_and_write`]. Returns the buffer, and whether it was written.
    ///
    /// # Errors
    /// If the request was refused or failed; a failed one may still have been executed. The buffer
    /// is dropped then.
    fn compare_and_write(&mut self, lba: u64, buf: DmaBuf) -> Result<(DmaBuf, bool), RequestError> {
        let ticket =
            self.submit(Request::compare_and_write(lba, buf)).map_err(|rejected| rejected.error)?;
        let done = self.wait(ticket);
        let written = match done.result {
            Ok(()) => true,
            Err(IoError { kind: IoErrorKind::Miscompare, .. }) => false,
            Err(error) => return Err(error.into()),
        };
        Ok((done.buf.ok_or(RequestError::Quarantined)?, written))
    }

    /// Flushes and waits.
    ///
    /// # Errors
    /// If the request was refused or failed. Earlier writes are then not known to be durable.
    fn flush(&mut self) -> Result<(), RequestError> {
        let ticket = self.submit(Request::flush()).map_err(|rejected| rejected.error)?;
        Ok(self.wait(ticket).result?)
    }
}

fn with_buffer<C: BlockChannel + ?Sized>(
    channel: &mut C,
    request: Request,
) -> Result<DmaBuf, RequestError> {
    let ticket = channel.submit(request).map_err(|rejected| rejected.error)?;
    channel.wait(ticket).into_buf()
}
