//! Threads of a mount.

use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use meantime_process::lock::{Condvar, Mutex, Rank};

/// A thread of a mount's, which ends when this is dropped.
pub(crate) struct Worker {
    stopping: Arc<Stopping>,
    thread: Option<JoinHandle<()>>,
}

/// How it is told to.
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
    /// Sleeps; whether it is to end.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        *self.told.wait_timeout_while(stopped, time, |stopped| !*stopped)
    }
}

impl Worker {
    /// A thread called `name` that does `work` until it is told to end.
    ///
    /// # Errors
    /// There is none to be had.
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
            // The mount may end in the thread itself.
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
