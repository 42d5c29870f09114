//! An I/O queue of a live controller: a queue pair with recovery.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::arbitration::QueueClass;
use super::controller::Controller;
use super::error::{Error, Result};
use super::queue::{Command, CommandError, Outcome, QueuePair, Tag};
use super::recovery::{Requester, in_callers_terms};
use super::retry::Retries;
use meantime_hw::{Clock, EventFd, Progress};

/// The most attempts to register while resets keep intervening.
const REGISTER_TRIES: u32 = 8;

/// An I/O queue pair, with the ladder of ARCHITECTURE.md §4. It belongs to one thread.
pub struct IoQueue {
    controller: Arc<Controller>,
    pair: QueuePair,
    event: Option<EventFd>,
    /// What moves its entries, if the device does not.
    progress: Option<Arc<dyn Progress>>,
    vector: Option<u16>,
    class: QueueClass,
    /// The epoch of the controller that knows this queue.
    epoch: u32,
    /// Whether the controller of that epoch has the queue registered.
    registered: bool,
    /// Whether the controller may know the queue. Its memory must then not be freed before the
    /// queue is deleted.
    perhaps_known: bool,
    next_sweep_ns: u64,
    /// When the slow path is next due: a deadline sweep, or a command to stage again.
    next_look_ns: u64,
    last_tick_ns: u64,
    /// The controller's count of cache losses when this queue last read it.
    cache_losses: u32,
}

impl Controller {
    /// Creates an I/O queue pair for up to `depth` commands in flight, with or without an interrupt
    /// vector. The caller assigns the first `assigned` slots itself.
    ///
    /// # Errors
    /// Fails if no queue or vector is left, if there is no memory, or if the controller refuses.
    pub fn create_io_queue(
        self: &Arc<Self>,
        depth: u16,
        assigned: u16,
        interrupt: bool,
        class: QueueClass,
    ) -> Result<IoQueue> {
        let (pair, event, vector) = self.take_pair(depth, assigned, interrupt)?;
        IoQueue::create(Arc::clone(self), pair, event, vector, class)
    }
}

impl IoQueue {
    /// Registers `pair` with the controller.
    ///
    /// # Errors
    /// Fails if the controller refuses, or is gone. The identifier and the vector are then free
    /// again.
    fn create(
        controller: Arc<Controller>,
        mut pair: QueuePair,
        event: Option<EventFd>,
        vector: Option<u16>,
        class: QueueClass,
    ) -> Result<Self> {
        let epoch = controller.epoch();
        let options = controller.options();
        let retries = Retries {
            most: options.retries,
            crdt: controller.info().crdt,
            timeout_ns: options.io_timeout_ns,
        };
        if controller.uses_sgls() {
            pair.use_sgls();
        }
        pair.set_recovery(controller.clock().clone(), retries);
        let cache_losses = controller.cache_losses();
        let (registered, perhaps_known) = (false, false);
        let progress = controller.progress_of(pair.qid());
        let mut queue = Self {
            controller,
            pair,
            event,
            progress,
            vector,
            class,
            epoch,
            registered,
            perhaps_known,
            next_sweep_ns: 0,
            next_look_ns: 0,
            last_tick_ns: 0,
            cache_losses,
        };
        queue.register()?;
        queue.pair.counters_mut().recreations = 0;
        Ok(queue)
    }

    /// The controller.
    pub fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// The clock of the device.
    #[inline(always)]
    pub fn clock(&self) -> &Clock {
        self.controller.clock()
    }

    /// The queue's interrupt, if it has one.
    #[inline(always)]
    pub fn event(&self) -> Option<&EventFd> {
        self.event.as_ref()
    }

    /// Receives what has come, if this thread has to do that. Called before a look at the queue.
    #[inline(always)]
    pub fn progress(&self) {
        if let Some(progress) = &self.progress {
            progress.progress();
        }
    }

    /// Sleeps for `duration_ns`, unless a completion was received since the last look.
    pub fn sleep_ns(&self, duration_ns: u64) {
        if self.progress.is_none() || !self.has_completion() {
            self.clock().sleep_ns(duration_ns);
            self.progress();
        }
    }

    /// Blocks until the queue's interrupt, for at most `timeout_ns`. Returns false at once if the
    /// queue has no interrupt.
    pub fn wait_interrupt(&self, timeout_ns: u64) -> bool {
        match (&self.event, &self.progress) {
            (None, _) => return false,
            // A completion received since the last look raises no interrupt any more.
            (Some(_), Some(_)) if self.has_completion() => {}
            (Some(_), Some(progress)) => progress.wait(timeout_ns),
            (Some(event), None) => {
                self.clock().wait_event(event, timeout_ns);
            }
        }
        true
    }

    /// The class of its submission queue.
    pub fn class(&self) -> QueueClass {
        self.class
    }

    /// Returns a slot to stage one command in. Returns `None` if the queue is full, or if it is not
    /// [current](Self::is_current).
    #[inline(always)]
    pub fn take_tag(&mut self) -> Option<Tag> {
        if self.is_current() { self.pair.take_tag() } else { None }
    }

    /// Whether commands can be staged at once. If not, [`IoQueue::check`] does what is due first:
    /// it registers a queue that a reset has removed, checks deadlines, and repeats held commands.
    #[inline(always)]
    pub fn is_current(&self) -> bool {
        self.controller.epoch() == self.pair.ring().open_epoch()
    }

    /// Stages a fused pair, the first command in `first`; see `QueuePair::stage_pair`. If there is
    /// no slot for the second command, it stages nothing and returns false.
    pub fn stage_pair(&mut self, first: Tag, requester: u16, pair: &[Command; 2]) -> bool {
        let Some(second) = self.pair.take_tag() else { return false };
        self.pair.stage_pair([first, second], requester, pair);
        true
    }

    /// Whether no further command can be staged.
    pub fn is_full(&self) -> bool {
        self.pair.free_tags() == 0
    }

    /// The interval of deadline checks, in ns, which is also the most by which an overdue command
    /// is detected late.
    pub fn sweep_interval_ns(&self) -> u64 {
        (self.controller.options().io_timeout_ns / 8).max(1)
    }

    /// How long a caller may sleep before [`IoQueue::tick`] is due, in ns.
    pub fn look_interval_ns(&self) -> u64 {
        let interval_ns = self.sweep_interval_ns();
        match self.pair.due_ns() {
            u64::MAX => interval_ns,
            // The result is not 0, so that a blocking wait does block.
            due_ns => interval_ns.min(due_ns.saturating_sub(self.clock().now_ns()).max(1_000)),
        }
    }

    /// The time of the last [`IoQueue::tick`] or [`IoQueue::check`], in ns.
    #[inline(always)]
    pub fn last_tick_ns(&self) -> u64 {
        self.last_tick_ns
    }

    /// The slow path, called repeatedly while waiting. It handles a reset made by another thread,
    /// escalates the recovery of overdue commands, and stages due retries; it returns at once when
    /// nothing is due. Returns the number of commands that ended.
    #[inline]
    pub fn tick(&mut self, now_ns: u64, to: &mut dyn Requester) -> usize {
        self.last_tick_ns = now_ns;
        if now_ns < self.next_look_ns && self.is_current() {
            return 0;
        }
        self.check(now_ns, to)
    }

    /// Takes the slow path of [`IoQueue::tick`], whether or not it is due. Afterwards commands can
    /// be staged, or [`IoQueue::usable`] gives the reason why not. Returns the number of commands
    /// that ended.
    #[cold]
    #[inline(never)]
    pub fn check(&mut self, now_ns: u64, to: &mut dyn Requester) -> usize {
        self.last_tick_ns = now_ns;
        let mut counting = Counting { ended: 0, to };
        if self.controller.epoch() != self.epoch || !self.registered {
            self.catch_up(None, &mut counting);
        }
        if now_ns >= self.next_sweep_ns {
            self.next_sweep_ns = now_ns.saturating_add(self.sweep_interval_ns());
            self.sweep(now_ns, &mut counting);
        }
        if self.pair.has_held() {
            self.restage(&mut counting);
        }
        self.next_look_ns = self.next_sweep_ns.min(self.pair.due_ns());
        if self.registered {
            self.pair.ring_mut().open(self.epoch);
        }
        counting.ended
    }

    /// Stages due commands again; if the queue could not be recreated, held commands fail.
    fn restage(&mut self, to: &mut dyn Requester) {
        if !self.registered {
            let gone = self.controller.gone();
            self.pair
                .fail_held(gone.map(|memory_released| CommandError::Gone { memory_released }), to);
            return;
        }
        // The losses are read before the epoch: a loss that is found later has ended this epoch.
        let losses = self.controller.cache_losses();
        if self.controller.epoch() == self.epoch {
            // A loss was detected while the queue was being registered.
            if losses != std::mem::replace(&mut self.cache_losses, losses) {
                self.pair.fail_held_flushes(to);
            }
            // Recovery may have taken a long time.
            let now_ns = self.clock().now_ns();
            self.pair.restage(now_ns, to);
        }
    }

    fn sweep(&mut self, now_ns: u64, to: &mut dyn Requester) {
        let timeout_ns = self.controller.options().io_timeout_ns;
        // The loop is bounded: each turn ends a command, and no command waits for another's
        // deadline.
        for _ in 0..self.pair.slots() {
            if self.in_flight() == 0 || self.controller.gone().is_some() {
                return;
            }
            match self.pair.sweep(now_ns, timeout_ns) {
                Some(cid) => self.escalate(cid, to),
                None => break,
            }
        }
        if self.in_flight() > 0 && self.controller.is_fatal() {
            self.controller.reset(self.epoch);
            self.catch_up(None, to);
        }
    }

    /// Takes the steps of the ladder for the overdue command `cid`.
    fn escalate(&mut self, cid: u16, to: &mut dyn Requester) {
        // Step 1: it may have completed unnoticed.
        self.progress();
        self.reap(|requester, outcome| to.ended(requester, outcome));
        if !self.pair.is_busy(cid) {
            self.pair.counters_mut().late += 1;
            return;
        }
        let device = self.controller.describe();
        tracing::warn!(device, qid = self.qid(), cid, "command timed out");
        // Each step is taken only while the epoch is the command's own: another thread's reset
        // changes the epoch.
        let seen = self.epoch;
        if self.abort(cid, to) {
            return;
        }
        if self.controller.epoch() == seen && self.delete(cid, to) {
            self.register_or_log();
            return;
        }
        self.controller.reset(seen);
        self.catch_up(Some(cid), to);
    }

    /// Takes step 2. Returns true if the command has completed: it has ended, or is held for
    /// another try.
    fn abort(&mut self, cid: u16, to: &mut dyn Requester) -> bool {
        self.pair.counters_mut().aborts += 1;
        if self.controller.abort(self.qid(), cid).is_err() {
            return false;
        }
        let clock = self.clock().clone();
        let deadline_ns = clock.now_ns().saturating_add(self.controller.options().abort_grace_ns);
        loop {
            self.reap_aborted(to);
            if !self.pair.is_busy(cid) {
                return true;
            }
            let now_ns = clock.now_ns();
            if now_ns >= deadline_ns || self.controller.epoch() != self.epoch {
                return false;
            }
            clock.sleep_ns(((deadline_ns - now_ns) / 64).clamp(1_000, 1_000_000));
        }
    }

    /// Reaps, and translates the statuses that the driver's own recovery caused.
    fn reap_aborted(&mut self, to: &mut dyn Requester) {
        self.progress();
        self.reap(|requester, outcome| to.ended(requester, outcome.map_err(in_callers_terms)));
    }

    /// Takes step 3. Returns true if the controller has forgotten the queue. Every command that was
    /// in flight on it is then held or failed.
    fn delete(&mut self, victim: u16, to: &mut dyn Requester) -> bool {
        if !self.forget() {
            return false;
        }
        // The ring holds the completions from before the deletion.
        self.reap_aborted(to);
        self.pair.requeue_all(Some(victim), false, to);
        true
    }

    /// Deletes the queue on the controller. Returns false if the controller does not answer.
    fn forget(&mut self) -> bool {
        if self.controller.unregister_queue(self.qid()).is_err() {
            return false;
        }
        self.forgotten();
        true
    }

    /// Notes that the controller no longer knows the queue.
    fn forgotten(&mut self) {
        self.registered = false;
        self.perhaps_known = false;
        self.pair.ring_mut().mute();
    }

    /// Registers this queue again, with empty rings; it has nothing in flight.
    fn register(&mut self) -> Result<()> {
        self.pair.counters_mut().recreations += 1;
        let mut result = Err(Error::Gone);
        for _ in 0..REGISTER_TRIES {
            self.epoch = self.controller.stable_epoch();
            if self.controller.gone().is_some() {
                return Err(self.controller.explain(Error::Gone));
            }
            self.pair.reset_rings();
            if let Some(doorbells) = self.controller.shadow_doorbells(self.qid())? {
                self.pair.ring_mut().set_doorbells(doorbells);
            }
            self.perhaps_known = true;
            result = self.controller.register_queue(&self.pair, self.vector, self.class);
            if result.is_ok() && self.controller.epoch() == self.epoch {
                break;
            }
            if let Err(
                Error::AdminTimeout { .. }
                | Error::Fatal { .. }
                | Error::Gone
                | Error::Connection(_),
            ) = result
            {
                self.controller.reset(self.epoch);
            } else {
                // If a reset intervened, the queue may or may not be known.
                self.forget();
            }
        }
        self.registered = result.is_ok() && self.controller.epoch() == self.epoch;
        if self.registered {
            self.pair.ring_mut().open(self.epoch);
        }
        result
    }

    /// Follows a reset, or the end, of the controller: holds or fails the commands in flight, and
    /// registers the queue again.
    fn catch_up(&mut self, victim: Option<u16>, to: &mut dyn Requester) {
        // This waits for a reset by another thread; all its steps are bounded.
        let epoch = self.controller.stable_epoch();
        if let Some(memory_released) = self.controller.gone() {
            self.epoch = epoch;
            self.forgotten();
            let error = CommandError::Gone { memory_released };
            self.pair.fail_all(None, error, &mut |requester, outcome| to.ended(requester, outcome));
            self.pair.fail_held(Some(error), to);
            return;
        }
        if epoch != self.epoch {
            self.forgotten();
            self.epoch = epoch;
            // RDY was 0 before the new epoch, so the device has released every buffer. Entries that
            // it completed earlier are whole, and are reaped.
            self.reap_aborted(to);
            let losses = self.controller.cache_losses();
            let cache_lost = losses != std::mem::replace(&mut self.cache_losses, losses);
            self.pair.requeue_all(victim, cache_lost, to);
        }
        if !self.registered {
            self.register_or_log();
        }
    }

    fn register_or_log(&mut self) {
        if let Err(error) = self.register() {
            let device = self.controller.describe();
            tracing::error!(device, qid = self.qid(), %error, "queue lost");
        }
    }

    /// Checks that commands can be staged.
    ///
    /// # Errors
    /// Returns [`Error::Gone`] or the reason why the queue could not be recreated.
    pub fn usable(&self) -> Result<()> {
        match (self.controller.gone(), self.registered) {
            (Some(_), _) => Err(self.controller.explain(Error::Gone)),
            (None, true) => Ok(()),
            (None, false) => {
                Err(Error::Unsupported(format!("queue {} could not be recreated", self.qid())))
            }
        }
    }

    /// Gets every command back from the device, by any step of the ladder. Commands are still
    /// repeated meanwhile, since no caller would learn that a detached write failed.
    pub fn drain(&mut self, to: &mut dyn Requester) {
        if self.controller.epoch() == self.epoch {
            self.ring_doorbell();
        }
        let clock = self.clock().clone();
        // This is long enough to detect an overdue command that no sweep has seen yet, and to
        // repeat it.
        let deadline_ns = clock.now_ns().saturating_add(11 * self.sweep_interval_ns());
        let mut pause_ns = 0;
        while self.in_flight() > 0 && clock.now_ns() < deadline_ns {
            let now_ns = clock.now_ns();
            self.tick(now_ns, to);
            self.progress();
            if self.reap(|requester, outcome| to.ended(requester, outcome)) == 0 {
                pause_ns = (pause_ns + 500).min(1_000_000);
                clock.sleep_ns(pause_ns);
            }
        }
        self.end_all(to);
    }

    /// Gets every command back from the device now, without repeating any.
    fn end_all(&mut self, to: &mut dyn Requester) {
        if self.in_flight() == 0 {
            return;
        }
        self.pair.stop_retrying();
        let seen = self.epoch;
        if self.controller.epoch() == seen && self.forget() {
            self.reap_aborted(to);
            self.pair.fail_all(None, CommandError::TimedOut, &mut |requester, outcome| {
                to.ended(requester, outcome)
            });
        } else {
            self.controller.reset(seen);
            self.catch_up(None, to);
        }
        self.pair.fail_held(None, to);
    }
}

/// The queue pair, for staging and reaping.
impl Deref for IoQueue {
    type Target = QueuePair;

    #[inline(always)]
    fn deref(&self) -> &QueuePair {
        &self.pair
    }
}

impl DerefMut for IoQueue {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut QueuePair {
        &mut self.pair
    }
}

/// Passes outcomes on, and counts ended commands.
struct Counting<'a> {
    ended: usize,
    to: &'a mut dyn Requester,
}

impl Requester for Counting<'_> {
    fn ended(&mut self, requester: u16, outcome: Outcome) {
        self.ended += 1;
        self.to.ended(requester, outcome);
    }

    fn again(&mut self, requester: u16) -> Option<Command> {
        self.to.again(requester)
    }
}

/// A requester of commands that no caller waits for.
struct NoRequester;

impl Requester for NoRequester {
    fn ended(&mut self, _: u16, _: Outcome) {}

    fn again(&mut self, _: u16) -> Option<Command> {
        None
    }
}

impl Drop for IoQueue {
    fn drop(&mut self) {
        // If buffers were lent, the layer above has drained the queue, so no requester waits for
        // these outcomes.
        if self.in_flight() > 0 {
            self.end_all(&mut NoRequester);
        }
        // The queue's memory is freed next.
        if self.perhaps_known && self.controller.gone().is_none() {
            let seen = self.controller.stable_epoch();
            if !self.forget() {
                self.controller.reset(seen);
            }
        }
        self.controller.release_queue(self.qid(), self.vector);
        if let Some(memory_released) = self.controller.gone() {
            if !memory_released {
                self.pair.quarantine();
            }
            self.controller.wait_until_released();
        }
    }
}
