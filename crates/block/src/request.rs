//! Requests, tickets and results.

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

use meantime_completion::waiter::Rest;
use meantime_completion::{Away, Policy};
use meantime_hw::{DmaBuf, EventFd, HwError};
use meantime_nvme::Op;

use super::device::BlockInfo;
use super::error::{IoError, IoErrorKind, Rejected, RequestError, SubmitError};
use super::probe::Probe;

/// One block I/O. If it is larger than the device's limit, it is split.
#[derive(Debug)]
pub struct Request {
    /// The operation.
    pub op: Op,
    /// First logical block.
    pub lba: u64,
    /// Number of logical blocks; 0 for a flush.
    pub blocks: u64,
    /// The data of a read or write. Belongs to the device until the request is done.
    pub buf: Option<DmaBuf>,
    /// Force Unit Access: durable at its completion.
    pub fua: bool,
    /// The policy of this request, if not the channel's.
    pub policy: Option<Policy>,
    /// Its I/O priority as in `ioprio_set(2)`; 0: the thread's. The kernel's io_uring uses it; an
    /// NVMe command has none, apart from its queue's class.
    pub ioprio: u16,
    /// The caller's value, returned in [`Done`].
    pub user_data: u64,
}

impl Request {
    #[inline(always)]
    pub(super) fn new(op: Op, lba: u64, blocks: u64, buf: Option<DmaBuf>) -> Self {
        Self { op, lba, blocks, buf, fua: false, policy: None, ioprio: 0, user_data: 0 }
    }

    /// Reads from logical block `lba` on (in [`BlockInfo::block_bytes`](super::BlockInfo), the
    /// first is 0) to fill `buf`.
    pub fn read(lba: u64, buf: DmaBuf) -> Self {
        Self::new(Op::Read, lba, 0, Some(buf))
    }

    /// Writes all of `buf` from logical block `lba` on.
    pub fn write(lba: u64, buf: DmaBuf) -> Self {
        Self::new(Op::Write, lba, 0, Some(buf))
    }

    /// Makes all completed writes durable.
    pub fn flush() -> Self {
        Self::new(Op::Flush, 0, 0, None)
    }

    /// Writes zeroes to `blocks` logical blocks from `lba` on.
    pub fn write_zeroes(lba: u64, blocks: u64) -> Self {
        Self::new(Op::WriteZeroes, lba, blocks, None)
    }

    /// Tells the device that `blocks` logical blocks from `lba` on are no longer needed.
    pub fn deallocate(lba: u64, blocks: u64) -> Self {
        Self::new(Op::Deallocate, lba, blocks, None)
    }

    /// Compares the first half of `buf` with the data from `lba` on, and if they are equal writes
    /// the second half there, atomically with respect to other commands on these blocks. If they
    /// differ, the request fails with [`IoErrorKind::Miscompare`](super::IoErrorKind), and nothing
    /// is written. The device limits the number of blocks:
    /// [`BlockInfo::compare_write_blocks`](super::BlockInfo::compare_write_blocks).
    ///
    /// A device that writes although the comparison failed violates the specification:
    /// [`IoErrorKind::Unfused`](super::IoErrorKind).
    ///
    /// It is never repeated: after a time-out, a reset or another error only a read shows whether
    /// it was done.
    pub fn compare_and_write(lba: u64, buf: DmaBuf) -> Self {
        Self::new(Op::CompareAndWrite, lba, 0, Some(buf))
    }

    /// Compares all of `buf` with the data from `lba` on. Fails with
    /// [`IoErrorKind::Miscompare`](super::IoErrorKind) if they differ.
    pub fn compare(lba: u64, buf: DmaBuf) -> Self {
        Self::new(Op::Compare, lba, 0, Some(buf))
    }

    /// Makes the device read `blocks` logical blocks from `lba` on without transferring them.
    pub fn verify(lba: u64, blocks: u64) -> Self {
        Self::new(Op::Verify, lba, blocks, None)
    }

    /// Makes reads of `blocks` logical blocks from `lba` on fail until they are written again.
    pub fn write_uncorrectable(lba: u64, blocks: u64) -> Self {
        Self::new(Op::WriteUncorrectable, lba, blocks, None)
    }

    /// Makes it durable at its completion.
    pub fn fua(mut self) -> Self {
        self.fua = true;
        self
    }

    /// Sets the policy of this request, instead of the channel's.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Sets the caller's value.
    pub fn user_data(mut self, user_data: u64) -> Self {
        self.user_data = user_data;
        self
    }
}

/// A request in flight. Give it to [`BlockChannel::wait`] or [`BlockChannel::detach`].
///
/// A ticket that is merely dropped is logged: its slot and buffer stay in use until the channel has
/// no other slot for a request. It then waits for the dropped ticket's, and drops the result.
#[must_use = "the request's buffer comes back only through `wait`"]
#[derive(Debug)]
pub struct Ticket {
    slot: u16,
    generation: u32,
}

/// For implementers of [`BlockChannel`]. A forged ticket names an empty slot or another request's:
/// the channel checks its generation.
impl Ticket {
    /// A ticket for the request in `slot`; `generation` distinguishes it from earlier ones there.
    pub fn new(slot: u16, generation: u32) -> Self {
        Self { slot, generation }
    }

    /// The slot of its request.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// The slot and its generation; consumes the ticket.
    pub fn redeem(self) -> (u16, u32) {
        let parts = (self.slot, self.generation);
        std::mem::forget(self);
        parts
    }
}

/// Slot and generation of dropped tickets, until their channels need the slots, or end.
static DROPPED: Mutex<Vec<(u16, u32)>> = Mutex::new(Vec::new());

/// The most dropped tickets that are remembered.
const DROPPED_MAX: usize = 1 << 16;

impl Drop for Ticket {
    fn drop(&mut self) {
        tracing::warn!(slot = self.slot, "a ticket was dropped: neither waited for nor detached");
        let mut dropped = DROPPED.lock().unwrap_or_else(PoisonError::into_inner);
        // Tickets that outlive their channel stay in the list.
        if dropped.len() < DROPPED_MAX {
            dropped.push((self.slot, self.generation));
        }
    }
}

/// A dropped ticket for which `is_own` holds.
pub(crate) fn take_dropped(is_own: impl Fn(u16, u32) -> bool) -> Option<Ticket> {
    let mut dropped = DROPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let at = dropped.iter().position(|&(slot, generation)| is_own(slot, generation))?;
    let (slot, generation) = dropped.swap_remove(at);
    Some(Ticket::new(slot, generation))
}

/// A request that has ended.
#[derive(Debug)]
pub struct Done {
    /// Whether it succeeded.
    pub result: Result<(), IoError>,
    /// The buffer. `None` if the request had none, or if it was quarantined because the device is
    /// gone.
    pub buf: Option<DmaBuf>,
    /// The request's value.
    pub user_data: u64,
}

/// One thread's access to a device.
///
/// Requests are either *ticketed* ([`submit`](Self::submit), then [`wait`](Self::wait) for that
/// request) or *queued* ([`enqueue`](Self::enqueue), then [`wait_done`](Self::wait_done) for
/// whichever ends first).
pub trait BlockChannel {
    /// The device's properties.
    fn info(&self) -> &BlockInfo;

    /// Allocates a zeroed buffer that the device can reach. Not for the hot path: recycle buffers
    /// there.
    ///
    /// # Errors
    /// If there is no memory.
    fn alloc(&self, bytes: usize) -> Result<DmaBuf, HwError>;

    /// Starts `request`. Its ticket redeems the result.
    ///
    /// # Errors
    /// [`Rejected`], with the request.
    #[allow(clippy::result_large_err)] // The buffer has to go back, and the path must not allocate.
    fn submit(&mut self, request: Request) -> Result<Ticket, Rejected>;

    /// Starts `request`; its result comes from [`wait_done`](Self::wait_done) or
    /// [`next_done`](Self::next_done).
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
    fn wait(&mut self, ticket: Ticket) -> Done;

    /// As [`wait`](Self::wait), and calls `probe` on events of the wait. A channel without support
    /// never calls it.
    fn wait_probed<P: Probe>(&mut self, ticket: Ticket, probe: &P) -> Done
    where
        Self: Sized,
    {
        let _ = probe;
        self.wait(ticket)
    }

    /// The result of the ticket's request if it has ended; else the ticket. Does not look at the
    /// device.
    ///
    /// # Errors
    /// The ticket, while the request is in flight.
    fn try_take(&mut self, ticket: Ticket) -> Result<Done, Ticket>;

    /// Drops the result of this request when it ends: its slot and buffer are free then.
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
    /// `auto`, `adaptive`, `ehp` and `dpas` only some of the I/O uses the interrupt, and a policy
    /// can be changed from outside: an event loop has to look at the queue periodically in any case.
    fn event(&self) -> Option<EventFd> {
        None
    }

    /// As [`poll`](Self::poll), for a thread that waits on several channels, as a
    /// [`PollGroup`](super::PollGroup) does. Need not check deadlines. `away`: what the thread did
    /// just before, if not looking.
    fn look(&mut self, away: Option<Away>) -> usize {
        let _ = away;
        self.poll()
    }

    /// After looks in vain, for the same thread: checks deadlines, and returns until when no look
    /// is needed.
    fn rest(&mut self) -> Rest {
        if self.in_flight() > 0 { Rest::NONE } else { Rest::FOREVER }
    }

    /// What becomes readable when a request may have ended while the thread rests.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
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

    /// The time left before a request may be complete, in ns, for a caller with its own work for
    /// the gap; `None` if unknown, [`u64::MAX`] if none is in flight. After a call, I/O is timed
    /// for a while, so that it becomes known.
    fn gap_left_ns(&mut self) -> Option<u64> {
        if self.in_flight() == 0 { Some(u64::MAX) } else { None }
    }

    /// Reads into `buf` and waits. Returns the buffer.
    ///
    /// # Errors
    /// If the request was refused or failed.
    fn read(&mut self, lba: u64, buf: DmaBuf) -> Result<DmaBuf, RequestError> {
        with_buffer(self, Request::read(lba, buf))
    }

    /// Writes `buf` and waits. Returns the buffer.
    ///
    /// # Errors
    /// If the request was refused or failed.
    fn write(&mut self, lba: u64, buf: DmaBuf) -> Result<DmaBuf, RequestError> {
        with_buffer(self, Request::write(lba, buf))
    }

    /// Writes the second half of `buf` from `lba` on if the first half equals the data there, and
    /// waits; see [`Request::compare_and_write`]. Returns the buffer, and whether it was written.
    ///
    /// # Errors
    /// If the request was refused or failed; a failed one may still have been executed.
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
    let done = channel.wait(ticket);
    done.result?;
    done.buf.ok_or(RequestError::Quarantined)
}
