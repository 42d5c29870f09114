//! The requests of a channel that are with the kernel.

use super::super::error::IoErrorKind;
use super::super::request_table::RequestTable;
use meantime_hw::DmaBuf;
use meantime_hw::dma::Iova;
use meantime_hw::uring::{UringIo, UringOp};
use meantime_nvme::CommandError;
use meantime_nvme_spec::status::Status;

/// How often an I/O is resent for which the kernel lacked resources.
const RETRIES: u8 = 100;

/// The number of deadline sweeps within the time that a request may take.
pub(super) const SWEEPS: u8 = 8;

/// The kernel's part of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Submission {
    /// Distinguishes this use of the slot from earlier ones.
    sequence: u32,
    pub(super) io: UringIo,
    /// Bytes transferred so far.
    done_bytes: u64,
    /// Whether it is on the polled ring.
    pub(super) polled: bool,
    /// Whether the kernel has it.
    under_way: bool,
    retries: u8,
    /// Whether a flush has to follow.
    flushes: bool,
    /// Number of deadline sweeps since it was sent.
    age: u8,
}

/// The slots of a channel.
pub(super) struct KernelRequests {
    pub(super) table: RequestTable,
    submissions: Box<[Submission]>,
    /// Requests that the kernel executed partly, or not for now; they are to be resent.
    pub(super) again: Vec<u16>,
    /// Buffers of given-up requests, by tag, until the kernel is done with them.
    orphans: Vec<(u64, Option<DmaBuf>)>,
    /// The most data of one NVMe command, if the kernel takes such commands; otherwise it takes any
    /// amount.
    command_bytes: Option<u64>,
}

impl KernelRequests {
    /// `command_bytes` says that the kernel takes NVMe commands, of at most this much data.
    pub(super) fn new(depth: u16, command_bytes: Option<u64>) -> Self {
        Self {
            table: RequestTable::new(depth),
            submissions: vec![Submission::default(); usize::from(depth)].into(),
            again: Vec::with_capacity(usize::from(depth)),
            orphans: Vec::with_capacity(2 * usize::from(depth)),
            command_bytes,
        }
    }

    /// Number of given-up requests that the kernel still has.
    pub(super) fn orphans(&self) -> usize {
        self.orphans.len()
    }

    /// Assigns `io` to the request in `slot`, and returns it, or its first part, with its tag.
    /// `flushes` says that a flush makes it durable before it ends.
    pub(super) fn begin(&mut self, slot: u16, io: UringIo, polled: bool, flushes: bool) -> UringIo {
        let submission = &mut self.submissions[usize::from(slot)];
        let sequence = submission.sequence.wrapping_add(1);
        let io = UringIo { tag: u64::from(slot) | u64::from(sequence) << 16, ..io };
        *submission =
            Submission { sequence, io, polled, under_way: true, flushes, ..Submission::default() };
        self.rest(slot)
    }

    /// Takes the mark that a flush has to follow the request in `slot`.
    pub(super) fn takes_flush(&mut self, slot: u16) -> bool {
        std::mem::take(&mut self.submissions[usize::from(slot)].flushes)
    }

    pub(super) fn submission(&self, slot: u16) -> &Submission {
        &self.submissions[usize::from(slot)]
    }

    /// The rest of the I/O of `slot`, or as much of it as the kernel takes.
    pub(super) fn rest(&mut self, slot: u16) -> UringIo {
        let Submission { io, done_bytes, .. } = *self.submission(slot);
        let bytes = self.next_bytes(self.submission(slot));
        // The kernel is done with the former vectors.
        let vectors =
            self.table.get_mut(slot).buf_mut().and_then(|buf| buf.vectors(done_bytes, bytes));
        UringIo {
            offset_bytes: io.offset_bytes + done_bytes,
            bytes,
            data: Iova(io.data.0 + done_bytes),
            vectors,
            ..io
        }
    }

    /// The number of bytes of a request that the kernel gets next, or has.
    fn next_bytes(&self, submission: &Submission) -> u64 {
        (submission.io.bytes - submission.done_bytes).min(self.command_bytes.unwrap_or(u64::MAX))
    }

    /// Handles the kernel's answer to `tag`.
    pub(super) fn ended(&mut self, tag: u64, result: i32) {
        let slot = tag as u16;
        let known =
            self.submissions.get(usize::from(slot)).is_some_and(|f| f.under_way && f.io.tag == tag);
        if !known {
            // This answers a given-up request, whose buffer is free now.
            self.orphans.retain(|(orphan, _)| *orphan != tag);
            return;
        }
        // The kernel answers a command with its status, and a command has no parts.
        let command_bytes = self.command_bytes.map(|_| self.next_bytes(self.submission(slot)));
        let submission = &mut self.submissions[usize::from(slot)];
        let has_data = matches!(submission.io.op, UringOp::Read | UringOp::Write { .. });
        // The kernel temporarily lacks resources; or the thread that began the I/O has ended, and
        // with it the address space that the kernel used for the memory.
        let passing = matches!(-result, libc::EAGAIN | libc::EINTR)
            || has_data && matches!(-result, libc::EFAULT | libc::ECANCELED);
        let outcome = match result {
            _ if passing && submission.retries < RETRIES => {
                submission.retries += 1;
                self.again.push(slot);
                return;
            }
            ..0 => Err(IoErrorKind::os(-result)),
            1.. if command_bytes.is_some() => Err(Status::from_bits(result as u16).into()),
            0 if has_data && command_bytes.is_none() => Err(IoErrorKind::EndOfFile),
            _ if has_data => {
                submission.done_bytes += command_bytes.unwrap_or(result.unsigned_abs().into());
                if submission.done_bytes < submission.io.bytes {
                    self.again.push(slot);
                    return;
                }
                Ok(0)
            }
            _ if submission.flushes => {
                submission.flushes = false;
                submission.io.op = UringOp::Fdatasync;
                self.again.push(slot);
                return;
            }
            _ => Ok(0),
        };
        self.finish(slot, outcome);
    }

    /// Ends the request in `slot`.
    pub(super) fn finish(&mut self, slot: u16, outcome: Result<u32, IoErrorKind>) {
        self.submissions[usize::from(slot)].under_way = false;
        self.table.complete(slot, outcome);
    }

    /// Called when another eighth of a request's time has passed: gives up the requests whose time
    /// is over. Their buffers stay here until the kernel has answered.
    pub(super) fn sweep(&mut self) {
        for slot in 0..self.submissions.len() as u16 {
            let submission = &mut self.submissions[usize::from(slot)];
            submission.age = submission.age.saturating_add(1);
            // One sweep more is allowed, since the first comes at any time after the submission.
            if submission.under_way && submission.age > SWEEPS {
                self.give_up(slot, CommandError::TimedOut.into());
            }
        }
    }

    /// Gives up all requests that the kernel has.
    pub(super) fn give_up_all(&mut self, error: IoErrorKind) {
        for slot in 0..self.submissions.len() as u16 {
            if self.submission(slot).under_way {
                self.give_up(slot, error);
            }
        }
    }

    fn give_up(&mut self, slot: u16, error: IoErrorKind) {
        let tag = self.submission(slot).io.tag;
        let waiting = self.again.len();
        self.again.retain(|again| *again != slot);
        // A request that waits to be resent is not with the kernel.
        if self.again.len() == waiting {
            self.orphans.push((tag, self.table.get_mut(slot).take_buf()));
        }
        self.finish(slot, Err(error));
    }

    /// Quarantines the buffers that the kernel has, because no further answer will be seen.
    pub(super) fn quarantine(&mut self) {
        for (_, buf) in self.orphans.drain(..) {
            if let Some(buf) = buf {
                buf.quarantine();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::super::request::Request;
    use super::super::super::request_table::Recipient;
    use super::*;
    use meantime_completion::Policy;
    use meantime_hw::uring::KernelMemory;
    use meantime_hw::{DmaHeap, DmaMap};

    fn begun() -> (DmaHeap, KernelRequests, u16, UringIo) {
        let heap = DmaHeap::new(Arc::new(KernelMemory::default()) as Arc<dyn DmaMap>);
        let mut state = KernelRequests::new(2, None);
        let (slot, io) = begin(&heap, &mut state);
        (heap, state, slot, io)
    }

    fn begin(heap: &DmaHeap, state: &mut KernelRequests) -> (u16, UringIo) {
        let buf = heap.alloc(8192).unwrap();
        let (op, data) = (UringOp::Read, buf.iova());
        let io = UringIo { op, offset_bytes: 4096, bytes: 8192, data, ..UringIo::default() };
        let slot = state.table.take_free().unwrap();
        state.table.fill(slot, Request::read(1, buf), 0, Policy::Interrupt, Recipient::Ticket);
        (slot, state.begin(slot, io, false, false))
    }

    #[test]
    fn what_is_missing_is_asked_for_again() {
        let (_heap, mut state, slot, io) = begun();
        state.ended(io.tag, -libc::EAGAIN);
        assert_eq!((state.again.pop(), state.rest(slot).bytes), (Some(slot), 8192));
        state.ended(io.tag, 512);
        let again = state.again[0];
        let rest = state.rest(again);
        assert_eq!((rest.offset_bytes, rest.bytes, rest.data.0 - io.data.0), (4608, 7680, 512));
        state.again.clear();
        assert!(!state.table.is_done(slot));
        state.ended(rest.tag, 7680);
        assert!(state.table.take(slot).is_some());
    }

    #[test]
    fn commands_are_parts_of_their_limit_and_answer_with_a_status() {
        let heap = DmaHeap::new(Arc::new(KernelMemory::default()) as Arc<dyn DmaMap>);
        let mut state = KernelRequests::new(2, Some(4608));
        let (slot, io) = begin(&heap, &mut state);
        assert_eq!((io.offset_bytes, io.bytes), (4096, 4608));
        state.ended(io.tag, -libc::EAGAIN);
        assert_eq!(state.again.pop(), Some(slot));
        assert_eq!(state.rest(slot).bytes, 4608);
        state.ended(io.tag, 0);
        assert_eq!(state.again.pop(), Some(slot));
        let rest = state.rest(slot);
        assert_eq!((rest.offset_bytes, rest.bytes, rest.data.0 - io.data.0), (8704, 3584, 4608));
        state.ended(rest.tag, 0);
        assert!(state.table.take(slot).is_some());
        let (slot, io) = begin(&heap, &mut state);
        state.ended(io.tag, 0x4281);
        let done = state.table.take_failed(slot);
        assert_eq!(done.result.unwrap_err().kind, IoErrorKind::from(Status::from_bits(0x4281)));
    }

    #[test]
    fn zeroes_that_are_to_be_durable_are_flushed() {
        let heap = DmaHeap::new(Arc::new(KernelMemory::default()) as Arc<dyn DmaMap>);
        let mut state = KernelRequests::new(1, None);
        let slot = state.table.take_free().unwrap();
        let request = Request::write_zeroes(0, 8).fua();
        state.table.fill(slot, request, 0, Policy::Interrupt, Recipient::Ticket);
        let op = UringOp::Fallocate { mode: 0 };
        let io = UringIo { op, bytes: 4096, ..UringIo::default() };
        let io = state.begin(slot, io, false, true);
        state.ended(io.tag, 0);
        assert!(!state.table.is_done(slot));
        assert_eq!((state.again.pop(), state.rest(slot).op), (Some(slot), UringOp::Fdatasync));
        state.ended(io.tag, 0);
        assert!(state.table.take(slot).is_some());
        drop(heap);
    }

    #[test]
    fn an_endless_eagain_ends() {
        let (_heap, mut state, slot, io) = begun();
        for _ in 0..=RETRIES {
            state.ended(io.tag, -libc::EAGAIN);
            state.again.clear();
        }
        let done = state.table.take_failed(slot);
        assert_eq!(done.result.unwrap_err().kind, IoErrorKind::os(libc::EAGAIN));
    }

    /// After the deadline the caller gets an error, and the buffer stays with the channel until the
    /// kernel has answered.
    #[test]
    fn a_buffer_that_was_given_up_waits_for_its_answer() {
        let (heap, mut state, slot, io) = begun();
        (0..SWEEPS).for_each(|_| state.sweep());
        assert!(!state.table.is_done(slot));
        state.sweep();
        let done = state.table.take_failed(slot);
        assert_eq!(done.result.unwrap_err().kind, CommandError::TimedOut);
        assert!(done.buf.is_none());
        assert_eq!((state.orphans(), heap.allocated_bytes()), (1, 8192));
        // The slot is reused; the late answer is not taken for the new request's.
        let (again, new) = begin(&heap, &mut state);
        assert_eq!((again, new.tag == io.tag), (slot, false));
        state.ended(io.tag, 8192);
        assert!(!state.table.is_done(again));
        assert_eq!((state.orphans(), heap.allocated_bytes()), (0, 8192));
        state.ended(new.tag, 8192);
        assert!(state.table.take(again).unwrap().buf.is_some());
    }

    #[test]
    fn what_waits_to_be_sent_again_is_not_with_the_kernel() {
        let (heap, mut state, slot, io) = begun();
        state.ended(io.tag, 512);
        state.give_up_all(IoErrorKind::os(libc::EIO));
        assert!(state.table.take_failed(slot).buf.is_some());
        assert_eq!((state.orphans(), state.again.len(), heap.allocated_bytes()), (0, 0, 0));
    }

    #[test]
    fn stray_answers_are_ignored() {
        let (_heap, mut state, slot, io) = begun();
        for tag in [u64::MAX, 1, io.tag + (1 << 16), 0xffff] {
            state.ended(tag, 0);
        }
        assert!(!state.table.is_done(slot));
    }
}
