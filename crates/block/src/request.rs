//! Requests, tickets and results.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::error::{IoError, RequestError, SubmitError};
use meantime_completion::Policy;
use meantime_hw::DmaBuf;
use meantime_nvme::Op;

/// One block I/O. If it is larger than the device's limit, it is split.
#[derive(Debug)]
pub struct Request {
    /// The operation.
    pub op: Op,
    /// First logical block.
    pub lba: u64,
    /// Number of logical blocks of an operation without a buffer; 0 for a flush. Ignored where
    /// there is a buffer: its length counts.
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
/// A ticket may be dropped, for example by a `?` before the wait. The request goes on, and its
/// result is dropped when it has ended. The channel then gives the slot to another request and the
/// buffer back to its heap: when it polls, checks deadlines or needs the slot.
///
/// [`BlockChannel::wait`]: super::BlockChannel::wait
/// [`BlockChannel::detach`]: super::BlockChannel::detach
#[must_use = "the request's result and buffer come back only through `wait`"]
#[derive(Debug)]
pub struct Ticket {
    slot: u16,
    generation: u32,
}

/// For implementers of [`BlockChannel`](super::BlockChannel). A forged ticket names an empty slot
/// or another request's: the channel checks its generation.
impl Ticket {
    /// A ticket for the request in `slot`; `generation` distinguishes it from earlier ones there.
    pub fn new(slot: u16, generation: u32) -> Self {
        Self { slot, generation }
    }

    /// The generation at which the slots of a new channel begin. It is far from those of other
    /// channels, so that no ticket is valid for two of them.
    pub fn first_generation() -> u32 {
        static CHANNELS: AtomicU32 = AtomicU32::new(1);
        CHANNELS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9)
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

    /// A ticket that was dropped, and for whose slot and generation `is_own` holds. A channel asks
    /// for its own when it polls, checks deadlines or has no free slot, and when it ends.
    pub fn take_dropped(is_own: impl Fn(u16, u32) -> bool) -> Option<Self> {
        let mut dropped = DROPPED.lock().unwrap_or_else(PoisonError::into_inner);
        let at = dropped.iter().position(|&(slot, generation)| is_own(slot, generation))?;
        let (slot, generation) = dropped.swap_remove(at);
        Some(Self::new(slot, generation))
    }

    /// How many tickets were dropped so far, of any channel. While this stays, a channel need not
    /// [look for its own](Self::take_dropped), which takes a lock.
    #[inline]
    pub fn drops() -> usize {
        DROPS.load(Ordering::Relaxed)
    }
}

/// Slot and generation of dropped tickets, until their channels take them, or end.
static DROPPED: Mutex<Vec<(u16, u32)>> = Mutex::new(Vec::new());

/// See [`Ticket::drops`]. A thread that reads an old value looks at its next check.
static DROPS: AtomicUsize = AtomicUsize::new(0);

/// The most dropped tickets that are remembered.
const DROPPED_MAX: usize = 1 << 16;

impl Drop for Ticket {
    fn drop(&mut self) {
        tracing::debug!(slot = self.slot, "a ticket was dropped: neither waited for nor detached");
        let mut dropped = DROPPED.lock().unwrap_or_else(PoisonError::into_inner);
        // Tickets that outlive their channel stay in the list.
        if dropped.len() < DROPPED_MAX {
            dropped.push((self.slot, self.generation));
            DROPS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A refused request, returned whole.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Rejected {
    /// The reason.
    pub error: SubmitError,
    /// The request, with its buffer.
    pub request: Request,
}

/// A request that has ended. [`into_buf`](Self::into_buf) is for requests with a buffer.
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

impl Done {
    /// The buffer of a request that succeeded.
    ///
    /// # Errors
    /// [`RequestError::Failed`], which drops the buffer; [`RequestError::Quarantined`] if there is
    /// none.
    #[inline]
    pub fn into_buf(self) -> Result<DmaBuf, RequestError> {
        self.result?;
        self.buf.ok_or(RequestError::Quarantined)
    }
}
