//! Work for the gap: what a layer or a user hands over to be done while the device works, in
//! pieces.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// How long work waits for a gap that it fits into, unless it says otherwise, in ns.
pub const PATIENCE_NS: u64 = 10_000_000;

/// What came of one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There is another piece to be done.
    More,
    /// There is nothing to be done until the [`Notifier`] is notified.
    Pending,
    /// The work is done.
    Done,
}

/// Work that can be done in pieces, each of bounded cost.
///
/// A piece runs on the channel's thread while that has nothing to do but wait, and must not use the
/// channel: it is taken. It should neither block nor sleep.
pub trait Deferred: Send {
    /// The most that the next piece takes, in ns. A piece that takes longer may have an I/O found
    /// complete later than it was; it is counted as an overrun.
    fn piece_bound_ns(&self) -> u64;

    /// Does one piece. Not called again after [`Progress::Done`], nor after a panic.
    fn run(&mut self) -> Progress;

    /// How long it may wait for a gap that it fits into, in ns: after that its pieces are run
    /// whether they fit or not.
    fn patience_ns(&self) -> u64 {
        PATIENCE_NS
    }

    /// Called once, before the first piece, with what to notify when work that was
    /// [`Progress::Pending`] can go on.
    fn attach(&mut self, notifier: &Notifier) {
        let _ = notifier;
    }

    /// Whether work that was [`Progress::Pending`] can go on. Asked when the
    /// notifier has been notified, for whichever work that was.
    fn is_due(&self) -> bool {
        true
    }
}

/// Says, from any thread, that some work can go on.
#[derive(Clone, Default)]
pub struct Notifier(Arc<Shared>);

#[derive(Default)]
struct Shared {
    notified: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Notifier {
    /// There is something to do again. Make [`Deferred::is_due`] true before.
    pub fn notify(&self) {
        // Release: the thread that takes the notification sees what made the work due.
        self.0.notified.store(true, Ordering::Release);
        let waker = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether it was notified since this was last asked.
    pub(super) fn take(&self) -> bool {
        self.0.notified.load(Ordering::Relaxed) && self.0.notified.swap(false, Ordering::Acquire)
    }

    /// What a notification wakes.
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

/// Work made of a closure; of a future it is [`PolledPieces`].
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
    /// Each call of `run` is a piece, which takes at most `bound_ns`.
    pub fn new(bound_ns: u64, run: F) -> Self {
        Self { bound_ns, patience_ns: PATIENCE_NS, run }
    }

    /// Waits at most this long for a gap that it fits into.
    pub fn patience_ns(mut self, patience_ns: u64) -> Self {
        self.patience_ns = patience_ns;
        self
    }
}

impl Pieces<()> {
    /// One piece, which takes at most `bound_ns`.
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

    /// Each poll of `future` is a piece, which takes at most `bound_ns`. It is polled again when it
    /// was woken.
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
    /// Waits at most this long for a gap that it fits into, once it can go on.
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
        // Before the poll, so that a wake-up during it counts.
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

/// Why work was not taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeferRefusal {
    /// There is too much already.
    #[error(
        "{limit} pieces of work are deferred already: run some (`run_deferred`), or wait for I/O"
    )]
    Full {
        /// How many there can be.
        limit: usize,
    },
    /// The channel does nothing in its gaps.
    #[error("the channel runs no deferred work: run it yourself")]
    Unsupported,
}

/// Work that was not taken over, given back.
#[derive(thiserror::Error)]
#[error("{why}")]
pub struct DeferError {
    /// Why.
    pub why: DeferRefusal,
    /// The work.
    pub work: Box<dyn Deferred>,
}

impl fmt::Debug for DeferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferError").field("why", &self.why).finish_non_exhaustive()
    }
}

/// What deferred work came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkCounters {
    /// Pieces that were run.
    pub pieces: u64,
    /// How long they took together, in ns.
    pub worked_ns: u64,
    /// Pieces that took longer than their bound.
    pub overruns: u64,
    /// By how much, together, in ns.
    pub overrun_ns: u64,
    /// Pieces that were run though they did not fit, since they had waited too long.
    pub forced: u64,
    /// Looks at a queue that found a completion just after a piece: it may have come during that.
    pub late: u64,
    /// By how much they were late, together and at most, in ns: the length of those pieces.
    pub late_ns: u64,
    /// The longest of those pieces, in ns: no completion was found later than this because of
    /// deferred work.
    pub late_max_ns: u64,
    /// Work that has ended.
    pub finished: u64,
    /// Work that ended by a panic.
    pub panics: u64,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A future that is pending until woken is pending; one that wakes itself has more to do.
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
