//! The set of ready tasks: a bit each, and wakers that set it.
//!
//! A wake-up on the executor's own thread, as every I/O causes, takes two plain stores. One from
//! another thread sets a separate bit by an atomic operation, and wakes the executor if it sleeps.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread::Thread;

use meantime_completion::alert::Alert;
use meantime_hw::EventFd;

thread_local! {
    /// The number of the executor whose tasks this thread runs; 0 if none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// Tasks of a group.
pub(super) const GROUP: usize = 64 * 64;

/// The part of an executor that wakers use.
pub(super) struct Home {
    /// Never 0, and unique among executors.
    id: u64,
    thread: Thread,
    /// The event that the executor may block on beside its thread's token.
    event: Option<EventFd>,
    /// Raised when other threads have woken tasks.
    alert: Alert,
}

impl Home {
    pub(super) fn new(event: Option<EventFd>) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            thread: std::thread::current(),
            event,
            alert: Alert::default(),
        }
    }

    /// Whether this thread runs this executor's tasks.
    pub(super) fn is_here(&self) -> bool {
        CURRENT.get() == self.id
    }

    /// Marks this thread as running this executor's tasks until the result is dropped.
    pub(super) fn enter(&self) -> Entered {
        Entered { before: CURRENT.replace(self.id) }
    }

    /// Whether other threads have woken tasks.
    #[inline(always)]
    pub(super) fn has_remote(&self) -> bool {
        self.alert.is_raised()
    }

    /// Takes that flag. If true, the caller merges the remote bits.
    #[inline(always)]
    pub(super) fn take_remote(&self) -> bool {
        self.alert.take()
    }

    /// Sleeps by `sleep` unless a wake-up has come.
    pub(super) fn sleep(&self, sleep: impl FnOnce()) {
        self.alert.sleep(sleep);
    }

    fn rouse(&self) {
        self.alert.raise(|| {
            // The thread may sleep on either. Both keep a signal that comes before the sleep.
            self.thread.unpark();
            if let Some(event) = &self.event {
                event.signal();
            }
        });
    }
}

/// See [`Home::enter`].
pub(super) struct Entered {
    before: u64,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// A bit for each task, and one for each word of these bits.
struct Bits {
    summary: AtomicU64,
    words: [AtomicU64; 64],
}

impl Bits {
    fn new() -> Self {
        Self { summary: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; 64] }
    }
}

/// The readiness of [`GROUP`] tasks.
pub(super) struct Group {
    home: Arc<Home>,
    /// Stored to by the executor's thread only.
    local: Bits,
    remote: Bits,
}

impl Group {
    pub(super) fn new(home: Arc<Home>) -> Self {
        Self { home, local: Bits::new(), remote: Bits::new() }
    }

    /// Makes task `index` of the group ready.
    #[inline(always)]
    fn wake(&self, index: u16) {
        if self.home.is_here() { self.set_local(index) } else { self.wake_remote(index) }
    }

    /// On the executor's thread only, so a load and a store suffice.
    #[inline(always)]
    pub(super) fn set_local(&self, index: u16) {
        let (word, bit) = place(index);
        add_local(&self.local.words[word], bit);
        add_local(&self.local.summary, 1 << word);
    }

    #[cold]
    #[inline(never)]
    fn wake_remote(&self, index: u16) {
        let (word, bit) = place(index);
        // The task's bit first, then the summary bit that leads to it.
        self.remote.words[word].fetch_or(bit, Ordering::Release);
        self.remote.summary.fetch_or(1 << word, Ordering::Release);
        self.home.rouse();
    }

    /// Merges the wake-ups from other threads.
    #[cold]
    pub(super) fn merge_remote(&self) {
        let mut summary = self.remote.summary.swap(0, Ordering::Acquire);
        add_local(&self.local.summary, summary);
        while summary != 0 {
            let word = summary.trailing_zeros() as usize;
            summary &= summary - 1;
            add_local(&self.local.words[word], self.remote.words[word].swap(0, Ordering::Acquire));
        }
    }

    /// Bit set of the words with ready tasks.
    #[inline(always)]
    pub(super) fn summary(&self) -> u64 {
        self.local.summary.load(Ordering::Relaxed)
    }

    /// Takes the ready tasks of `word`.
    #[inline(always)]
    pub(super) fn take(&self, word: usize) -> u64 {
        let summary = &self.local.summary;
        summary.store(summary.load(Ordering::Relaxed) & !(1 << word), Ordering::Relaxed);
        let bits = self.local.words[word % 64].load(Ordering::Relaxed);
        self.local.words[word % 64].store(0, Ordering::Relaxed);
        bits
    }
}

impl Group {
    /// Makes the tasks `bits` of `word` ready again.
    pub(super) fn put_back(&self, word: usize, bits: u64) {
        if bits != 0 {
            add_local(&self.local.words[word], bits);
            add_local(&self.local.summary, 1 << word);
        }
    }
}

#[inline(always)]
fn add_local(word: &AtomicU64, bits: u64) {
    word.store(word.load(Ordering::Relaxed) | bits, Ordering::Relaxed);
}

#[inline(always)]
const fn place(index: u16) -> (usize, u64) {
    (index as usize / 64 % 64, 1 << (index % 64))
}

/// The data of a task's waker.
struct TaskWaker {
    group: Arc<Group>,
    index: u16,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.group.wake(self.index);
    }

    #[inline]
    fn wake_by_ref(self: &Arc<Self>) {
        self.group.wake(self.index);
    }
}

/// A waker for task `index` of `group`.
pub(super) fn waker(group: &Arc<Group>, index: u16) -> Waker {
    Waker::from(Arc::new(TaskWaker { group: Arc::clone(group), index }))
}
