//! What a mount for writing does when nobody waits for it.

use std::sync::{Arc, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::error::Error;
use super::fs::Mount;
use meantime_process::lock::{Condvar, Mutex, Rank};

/// How often the thread looks for something to do, in an interval between two commits.
const LOOKS: u64 = 5;

/// A thread of a mount's, which ends when this is dropped.
pub(super) struct Worker {
    stopping: Arc<Stopping>,
    thread: Option<JoinHandle<()>>,
}

/// How it is told to.
pub(super) struct Stopping {
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
    pub(super) fn sleep(&self, time: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        *self.told.wait_timeout_while(stopped, time, |stopped| !*stopped)
    }
}

impl Worker {
    /// A thread called `name` that does `work` until it is told to end.
    ///
    /// # Errors
    /// There is none to be had.
    pub(super) fn start(
        name: &str,
        work: impl FnOnce(&Stopping) + Send + 'static,
    ) -> std::io::Result<Self> {
        let stopping = Arc::new(Stopping::default());
        let told = Arc::clone(&stopping);
        let thread = meantime_process::thread::spawn(name, move || work(&told))?;
        Ok(Self { stopping, thread: Some(thread) })
    }
}

/// A thread that writes back for `mount`; `None`, which is logged: there is none to be had, and
/// whoever writes does its work.
pub(super) fn start(mount: &Arc<Mount>) -> Option<Worker> {
    let mount = Arc::downgrade(mount);
    match Worker::start("meantime-ext4", move |stopping| run(stopping, &mount)) {
        Ok(worker) => Some(worker),
        Err(error) => {
            tracing::warn!(%error, "no thread for writing back");
            None
        }
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

fn run(stopping: &Stopping, mount: &Weak<Mount>) {
    let Some(interval_ms) = mount.upgrade().map(|mount| mount.options.commit_interval_ms.max(1))
    else {
        return;
    };
    while !stopping.sleep(Duration::from_millis(interval_ms.div_ceil(LOOKS))) {
        let Some(mount) = mount.upgrade() else { return };
        match mount.background_step() {
            Ok(_) => {}
            // Whoever syncs is told.
            Err(error) => tracing::warn!(%error, "writing back"),
        }
    }
}

impl Mount {
    /// Writes back what is old, or if much is dirty; commits what is old; empties the journal if it
    /// is getting full. Whether there is more to do.
    ///
    /// # Errors
    /// The first; the rest was done.
    pub(super) fn background_step(&self) -> Result<bool, Error> {
        let Some(writer) = &self.writer else { return Ok(false) };
        writer.usable()?;
        let now_ns = self.clock.now_ns();
        let interval_ns = self.options.commit_interval_ms.saturating_mul(1_000_000);
        self.renew_access_epoch(now_ns);
        let many = writer.dirty_pages() > writer.dirty_most / 2;
        let mut failed = Ok(());
        for known in writer.kept() {
            let Some(live) = &known.live else { continue };
            let since_ns = live.pages().since_ns;
            if many || now_ns.saturating_sub(since_ns) >= interval_ns {
                failed = failed.and(self.write_back_one(&known));
            }
        }
        if writer.commit_is_due(now_ns, interval_ns) {
            failed = failed.and(self.commit_whole(writer.last_sequence()));
        }
        failed = failed.and(writer.journal.balance());
        failed.map(|()| !writer.kept().is_empty())
    }
}
