//! Requests, tickets, and what comes back.

use std::task::Waker;

use meantime_completion::{DeferError, DeferRefusal, Deferred, Policy};
use meantime_hw::{DmaBuf, EventFd, HwError};
use meantime_nvme::Op;

use super::device::BlockInfo;
use super::error::{IoError, IoErrorKind, Rejected, RequestError, SubmitError};
use super::probe::Probe;

/// One block I/O. It may be larger than the device takes at once; it is split beneath.
#[derive(Debug)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// First logical block.
    pub lba: u64,
    /// How many logical blocks; 0 for a flush.
    pub blocks: u64,
    /// The data of a read or write. Belongs to the device until the request is done.
    pub buf: Option<DmaBuf>,
    /// Durable when done (Force Unit Access).
    pub fua: bool,
    /// The way to wait for this request, if not the channel's.
    pub policy: Option<Policy>,
    /// Its I/O priority as `ioprio_set(2)` has it; 0: that of the thread. A kernel's io_uring goes
    /// by it; an NVMe command has none, but for its queue's class.
    pub ioprio: u16,
    /// The caller's own; comes back in [`Done`].
    pub user_data: u64,
}

impl Request {
    #[inline(always)]
    pub(super) fn new(op: Op, lba: u64, blocks: u64, buf: Option<DmaBuf>) -> Self {
        Self { op, lba, blocks, buf, fua: false, policy: None, ioprio: 0, user_data: 0 }
    }

    /// Reads from logical block `lba` on (in [`BlockInfo::block_bytes`](super::BlockInfo), the
    /// first is 0) as much as `buf` holds.
    pub fn read(lba: u64, buf: DmaBuf) -> Self {
        Self::new(Op::Read, lba, 0, Some(buf))
    }

    /// Writes all of `buf` from logical block `lba` on.
    pub fn write(lba: u64, buf: DmaBuf) -> Self {
        Self::new(Op::Write, lba, 0, Some(buf))
    }

    /// Makes everything durable that was done before.
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

    /// Compares the first half of `buf` with what is there from `lba` on, and if it is the same
    /// writes the second half there; nothing else that the device does to these blocks comes
    /// between. If it is not, the request fails with
    /// [`IoErrorKind::Miscompare`](super::IoErrorKind), and nothing is written. The device says how
    /// many blocks can be:
    /// [`BlockInfo::compare_write_blocks`](super::BlockInfo::compare_write_blocks).
    ///
    /// A device that writes although the comparison has failed breaks the specification:
    /// [`IoErrorKind::Unfused`](super::IoErrorKind).
    ///
    /// It is never repeated: after a time-out, a reset or another error only a read tells whether
    /// it was done.
    pub fn compare_and_write(lba: u64, buf: DmaBuf) -> Self {
        Self::new(Op::CompareAndWrite, lba, 0, Some(buf))
    }

    /// Compares all of `buf` with what is there from `lba` on. They differ if it fails with
    /// [`IoErrorKind::Miscompare`](super::IoErrorKind).
    pub fn compare(lba: u64, buf: DmaBuf) -> Self {
        Self::new(Op::Compare, lba, 0, Some(buf))
    }

    /// Has the device read `blocks` logical blocks from `lba` on, and keep them to itself.
    pub fn verify(lba: u64, blocks: u64) -> Self {
        Self::new(Op::Verify, lba, blocks, None)
    }

    /// Has `blocks` logical blocks from `lba` on fail to be read until they are written again.
    pub fn write_uncorrectable(lba: u64, blocks: u64) -> Self {
        Self::new(Op::WriteUncorrectable, lba, blocks, None)
    }

    /// Durable when done.
    pub fn fua(mut self) -> Self {
        self.fua = true;
        self
    }

    /// Waited for by `policy`, whatever the channel's is.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// With the caller's own mark.
    pub fn user_data(mut self, user_data: u64) -> Self {
        self.user_data = user_data;
        self
    }
}

/// A request that is under way. Give it to [`BlockChannel::wait`] or [`BlockChannel::detach`].
///
/// A ticket that is merely dropped is a bug of the caller, and is logged: its slot and buffer stay
/// taken until the channel ends.
#[must_use = "the request's buffer comes back only through `wait`"]
#[derive(Debug)]
pub struct Ticket {
    slot: u16,
    generation: u32,
}

/// For implementers of [`BlockChannel`]. A forged ticket names a slot of no request, or of
/// another one: the channel that made it looks at its generation.
impl Ticket {
    /// A ticket for the request in `slot`; `generation` distinguishes it from earlier ones there.
    pub fn new(slot: u16, generation: u32) -> Self {
        Self { slot, generation }
    }

    /// The slot of its request.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// The slot and its generation; the ticket is fulfilled.
    pub fn redeem(self) -> (u16, u32) {
        let parts = (self.slot, self.generation);
        std::mem::forget(self);
        parts
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        tracing::error!(
            slot = self.slot,
            "a ticket was dropped: neither waited for nor detached; its slot is lost"
        );
    }
}

/// A request that has ended.
#[derive(Debug)]
pub struct Done {
    /// Whether it was done.
    pub result: Result<(), IoError>,
    /// The buffer. `None` if there was none, or if it had to be quarantined because the device is
    /// gone.
    pub buf: Option<DmaBuf>,
    /// From the request.
    pub user_data: u64,
}

/// One thread's way to a device.
///
/// Requests are either *ticketed* ([`submit`](Self::submit), then [`wait`](Self::wait) for that
/// one) or *queued* ([`enqueue`](Self::enqueue), then [`wait_done`](Self::wait_done) for whichever
/// ends first).
pub trait BlockChannel {
    /// What the channel leads to.
    fn info(&self) -> &BlockInfo;

    /// A zeroed buffer that the device can reach. Not for the path of an I/O: recycle buffers
    /// there.
    ///
    /// # Errors
    /// Without memory.
    fn alloc(&self, bytes: usize) -> Result<DmaBuf, HwError>;

    /// Starts `request`; its ticket gives its result.
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

    /// From now on requests are collected, and sent by [`unplug`](Self::unplug) or the next wait.
    fn plug(&mut self);

    /// Sends everything collected, and each further request at once.
    fn unplug(&mut self);

    /// Takes what has completed, without waiting; how many requests ended.
    fn poll(&mut self) -> usize;

    /// Waits for the ticket's request.
    fn wait(&mut self, ticket: Ticket) -> Done;

    /// As [`wait`](Self::wait), and calls `probe` when something happens meanwhile. A channel that
    /// cannot never calls it.
    fn wait_probed<P: Probe>(&mut self, ticket: Ticket, probe: &P) -> Done
    where
        Self: Sized,
    {
        let _ = probe;
        self.wait(ticket)
    }

    /// The result of the ticket's request if it has ended; else the ticket back. Does not look at
    /// the device.
    ///
    /// # Errors
    /// The ticket, while the request is under way.
    fn try_take(&mut self, ticket: Ticket) -> Result<Done, Ticket>;

    /// No caller will ask for this request again: its slot and buffer are free as soon as it ends.
    fn detach(&mut self, ticket: Ticket);

    /// The next queued request that has ended. Does not look at the device.
    fn next_done(&mut self) -> Option<Done>;

    /// Waits for a queued request to end; `None` if none is under way.
    fn wait_done(&mut self) -> Option<Done>;

    /// Waits for a queued request to end, or until `stop` is true; returns at once if none is under
    /// way, or if one waits to be taken by [`next_done`](Self::next_done).
    ///
    /// `stop` is asked now and then, off the fast path: after each sleep of the policy, after each
    /// nap of at most 1 ms, and after each signal of [`event`](Self::event). A thread that
    /// makes it true signals that event afterwards.
    fn wait_until(&mut self, stop: &dyn Fn() -> bool) {
        let mut looks = 0u32;
        while self.poll() == 0 && self.in_flight() > 0 && !stop() {
            looks += 1;
            if looks > 10_000 {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        }
    }

    /// What the device signals when a request whose policy is to be interrupted has ended; `None`
    /// if there is no such thing. Reading it takes the signal: look at the queue after that, not
    /// before. Under `auto`, `ehp` and `dpas` only some of the I/O goes by interrupt, and a policy
    /// can be changed from outside: an event loop looks at the queue now and then in any case.
    fn event(&self) -> Option<EventFd> {
        None
    }

    /// How many requests can be under way.
    fn depth(&self) -> u16;

    /// Requests under way, not yet ended.
    fn in_flight(&self) -> usize;

    /// The way to wait, for requests that name none.
    fn policy(&self) -> Policy;

    /// Changes the way to wait from the next request on.
    ///
    /// # Errors
    /// [`SubmitError::NoInterrupt`] if the channel cannot wait that way.
    fn set_policy(&mut self, policy: Policy) -> Result<(), SubmitError>;

    /// Hands over `work` to be done while this channel waits: before a wait sleeps, blocks or
    /// spins, pieces are run that fit into what is left of the gap before the I/O may be complete,
    /// with a look at the queue after each. Work that has waited for its
    /// [patience](Deferred::patience_ns) is run by the next wait (or [`poll`](Self::poll)) whether
    /// it fits or not, a piece at a time.
    ///
    /// A piece that panics ends its work, not the wait: see [`run_deferred`](Self::run_deferred). A
    /// channel that is dropped runs what is left, for a second at most, once its I/O is over; what
    /// then cannot be done is dropped, and logged as an error.
    ///
    /// While there is such work, and for some I/Os after it, I/O is timed.
    ///
    /// # Errors
    /// [`DeferError`] with the work, if there is too much of it, or if the channel cannot.
    fn defer(&mut self, work: Box<dyn Deferred>) -> Result<(), DeferError> {
        Err(DeferError { why: DeferRefusal::Unsupported, work })
    }

    /// Runs deferred work outside of a gap: pieces are begun until `budget_ns` are used up, so that
    /// it takes one piece more at most. How many were run; `u64::MAX` runs all that can be.
    ///
    /// # Panics
    /// With the first panic of a piece that was not reported yet, also of one that was run in a
    /// wait.
    fn run_deferred(&mut self, budget_ns: u64) -> usize {
        let _ = budget_ns;
        0
    }

    /// How much work is deferred and not done.
    fn deferred(&self) -> usize {
        0
    }

    /// How much time is left, in ns, before a request may be complete, for a caller that has work
    /// of its own for the gap; `None` if that is not known, [`u64::MAX`] if none is under way. Once
    /// asked, I/O is timed for a while, so that it will be known.
    fn gap_left_ns(&mut self) -> Option<u64> {
        if self.in_flight() == 0 { Some(u64::MAX) } else { None }
    }

    /// Sets the waker for when deferred work that could not go on can.
    fn wake_for_deferred(&mut self, waker: Option<Waker>) {
        drop(waker);
    }

    /// Reads into `buf` and waits.
    ///
    /// # Errors
    /// Why it was not taken or not done.
    fn read(&mut self, lba: u64, buf: DmaBuf) -> Result<DmaBuf, RequestError> {
        with_buffer(self, Request::read(lba, buf))
    }

    /// Writes `buf` and waits.
    ///
    /// # Errors
    /// Why it was not taken or not done.
    fn write(&mut self, lba: u64, buf: DmaBuf) -> Result<DmaBuf, RequestError> {
        with_buffer(self, Request::write(lba, buf))
    }

    /// Writes the second half of `buf` from `lba` on if the first half is what is there, and waits;
    /// see [`Request::compare_and_write`]. Gives the buffer back, and whether it was written.
    ///
    /// # Errors
    /// Why it was not taken, or not done; in the latter case it may have been done all the same.
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
    /// Why it was not taken or not done. What was written before is not known to be durable then.
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
