//! Tasks and their join handles.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::deferrals::{Deferrals, in_gaps};
use super::ready::{GROUP, Group, Home, waker};

/// The most groups of tasks: a million tasks in all.
const GROUPS: usize = 256;

/// Index of the root task: the future of `block_on`.
pub(super) const ROOT: usize = 0;

type Body = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    /// `None` while it runs, and after it has ended.
    body: Option<(Body, Waker)>,
    next_free: usize,
}

/// The tasks of an executor, by index. A waker that outlives its task causes a spurious wake-up of
/// the next task with that index.
pub(super) struct Tasks {
    pub(super) home: Arc<Home>,
    groups: [OnceCell<Arc<Group>>; GROUPS],
    tasks: RefCell<Vec<Task>>,
    free: Cell<usize>,
    live: Cell<usize>,
    pub(super) root: Waker,
    /// Whether any task was ever cancelled. Only then each task's flag is checked, which would cost
    /// a cache line.
    cancels: Rc<Cell<bool>>,
    pub(super) deferrals: Rc<Deferrals>,
}

const NONE: usize = usize::MAX;

impl Tasks {
    pub(super) fn new(home: Arc<Home>) -> Self {
        let first = Arc::new(Group::new(Arc::clone(&home)));
        let root = waker(&first, ROOT as u16);
        let groups = [const { OnceCell::new() }; GROUPS];
        let _ = groups[0].set(first);
        let tasks = RefCell::new(vec![Task { body: None, next_free: NONE }]);
        Self {
            home,
            groups,
            tasks,
            free: Cell::new(NONE),
            live: Cell::new(0),
            root,
            cancels: Rc::default(),
            deferrals: Rc::default(),
        }
    }

    /// The groups in use.
    #[inline(always)]
    pub(super) fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.groups.iter().map_while(OnceCell::get)
    }

    /// Number of tasks that have not ended.
    pub(super) fn live(&self) -> usize {
        self.live.get()
    }

    pub(super) fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        let index = self.take_index();
        let group =
            self.groups[index / GROUP].get_or_init(|| Arc::new(Group::new(Arc::clone(&self.home))));
        let waker = waker(group, (index % GROUP) as u16);
        let join = Rc::new(Join {
            output: RefCell::default(),
            waiter: RefCell::default(),
            cancelled: Cell::new(false),
        });
        let body = Box::pin(run(future, Rc::clone(&join), Rc::clone(&self.cancels)));
        self.tasks.borrow_mut()[index].body = Some((body, waker.clone()));
        self.live.set(self.live.get() + 1);
        waker.wake_by_ref();
        JoinHandle { join, task: waker, cancels: Rc::clone(&self.cancels) }
    }

    pub(super) fn spawn_deferred<F: Future + 'static>(
        &self,
        bound_ns: u64,
        future: F,
    ) -> JoinHandle<F::Output> {
        self.spawn(in_gaps(future, bound_ns, Rc::clone(&self.deferrals)))
    }

    fn take_index(&self) -> usize {
        let mut tasks = self.tasks.borrow_mut();
        let index = self.free.get();
        if index != NONE {
            self.free.set(tasks[index].next_free);
            return index;
        }
        assert!(
            tasks.len() < GROUPS * GROUP,
            "an executor has at most {} tasks",
            GROUPS * GROUP - 1
        );
        tasks.push(Task { body: None, next_free: NONE });
        tasks.len() - 1
    }

    /// Polls task `index`, if it exists.
    #[inline(always)]
    pub(super) fn run(&self, index: usize) {
        let Some((mut body, waker)) = self.tasks.borrow_mut()[index].body.take() else { return };
        // The task counts as ended unless it is pending, also if its drop panics.
        let end = End { tasks: self, index };
        // Not borrowed during the poll: the task may spawn others.
        match body.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => {
                std::mem::forget(end);
                self.tasks.borrow_mut()[index].body = Some((body, waker));
            }
            Poll::Ready(()) => drop(body),
        }
    }

    #[inline(never)]
    fn ended(&self, index: usize) {
        self.tasks.borrow_mut()[index].next_free = self.free.replace(index);
        self.live.set(self.live.get() - 1);
    }

    /// Drops all unfinished tasks.
    pub(super) fn clear(&self) {
        // One at a time, without a borrow: their drops may use the executor.
        let mut index = 0;
        while let Some(body) = self.body_from(&mut index) {
            drop(body);
        }
    }

    fn body_from(&self, index: &mut usize) -> Option<Body> {
        let mut tasks = self.tasks.borrow_mut();
        while let Some(task) = tasks.get_mut(*index) {
            *index += 1;
            if let Some((body, _)) = task.body.take() {
                return Some(body);
            }
        }
        None
    }
}

/// Frees a task's index on drop.
struct End<'a> {
    tasks: &'a Tasks,
    index: usize,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.tasks.ended(self.index);
    }
}

/// The result of a task.
type Outcome<T> = Result<T, Box<dyn Any + Send>>;

struct Join<T> {
    output: RefCell<Option<Outcome<T>>>,
    waiter: RefCell<Option<Waker>>,
    cancelled: Cell<bool>,
}

/// A task's body: `future`, with its panic as the outcome, also if its drop panics.
async fn run<F: Future>(future: F, join: Rc<Join<F::Output>>, cancels: Rc<Cell<bool>>) {
    let mut future = pin!(Some(future));
    let outcome = std::future::poll_fn(|cx| {
        if cancels.get() && join.cancelled.get() {
            return Poll::Ready(None);
        }
        let Some(future) = future.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        // Unwind safe: a panicked future is dropped without further access.
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Some(Ok(output))),
            Err(panic) => Poll::Ready(Some(Err(panic))),
        }
    });
    let outcome = outcome.await;
    let dropped = catch_unwind(AssertUnwindSafe(|| future.set(None)));
    let outcome = dropped.map_or_else(|panic| Some(Err(panic)), |()| outcome);
    if matches!(outcome, Some(Err(_))) && Rc::strong_count(&join) == 1 {
        tracing::error!("a task panicked whose handle was dropped");
    }
    *join.output.borrow_mut() = outcome;
    let waiter = join.waiter.borrow_mut().take();
    if let Some(waiter) = waiter {
        waiter.wake();
    }
}

/// A future of a task's end. Dropping it detaches the task.
///
/// If the task panicked, so does the task that awaits this, with the same payload.
///
/// # Panics
/// If the executor was dropped before the task ended.
#[derive(Debug)]
#[must_use = "dropping a handle lets the task run on by itself: say so by `detach`"]
pub struct JoinHandle<T> {
    join: Rc<Join<T>>,
    task: Waker,
    cancels: Rc<Cell<bool>>,
}

impl<T> std::fmt::Debug for Join<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Join")
            .field("ended", &self.output.borrow().is_some())
            .finish_non_exhaustive()
    }
}

impl<T> JoinHandle<T> {
    /// Detaches the task.
    pub fn detach(self) {}

    /// Cancels the task: the executor drops its future when it next runs it. An I/O that it waits
    /// for continues, and the buffer goes back to its heap.
    pub fn cancel(self) {
        self.join.cancelled.set(true);
        self.cancels.set(true);
        self.task.wake_by_ref();
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.join.output.borrow().is_some()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let outcome = self.join.output.borrow_mut().take();
        match outcome {
            Some(Ok(output)) => Poll::Ready(output),
            Some(Err(panic)) => resume_unwind(panic),
            None => {
                assert!(
                    Rc::strong_count(&self.join) > 1,
                    "the task's executor was dropped, or its end taken before"
                );
                *self.join.waiter.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
