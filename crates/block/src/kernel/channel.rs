//! One thread's way to a file of the kernel.

mod work;

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};

use super::super::device::{BlockInfo, ChannelError, ChannelOptions};
use super::super::error::{IoErrorKind, Rejected, SubmitError};
use super::super::lbio::Claim;
use super::super::request::{BlockChannel, Done, Request, Ticket};
use super::super::uri::KernelEngine;
use super::state::{SWEEPS, State};
use super::{Shared, is_hybrid_min};
use meantime_completion::telemetry::{QueueFigures, Telemetry};
use meantime_completion::waiter::{Found, Waiter};
use meantime_completion::{DeferError, Deferred, Policy};
use meantime_hw::dma::Iova;
use meantime_hw::uring::{Register, RingPoll, Uring, UringIo, UringOp};
use meantime_hw::{Clock, DmaBuf, HwError};
use meantime_nvme::{CommandError, Op};

/// The most requests of a channel: as many as slots can be told apart.
const DEPTH_MAX: u16 = 1023;

/// The rings of a channel, or none if it asks by system calls that wait.
pub(super) struct Rings {
    plain: Uring,
    /// For a policy that polls, and which.
    polled: Option<(Policy, Uring)>,
}

impl Rings {
    fn new(shared: &Shared, depth: u16, policy: Policy) -> Result<Self, ChannelError> {
        let plain = ring(shared, depth, RingPoll::Interrupt)?;
        let mut rings = Self { plain, polled: None };
        if policy != Policy::Interrupt {
            rings.add_polled(shared, depth, policy)?;
        }
        Ok(rings)
    }

    fn add_polled(
        &mut self,
        shared: &Shared,
        depth: u16,
        policy: Policy,
    ) -> Result<(), ChannelError> {
        self.polled = Some((policy, ring(shared, depth, poll_kind(policy))?));
        Ok(())
    }

    /// Reads a block by polling, since only that shows whether it can be done. If not, why.
    pub(super) fn try_polling(shared: &Shared, policy: Policy) -> Result<(), String> {
        shared.file.can_poll(shared.options.direct)?;
        let mut ring = ring(shared, 1, poll_kind(policy)).map_err(|error| error.to_string())?;
        let bytes = shared.file.block_bytes;
        let buf = shared.heap.alloc(bytes as usize).map_err(|error| error.to_string())?;
        let io = UringIo {
            op: UringOp::Read,
            tag: 0,
            offset_bytes: 0,
            bytes: bytes.into(),
            data: buf.iova(),
            ioprio: 0,
            vectors: None,
        };
        stage(&mut ring, &io).map_err(|error| error.to_string())?;
        let (mut answer, mut tries) = (None, 100);
        while answer.is_none() {
            if let Err(error) = ring.wait(Duration::from_secs(1)) {
                // The kernel may still have it.
                buf.quarantine();
                return Err(error.to_string());
            }
            ring.reap(|_, result| answer = Some(result));
            // Without resources for now.
            if matches!(answer.map(|result| -result), Some(libc::EAGAIN | libc::EINTR)) && tries > 0
            {
                (answer, tries) = (None, tries - 1);
                stage(&mut ring, &io).map_err(|error| error.to_string())?;
            }
        }
        match answer.map_or(0, |result| -result) {
            errno if errno <= 0 => Ok(()),
            libc::EOPNOTSUPP => {
                Err("its driver or file system does not poll (EOPNOTSUPP)".to_owned())
            }
            errno => Err(std::io::Error::from_raw_os_error(errno).to_string()),
        }
    }

    fn of(&mut self, polled: bool) -> &mut Uring {
        match &mut self.polled {
            Some((_, ring)) if polled => ring,
            _ => &mut self.plain,
        }
    }

    fn polled_in_flight(&self) -> usize {
        self.polled.as_ref().map_or(0, |(_, ring)| ring.in_flight())
    }

    fn in_flight(&self) -> usize {
        self.plain.in_flight() + self.polled_in_flight()
    }

    fn submit(&mut self) -> std::io::Result<()> {
        self.plain.submit()?;
        self.polled.as_mut().map_or(Ok(()), |(_, ring)| ring.submit())
    }

    fn look(&mut self) -> std::io::Result<()> {
        self.plain.look()?;
        self.polled.as_mut().map_or(Ok(()), |(_, ring)| ring.look())
    }

    /// Takes what is there; sends on what is not yet whole. How many answers there were.
    fn reap(&mut self, state: &mut State) -> usize {
        let mut count = self.plain.reap(|tag, result| state.ended(tag, result));
        if let Some((_, ring)) = &mut self.polled {
            count += ring.reap(|tag, result| state.ended(tag, result));
        }
        while let Some(slot) = state.again.pop() {
            let (rest, polled) = (state.rest(slot), state.flight(slot).polled);
            if stage(self.of(polled), &rest).is_err() {
                state.finish(slot, Err(IoErrorKind::os(libc::EFAULT)));
            }
        }
        count
    }
}

/// Stages an I/O on one of the channel's rings.
///
/// # Errors
/// See [`Uring::stage`].
#[expect(unsafe_code)]
fn stage(ring: &mut Uring, io: &UringIo) -> Result<(), HwError> {
    // SAFETY: `io` is of one of two kinds. That of a request ([`State::begin`], [`State::rest`])
    // names the buffer that the request brought, which `State` keeps, and lends to nobody, until
    // the ring has given the completion: in the request's slot; if the request is given up, among
    // the orphans; if no completion will come, in quarantine. Its vectors are in a box of that
    // buffer, and are changed only between a completion and the next `stage`. The other kind is
    // that of `Rings::try_polling`, which keeps its buffer until the completion, or quarantines it.
    unsafe { ring.stage(io) }
}

fn poll_kind(policy: Policy) -> RingPoll {
    match policy {
        _ if is_hybrid_min(policy) => RingPoll::HybridMin,
        Policy::Interrupt => RingPoll::Interrupt,
        _ => RingPoll::Poll,
    }
}

fn ring(shared: &Shared, depth: u16, poll: RingPoll) -> Result<Uring, ChannelError> {
    // Room for as many that were given up, and that the kernel has yet to take.
    let entries = 2 * u32::from(depth);
    let new = |fixed| Uring::new(&shared.file.fd, &shared.memory, entries, poll, fixed);
    let made = match shared.options.fixed {
        Some(true) => new(Register::Must),
        Some(false) => new(Register::No),
        // Without the right to register memory it works as well, if more slowly.
        None => new(Register::Try).or_else(|_| new(Register::No)),
    };
    made.map_err(|source| ChannelError::Kernel { what: no_ring(&source, poll), source })
}

fn no_ring(error: &std::io::Error, poll: RingPoll) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EINVAL) if poll == RingPoll::HybridMin => {
            "this kernel has no HYBRID_IOPOLL, which came with Linux 6.13"
        }
        Some(libc::ENOSYS) => {
            "this kernel has no io_uring, or one from before Linux 5.11; use engine=preadv2"
        }
        Some(libc::EPERM) => {
            "io_uring is forbidden here (sysctl kernel.io_uring_disabled, or a container's filter); use engine=preadv2"
        }
        Some(libc::ENOMEM) => {
            "io_uring has no memory left to pin (RLIMIT_MEMLOCK, `ulimit -l`); raise it, or say fixed=0"
        }
        _ => "cannot set up io_uring",
    }
}

enum Way {
    Rings(Box<Rings>),
    /// `preadv2` and its like; requests are done when they are waited for.
    Calls {
        waiting: VecDeque<u16>,
    },
}

/// One thread's way to a file or block device of the kernel.
///
/// With `engine=preadv2` the kernel does one I/O at a time, while it is waited for;
/// [`BlockChannel::poll`] does one as well. A wait then takes as long as the kernel does; with
/// io_uring every request has a deadline, too, as far as it is not polled within the kernel.
pub struct KernelChannel {
    info: BlockInfo,
    shared: Arc<Shared>,
    way: Way,
    state: State,
    policy: Policy,
    plugged: bool,
    /// The ring no longer works, and what the kernel said.
    broken: Option<i32>,
    clock: Clock,
    swept_ns: u64,
    /// Looks, counted so that a busy channel sweeps as well.
    looks: u32,
    /// Requests started.
    started: u64,
    telemetry: Telemetry,
    /// Waits with deferred work, once there was any. The kernel waits for the rest.
    waiter: Option<Box<Waiter>>,
}

/// How many looks that found something go by between two readings of the clock.
const LOOKS_PER_CLOCK: u32 = 64;

/// How many requests are started between two looks whether to publish: a reading of the clock each.
const STARTS_PER_CLOCK: u64 = 16;

impl KernelChannel {
    pub(super) fn new(
        info: BlockInfo,
        shared: Arc<Shared>,
        options: &ChannelOptions,
    ) -> Result<Self, ChannelError> {
        let depth = options.depth;
        if depth == 0 || depth > DEPTH_MAX {
            return Err(ChannelError::Depth { depth, limit: DEPTH_MAX });
        }
        let way = match shared.options.engine {
            KernelEngine::IoUring => {
                Way::Rings(Box::new(Rings::new(&shared, depth, options.policy)?))
            }
            KernelEngine::Preadv2 => Way::Calls { waiting: VecDeque::with_capacity(depth.into()) },
        };
        let clock = Clock::real();
        let swept_ns = clock.now_ns();
        let (state, policy) = (State::new(depth), options.policy);
        let telemetry = Telemetry::new(&info.uri, policy, swept_ns);
        Ok(Self {
            info,
            shared,
            way,
            state,
            policy,
            plugged: false,
            broken: None,
            clock,
            swept_ns,
            looks: 0,
            started: 0,
            telemetry,
            waiter: None,
        })
    }

    /// Checks what the caller can get wrong; what the kernel is to do.
    fn check(&self, request: &Request, policy: Policy) -> Result<UringIo, SubmitError> {
        let (has, polls) = match &self.way {
            Way::Rings(rings) => (
                policy == Policy::Interrupt,
                rings.polled.as_ref().is_some_and(|(kind, _)| *kind == policy),
            ),
            Way::Calls { .. } => (policy == Policy::Interrupt, false),
        };
        if !has && !polls {
            let why = match self.shared.can_wait(policy) {
                Err(why) => why,
                Ok(()) => "it was opened for another policy; use set_policy".to_owned(),
            };
            return Err(SubmitError::CannotWait { policy, why });
        }
        let block_bytes = u64::from(self.info.block_bytes);
        let lacks = "this command through the kernel: open the device with vfio:";
        let (blocks, data) = match (request.op, &request.buf) {
            (Op::Compare | Op::Verify | Op::WriteUncorrectable | Op::CompareAndWrite, _) => {
                return Err(SubmitError::Unsupported(lacks));
            }
            (Op::Read | Op::Write, Some(buf)) => {
                let bytes = buf.transfer_bytes();
                if bytes == 0 || !(bytes as u64).is_multiple_of(block_bytes) {
                    let block_bytes = self.info.block_bytes;
                    return Err(SubmitError::PartialBlock { bytes, block_bytes });
                }
                if !buf.is_of(&self.shared.heap) {
                    return Err(SubmitError::ForeignBuffer);
                }
                (bytes as u64 / block_bytes, buf.iova())
            }
            (Op::Read | Op::Write, None) | (_, Some(_)) => return Err(SubmitError::Buffer),
            (Op::Flush, None) => (0, Iova(0)),
            (Op::WriteZeroes | Op::Deallocate, None) if request.blocks == 0 => {
                return Err(SubmitError::Empty);
            }
            (Op::WriteZeroes | Op::Deallocate, None) => (request.blocks, Iova(0)),
        };
        if let (Some(why), true) = (&self.shared.file.read_only, request.op != Op::Read) {
            return Err(SubmitError::ReadOnly(why.clone()));
        }
        let size = self.info.blocks;
        if blocks > size || request.lba > size - blocks {
            return Err(SubmitError::OutOfRange { lba: request.lba, blocks, size });
        }
        if let Some(errno) = self.broken {
            return Err(SubmitError::Lost(std::io::Error::from_raw_os_error(errno).to_string()));
        }
        if self.state.orphans() >= usize::from(self.depth()) {
            let count = self.state.orphans();
            return Err(SubmitError::Lost(format!(
                "the kernel has yet to answer {count} requests given up"
            )));
        }
        let keep = FallocateFlags::KEEP_SIZE;
        let op = match request.op {
            Op::Read => UringOp::Read,
            Op::Write => UringOp::Write { dsync: request.fua },
            Op::Flush => UringOp::Fdatasync,
            Op::WriteZeroes => {
                UringOp::Fallocate { mode: (FallocateFlags::ZERO_RANGE | keep).bits() as i32 }
            }
            Op::Deallocate => {
                UringOp::Fallocate { mode: (FallocateFlags::PUNCH_HOLE | keep).bits() as i32 }
            }
            Op::Compare | Op::Verify | Op::WriteUncorrectable | Op::CompareAndWrite => {
                return Err(SubmitError::Unsupported(lacks));
            }
        };
        let (offset_bytes, bytes) = (request.lba * block_bytes, blocks * block_bytes);
        Ok(UringIo { op, tag: 0, offset_bytes, bytes, data, ioprio: request.ioprio, vectors: None })
    }

    /// Shows what this channel does, and changes its policy if another process asks for that.
    /// Between two requests: with a depth of 1 nothing is under way then, which another kind of
    /// polling needs.
    #[cold]
    fn show(&mut self) {
        let now_ns = self.clock.now_ns();
        if !self.telemetry.is_due(now_ns) {
            return;
        }
        if let Some(policy) = self.telemetry.take_request() {
            let outcome = self.set_policy(policy);
            self.telemetry.answer(outcome);
        }
        let in_flight = self.state.table.active() as u64;
        // How the kernel waits, and for how long, is its own affair.
        let figures =
            QueueFigures { ended: self.started - in_flight, in_flight, ..QueueFigures::default() };
        self.telemetry.publish(now_ns, self.policy, &figures);
    }

    #[allow(clippy::result_large_err)]
    fn start(&mut self, request: Request, claim: Claim) -> Result<u16, Rejected> {
        if self.started.is_multiple_of(STARTS_PER_CLOCK) {
            self.show();
        }
        let policy = request.policy.unwrap_or(self.policy);
        if self.state.orphans() >= usize::from(self.depth()) {
            self.wait_for_orphans();
        }
        let io = match self.check(&request, policy) {
            Ok(io) => io,
            Err(error) => return Err(Rejected { error, request }),
        };
        let Some(slot) = self.state.table.take_free() else {
            return Err(Rejected { error: SubmitError::Full { depth: self.depth() }, request });
        };
        let flushes = request.fua && request.op == Op::WriteZeroes;
        let op = request.op;
        self.state.table.fill(slot, request, 0, policy, claim);
        self.started += 1;
        self.take_time(slot, op, io.bytes);
        // Only transfers can be polled.
        let has_data = matches!(io.op, UringOp::Read | UringOp::Write { .. });
        let polled = has_data && policy != Policy::Interrupt;
        let io = self.state.begin(slot, io, polled, flushes);
        match &mut self.way {
            Way::Calls { waiting } => waiting.push_back(slot),
            Way::Rings(rings) => {
                if stage(rings.of(polled), &io).is_err() {
                    // The buffer is of our heap, so it is the kernel that cannot register more
                    // memory.
                    self.state.finish(slot, Err(IoErrorKind::os(libc::ENOMEM)));
                } else if !self.plugged {
                    let told = rings.of(polled).submit();
                    self.note(told);
                }
            }
        }
        Ok(slot)
    }

    /// What the kernel said to a system call that concerns the ring as a whole: if it is broken,
    /// nothing on it will be answered.
    fn note(&mut self, told: std::io::Result<()>) {
        if let Err(error) = told {
            tracing::error!(%error, "io_uring_enter failed; its I/O is given up");
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            self.broken = Some(errno);
            self.state.give_up_all(IoErrorKind::os(errno));
        }
    }

    /// Takes what is there; how many answers.
    fn reap(&mut self) -> usize {
        match &mut self.way {
            Way::Rings(rings) => rings.reap(&mut self.state),
            Way::Calls { .. } => 0,
        }
    }

    /// Waits until the kernel has answered, or an eighth of the time-out is over, or `patience_ns`;
    /// for the request in `slot` if a caller has a ticket for it, else for any.
    fn wait_some(&mut self, slot: Option<u16>, patience_ns: u64) {
        match self.waiter {
            None => self.wait_in_kernel(patience_ns),
            Some(_) => self.wait_working(slot, patience_ns),
        }
    }

    fn wait_in_kernel(&mut self, patience_ns: u64) {
        let (slice_ns, state) = (self.shared.timeout_ns / u64::from(SWEEPS), &mut self.state);
        let told = match &mut self.way {
            Way::Calls { waiting } => {
                if let Some(slot) = waiting.pop_front() {
                    let outcome = call(&self.shared, state, slot);
                    state.finish(slot, outcome);
                }
                return;
            }
            Way::Rings(rings) => {
                if rings.reap(state) > 0 {
                    return self.sweep(slice_ns, true);
                }
                let timeout = Duration::from_nanos(slice_ns.min(patience_ns).max(1));
                match (rings.plain.in_flight(), rings.polled_in_flight()) {
                    (0, 0) => Ok(()),
                    (_, 0) => rings.plain.wait(timeout),
                    (0, _) => rings.of(true).wait(timeout),
                    // Neither may be slept through for the other.
                    _ => rings.look(),
                }
            }
        };
        self.note(told);
        let found = self.reap() > 0;
        self.sweep(slice_ns, found);
    }

    /// Requests that were given up have all the room: looks for answers to them, and waits for one
    /// for a while.
    #[cold]
    fn wait_for_orphans(&mut self) {
        if let Way::Rings(rings) = &mut self.way {
            let told = rings.look();
            self.note(told);
        }
        self.reap();
        if self.state.orphans() >= usize::from(self.depth()) && self.broken.is_none() {
            self.wait_some(None, u64::MAX);
        }
    }

    /// Looks at deadlines when their time has come; at the clock after a look that found nothing,
    /// and now and then after others.
    fn sweep(&mut self, slice_ns: u64, found: bool) {
        self.looks = self.looks.wrapping_add(1);
        if found && !self.looks.is_multiple_of(LOOKS_PER_CLOCK) {
            return;
        }
        let now_ns = self.clock.now_ns();
        if now_ns.saturating_sub(self.swept_ns) >= slice_ns {
            self.swept_ns = now_ns;
            self.state.sweep();
        }
    }

    fn finish(&mut self, slot: u16) -> Done {
        let table = &mut self.state.table;
        table.take(slot).unwrap_or_else(|| table.take_failed(slot))
    }
}

/// Does the I/O of `slot` by system calls.
fn call(shared: &Shared, state: &mut State, slot: u16) -> Result<u32, IoErrorKind> {
    let file = &shared.file.fd;
    let io = state.flight(slot).io;
    let failed = |errno: Errno| IoErrorKind::os(errno.raw_os_error());
    let (mut done, mut flags) = (0usize, ReadWriteFlags::empty());
    match io.op {
        UringOp::Fdatasync => return rustix::fs::fdatasync(file).map(|()| 0).map_err(failed),
        UringOp::Fallocate { mode } => {
            let mode = FallocateFlags::from_bits_retain(mode as u32);
            let range = rustix::fs::fallocate(file, mode, io.offset_bytes, io.bytes);
            let flushes = state.takes_flush(slot);
            let durable =
                range.and_then(|()| if flushes { rustix::fs::fdatasync(file) } else { Ok(()) });
            return durable.map(|()| 0).map_err(failed);
        }
        UringOp::Write { dsync: true } => flags |= ReadWriteFlags::DSYNC,
        UringOp::Read | UringOp::Write { dsync: false } => {}
    }
    let Some(buf) = state.table.get_mut(slot).buf_mut() else {
        return Err(IoErrorKind::os(libc::EFAULT));
    };
    while done < buf.transfer_bytes() {
        let (offset, rest) = (io.offset_bytes + done as u64, buf.stretch_mut(done));
        let moved = match io.op {
            UringOp::Read => rustix::io::preadv2(file, &mut [IoSliceMut::new(rest)], offset, flags),
            _ => rustix::io::pwritev2(file, &[IoSlice::new(rest)], offset, flags),
        };
        match moved {
            Ok(0) => return Err(IoErrorKind::EndOfFile),
            Ok(bytes) => done += bytes,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(0)
}

impl BlockChannel for KernelChannel {
    fn info(&self) -> &BlockInfo {
        &self.info
    }

    fn alloc(&self, bytes: usize) -> Result<DmaBuf, HwError> {
        self.shared.heap.alloc(bytes)
    }

    fn submit(&mut self, request: Request) -> Result<Ticket, Rejected> {
        let slot = self.start(request, Claim::Ticket)?;
        Ok(Ticket::new(slot, self.state.table.generation(slot)))
    }

    fn enqueue(&mut self, request: Request) -> Result<(), Rejected> {
        self.start(request, Claim::Queue).map(|_| ())
    }

    fn plug(&mut self) {
        self.plugged = true;
    }

    fn unplug(&mut self) {
        self.plugged = false;
        if let Way::Rings(rings) = &mut self.way {
            let told = rings.submit();
            self.note(told);
        }
    }

    fn poll(&mut self) -> usize {
        let before = self.state.table.active();
        if before == 0 && self.state.orphans() == 0 {
            return 0;
        }
        match &mut self.way {
            Way::Calls { .. } => self.wait_some(None, u64::MAX),
            Way::Rings(rings) => {
                let told = rings.look();
                self.note(told);
                let found = self.reap() > 0;
                self.sweep(self.shared.timeout_ns / u64::from(SWEEPS), found);
            }
        }
        if self.waiter.is_some() {
            self.learn(Found::Looking);
            self.run_overdue();
        }
        before - self.state.table.active()
    }

    fn wait(&mut self, ticket: Ticket) -> Done {
        let (slot, generation) = ticket.redeem();
        self.state.table.claimed(slot, generation);
        while !self.state.table.is_done(slot) {
            self.wait_some(Some(slot), u64::MAX);
        }
        self.finish(slot)
    }

    fn try_take(&mut self, ticket: Ticket) -> Result<Done, Ticket> {
        self.state.table.claimed(ticket.slot, ticket.generation);
        if !self.state.table.is_done(ticket.slot) {
            return Err(ticket);
        }
        let (slot, _) = ticket.redeem();
        Ok(self.finish(slot))
    }

    fn detach(&mut self, ticket: Ticket) {
        let (slot, generation) = ticket.redeem();
        self.state.table.claimed(slot, generation);
        self.state.table.detach(slot);
    }

    fn next_done(&mut self) -> Option<Done> {
        let slot = self.state.table.pop_done()?;
        Some(self.finish(slot))
    }

    fn wait_done(&mut self) -> Option<Done> {
        loop {
            if let Some(done) = self.next_done() {
                return Some(done);
            }
            if self.state.table.queued() == 0 {
                return None;
            }
            self.wait_some(None, u64::MAX);
        }
    }

    fn wait_until(&mut self, stop: &dyn Fn() -> bool) {
        // Nobody can signal a ring: it is left now and then to ask.
        const PATIENCE_NS: u64 = 1_000_000;
        while self.state.table.queued() > 0 && !self.state.table.has_done() && !stop() {
            self.wait_some(None, PATIENCE_NS);
        }
    }

    fn in_flight(&self) -> usize {
        self.state.table.active()
    }

    fn depth(&self) -> u16 {
        self.state.table.depth()
    }

    fn policy(&self) -> Policy {
        self.policy
    }

    fn set_policy(&mut self, policy: Policy) -> Result<(), SubmitError> {
        let refuse = |why: String| SubmitError::CannotWait { policy, why };
        self.shared.can_wait(policy).map_err(refuse)?;
        let depth = self.depth();
        if let (Way::Rings(rings), true) = (&mut self.way, policy != Policy::Interrupt) {
            let there = rings.polled.as_ref().is_some_and(|(kind, _)| *kind == policy);
            if !there && rings.polled_in_flight() > 0 {
                return Err(refuse("I/O is under way by another kind of polling".to_owned()));
            }
            if !there {
                rings
                    .add_polled(&self.shared, depth, policy)
                    .map_err(|error| refuse(error.to_string()))?;
            }
        }
        self.telemetry.set_policy(policy);
        self.policy = policy;
        Ok(())
    }

    fn defer(&mut self, work: Box<dyn Deferred>) -> Result<(), DeferError> {
        self.take_work(work)
    }

    fn run_deferred(&mut self, budget_ns: u64) -> usize {
        self.run_work(budget_ns)
    }

    fn deferred(&self) -> usize {
        self.deferred_work()
    }

    fn gap_left_ns(&mut self) -> Option<u64> {
        self.ask_gap()
    }

    fn wake_for_deferred(&mut self, waker: Option<Waker>) {
        self.set_work_waker(waker);
    }
}

impl Drop for KernelChannel {
    fn drop(&mut self) {
        // Requests without a waiter are done all the same.
        while matches!(&self.way, Way::Calls { waiting } if !waiting.is_empty()) {
            self.wait_some(None, u64::MAX);
        }
        // Buffers leave their slots only when the kernel is done with them (ARCHITECTURE.md §3).
        let until_ns = self.clock.now_ns().saturating_add(self.shared.timeout_ns);
        while let Way::Rings(rings) = &self.way
            && rings.in_flight() > 0
            && self.broken.is_none()
            && self.clock.now_ns() < until_ns
        {
            self.wait_some(None, u64::MAX);
        }
        self.state.give_up_all(CommandError::TimedOut.into());
        self.state.quarantine();
        self.finish_work();
    }
}
