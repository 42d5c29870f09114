//! The thread of an asynchronous channel.
//!
//! A queue and a waker hand requests to the thread. Results come back in a list, and an eventfd
//! that the program's event loop watches says that there are some. The thread owns the channel,
//! waits by its policy, and never calls Python: so it neither needs the interpreter nor delays its
//! end. One signal stands for all results that are there by the time the loop looks.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use meantime_block::{
    BlockChannel as _, Done, GroupWaker, PollGroup, Ready, Rejected, Request, SubmitError,
};
use meantime_completion::Policy;
use meantime_hw::EventFd;
use pyo3::prelude::*;

use crate::channel::{Aim, discard, read, write};
use crate::device::{Close, Opened};
use crate::error::{failed, misuse};
use crate::owned::{Owned, Slot, lock};

/// A request that has ended, or was refused.
type Ended = Result<Done, (u64, SubmitError)>;

/// The number of a request, and its value or exception.
type Taken<'py> = (u64, Option<Bound<'py, PyAny>>, Option<PyErr>);

/// The most results in one turn of the thread.
const MANY: usize = 256;

/// The state that both sides share.
struct Shared {
    inbox: Mutex<Inbox>,
    outbox: Mutex<Outbox>,
    /// Signalled when the outbox has got something.
    event: EventFd,
}

#[derive(Default)]
struct Inbox {
    requests: VecDeque<Request>,
    /// Whether the thread is to end when all is done.
    stop: bool,
}

#[derive(Default)]
struct Outbox {
    ended: Vec<Ended>,
    /// Whether the thread has ended.
    is_over: bool,
}

/// Notes that the thread has ended, however it did.
struct Over(Arc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        lock(&self.0.outbox).is_over = true;
        self.0.event.signal();
    }
}

/// The function of the thread.
fn run(shared: Arc<Shared>, mut group: PollGroup<meantime_block::Channel>) {
    let over = Over(shared);
    let shared = &over.0;
    let Some(key) = group.channels().next().map(|(key, _)| key) else { return };
    let mut waiting = VecDeque::new();
    let mut ready = Vec::new();
    loop {
        let stop = {
            let mut inbox = lock(&shared.inbox);
            waiting.append(&mut inbox.requests);
            inbox.stop
        };
        let channel = group.channel(key);
        let depth = usize::from(channel.depth());
        let mut refused = Vec::new();
        channel.plug();
        while channel.in_flight() < depth
            && let Some(request) = waiting.pop_front()
        {
            match channel.enqueue(request) {
                Ok(()) => {}
                // Results that were not taken have slots, too.
                Err(Rejected { error: SubmitError::Full { .. }, request }) => {
                    waiting.push_front(request);
                    break;
                }
                Err(rejected) => refused.push(Err((rejected.request.user_data, rejected.error))),
            }
        }
        channel.unplug();
        let in_flight = channel.in_flight();
        if refused.is_empty() {
            if stop && in_flight == 0 && waiting.is_empty() {
                // More may have ended than one turn takes.
                if group.wait_many(Some(Duration::ZERO), MANY, &mut ready) == 0 {
                    return;
                }
            } else {
                group.wait_many(None, MANY, &mut ready);
            }
        }
        let done = ready.drain(..).filter_map(|ready| match ready {
            Ready::Done(_, done) => Some(Ok(done)),
            _ => None,
        });
        let mut outbox = lock(&shared.outbox);
        let before = outbox.ended.len();
        outbox.ended.extend(refused);
        outbox.ended.extend(done);
        if outbox.ended.len() > before {
            shared.event.signal();
        }
    }
}

/// The state of the event loop's side.
struct State {
    shared: Arc<Shared>,
    waker: GroupWaker,
    thread: Option<JoinHandle<()>>,
    opened: Arc<Owned<Opened>>,
}

impl Drop for State {
    fn drop(&mut self) {
        lock(&self.shared.inbox).stop = true;
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The part that its device can close.
struct Cell(Mutex<Option<Arc<Owned<State>>>>);

impl Close for Cell {
    fn close(&self) {
        let taken = lock(&self.0).take();
        drop(taken);
    }
}

/// The native part of `meantime.AsyncChannel`.
#[pyclass(frozen, weakref, module = "meantime._meantime")]
pub(crate) struct Reactor {
    cell: Slot<Arc<Cell>>,
    /// Stays when the device is closed: requests that were in flight have ended then, and can be
    /// taken.
    shared: Arc<Shared>,
    /// Where the data go, for each request whose result was not taken.
    aims: Mutex<HashMap<u64, Aim>>,
    policy: Policy,
}

impl Reactor {
    pub(crate) fn new(
        opened: Arc<Owned<Opened>>,
        policy: Option<Policy>,
        depth: u16,
    ) -> PyResult<Self> {
        let channel = opened.channel(policy, depth)?;
        let policy = channel.policy();
        let mut group = PollGroup::new();
        group.add(channel);
        let waker = group.waker().map_err(failed)?;
        let event = EventFd::new().map_err(failed)?;
        event.with_descriptor().map_err(failed)?;
        let (inbox, outbox) = Default::default();
        let shared = Arc::new(Shared { inbox, outbox, event });
        let of_thread = Arc::clone(&shared);
        let thread =
            meantime_process::thread::spawn("meantime-python", move || run(of_thread, group))?;
        let state = State {
            shared: Arc::clone(&shared),
            waker,
            thread: Some(thread),
            opened: Arc::clone(&opened),
        };
        let cell = Arc::new(Cell(Mutex::new(Some(Arc::new(Owned::new(state))))));
        opened.adopt(&cell);
        Ok(Self { cell: Slot::new("channel", cell), shared, aims: Mutex::default(), policy })
    }

    fn state(&self) -> PyResult<Arc<Owned<State>>> {
        let cell = self.cell.get()?;
        let state = lock(&cell.0).clone();
        state.ok_or_else(|| crate::error::closed("channel"))
    }

    /// Hands a request over; returns its number.
    fn send(&self, request: impl FnOnce(&Opened) -> PyResult<(Request, Aim)>) -> PyResult<u64> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let state = self.state()?;
        let (request, aim) = request(&state.opened)?;
        if lock(&self.shared.outbox).is_over {
            return Err(misuse("the channel's thread has ended: open the device again"));
        }
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        lock(&self.aims).insert(id, aim);
        lock(&self.shared.inbox).requests.push_back(request.user_data(id));
        state.waker.wake();
        Ok(id)
    }
}

#[pymethods]
impl Reactor {
    fn read(&self, offset: u64, into: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.send(|opened| read(opened, offset, into))
    }

    fn write(&self, data: &Bound<'_, PyAny>, offset: u64) -> PyResult<u64> {
        self.send(|opened| write(opened, data, offset))
    }

    fn flush(&self) -> PyResult<u64> {
        self.send(|_| Ok((Request::flush(), Aim::Nothing)))
    }

    fn discard(&self, offset: u64, length: u64) -> PyResult<u64> {
        self.send(|opened| discard(opened, offset, length))
    }

    #[getter]
    fn policy(&self) -> String {
        self.policy.to_string()
    }

    fn fileno(&self) -> i32 {
        self.shared.event.as_raw_fd()
    }

    /// Takes the signal, then all results.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Vec<Taken<'py>>> {
        self.cell.check()?;
        self.shared.event.take();
        let ended = std::mem::take(&mut lock(&self.shared.outbox).ended);
        let result = |ended: Ended| {
            let id = ended.as_ref().map_or_else(|(id, _)| *id, |done| done.user_data);
            let aim = lock(&self.aims).remove(&id).unwrap_or(Aim::Nothing);
            let result = match ended {
                Ok(done) => aim.finish(py, done.result, done.buf.as_ref()),
                Err((_, refused)) => Err(failed(refused)),
            };
            match result {
                Ok(value) => (id, Some(value), None),
                Err(error) => (id, None, Some(error)),
            }
        };
        Ok(ended.into_iter().map(result).collect())
    }

    /// Drops interest in the result of a request: memory that it would go to stays as it is.
    fn forget(&self, number: u64) {
        lock(&self.aims).remove(&number);
    }

    /// Whether the thread has ended.
    #[getter]
    fn is_over(&self) -> bool {
        lock(&self.shared.outbox).is_over
    }

    /// Waits for the requests in flight, and ends the thread. Results are dropped.
    fn close(&self, py: Python<'_>) {
        if let Some(cell) = self.cell.close() {
            py.detach(move || cell.close());
            let aims = std::mem::take(&mut *lock(&self.aims));
            let ended = std::mem::take(&mut lock(&self.shared.outbox).ended);
            drop((aims, ended));
        }
    }
}
