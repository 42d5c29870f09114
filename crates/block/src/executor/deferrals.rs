//! Tasks for the gap, polled only when no other task is ready and a poll fits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use meantime_completion::PATIENCE_NS;

/// Bound of the longest poll that is tried when the gap is unknown, in ns.
const SMALL_NS: u64 = 1_000;

/// A task that waits to be polled.
struct Wish {
    id: u64,
    bound_ns: u64,
    latest: Instant,
    waker: Waker,
}

/// The waiting tasks for the gap, by age, and the permitted one.
#[derive(Default)]
pub(super) struct Deferrals {
    wishes: RefCell<VecDeque<Wish>>,
    next_id: Cell<u64>,
    /// The permitted task; never 0, the number of a task that does not wait.
    permitted: Cell<u64>,
}

impl Deferrals {
    /// Whether a task is waiting.
    #[inline(always)]
    pub(super) fn is_any(&self) -> bool {
        !self.wishes.borrow().is_empty()
    }

    /// Whether a task is overdue.
    pub(super) fn is_overdue(&self) -> bool {
        self.wishes.borrow().front().is_some_and(|wish| wish.latest <= Instant::now())
    }

    /// Permits the first task that is overdue, or that fits into `left_ns` (`None`: unknown). False
    /// if there is none.
    pub(super) fn permit(&self, left_ns: Option<u64>) -> bool {
        let overdue = self.is_overdue();
        let left_ns = left_ns.unwrap_or(SMALL_NS);
        let mut wishes = self.wishes.borrow_mut();
        let place =
            if overdue { Some(0) } else { wishes.iter().position(|wish| wish.bound_ns <= left_ns) };
        let Some(wish) = place.and_then(|place| wishes.remove(place)) else { return false };
        drop(wishes);
        self.permitted.set(wish.id);
        wish.waker.wake();
        true
    }

    fn takes_permit(&self, id: u64) -> bool {
        let permitted = self.permitted.get() == id;
        if permitted {
            self.permitted.set(0);
        }
        permitted
    }
}

/// Runs `future`, each poll of which takes at most `bound_ns` and waits for permission.
pub(super) async fn in_gaps<F: Future>(
    future: F,
    bound_ns: u64,
    deferrals: Rc<Deferrals>,
) -> F::Output {
    let mut future = pin!(future);
    let id = deferrals.next_id.get() + 1;
    deferrals.next_id.set(id);
    let mut wished = false;
    std::future::poll_fn(|cx| {
        if deferrals.takes_permit(id) {
            wished = false;
            return future.as_mut().poll(cx);
        }
        if !wished {
            wished = true;
            let latest = Instant::now() + Duration::from_nanos(PATIENCE_NS);
            let wish = Wish { id, bound_ns, latest, waker: cx.waker().clone() };
            deferrals.wishes.borrow_mut().push_back(wish);
        }
        Poll::Pending
    })
    .await
}
