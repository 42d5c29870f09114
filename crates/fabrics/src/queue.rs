//! A queue pair of the driver, and its connection, if it has one at present.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use meantime_hw::{EventFd, Progress, WriteDoorbell};
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::Status;

use crate::connection::Connection;
use crate::dial::wait_for;
use crate::memory::Memory;

/// The longest wait on a connection that has ended, since it stays readable until the driver's
/// reset.
const ENDED_WAIT: Duration = Duration::from_millis(1);

/// The state that all queues of a controller share.
pub(crate) struct Shared {
    pub(crate) memory: Memory,
    /// Whether a connection has ended by itself.
    pub(crate) is_broken: AtomicBool,
    /// Wakes the thread that keeps the association alive.
    pub(crate) alarm: EventFd,
}

pub(crate) struct Queue {
    shared: Arc<Shared>,
    connection: Mutex<Option<Connection>>,
}

impl Queue {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), connection: Mutex::new(None) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the connection.
    pub(crate) fn set(&self, connection: Option<Connection>) {
        *self.lock() = connection;
    }

    /// Runs `act` on the connection. If the connection ends in that, the association is to be
    /// reset.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Connection) -> T) -> Option<T> {
        let mut connection = self.lock();
        let connection = connection.as_mut()?;
        let had_ended = connection.ended().is_some();
        let result = act(connection);
        if !had_ended && connection.ended().is_some() {
            self.shared.is_broken.store(true, Ordering::Release);
            self.shared.alarm.signal();
        }
        Some(result)
    }

    /// Ends the connection on purpose.
    pub(crate) fn end(&self, why: &str) {
        if let Some(connection) = self.lock().as_mut() {
            connection.end_for_good(why);
        }
    }

    /// Called when the driver has rung the submission queue's doorbell.
    fn ring(&self, tail: u16) {
        self.with(|connection| connection.submit(&self.shared.memory.mapped(), tail));
    }

    /// Called when the driver has rung the admin queue's doorbell; `answer` may answer entries
    /// itself.
    pub(crate) fn ring_admin(&self, tail: u16, mut answer: impl FnMut(&Sqe) -> Option<Status>) {
        let memory = &self.shared.memory;
        self.with(|connection| {
            loop {
                // The memory's lock is not held here: an answer may connect a queue, which takes
                // it.
                let entry = connection.take_entry(&memory.mapped(), tail);
                let Some(sqe) = entry else { break };
                match answer(&sqe) {
                    Some(status) => connection.post(&memory.mapped(), 0, sqe.cid(), status),
                    None => connection.begin(&memory.mapped(), sqe),
                }
            }
            connection.flush(&memory.mapped());
        });
    }
}

impl Progress for Queue {
    fn progress(&self) {
        self.with(|connection| connection.progress(&self.shared.memory.mapped()));
    }

    fn wait(&self, timeout_ns: u64) {
        let waits_for = self.lock().as_ref().and_then(|connection| {
            let works = connection.ended().is_none();
            works.then(|| (Arc::clone(&connection.socket), connection.waits_for()))
        });
        let timeout = Duration::from_nanos(timeout_ns);
        match waits_for {
            // The lock is not held here: the device may be released meanwhile.
            Some((socket, flags)) => {
                wait_for(&socket, flags, Instant::now() + timeout);
            }
            None => std::thread::sleep(timeout.min(ENDED_WAIT)),
        }
        self.progress();
    }
}

/// The tail doorbell of an I/O queue.
pub(crate) struct TailDoorbell(pub(crate) Arc<Queue>);

impl WriteDoorbell for TailDoorbell {
    fn write(&self, tail: u32) {
        self.0.ring(tail as u16);
    }
}

/// A head doorbell. The completion queue always has room, so the value is not used.
pub(crate) struct HeadDoorbell;

impl WriteDoorbell for HeadDoorbell {
    fn write(&self, _: u32) {}
}
