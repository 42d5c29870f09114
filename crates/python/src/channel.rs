//! Channels: several requests in flight, by tickets.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use meantime_block::{
    BlockChannel as _, ChannelKey, Done, IoError, PollGroup, Ready, Request, RequestError,
};
use meantime_completion::Policy;
use meantime_hw::DmaBuf;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::device::{Close, Opened};
use crate::error::{closed, failed, misuse, os_error, wrong};
use crate::memory::Memory;
use crate::owned::{Owned, Slot};
use crate::transfer::SLICE;

/// Where the data of a request go.
pub(crate) enum Aim {
    /// A new bytes object of this length.
    Bytes(usize),
    /// Memory of the program.
    Into(Memory),
    /// Nowhere: the request is a write of this length.
    Written(usize),
    /// The request has no data.
    Nothing,
}

impl Aim {
    /// Returns what the program gets for the request, which has ended.
    pub(crate) fn finish<'py>(
        self,
        py: Python<'py>,
        result: Result<(), IoError>,
        buf: Option<&DmaBuf>,
    ) -> PyResult<Bound<'py, PyAny>> {
        result.map_err(failed)?;
        let data = || buf.ok_or_else(|| failed(RequestError::Quarantined));
        Ok(match self {
            Self::Bytes(_) => PyBytes::new(py, data()?).into_any(),
            Self::Into(mut memory) => {
                memory.as_mut_slice().copy_from_slice(data()?);
                memory.len().into_pyobject(py)?.into_any()
            }
            Self::Written(bytes) => bytes.into_pyobject(py)?.into_any(),
            Self::Nothing => py.None().into_bound(py),
        })
    }
}

/// Prepares a read of `into`, a number of bytes or a buffer.
pub(crate) fn read(
    opened: &Opened,
    offset: u64,
    into: &Bound<'_, PyAny>,
) -> PyResult<(Request, Aim)> {
    let aim = match into.extract::<usize>() {
        Ok(length) => Aim::Bytes(length),
        Err(_) => Aim::Into(Memory::writable(into)?),
    };
    let bytes = match &aim {
        Aim::Into(memory) => memory.len(),
        Aim::Bytes(length) => *length,
        _ => 0,
    };
    let (lba, _) = opened.blocks(offset, bytes as u64)?;
    if bytes == 0 {
        return Err(wrong("a read of 0 bytes: give a length, or a buffer that has room"));
    }
    let buf = opened.device.heap().alloc(bytes).map_err(failed)?;
    Ok((Request::read(lba, buf), aim))
}

/// Prepares a write. The data are copied.
pub(crate) fn write(
    opened: &Opened,
    data: &Bound<'_, PyAny>,
    offset: u64,
) -> PyResult<(Request, Aim)> {
    opened.check_writable()?;
    let memory = Memory::readable(data)?;
    let (lba, _) = opened.blocks(offset, memory.len() as u64)?;
    if memory.len() == 0 {
        return Err(wrong("a write of 0 bytes"));
    }
    let mut buf = opened.device.heap().alloc(memory.len()).map_err(failed)?;
    buf.copy_from_slice(memory.as_slice());
    Ok((Request::write(lba, buf), Aim::Written(memory.len())))
}

/// Prepares a discard.
pub(crate) fn discard(opened: &Opened, offset: u64, length: u64) -> PyResult<(Request, Aim)> {
    opened.check_writable()?;
    let (lba, blocks) = opened.blocks(offset, length)?;
    if blocks == 0 {
        return Err(wrong("a discard of 0 bytes"));
    }
    Ok((Request::deallocate(lba, blocks), Aim::Nothing))
}

/// A request of a channel.
#[pyclass(frozen, eq, hash, module = "meantime")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    /// Unique in the process.
    id: u64,
}

#[pymethods]
impl Ticket {
    fn __repr__(&self) -> String {
        format!("<meantime.Ticket {}>", self.id)
    }
}

/// The channel, while one thread uses it.
struct State {
    /// A group with only this channel. Unlike the channel, it waits for a limited time by any
    /// policy.
    group: PollGroup<meantime_block::Channel>,
    key: ChannelKey,
    /// Where the data go, for each request in flight or whose result was not taken.
    aims: HashMap<u64, Aim>,
    /// Results that were not taken.
    ended: HashMap<u64, Done>,
    /// The tickets that `wait_any` has not returned yet, in order.
    order: VecDeque<u64>,
    opened: Arc<Owned<Opened>>,
}

impl State {
    fn channel(&mut self) -> &mut meantime_block::Channel {
        self.group.channel(self.key)
    }

    fn submit(&mut self, request: Request, aim: Aim) -> PyResult<Ticket> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let depth = usize::from(self.channel().depth());
        if self.aims.len() >= depth {
            return Err(os_error(
                libc::EAGAIN,
                format!(
                    "all {depth} requests of the channel are in flight, or their results were not \
                     taken: wait for one, or open the channel with more depth"
                ),
                None,
            ));
        }
        // Results in the channel have slots, too.
        self.collect();
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let sent = self.channel().enqueue(request.user_data(id));
        sent.map_err(|rejected| failed(rejected.error))?;
        self.aims.insert(id, aim);
        Ok(Ticket { id })
    }

    fn collect(&mut self) {
        while let Some(done) = self.channel().next_done() {
            self.note(done);
        }
    }

    fn note(&mut self, done: Done) {
        self.order.push_back(done.user_data);
        self.ended.insert(done.user_data, done);
    }

    /// Waits for request `id`.
    fn wait(&mut self, id: u64) -> PyResult<()> {
        while !self.ended.contains_key(&id) {
            let done = crate::transfer::wait(self.channel())?;
            self.note(done.ok_or_else(|| misuse("the request is lost"))?);
        }
        Ok(())
    }

    /// Waits for any request, until `until` at the latest.
    fn wait_any(&mut self, until: Option<Instant>) -> PyResult<Option<Ticket>> {
        self.channel().poll();
        loop {
            // This also takes requests that have ended while another one was waited for.
            self.collect();
            if let Some(id) = self.order.pop_front() {
                return Ok(Some(Ticket { id }));
            }
            let now = Instant::now();
            if self.channel().in_flight() == 0 || until.is_some_and(|until| now >= until) {
                return Ok(None);
            }
            let slice = until.map_or(SLICE, |until| SLICE.min(until - now));
            match self.group.wait(Some(slice)) {
                Some(Ready::Done(_, done)) => self.note(done),
                _ => Python::attach(|py| py.check_signals())?,
            }
        }
    }
}

/// The part that its device can close.
struct Cell {
    state: Mutex<Option<Owned<State>>>,
    is_closed: AtomicBool,
}

impl Close for Cell {
    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        // A thread that uses the channel now ends its call first, and then drops it.
        drop(self.take());
    }
}

impl Cell {
    /// Takes the state out, unless a thread uses it.
    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Owned<State>>>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes the channel, unless a call uses it.
    fn take(&self) -> Option<Owned<State>> {
        self.try_lock()?.take()
    }

    /// Runs `body` with the channel, which no other thread may be using.
    fn with<T>(&self, body: impl FnOnce(&mut State) -> PyResult<T>) -> PyResult<T> {
        let used = "another thread uses this channel: a channel is for one thread at a time; \
                    make one for each, by Device.channel()";
        let mut state = self.try_lock().ok_or_else(|| misuse(used))?;
        match state.as_mut().filter(|_| !self.is_closed.load(Ordering::Acquire)) {
            Some(state) => body(state),
            None => Err(closed("channel")),
        }
    }
}

/// One thread's access to a device, with several requests in flight.
#[pyclass(frozen, weakref, module = "meantime")]
pub(crate) struct Channel {
    cell: Slot<Arc<Cell>>,
    depth: u16,
    policy: Policy,
}

impl Channel {
    pub(crate) fn new(
        opened: Arc<Owned<Opened>>,
        policy: Option<Policy>,
        depth: u16,
    ) -> PyResult<Self> {
        let channel = opened.channel(policy, depth)?;
        let policy = channel.policy();
        let mut group = PollGroup::new();
        let key = group.add(channel);
        let state = State {
            group,
            key,
            aims: HashMap::new(),
            ended: HashMap::new(),
            order: VecDeque::new(),
            opened: Arc::clone(&opened),
        };
        let cell = Arc::new(Cell {
            state: Mutex::new(Some(Owned::new(state))),
            is_closed: AtomicBool::new(false),
        });
        opened.adopt(&cell);
        Ok(Self { cell: Slot::new("channel", cell), depth, policy })
    }

    fn with<T>(&self, body: impl FnOnce(&mut State) -> PyResult<T>) -> PyResult<T> {
        let cell = self.cell.get()?;
        let result = cell.with(body);
        if cell.is_closed.load(Ordering::Acquire) {
            // Its device was closed meanwhile.
            drop(cell.take());
        }
        result
    }

    /// Makes a request for the channel's device and submits it.
    fn submit(
        &self,
        request: impl FnOnce(&Opened) -> PyResult<(Request, Aim)>,
    ) -> PyResult<Ticket> {
        self.with(|state| {
            let (request, aim) = request(&state.opened)?;
            state.submit(request, aim)
        })
    }
}

#[pymethods]
impl Channel {
    #[getter]
    fn depth(&self) -> u16 {
        self.depth
    }

    #[getter]
    fn policy(&self) -> String {
        self.policy.to_string()
    }

    #[getter]
    fn in_flight(&self) -> PyResult<usize> {
        self.with(|state| Ok(state.channel().in_flight()))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.cell.get().map_or(true, |cell| cell.is_closed.load(Ordering::Acquire))
    }

    fn submit_read(&self, offset: u64, into: &Bound<'_, PyAny>) -> PyResult<Ticket> {
        self.submit(|opened| read(opened, offset, into))
    }

    fn submit_write(&self, data: &Bound<'_, PyAny>, offset: u64) -> PyResult<Ticket> {
        self.submit(|opened| write(opened, data, offset))
    }

    fn submit_flush(&self) -> PyResult<Ticket> {
        self.submit(|_| Ok((Request::flush(), Aim::Nothing)))
    }

    fn submit_discard(&self, offset: u64, length: u64) -> PyResult<Ticket> {
        self.submit(|opened| discard(opened, offset, length))
    }

    fn wait<'py>(&self, py: Python<'py>, ticket: &Ticket) -> PyResult<Bound<'py, PyAny>> {
        self.with(|state| {
            if !state.aims.contains_key(&ticket.id) {
                return Err(wrong(
                    "the ticket is not good: its result was taken, or it is of another channel",
                ));
            }
            py.detach(|| state.wait(ticket.id))?;
            let (Some(aim), Some(done)) =
                (state.aims.remove(&ticket.id), state.ended.remove(&ticket.id))
            else {
                return Err(misuse("the request is lost"));
            };
            state.order.retain(|id| *id != ticket.id);
            aim.finish(py, done.result, done.buf.as_ref())
        })
    }

    #[pyo3(signature = (timeout = None))]
    fn wait_any(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Ticket>> {
        let until = match timeout.map(Duration::try_from_secs_f64).transpose() {
            Ok(timeout) => timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            Err(_) => return Err(wrong("timeout is a number of seconds from 0 on")),
        };
        self.with(|state| py.detach(|| state.wait_any(until)))
    }

    fn poll(&self, py: Python<'_>) -> PyResult<Vec<Ticket>> {
        self.with(|state| {
            // This may be the I/O itself, for `kernel:` with `preadv2`.
            py.detach(|| state.channel().poll());
            state.collect();
            Ok(state.order.drain(..).map(|id| Ticket { id }).collect())
        })
    }

    fn close(&self, py: Python<'_>) {
        if let Some(cell) = self.cell.close() {
            py.detach(move || cell.close());
        }
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.cell.get()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { ", closed" } else { "" };
        format!("<meantime.Channel, depth {}, policy {}{state}>", self.depth, self.policy)
    }
}
