//! A channel's I/O with the kernel: the rings or system calls, the requests, their deadlines.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};

use super::super::error::{ChannelError, IoErrorKind};
use super::super::uri::KernelEngine;
use super::rings::Rings;
use super::shared::Shared;
use super::state::{KernelRequests, SWEEPS};
use meantime_completion::waiter::{InFlight, Queues, Timed};
use meantime_completion::{Policy, Source};
use meantime_hw::Clock;
use meantime_hw::uring::{UringIo, UringOp};

/// Successful looks between two readings of the clock.
const LOOKS_PER_CLOCK: u32 = 64;

/// The interface for I/O.
pub(super) enum Engine {
    Rings(Box<Rings>),
    /// `preadv2` and similar calls. A wait does the I/O of the next of these requests.
    Calls(VecDeque<u16>),
}

/// The kernel side of a channel, as its waiter sees it.
pub(super) struct KernelIo {
    pub(super) shared: Arc<Shared>,
    pub(super) engine: Engine,
    pub(super) state: KernelRequests,
    /// The errno of a ring that failed as a whole.
    pub(super) broken: Option<i32>,
    pub(super) clock: Clock,
    swept_ns: u64,
    /// Number of looks, so that a busy channel also sweeps deadlines.
    looks: u32,
}

impl KernelIo {
    pub(super) fn new(
        shared: Arc<Shared>,
        depth: u16,
        policy: Policy,
    ) -> Result<Self, ChannelError> {
        let engine = match shared.options.engine {
            KernelEngine::IoUring => Engine::Rings(Box::new(Rings::new(&shared, depth)?)),
            KernelEngine::Preadv2 => Engine::Calls(VecDeque::with_capacity(depth.into())),
        };
        let clock = Clock::real();
        let swept_ns = clock.now_ns();
        let command_bytes = shared.file.namespace.map(|space| space.command_bytes.into());
        let state = KernelRequests::new(depth, command_bytes);
        let mut io = Self { shared, engine, state, broken: None, clock, swept_ns, looks: 0 };
        io.prepare(policy)?;
        Ok(io)
    }

    /// Makes the ring that `policy` needs, if necessary. Removes a ring for another policy.
    pub(super) fn prepare(&mut self, policy: Policy) -> Result<(), ChannelError> {
        let depth = self.state.table.depth();
        match (&mut self.engine, self.shared.polled(policy)) {
            (Engine::Rings(rings), Some(polled)) if rings.polls_by() != Some(polled) => {
                rings.add_polled(&self.shared, depth, polled)
            }
            _ => Ok(()),
        }
    }

    /// The policy of the polled ring, if there is one.
    pub(super) fn polls_by(&self) -> Option<Policy> {
        match &self.engine {
            Engine::Rings(rings) => rings.polls_by(),
            Engine::Calls(_) => None,
        }
    }

    /// Whether given-up requests that the kernel still has fill the channel.
    pub(super) fn is_choked(&self) -> bool {
        self.state.orphans() >= usize::from(self.state.table.depth())
    }

    /// Sends the request in `slot`, at once unless requests are collected.
    pub(super) fn send(&mut self, slot: u16, io: &UringIo, polled: bool, plugged: bool) {
        match &mut self.engine {
            Engine::Calls(waiting) => waiting.push_back(slot),
            Engine::Rings(rings) => {
                if rings.stage(polled, io).is_err() {
                    // The buffer is of this device's heap, so the kernel cannot register more
                    // memory.
                    self.state.finish(slot, Err(IoErrorKind::os(libc::ENOMEM)));
                } else if !plugged {
                    let submitted = rings.of(polled).submit();
                    self.note(submitted);
                }
            }
        }
    }

    /// Sends the collected requests.
    pub(super) fn submit(&mut self) {
        if let Engine::Rings(rings) = &mut self.engine {
            let submitted = rings.submit();
            self.note(submitted);
        }
    }

    /// Checks the result of a system call that concerns a whole ring: if it failed, the ring is
    /// broken, and no more of its requests will be answered.
    fn note(&mut self, entered: std::io::Result<()>) {
        if let Err(error) = entered {
            tracing::error!(%error, "io_uring_enter failed; its I/O is given up");
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            self.broken = Some(errno);
            self.state.give_up_all(IoErrorKind::os(errno));
        }
    }

    /// Asks the kernel for completions, and reaps them. Returns the number of answers.
    pub(super) fn poll_rings(&mut self) -> usize {
        let Engine::Rings(rings) = &mut self.engine else { return 0 };
        let result = rings.get_events();
        self.note(result);
        self.reap_rings()
    }

    /// The descriptor that becomes readable when the kernel answers; `None` while the kernel has to
    /// be asked.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.engine {
            Engine::Rings(rings) => rings.descriptor(),
            Engine::Calls(_) => None,
        }
    }

    fn reap_rings(&mut self) -> usize {
        match &mut self.engine {
            Engine::Rings(rings) => rings.reap(&mut self.state),
            Engine::Calls(_) => 0,
        }
    }

    /// Waits until the kernel has answered, or for an eighth of the time-out or `patience_ns`.
    pub(super) fn wait(&mut self, patience_ns: u64) {
        let timeout = Duration::from_nanos(self.tick_interval_ns().min(patience_ns).max(1));
        let waited = match &mut self.engine {
            Engine::Calls(waiting) => {
                if let Some(slot) = waiting.pop_front() {
                    let outcome = call(&self.shared, &mut self.state, slot);
                    self.state.finish(slot, outcome);
                }
                return;
            }
            Engine::Rings(rings) => {
                if rings.reap(&mut self.state) > 0 {
                    return self.sweep(true);
                }
                rings.wait(timeout)
            }
        };
        self.note(waited);
        let found = self.reap_rings() > 0;
        self.sweep(found);
    }

    /// Sweeps deadlines when due. It reads the clock after an unsuccessful look, and after some of
    /// the others.
    pub(super) fn sweep(&mut self, found: bool) {
        self.looks = self.looks.wrapping_add(1);
        if found && !self.looks.is_multiple_of(LOOKS_PER_CLOCK) {
            return;
        }
        let now_ns = self.clock.now_ns();
        if now_ns.saturating_sub(self.swept_ns) >= self.tick_interval_ns() {
            self.swept_ns = now_ns;
            self.state.sweep();
        }
    }

    /// Whether a wait may end a request. System calls are always made; rings are waited for until
    /// `until_ns`.
    pub(super) fn is_worth_a_wait(&self, until_ns: u64) -> bool {
        match &self.engine {
            Engine::Calls(waiting) => !waiting.is_empty(),
            Engine::Rings(rings) => {
                rings.in_flight() > 0 && self.broken.is_none() && self.clock.now_ns() < until_ns
            }
        }
    }
}

impl Queues for KernelIo {
    type Id = u16;
    type Queue<'a> = &'a mut Self;
    type Both<'a> = &'a mut Self;

    fn queue(&mut self, _: bool) -> &mut Self {
        self
    }

    fn both(&mut self) -> Option<&mut Self> {
        None
    }

    fn is_busy(&self, interrupted: bool) -> bool {
        !interrupted && self.state.table.active() > 0
    }

    fn active(&self) -> usize {
        self.state.table.active()
    }

    fn request(&self, slot: u16) -> InFlight {
        self.state.table.get(slot).in_flight()
    }

    fn begin_wait(&mut self, slot: u16) -> InFlight {
        self.state.table.begin_wait(slot)
    }

    fn under_way(&self) -> impl Iterator<Item = InFlight> {
        self.state.table.under_way()
    }

    fn unclaimed(&self) -> impl Iterator<Item = u16> {
        self.state.table.queued_slots()
    }

    fn timed(&mut self) -> &mut Vec<Timed> {
        &mut self.state.table.timed
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }
}

impl Source for KernelIo {
    fn reap(&mut self) -> usize {
        let before = self.state.table.active();
        self.poll_rings();
        before - self.state.table.active()
    }

    fn has_completion(&self) -> bool {
        false
    }

    fn tick(&mut self, _: u64) -> usize {
        let before = self.state.table.active();
        self.sweep(false);
        before - self.state.table.active()
    }

    fn tick_interval_ns(&self) -> u64 {
        self.shared.timeout_ns / u64::from(SWEEPS)
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.clock.sleep_ns(duration_ns);
    }

    fn wait_interrupt(&self, _: u64) -> bool {
        false
    }
}

/// Does the I/O of `slot` by system calls.
fn call(shared: &Shared, state: &mut KernelRequests, slot: u16) -> Result<u32, IoErrorKind> {
    let file = &shared.file.fd;
    let io = state.submission(slot).io;
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
        let (offset, rest) = (io.offset_bytes + done as u64, buf.contiguous_mut(done));
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
