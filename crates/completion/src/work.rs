//! Work for the gap: handed over by a layer or a user, and run in pieces while the device works.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// How long work waits for a gap that it fits into by default, in ns.
pub const PATIENCE_NS: u64 = 10_000_000;

/// The result of one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There is another piece.
    More,
    /// No more pieces until the [`Notifier`] is notified.
    Pending,
    /// The work is done.
    Done,
}

/// Work in pieces, each of bounded cost.
///
/// A piece runs on the channel's thread while that thread would only wait. It must not use the
/// channel, which is borrowed, and should neither block nor sleep.
pub trait Deferred: Send {
    /// The most time that the next piece takes, in ns. A longer piece may delay the detection of a
    /// completion; it is counted as an overrun.
    fn piece_bound_ns(&self) -> u64;

    /// Runs one piece. Not called again after [`Progress::Done`], nor after a panic.
    fn run(&mut self) -> Progress;

    /// How long it may wait for a gap that it fits into, in ns. After that its pieces run whether
    /// they fit or not.
    fn patience_ns(&self) -> u64 {
        PATIENCE_NS
    }

    /// Called once, before the first piece, with the notifier to use when work that was
    /// [`Progress::Pending`] can continue.
    fn attach(&mut self, notifier: &Notifier) {
        let _ = notifier;
    }

    /// Whether work that was [`Progress::Pending`] can continue. Called after any notification,
    /// which may concern other work.
    fn is_due(&self) -> bool {
        true
    }
}

/// Signals, from any thread, that some work can continue.
#[derive(Clone, Default)]
pub struct Notifier(Arc<Shared>);

#[derive(Default)]
struct Shared {
    notified: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Notifier {
    /// Notifies. [`Deferred::is_due`] must be true before.
    pub fn notify(&self) {
        // Release: the thread that takes the notification sees the stores that made the work due.
        self.0.notified.store(true, Ordering::Release);
        let waker = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether it was notified since the last call.
    pub(super) fn take(&self) -> bool {
        self.0.notified.load(Ordering::Relaxed) && self.0.notified.swap(false, Ordering::Acquire)
    }

    /// Sets the waker that a notification calls.
    pub(super) fn set_waker(&self, waker: Option<Waker>) {
        let before = std::mem::replace(
            &mut *self.0.waker.lock().unwrap_or_else(PoisonError::into_inner),
            waker,
        );
        drop(before);
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").field("notified", &self.0.notified).finish_non_exhaustive()
    }
}

/// Work made from a closure; [`PolledPieces`] is made from a future.
///
/// ```
/// use meantime::completion::{Deferred, Pieces, Progress};
///
/// let mut left = 3;
/// let mut work = Pieces::new(2_000, move || {
///     left -= 1;
///     if left > 0 { Progress::More } else { Progress::Done }
/// });
/// assert_eq!(work.piece_bound_ns(), 2_000);
/// let progress = [work.run(), work.run(), work.run()];
/// assert_eq!(progress, [Progress::More, Progress::More, Progress::Done]);
/// ```
#[derive(Debug)]
pub struct Pieces<F> {
    bound_ns: u64,
    patience_ns: u64,
    run: F,
}

impl<F: FnMut() -> Progress + Send> Pieces<F> {
    /// Each call of `run` is a piece of at most `bound_ns`.
    pub fn new(bound_ns: u64, run: F) -> Self {
        Self { bound_ns, patience_ns: PATIENCE_NS, run }
    }

    /// Limits the wait for a gap that it fits into.
    pub fn patience_ns(mut self, patience_ns: u64) -> Self {
        self.patience_ns = patience_ns;
        self
    }
}

impl Pieces<()> {
    /// A single piece of at most `bound_ns`.
    pub fn once(
        bound_ns: u64,
        run: impl FnOnce() + Send,
    ) -> Pieces<impl FnMut() -> Progress + Send> {
        let mut run = Some(run);
        Pieces::new(bound_ns, move || {
            if let Some(run) = run.take() {
                run();
            }
            Progress::Done
        })
    }

    /// Each poll of `future` is a piece of at most `bound_ns`. It is polled again after a wake-up.
    pub fn future<F: Future<Output = ()> + Send>(bound_ns: u64, future: F) -> PolledPieces<F> {
        let wake = Arc::new(DueWaker { due: AtomicBool::new(true), notifier: OnceLock::new() });
        let waker = Waker::from(Arc::clone(&wake));
        PolledPieces { bound_ns, patience_ns: PATIENCE_NS, future: Box::pin(future), wake, waker }
    }
}

impl<F: FnMut() -> Progress + Send> Deferred for Pieces<F> {
    fn piece_bound_ns(&self) -> u64 {
        self.bound_ns
    }

    fn run(&mut self) -> Progress {
        (self.run)()
    }

    fn patience_ns(&self) -> u64 {
        self.patience_ns
    }
}

/// A future as work: see [`Pieces::future`].
pub struct PolledPieces<F> {
    bound_ns: u64,
    patience_ns: u64,
    future: Pin<Box<F>>,
    wake: Arc<DueWaker>,
    waker: Waker,
}

impl<F> PolledPieces<F> {
    /// Limits the wait for a gap that it fits into, once it can continue.
    pub fn patience_ns(mut self, patience_ns: u64) -> Self {
        self.patience_ns = patience_ns;
        self
    }
}

impl<F> fmt::Debug for PolledPieces<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolledPieces").field("bound_ns", &self.bound_ns).finish_non_exhaustive()
    }
}

struct DueWaker {
    due: AtomicBool,
    notifier: OnceLock<Notifier>,
}

impl Wake for DueWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.due.store(true, Ordering::Release);
        if let Some(notifier) = self.notifier.get() {
            notifier.notify();
        }
    }
}

impl<F: Future<Output = ()> + Send> Deferred for PolledPieces<F> {
    fn piece_bound_ns(&self) -> u64 {
        self.bound_ns
    }

    fn run(&mut self) -> Progress {
        // Before the poll, so that a wake-up during the poll counts.
        self.wake.due.store(false, Ordering::Relaxed);
        match self.future.as_mut().poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(()) => Progress::Done,
            Poll::Pending if self.is_due() => Progress::More,
            Poll::Pending => Progress::Pending,
        }
    }

    fn patience_ns(&self) -> u64 {
        self.patience_ns
    }

    fn attach(&mut self, notifier: &Notifier) {
        let _ = self.wake.notifier.set(notifier.clone());
    }

    fn is_due(&self) -> bool {
        self.wake.due.load(Ordering::Acquire)
    }
}

/// Why work was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeferRefusal {
    /// There is too much work already.
    #[error(
        "{limit} pieces of work are deferred already: run some (`run_deferred`), or wait for I/O"
    )]
    Full {
        /// The limit.
        limit: usize,
    },
    /// The channel runs no work in its gaps.
    #[error("the channel runs no deferred work: run it yourself")]
    Unsupported,
}

/// Refused work, returned to the caller.
#[derive(thiserror::Error)]
#[error("{why}")]
pub struct DeferError {
    /// The reason.
    pub why: DeferRefusal,
    /// The work.
    pub work: Box<dyn Deferred>,
}

impl fmt::Debug for DeferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferError").field("why", &self.why).finish_non_exhaustive()
    }
}

/// Counters of deferred work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkCounters {
    /// Pieces that were run.
    pub pieces: u64,
    /// Their total time, in ns.
    pub worked_ns: u64,
    /// Pieces that took longer than their bound.
    pub overruns: u64,
    /// Their total excess, in ns.
    pub overrun_ns: u64,
    /// Pieces that ran without fitting because they had waited too long.
    pub forced: u64,
    /// Looks that found a completion just after a piece, which may have come during it.
    pub late: u64,
    /// Total delay of those completions at most, in ns: the length of those pieces.
    pub late_ns: u64,
    /// The longest of those pieces, in ns: deferred work delayed no completion by more.
    pub late_max_ns: u64,
    /// Work that has ended.
    pub finished: u64,
    /// Work that ended by a panic.
    pub panics: u64,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A future is pending until it is woken; one that wakes itself has more to do.
    #[test]
    fn a_future_is_due_when_it_was_woken() {
        let mut polls = 0;
        let mut kept = None;
        let mut work = Pieces::future(
            700,
            std::future::poll_fn(move |cx| {
                polls += 1;
                match polls {
                    1 => cx.waker().wake_by_ref(),
                    2 => kept = Some(cx.waker().clone()),
                    _ => return Poll::Ready(()),
                }
                let _ = &kept;
                Poll::Pending
            }),
        );
        let notifier = Notifier::default();
        work.attach(&notifier);
        assert_eq!((work.piece_bound_ns(), work.is_due()), (700, true));
        assert_eq!(work.run(), Progress::More);
        assert!(notifier.take() && !notifier.take());
        assert_eq!(work.run(), Progress::Pending);
        assert!(!work.is_due() && !notifier.take());
        work.waker.wake_by_ref();
        assert!(work.is_due() && notifier.take());
        assert_eq!(work.run(), Progress::Done);
    }

    #[test]
    fn one_piece_runs_once() {
        let mut runs = 0;
        let mut work = Pieces::once(5, || runs += 1);
        assert_eq!([work.run(), work.run()], [Progress::Done, Progress::Done]);
        drop(work);
        assert_eq!(runs, 1);
    }
}
