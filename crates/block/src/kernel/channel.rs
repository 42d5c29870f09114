//! One thread's channel to a file or device of the kernel.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use super::super::device::{BlockChannel, BlockInfo};
use super::super::error::{ChannelError, SubmitError};
use super::super::group::GroupChannel;
use super::super::request::{Done, Rejected, Request, Ticket};
use super::super::request_table::Recipient;
use super::io::{Engine, KernelIo};
use super::shared::Shared;
use meantime_completion::Source as _;
use meantime_completion::telemetry::{QueueFigures, Telemetry};
use meantime_completion::waiter::{Found, Rest, Waiter};
use meantime_completion::{Goal, OffQueue, Policy};
use meantime_hw::dma::Iova;
use meantime_hw::uring::{UringIo, UringOp};
use meantime_hw::{DmaBuf, HwError};
use meantime_nvme::{CommandError, Op};

/// The most requests of a channel, limited by the slot numbers.
const DEPTH_MAX: u16 = 1023;

/// Requests started between two checks whether to publish, each of which reads the clock.
const STARTS_PER_CLOCK: u64 = 16;

/// One thread's channel to a file or device of the kernel.
///
/// With `engine=preadv2` the kernel does one I/O at a time, during the wait; [`BlockChannel::poll`]
/// also does one. A wait then takes as long as the kernel does. With io_uring every request has a
/// deadline, unless it is polled within the kernel.
pub struct KernelChannel {
    info: BlockInfo,
    /// Where block 0 is in the file.
    first_byte: u64,
    io: KernelIo,
    /// Learns times for `adaptive` and for the gap; the kernel does the waiting.
    waiter: Waiter,
    policy: Policy,
    plugged: bool,
    /// The number of requests started.
    started: u64,
    telemetry: Telemetry,
}

impl KernelChannel {
    pub(super) fn new(
        info: BlockInfo,
        first_byte: u64,
        shared: Arc<Shared>,
        depth: u16,
        said: Option<Policy>,
    ) -> Result<Self, ChannelError> {
        let policy = said.unwrap_or_default();
        if depth == 0 || depth > DEPTH_MAX {
            return Err(ChannelError::Depth { depth, limit: DEPTH_MAX });
        }
        let io = KernelIo::new(shared, depth, policy)?;
        let telemetry = Telemetry::new(&info.uri, policy, io.clock.now_ns());
        let mut waiter = Waiter::new(None);
        waiter.allow_interrupts();
        waiter.forbid_sleeps();
        // A program that did not ask for the default, and does little, measures nothing for it.
        if let Some(policy) = said {
            waiter.prepare(policy);
        }
        Ok(Self { info, first_byte, io, waiter, policy, plugged: false, started: 0, telemetry })
    }

    /// Checks a request for caller errors. Returns the I/O for the kernel.
    fn check(&self, request: &Request, policy: Policy) -> Result<UringIo, SubmitError> {
        let any_ring = matches!(policy, Policy::Interrupt | Policy::Adaptive(Goal::Latency(_)));
        if !any_ring && self.io.polls_by() != Some(policy) {
            let why = match self.io.shared.can_wait(policy) {
                Err(why) => why,
                Ok(()) => "it was opened for another policy; use set_policy".to_owned(),
            };
            return Err(SubmitError::CannotWait { policy, why });
        }
        let block_bytes = self.info.block_bytes;
        let range = |flags: FallocateFlags| {
            let mode = (flags | FallocateFlags::KEEP_SIZE).bits() as i32;
            UringOp::Fallocate { mode }
        };
        let op = match request.op {
            Op::Read => UringOp::Read,
            Op::Write => UringOp::Write { dsync: request.fua },
            Op::Flush => UringOp::Fdatasync,
            Op::WriteZeroes | Op::Deallocate if self.io.shared.file.namespace.is_some() => {
                let lacks = "this command by passthrough: open its block device, e.g. \
                             kernel:/dev/nvme0n1";
                return Err(SubmitError::Unsupported(lacks));
            }
            Op::WriteZeroes => range(FallocateFlags::ZERO_RANGE),
            Op::Deallocate => range(FallocateFlags::PUNCH_HOLE),
            Op::Compare | Op::Verify | Op::WriteUncorrectable | Op::CompareAndWrite => {
                let lacks = "this command through the kernel: open the device with vfio:";
                return Err(SubmitError::Unsupported(lacks));
            }
        };
        let (blocks, data) = match (&request.buf, op) {
            (Some(buf), UringOp::Read | UringOp::Write { .. }) => {
                let bytes = buf.transfer_bytes();
                if bytes == 0 || !bytes.is_multiple_of(block_bytes as usize) {
                    return Err(SubmitError::PartialBlock { bytes, block_bytes });
                }
                if !buf.is_of(&self.io.shared.heap) {
                    return Err(SubmitError::ForeignBuffer);
                }
                (bytes as u64 / u64::from(block_bytes), buf.iova())
            }
            (None, UringOp::Fdatasync) => (0, Iova(0)),
            (None, UringOp::Fallocate { .. }) if request.blocks == 0 => {
                return Err(SubmitError::Empty);
            }
            (None, UringOp::Fallocate { .. }) => (request.blocks, Iova(0)),
            _ => return Err(SubmitError::Buffer),
        };
        if let (Some(why), true) = (&self.io.shared.file.read_only, request.op != Op::Read) {
            return Err(SubmitError::ReadOnly(why.clone()));
        }
        let size = self.info.blocks;
        if blocks > size || request.lba > size - blocks {
            return Err(SubmitError::OutOfRange { lba: request.lba, blocks, size });
        }
        if let Some(errno) = self.io.broken {
            return Err(SubmitError::Lost(std::io::Error::from_raw_os_error(errno).to_string()));
        }
        if self.io.is_choked() {
            let count = self.io.state.orphans();
            return Err(SubmitError::Lost(format!(
                "the kernel has yet to answer {count} requests given up"
            )));
        }
        let block_bytes = u64::from(block_bytes);
        let (offset_bytes, bytes) =
            (self.first_byte + request.lba * block_bytes, blocks * block_bytes);
        let ioprio = request.ioprio;
        Ok(UringIo { op, offset_bytes, bytes, data, ioprio, ..UringIo::default() })
    }

    /// Publishes this channel's figures, and changes its policy if another process asks for that.
    /// Called between two requests: with a depth of 1 none is in flight then, as a change of the
    /// polling mode requires.
    #[cold]
    fn show(&mut self) {
        let now_ns = self.io.clock.now_ns();
        if !self.telemetry.is_due(now_ns) {
            return;
        }
        if let Some(policy) = self.telemetry.take_request() {
            let outcome = self.set_policy(policy);
            self.telemetry.answer(outcome);
        }
        self.publish(now_ns);
    }

    fn publish(&mut self, now_ns: u64) {
        let in_flight = self.in_flight() as u64;
        // The kernel decides how and how long it waits, and does not report it.
        let figures =
            QueueFigures { ended: self.started - in_flight, in_flight, ..QueueFigures::default() };
        self.telemetry.publish(now_ns, self.policy, &figures);
    }

    #[allow(clippy::result_large_err)]
    fn start(&mut self, request: Request, to: Recipient) -> Result<u16, Rejected> {
        if self.started.is_multiple_of(STARTS_PER_CLOCK) {
            self.show();
            self.io.state.table.free_dropped();
        }
        let policy = request.policy.unwrap_or(self.policy);
        if self.io.is_choked() {
            self.wait_for_orphans();
        }
        let io = match self.check(&request, policy) {
            Ok(io) => io,
            Err(error) => return Err(Rejected { error, request }),
        };
        let slot = self.io.state.table.take_free().or_else(|| self.slot_of_dropped());
        let Some(slot) = slot else {
            return Err(Rejected { error: SubmitError::Full { depth: self.depth() }, request });
        };
        let table = &mut self.io.state.table;
        let flushes = request.fua && request.op == Op::WriteZeroes;
        let op = request.op;
        table.fill(slot, request, 0, policy, to);
        self.started += 1;
        // Only transfers can be polled for.
        let has_data = matches!(io.op, UringOp::Read | UringOp::Write { .. });
        // `adaptive` chooses for each transfer, if there are both rings.
        let is_adaptive = matches!(policy, Policy::Adaptive(_));
        let chooses = is_adaptive && has_data && self.io.polls_by().is_some();
        let mut polled =
            if is_adaptive { chooses } else { has_data && policy != Policy::Interrupt };
        if chooses || self.waiter.takes_times() {
            let table = &mut self.io.state.table;
            let class = table.class(op, io.bytes, table.active());
            let interrupted = chooses && self.waiter.interrupts(policy, class);
            table.get_mut(slot).interrupt = interrupted;
            table.take_time(slot, class, self.io.clock.now_ns());
            polled &= !interrupted;
        }
        let io = self.io.state.begin(slot, io, polled, flushes);
        self.io.send(slot, &io, polled, self.plugged);
        Ok(slot)
    }

    /// Waits for a request whose ticket was dropped, and returns its slot, which is then free.
    #[cold]
    #[inline(never)]
    fn slot_of_dropped(&mut self) -> Option<u16> {
        self.io.state.table.free_dropped();
        self.io.state.table.take_free().or_else(|| {
            let ticket = self.io.state.table.dropped_in_flight()?;
            drop(self.wait(ticket));
            self.io.state.table.take_free()
        })
    }

    /// Waits until the kernel has answered, or for an eighth of the time-out or `patience_ns`.
    fn wait_some(&mut self, patience_ns: u64) {
        self.io.wait(patience_ns);
        self.waiter.learn(&mut self.io, Found::Blocked);
    }

    /// Called when requests that were given up fill the channel: looks for their answers, and waits
    /// for one for a while.
    #[cold]
    fn wait_for_orphans(&mut self) {
        self.io.poll_rings();
        if self.io.is_choked() && self.io.broken.is_none() {
            self.wait_some(u64::MAX);
        }
    }
}

impl BlockChannel for KernelChannel {
    fn info(&self) -> &BlockInfo {
        &self.info
    }

    fn alloc(&self, bytes: usize) -> Result<DmaBuf, HwError> {
        self.io.shared.heap.alloc(bytes)
    }

    fn submit(&mut self, request: Request) -> Result<Ticket, Rejected> {
        let slot = self.start(request, Recipient::Ticket)?;
        Ok(self.io.state.table.ticket(slot))
    }

    fn enqueue(&mut self, request: Request) -> Result<(), Rejected> {
        self.start(request, Recipient::Queue).map(|_| ())
    }

    fn plug(&mut self) {
        self.plugged = true;
    }

    fn unplug(&mut self) {
        self.plugged = false;
        self.io.submit();
    }

    fn poll(&mut self) -> usize {
        let before = self.in_flight();
        if before == 0 && self.io.state.orphans() == 0 {
            return 0;
        }
        if matches!(self.io.engine, Engine::Calls(_)) {
            self.wait_some(u64::MAX);
        } else {
            let found = self.io.poll_rings() > 0;
            self.io.sweep(found);
        }
        self.waiter.learn(&mut self.io, Found::Looking);
        self.io.state.table.free_dropped();
        before - self.in_flight()
    }

    fn wait(&mut self, ticket: Ticket) -> Done {
        let slot = self.io.state.table.redeem(ticket);
        while !self.io.state.table.is_done(slot) {
            self.wait_some(u64::MAX);
        }
        self.io.state.table.take_done(slot)
    }

    fn try_take(&mut self, ticket: Ticket) -> Result<Done, Ticket> {
        self.io.state.table.try_take(ticket)
    }

    fn detach(&mut self, ticket: Ticket) {
        self.io.state.table.detach(ticket);
    }

    fn next_done(&mut self) -> Option<Done> {
        self.io.state.table.next_done()
    }

    fn wait_done(&mut self) -> Option<Done> {
        loop {
            if let Some(done) = self.next_done() {
                return Some(done);
            }
            if self.io.state.table.queued() == 0 {
                return None;
            }
            self.wait_some(u64::MAX);
        }
    }

    fn wait_until(&mut self, stop: &dyn Fn() -> bool) {
        // A ring cannot be signalled by another thread, so the wait checks `stop` periodically.
        const PATIENCE_NS: u64 = 1_000_000;
        while self.io.state.table.queued() > 0 && !self.io.state.table.has_done() && !stop() {
            self.wait_some(PATIENCE_NS);
        }
    }

    fn in_flight(&self) -> usize {
        self.io.state.table.active()
    }

    fn depth(&self) -> u16 {
        self.io.state.table.depth()
    }

    fn policy(&self) -> Policy {
        self.policy
    }

    fn set_policy(&mut self, policy: Policy) -> Result<(), SubmitError> {
        let refuse = |why: String| SubmitError::CannotWait { policy, why };
        self.io.shared.can_wait(policy).map_err(refuse)?;
        if let Engine::Rings(rings) = &self.io.engine
            && let Some(polled) = self.io.shared.polled(policy)
            && rings.polls_by() != Some(polled)
            && rings.polled_in_flight() > 0
        {
            return Err(refuse("I/O is under way by another kind of polling".to_owned()));
        }
        self.io.prepare(policy).map_err(|error| refuse(error.to_string()))?;
        self.waiter.prepare(policy);
        self.policy = policy;
        Ok(())
    }

    fn gap_left_ns(&mut self) -> Option<u64> {
        self.waiter.gap_left_ns(&self.io)
    }
}

impl GroupChannel for KernelChannel {
    fn poll_in_group(&mut self, _: Option<OffQueue>) -> usize {
        let before = self.in_flight();
        if matches!(self.io.engine, Engine::Calls(_)) {
            // The wait itself does the I/O.
            return if before > 0 { self.poll() } else { 0 };
        }
        self.io.poll_rings();
        self.waiter.learn(&mut self.io, Found::Looking);
        before - self.in_flight()
    }

    fn rest(&mut self) -> Rest {
        // What was incomplete may have been staged again.
        self.io.submit();
        self.io.sweep(false);
        let table = &self.io.state.table;
        // What is polled in the kernel has to be looked for.
        if table.has_done() || table.queued() > 0 && self.descriptor().is_none() {
            return Rest::NONE;
        }
        if table.active() == 0 {
            return Rest::FOREVER;
        }
        let until_ns = self.io.clock.now_ns().saturating_add(self.io.tick_interval_ns());
        let waits = table.queued() > 0;
        Rest { until_ns, interrupt: waits, waits }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.io.descriptor()
    }
}

impl Drop for KernelChannel {
    fn drop(&mut self) {
        // Buffers leave their slots only when the kernel is done with them (ARCHITECTURE.md §3).
        // Requests without a waiting caller are completed as well.
        let until_ns = self.io.clock.now_ns().saturating_add(self.io.shared.timeout_ns);
        while self.io.is_worth_a_wait(until_ns) {
            self.wait_some(u64::MAX);
        }
        self.io.state.give_up_all(CommandError::TimedOut.into());
        self.io.state.quarantine();
        self.publish(self.io.clock.now_ns());
    }
}
