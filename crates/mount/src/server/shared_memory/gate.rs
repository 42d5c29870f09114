//! Decides who may have a file's content: the kernel's page cache, or programs that take the
//! shared-memory path. They never both have it.
//!
//! ```text
//!              a program takes            the kernel has dropped
//!              an open file               what it kept of it
//!    Fresh ───────────────────▶ Entering ────────────────────▶ SharedMemory
//!      │                            │                            │
//!      └────────────────────────────┴────────────────────────────┘
//!                                   │ the kernel reads or writes pages of its cache,
//!                                   │ or we leave the file to it
//!                                   ▼
//!                                 Long
//! ```
//! There is no transition back. A file gets a new gate when all users that had it open have closed
//! it. As long as the gate is `Fresh` or `SharedMemory`, none of these users has content in the
//! kernel's cache, because that would have come from us. What is left there from before is dropped
//! while the gate is `Entering`.
//!
//! The request that makes the gate `Long` is answered after the last call of the shared-memory path
//! has ended. Then the kernel caches what such calls have written, and later calls are refused.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use meantime_process::lock::{Condvar, Mutex, Rank};
use meantime_shm_rpc::message::SMALL_FILE_BYTES;

/// The places where a file's content may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// Neither has any content. The kernel may keep some from earlier.
    Fresh = 0,
    /// The kernel is told to drop the content that it kept.
    Entering = 1,
    /// Calls of the shared-memory path are executed.
    SharedMemory = 2,
    /// The kernel has some of the content.
    Long = 3,
}

impl Mode {
    const ALL: [Self; 4] = [Self::Fresh, Self::Entering, Self::SharedMemory, Self::Long];

    /// Returns the mode after a program takes the file, or `None` if it cannot take it.
    pub(super) fn taken(self) -> Option<Self> {
        match self {
            Self::Fresh => Some(Self::Entering),
            Self::Entering | Self::SharedMemory => Some(self),
            Self::Long => None,
        }
    }

    /// Returns the mode after the kernel has dropped the content that it kept.
    pub(super) fn emptied(self) -> Self {
        if self == Self::Entering { Self::SharedMemory } else { self }
    }

    /// Returns whether calls of the shared-memory path are executed.
    pub(super) fn admits(self) -> bool {
        self == Self::SharedMemory
    }
}

/// The mode is in the upper half, and the number of calls being executed in the lower one.
const MODE: u32 = 32;
const CALLS: u64 = (1 << MODE) - 1;

fn mode(state: u64) -> Mode {
    Mode::ALL[(state >> MODE) as usize & 3]
}

fn with_mode(state: u64, mode: Mode) -> u64 {
    state & CALLS | (mode as u64) << MODE
}

/// The loss of a cached read by the shared-memory path, compared with the kernel's cache. Both take
/// the same time if both sides spin, but the shared-memory path keeps a second CPU busy.
const LOSS: u32 = 1;
/// The loss of a cached read if one side has to be woken.
const SLOW_LOSS: u32 = 8;
/// The gain of other calls.
const GAIN_OF_MISS: u32 = 16;
const GAIN_OF_CHANGE: u32 = 64;
/// The cost at which a file is left to the kernel, which is that of filling the kernel's cache. It
/// is higher if a user of the file may write, since that will take the FUSE path, too, and for
/// files of which we hold only a part, since the kernel asks for their pages one by one.
const FALLBACK_COST: u32 = 1024;
const FALLBACK_COST_DEAR: u32 = 64 * 1024;

/// The kinds of calls, by their costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// The call read from memory. `is_slow` says that one of the two sides had to be woken, and
    /// `fits` that all of the file could be in memory.
    Hit { is_slow: bool, fits: bool },
    /// The call read a little, from the device or not, and continued the reads before it. The
    /// kernel reads ahead, which combines many of them in one request.
    Sequence { fits: bool },
    /// The call read from the device.
    Miss,
    /// The call changed the file.
    Change,
}

/// The longest time between two checks whether the last call has ended.
const LOOK: Duration = Duration::from_secs(1);

/// How long a file that was opened to append may still be taken. A program takes it at once, but
/// may have to connect first.
const TAKING: Duration = Duration::from_millis(10);
const TAKING_LOOK: Duration = Duration::from_micros(50);
/// The longest time that all calls on a file together wait until a program takes it. A program
/// without the library never takes it, and may open the file to append again and again.
const TAKING_MOST: Duration = Duration::from_millis(50);
const NEVER: u64 = u64::MAX;

/// The gate of a file that is open.
pub(crate) struct Gate {
    state: AtomicU64,
    /// The number of open files that were not taken, or were taken to append and not used yet.
    pub(super) others: AtomicU32,
    /// The number of open files that append and were not taken.
    pub(super) appenders: AtomicU32,
    /// When the file was last opened to append, in ns after `made`; or [`NEVER`].
    append_opened_ns: AtomicU64,
    /// The time that calls have waited for that since a program took it, in ns.
    awaited_ns: AtomicU64,
    made: Instant,
    /// Whether a user that has the file open may write.
    pub(super) has_writer: AtomicBool,
    /// Whether a program has taken the file, so that the kernel may not know the size and other
    /// attributes.
    was_taken: AtomicBool,
    /// The cost of the shared-memory path so far, in reads that the kernel's cache would have
    /// answered sooner.
    cost: AtomicU32,
    /// Whether the gate was closed because of that cost.
    is_left: AtomicBool,
    /// Bytes that the kernel has read into its cache, and whether these are most of the file.
    kept_bytes: AtomicU64,
    is_kept: AtomicBool,
    drained: (Mutex<()>, Condvar),
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            others: AtomicU32::new(0),
            appenders: AtomicU32::new(0),
            append_opened_ns: AtomicU64::new(NEVER),
            awaited_ns: AtomicU64::new(0),
            made: Instant::now(),
            has_writer: AtomicBool::new(false),
            was_taken: AtomicBool::new(false),
            cost: AtomicU32::new(0),
            is_left: AtomicBool::new(false),
            kept_bytes: AtomicU64::new(0),
            is_kept: AtomicBool::new(false),
            drained: (Mutex::new(Rank::Served, ()), Condvar::new()),
        }
    }

    /// Notes that the file was opened to append.
    pub(super) fn opened_to_append(&self) {
        let now_ns = self.made.elapsed().as_nanos() as u64;
        self.append_opened_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Waits for programs that have just opened the file to append. Until they have taken it, a
    /// call that changes its size has to take the FUSE path, and the file would stay there.
    pub(super) fn await_taking(&self) {
        let (since, awaited_ns) = (Instant::now(), self.awaited_ns.load(Ordering::Relaxed));
        let left = TAKING.min(TAKING_MOST.saturating_sub(Duration::from_nanos(awaited_ns)));
        while self.appenders.load(Ordering::SeqCst) > 0 && !self.is_closed() {
            let opened_ns = self.append_opened_ns.load(Ordering::Relaxed);
            let age = self.made.elapsed().saturating_sub(Duration::from_nanos(opened_ns));
            if opened_ns == NEVER || age >= TAKING || since.elapsed() >= left {
                break;
            }
            std::thread::sleep(TAKING_LOOK);
            let waited_ns = awaited_ns + since.elapsed().as_nanos() as u64;
            self.awaited_ns.store(waited_ns, Ordering::Relaxed);
        }
    }

    /// Returns whether a program has taken the file, even if it cannot use it any more.
    pub(crate) fn was_taken(&self) -> bool {
        self.was_taken.load(Ordering::SeqCst)
    }

    /// Returns whether the kernel has the file's content.
    pub(crate) fn is_closed(&self) -> bool {
        mode(self.state.load(Ordering::SeqCst)) == Mode::Long
    }

    #[cfg(test)]
    fn mode(&self) -> Mode {
        mode(self.state.load(Ordering::SeqCst))
    }

    /// Is called when the kernel reads or writes pages of its cache, before that is executed.
    /// Returns when no call of the shared-memory path is being executed, and none will be.
    pub(crate) fn close(&self) {
        if self.state.load(Ordering::SeqCst) == (Mode::Long as u64) << MODE {
            return;
        }
        // `Long` has all bits of the other modes.
        self.state.fetch_or((Mode::Long as u64) << MODE, Ordering::SeqCst);
        let mut held = self.drained.0.lock().unwrap_or_else(PoisonError::into_inner);
        while self.state.load(Ordering::SeqCst) & CALLS != 0 {
            held = self.drained.1.wait_timeout(held, LOOK);
        }
    }

    /// Counts a call for or against the shared-memory path. If the path does not pay, the file is
    /// left to the kernel, whose cache answers without another process.
    ///
    /// The path pays for calls that need the device, and for changes. Cached reads gain nothing by
    /// it, and lose much if there are fewer CPUs than its two sides take, or if calls are rare. The
    /// same holds for small reads in sequence, which the kernel answers from what it has read
    /// ahead.
    #[inline]
    pub(super) fn count(&self, done: Done) {
        // It does no harm if a count is lost to another thread.
        let cost = self.cost.load(Ordering::Relaxed);
        let (loss, is_dear, fits) = match done {
            Done::Hit { is_slow, fits } => (if is_slow { SLOW_LOSS } else { LOSS }, !fits, fits),
            Done::Sequence { fits } => {
                if !self.has_writer.load(Ordering::Relaxed) {
                    self.leave(fits);
                }
                return;
            }
            Done::Miss | Done::Change => {
                let gain = if done == Done::Miss { GAIN_OF_MISS } else { GAIN_OF_CHANGE };
                if cost > 0 {
                    self.cost.store(cost.saturating_sub(gain), Ordering::Relaxed);
                }
                return;
            }
        };
        let cost = cost + loss;
        self.cost.store(cost, Ordering::Relaxed);
        let is_dear = is_dear || self.has_writer.load(Ordering::Relaxed);
        if cost >= if is_dear { FALLBACK_COST_DEAR } else { FALLBACK_COST } {
            self.leave(fits);
        }
    }

    /// Leaves the file to the kernel. `fits` says that all of it could be in our memory.
    #[cold]
    fn leave(&self, fits: bool) {
        self.is_left.store(fits, Ordering::Relaxed);
        // `close` waits for the calls in progress before the kernel gets any content.
        self.state.fetch_or((Mode::Long as u64) << MODE, Ordering::SeqCst);
    }

    /// Counts bytes that the kernel reads into its cache, of a file of `size` bytes. A small file
    /// is not counted, because programs do not take such files to read them.
    pub(crate) fn count_kept(&self, bytes: u64, size: u64) {
        let is_small = size <= SMALL_FILE_BYTES;
        if !is_small && self.kept_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > size / 2 {
            self.is_kept.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the file is better left to the kernel when it is opened again.
    pub(super) fn is_better_left(&self) -> bool {
        self.is_left() || self.is_kept.load(Ordering::Relaxed)
    }

    /// Returns whether the file is unused: neither taken, nor read or written through the kernel.
    pub(super) fn is_fresh(&self) -> bool {
        mode(self.state.load(Ordering::SeqCst)) == Mode::Fresh
    }

    /// Leaves an unused file to the kernel, unless a user has it open to write. `fits` says that
    /// our memory can hold all of it. Returns whether the file was left.
    pub(super) fn leave_if_fresh(&self, fits: bool) -> bool {
        if self.has_writer.load(Ordering::Relaxed) {
            return false;
        }
        let long = |state| (mode(state) == Mode::Fresh).then(|| with_mode(state, Mode::Long));
        let left = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, long);
        if left.is_ok() {
            self.is_left.store(fits, Ordering::Relaxed);
        }
        left.is_ok()
    }

    /// Returns whether the file was left to the kernel because all of it may be in our memory.
    pub(super) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Relaxed)
    }

    /// Takes the file for a program. Returns the mode that the file has now: `Entering` (the kernel
    /// has to drop what it kept, then [`emptied`](Self::emptied) is called), `SharedMemory`, or
    /// `Long`.
    pub(super) fn take(&self) -> Mode {
        // This is set before the mode changes, so that attributes that are sent from now on are not
        // kept.
        self.was_taken.store(true, Ordering::SeqCst);
        self.awaited_ns.store(0, Ordering::Relaxed);
        let taken = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |state| {
            mode(state).taken().map(|mode| with_mode(state, mode))
        });
        taken.ok().and_then(|state| mode(state).taken()).unwrap_or(Mode::Long)
    }

    /// Notes that the kernel has dropped what it kept of the file since [`take`](Self::take).
    pub(crate) fn emptied(&self) {
        let _ = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |state| {
            Some(with_mode(state, mode(state).emptied()))
        });
    }

    /// Begins a call of the shared-memory path, if the file may be reached by it.
    #[inline]
    pub(super) fn enter(&self) -> Option<Call<'_>> {
        // Refused calls do not make the kernel wait in `close`.
        if mode(self.state.load(Ordering::SeqCst)) != Mode::SharedMemory {
            return None;
        }
        let state = self.state.fetch_add(1, Ordering::SeqCst);
        let call = Call(self);
        mode(state).admits().then_some(call)
    }
}

/// A call being executed, until it is dropped.
pub(super) struct Call<'a>(&'a Gate);

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        let state = self.0.state.fetch_sub(1, Ordering::SeqCst);
        if mode(state) == Mode::Long && state & CALLS == 1 {
            // The waiter is woken under the lock, so that a waiter that has seen the call is
            // already asleep.
            let _held = self.0.drained.0.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.drained.1.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn calls_are_executed_only_between_the_kernels_last_and_next_use_of_its_cache() {
        let gate = Gate::new();
        assert!(gate.enter().is_none(), "fresh");
        assert_eq!((gate.take(), gate.enter().is_none()), (Mode::Entering, true));
        assert_eq!(gate.take(), Mode::Entering, "by another program");
        gate.emptied();
        assert_eq!((gate.take(), gate.enter().is_some()), (Mode::SharedMemory, true));
        gate.close();
        assert_eq!((gate.take(), gate.enter().is_none()), (Mode::Long, true));
        gate.emptied();
        assert_eq!(gate.mode(), Mode::Long);
        let gate = Gate::new();
        gate.take();
        gate.close();
        gate.emptied();
        assert_eq!(gate.mode(), Mode::Long, "while the kernel dropped it, it read it again");
    }

    fn taken() -> Gate {
        let gate = Gate::new();
        gate.take();
        gate.emptied();
        gate
    }

    fn hit(is_slow: bool) -> Done {
        Done::Hit { is_slow, fits: true }
    }

    #[test]
    fn a_file_is_left_to_the_kernel_if_the_shared_memory_path_does_not_pay() {
        let reads_until_left = |has_writer: bool, done: &[Done]| {
            let gate = taken();
            gate.has_writer.store(has_writer, Ordering::Relaxed);
            (1..1_000_000).find(|_| {
                done.iter().for_each(|done| gate.count(*done));
                gate.is_closed()
            })
        };
        let slow = reads_until_left(false, &[hit(true)]).unwrap();
        assert!((100..200).contains(&slow), "{slow}");
        assert!(reads_until_left(false, &[hit(false)]).unwrap() > 4 * slow);
        assert!(reads_until_left(true, &[hit(true)]).unwrap() > 32 * slow, "it may be written");
        assert_eq!(reads_until_left(false, &[Done::Miss]), None);
        assert_eq!(reads_until_left(false, &[Done::Miss, hit(true)]), None);
        assert_eq!(reads_until_left(true, &[Done::Change, hit(true), hit(true)]), None);
        let sequence = Done::Sequence { fits: true };
        assert_eq!(reads_until_left(false, &[sequence]), Some(1));
        assert_eq!(reads_until_left(true, &[sequence]), None, "it may be written");
    }

    #[test]
    fn a_file_is_left_at_once_if_nobody_uses_it() {
        let gate = taken();
        assert!(!gate.is_fresh() && !gate.leave_if_fresh(true) && gate.enter().is_some());
        for fits in [true, false] {
            let gate = Gate::new();
            assert!(gate.is_fresh() && gate.leave_if_fresh(fits) && gate.is_closed());
            assert_eq!((gate.is_left(), gate.take()), (fits, Mode::Long));
        }
        let gate = Gate::new();
        gate.has_writer.store(true, Ordering::Relaxed);
        assert!(!gate.leave_if_fresh(true) && gate.is_fresh());
    }

    #[test]
    fn a_file_is_better_left_if_it_was_left_or_the_kernel_has_most_of_it() {
        let gate = taken();
        (0..8).for_each(|_| gate.count(hit(true)));
        gate.count_kept(SMALL_FILE_BYTES, SMALL_FILE_BYTES);
        gate.count_kept(400_000, 1 << 20);
        assert!(!gate.is_better_left());
        gate.count_kept(200_000, 1 << 20);
        assert!(gate.is_better_left());
        let gate = taken();
        gate.count(Done::Sequence { fits: true });
        assert!(gate.is_better_left());
    }

    #[test]
    fn only_what_fits_into_memory_is_read_ahead() {
        for fits in [true, false] {
            let gate = taken();
            while !gate.is_closed() {
                gate.count(Done::Hit { is_slow: true, fits });
            }
            assert_eq!(
                (gate.is_left(), gate.take(), gate.enter().is_none()),
                (fits, Mode::Long, true)
            );
        }
    }

    #[test]
    fn who_just_opened_the_file_to_append_is_awaited_for_a_moment() {
        let gate = taken();
        gate.appenders.store(1, Ordering::SeqCst);
        gate.opened_to_append();
        let begun = Instant::now();
        gate.await_taking();
        assert!(begun.elapsed() > TAKING / 2, "it is not taken");
        assert!(gate.made.elapsed() > TAKING);
        let looks = (0..10_000).map(|_| gate.await_taking()).count();
        assert!(begun.elapsed() < TAKING * looks as u32, "it was opened long ago");
    }

    #[test]
    fn a_program_that_only_appends_by_the_kernel_holds_up_little() {
        let gate = taken();
        gate.appenders.store(1, Ordering::SeqCst);
        let awaited = |times: usize| {
            let begun = Instant::now();
            for _ in 0..times {
                gate.opened_to_append();
                gate.await_taking();
            }
            begun.elapsed()
        };
        awaited(10);
        assert_eq!(gate.awaited_ns.load(Ordering::Relaxed) / 1_000_000 / 50, 1);
        assert!(awaited(100) < 100 * TAKING / 2, "it has been waited for long enough");
        gate.take();
        assert!(awaited(1) > TAKING / 2, "others do take it");
    }

    #[test]
    fn closing_waits_for_calls_in_progress() {
        for _ in 0..200 {
            let gate = Arc::new(Gate::new());
            gate.take();
            gate.emptied();
            let is_closed = Arc::new(AtomicBool::new(false));
            let calls: Vec<_> = (0..2)
                .map(|_| {
                    let (gate, is_closed) = (Arc::clone(&gate), Arc::clone(&is_closed));
                    std::thread::spawn(move || {
                        while let Some(call) = gate.enter() {
                            std::thread::yield_now();
                            assert!(!is_closed.load(Ordering::SeqCst));
                            drop(call);
                        }
                    })
                })
                .collect();
            std::thread::yield_now();
            gate.close();
            is_closed.store(true, Ordering::SeqCst);
            for call in calls {
                call.join().unwrap();
            }
            assert_eq!(gate.state.load(Ordering::SeqCst), (Mode::Long as u64) << MODE);
        }
    }
}
