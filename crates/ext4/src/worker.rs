//! Threads of a mount.

use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use meantime_process::lock::{Condvar, Mutex, Rank};

/// A thread of a mount, which ends when this is dropped.
pub(crate) struct Worker {
    stopping: Arc<Stopping>,
    thread: Option<JoinHandle<()>>,
}

/// The signal for the thread to end.
pub(crate) struct Stopping {
    stopped: Mutex<bool>,
    told: Condvar,
}

impl Default for Stopping {
    fn default() -> Self {
        Self { stopped: Mutex::new(Rank::Stopping, false), told: Condvar::new() }
    }
}

impl Stopping {
    /// Sleeps for `time`. Returns whether the thread is to end.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        *self.told.wait_timeout_while(stopped, time, |stopped| !*stopped)
    }
}

impl Worker {
    /// Starts a thread `name` that runs `work` until it is told to end.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub(crate) fn start(
        name: &str,
        work: impl FnOnce(&Stopping) + Send + 'static,
    ) -> std::io::Result<Self> {
        let stopping = Arc::new(Stopping::default());
        let told = Arc::clone(&stopping);
        let thread = meantime_process::thread::spawn(name, move || work(&told))?;
        Ok(Self { stopping, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        *self.stopping.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopping.told.notify_all();
        if let Some(thread) = self.thread.take()
            // The thread itself may drop the mount.
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
