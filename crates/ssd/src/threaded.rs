//! The SSD on its own thread, in real time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use meantime_nvme_spec::regs::{CAP, Cap};
use meantime_nvme_spec::soft_port::{Heartbeat, PortError, SoftPort, VirtualClock};
use rustix::thread::sched_getcpu;

use crate::clock::Clock;
use crate::config::SsdConfig;
use crate::control::{Action, FaultControl, call};
use crate::controller::{Controller, Refusal, RegisterFile, Turn};
use crate::counters::Counters;
use crate::error::SsdError;
use crate::faults::FaultPlan;
use crate::mailbox::{Call, Mailbox};
use crate::medium::Medium;
use crate::port::{FunctionPort, Port, Runner, Shared};
use crate::stamps::StampRing;
use crate::sys;

/// Idle turns between two checks of the clock and of the doorbells that are not polled. At ≥ 1 ns a
/// turn and queue that is a few µs, which is often enough to park in time, and rarely enough to
/// cost nothing.
const IDLE_TURNS: u32 = 1024;

/// Length of a nap while commands wait for room in a completion queue. A host wakes the thread for
/// a submission, but not necessarily for a completion queue head.
const BLOCKED_NAP: Duration = Duration::from_millis(1);

/// The first and the longest nap where a host may ring a doorbell without checking whether the
/// thread has parked.
const FIRST_NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// The minimum time that a driver's call waits for its answer. It waits for CAP.TO if that is
/// longer.
const LEAST_PATIENCE: Duration = Duration::from_secs(5);

/// A running software SSD. Dropping it ends its thread, and after that registers read all ones.
pub struct Ssd {
    handle: SsdHandle,
    thread: Option<JoinHandle<Option<()>>>,
}

/// Controls a running [`Ssd`]. A clone controls the same one.
#[derive(Clone)]
pub struct SsdHandle(Arc<Threaded>);

/// The part of an SSD with a thread that other threads use.
struct Threaded {
    shared: Shared,
    mailbox: Arc<Mailbox>,
    thread: Thread,
    /// Whether the thread naps instead of parking.
    naps: Arc<AtomicBool>,
    heartbeat: Arc<HeartbeatCell>,
    /// The longest time that a driver's call waits for its answer.
    patience: Duration,
}

impl Ssd {
    /// Starts an SSD on `medium`, with the time of `clock`.
    ///
    /// # Errors
    /// Fails if the configuration is invalid, if the medium is too small, or if the thread cannot
    /// be started or bound to its CPU.
    pub fn start<C: Clock>(config: SsdConfig, medium: Medium, clock: C) -> Result<Self, SsdError> {
        check_medium(&config, &medium)?;
        let cpu = config.cpu;
        let controller = Controller::new(config, medium);
        let shared = Shared::of(&controller);
        let mailbox = Arc::new(Mailbox::default());
        let naps = Arc::<AtomicBool>::default();
        let heartbeat = Arc::<HeartbeatCell>::default();
        let worker = Worker {
            controller,
            clock,
            mailbox: Arc::clone(&mailbox),
            naps: Arc::clone(&naps),
            heartbeat: Arc::clone(&heartbeat),
            nap: FIRST_NAP,
        };
        let thread = sys::spawn_ssd(cpu, move || {
            // This closes the mailbox however the thread ends, so that no caller waits for ever for
            // an answer.
            let _closing = CloseOnDrop {
                mailbox: Arc::clone(&worker.mailbox),
                regs: Arc::clone(&worker.controller.regs),
            };
            worker.run();
        })?;
        // CAP.TO is in units of 500 ms.
        let timeout = Duration::from_millis(500) * u32::from(Cap(shared.regs.read64(CAP)).to());
        let patience = timeout.max(LEAST_PATIENCE);
        let threaded = Threaded {
            shared,
            mailbox,
            thread: thread.thread().clone(),
            naps,
            heartbeat,
            patience,
        };
        Ok(Self { handle: SsdHandle(Arc::new(threaded)), thread: Some(thread) })
    }

    /// Returns a handle to control it while it runs. The handle does not keep it alive.
    #[must_use]
    pub fn handle(&self) -> SsdHandle {
        self.handle.clone()
    }

    /// Returns the port for a driver.
    #[must_use]
    pub fn port(&self) -> Arc<dyn SoftPort> {
        Arc::new(Port(Arc::clone(&self.handle.0)))
    }

    /// Returns the port for a server.
    #[must_use]
    pub fn function_port(&self) -> Arc<dyn FunctionPort> {
        Arc::new(Port(Arc::clone(&self.handle.0)))
    }

    /// Returns its counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.handle.counters()
    }

    /// Returns the time stamps of I/O commands, if the configuration asked for them.
    #[must_use]
    pub fn stamps(&self) -> Option<&Arc<StampRing>> {
        self.handle.0.shared.stamps.as_ref()
    }

    /// Returns the latest refusals with their reasons, oldest first. There are none once it has
    /// ended.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        self.handle.refusals()
    }

    /// Returns the number of bytes in the volatile write cache, which a power cut may lose.
    #[must_use]
    pub fn unflushed_bytes(&self) -> u64 {
        call(&self.handle, |controller| controller.store.unflushed_bytes()).unwrap_or_default()
    }

    /// Cuts the power and restores it. A random subset (by `seed`) of unflushed writes is lost, and
    /// the controller is reset. Returns the number of lost writes.
    pub fn power_cut(&self, seed: u64) -> u64 {
        self.handle.cut_power(seed)
    }

    /// Replaces the fault plan.
    pub fn set_faults(&self, plan: FaultPlan) {
        self.handle.set_faults(plan);
    }

    /// Makes the device leave the bus: registers read all ones, and nothing completes.
    pub fn unplug(&self) {
        self.handle.unplug();
    }
}

impl FaultControl for SsdHandle {
    fn run(&self, action: Action) {
        // This has no time-out, because the SSD's owner waits.
        let answer = self.0.send(move |controller, now_ns| action.run(controller, now_ns));
        let _ = answer.map(|answer| answer.recv());
    }

    fn counters(&self) -> Counters {
        self.0.shared.counters.snapshot()
    }
}

impl Drop for Ssd {
    fn drop(&mut self) {
        if self.handle.0.mailbox.push(Call::Stop) {
            self.handle.0.wake();
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Ssd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ssd").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

/// Checks that the medium fits the configuration.
pub(crate) fn check_medium(config: &SsdConfig, medium: &Medium) -> Result<(), SsdError> {
    config.validate()?;
    if config.total_bytes() > medium.len() {
        let (wanted, there) = (config.total_bytes(), medium.len());
        let problem = format!(
            "the namespaces take {wanted} bytes, the medium has {there}; make one fit the other"
        );
        return Err(SsdError::config("namespaces", problem));
    }
    Ok(())
}

impl Threaded {
    /// Queues `action`, whose result comes later. Returns `None` if the SSD has ended.
    fn send<T: Send + 'static>(
        &self,
        action: impl FnOnce(&mut Controller, u64) -> T + Send + 'static,
    ) -> Option<Receiver<T>> {
        let (reply, answer) = sync_channel(1);
        let call = Call::Run(Action::new(move |controller, now_ns| {
            // The caller may have stopped waiting. In that case the answer is dropped.
            let _ = reply.send(action(controller, now_ns));
        }));
        if !self.mailbox.push(call) {
            return None;
        }
        // This always unparks, because the word that says whether the thread has parked may be in
        // memory that another process can write. For a thread that has not parked this costs one
        // swap, and one more check before it parks.
        self.wake();
        Some(answer)
    }
}

impl Runner for Threaded {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Runs `action` with a time-out, since the SSD's thread may hang in its medium.
    fn run<T: Send + 'static>(
        &self,
        action: impl FnOnce(&mut Controller, u64) -> T + Send + 'static,
    ) -> Result<T, PortError> {
        let answer = self.send(action).ok_or(PortError::Gone)?;
        answer.recv_timeout(self.patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => PortError::Unresponsive,
            RecvTimeoutError::Disconnected => PortError::Gone,
        })
    }

    fn clock(self: &Arc<Self>) -> Option<Arc<dyn VirtualClock>> {
        None
    }

    fn heartbeat(&self) -> Option<Heartbeat> {
        let turns = self.heartbeat.turns.load(Ordering::Relaxed);
        Some(Heartbeat { turns, cpu: self.heartbeat.cpu.load(Ordering::Relaxed) })
    }

    fn share_cpu(&self) {
        self.heartbeat.yields.store(YIELDS, Ordering::Relaxed);
    }

    fn wake(&self) {
        self.thread.unpark();
    }

    fn set_napping(&self, naps: bool) {
        self.naps.store(naps, Ordering::Relaxed);
        // A parked thread must be woken to notice.
        self.wake();
    }
}

/// A yield that takes longer than this was used by a third thread.
const THIRD: Duration = Duration::from_micros(200);
/// Turns between two checks of the CPU on which the thread is.
const TURNS_PER_CPU: u64 = 1_024;
/// Turns without work in which the thread yields its CPU, once a driver has asked for that.
const YIELDS: u64 = 10_000;

/// Data that a driver and the thread exchange about their CPUs, in a cache line of its own, because
/// hardly any driver uses it.
#[derive(Default)]
#[repr(align(128))]
struct HeartbeatCell {
    /// The thread's turns so far, and the CPU on which it did the last one.
    turns: AtomicU64,
    cpu: AtomicU32,
    /// The number of turns in which it is still to yield.
    yields: AtomicU64,
}

impl HeartbeatCell {
    /// Begins a turn.
    #[inline(always)]
    fn begin(&self, turn: u64) {
        self.turns.store(turn, Ordering::Relaxed);
        if turn.is_multiple_of(TURNS_PER_CPU) {
            self.cpu.store(sched_getcpu() as u32, Ordering::Relaxed);
        }
    }

    /// Yields the CPU if a driver may wait for it.
    #[inline(always)]
    fn yield_if_shared(&self) {
        let left = self.yields.load(Ordering::Relaxed);
        if left > 0 {
            let since = Instant::now();
            std::thread::yield_now();
            // Yielding would help a third thread more. A request that comes in between is lost,
            // and the driver asks again.
            let left = if since.elapsed() < THIRD { left - 1 } else { 0 };
            self.yields.store(left, Ordering::Relaxed);
        }
    }
}

struct CloseOnDrop {
    mailbox: Arc<Mailbox>,
    regs: Arc<RegisterFile>,
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        // The registers are changed first: a caller that finds its call dropped must not read a
        // live register afterwards.
        self.regs.set_gone();
        self.mailbox.close();
    }
}

struct Worker<C> {
    controller: Controller,
    clock: C,
    mailbox: Arc<Mailbox>,
    naps: Arc<AtomicBool>,
    heartbeat: Arc<HeartbeatCell>,
    /// Length of the next nap.
    nap: Duration,
}

impl<C: Clock> Worker<C> {
    fn run(mut self) {
        let park_after_ns = self.controller.config.park_after_ns;
        let mut idle_turns = 0u32;
        let mut idle_since_ns = None;
        let (heartbeat, mut turns) = (Arc::clone(&self.heartbeat), 0u64);
        loop {
            turns += 1;
            heartbeat.begin(turns);
            if self.mailbox.is_waiting() {
                if !self.answer_all() {
                    return;
                }
                (idle_turns, idle_since_ns) = (0, None);
                self.nap = FIRST_NAP;
            }
            match self.controller.turn(&self.clock) {
                turn @ (Turn::Worked | Turn::Waiting) => {
                    idle_turns = 0;
                    idle_since_ns = None;
                    self.nap = FIRST_NAP;
                    if turn == Turn::Waiting {
                        heartbeat.yield_if_shared();
                    }
                }
                turn => {
                    heartbeat.yield_if_shared();
                    idle_turns += 1;
                    if idle_turns < IDLE_TURNS {
                        continue;
                    }
                    idle_turns = 0;
                    let now_ns = self.clock.now_ns();
                    self.controller.inspect(now_ns);
                    let since_ns = *idle_since_ns.get_or_insert(now_ns);
                    if now_ns.saturating_sub(since_ns) >= park_after_ns {
                        // A nap without work is followed by another nap, without a further wait.
                        if !self.park(turn) {
                            idle_since_ns = None;
                        }
                    }
                }
            }
        }
    }

    /// Sleeps until there is work. `soft_port::Parking` explains the protocol: announce, check
    /// everything again, and only then sleep. `unpark` before `park` makes `park` return at once,
    /// so a wake-up between the last check and the sleep is not lost. Returns true if it napped,
    /// because a client may write a doorbell without waking it.
    fn park(&mut self, turn: Turn) -> bool {
        let doorbells = Arc::clone(&self.controller.doorbells);
        // The full fence of the announcement also orders the event indices before the check that
        // follows.
        self.controller.ask_for_rings();
        doorbells.parking().announce();
        self.controller.inspect(self.clock.now_ns());
        let again = self.controller.turn(&self.clock);
        // Only existing queues have doorbells. Register writes come as messages, which wake the
        // thread.
        let naps = self.naps.load(Ordering::Relaxed) && self.controller.has_queues();
        if again == turn && !self.mailbox.is_waiting() {
            let counters = &self.controller.counters;
            if naps {
                counters.naps.add(1);
                std::thread::park_timeout(self.nap);
                self.nap = (self.nap * 2).min(LONGEST_NAP);
            } else {
                counters.parks.add(1);
                if turn == Turn::Blocked {
                    std::thread::park_timeout(BLOCKED_NAP);
                } else if let Some(until_ns) = self.controller.keep_alive_until_ns() {
                    let left_ns = until_ns.saturating_sub(self.clock.now_ns());
                    std::thread::park_timeout(Duration::from_nanos(left_ns));
                } else {
                    std::thread::park();
                }
                counters.wakes.add(1);
            }
        }
        doorbells.parking().retract();
        self.controller.poll_again();
        naps
    }

    /// Answers all waiting calls. Returns false if one of them was Stop.
    fn answer_all(&mut self) -> bool {
        for call in self.mailbox.take() {
            match call {
                Call::Run(action) => action.run(&mut self.controller, self.clock.now_ns()),
                Call::Stop => return false,
            }
        }
        true
    }
}
