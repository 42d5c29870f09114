//! Telemetry and policy control at run time: every channel of a process publishes its figures, and
//! accepts policy changes from outside.
//!
//! The channel's thread owns the [`Telemetry`]; every other thread of the process uses the
//! channel's [`ChannelControl`], from [`channels`]. The channel never waits for a reader: it
//! publishes at places off the fast path where it has read a clock anyway, at most once per
//! [`PUBLISH_INTERVAL_NS`], and a little later if a thread is just reading. So an idle channel
//! shows its last state, and takes a request when it is next used.
//!
//! ```
//! use meantime::block::{BlockDevice, ChannelOptions, OpenOptions};
//! use meantime::completion::telemetry;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = meantime::block::open("mem:64M", &OpenOptions::default())?;
//! let channel = device.channel(&ChannelOptions::default())?;
//! for control in telemetry::channels() {
//!     let state = control.state();
//!     println!("{} {}: {} I/Os, {}", state.id, state.device, state.figures.ended, state.policy);
//! }
//! drop(channel);
//! # Ok(())
//! # }
//! ```

mod latencies;
mod rates;
mod registry;
mod state;

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use meantime_process::cpu::Times;

pub use latencies::Latencies;
pub use rates::{QueueRates, Snapshot, rates};
pub use registry::{DeviceFigures, channel, channels, devices};
pub use state::{QueueFigures, QueueState};

use super::policy::Policy;

/// A channel in use publishes this often, in ns, unless it waits longer for a single I/O.
pub const PUBLISH_INTERVAL_NS: u64 = 50_000_000;

/// Time between two checks for an answer.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// One channel, as seen from outside its thread.
#[derive(Debug)]
pub struct ChannelControl {
    id: u64,
    device: String,
    published: Mutex<(Policy, QueueFigures)>,
    /// Whether `request` waits to be taken, so that the channel only locks it then.
    asked: AtomicBool,
    request: Mutex<Request>,
    closed: AtomicBool,
}

/// A change requested from outside; there is at most one at a time.
#[derive(Debug)]
enum Request {
    None,
    /// The channel has not taken it.
    Asked(Policy),
    /// The channel has taken it, and not answered; `left` says that the asker has left.
    Taken {
        left: bool,
    },
    /// The change was made, or the reason why not.
    Answered(Result<(), String>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a policy change was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The channel cannot use the policy.
    #[error("refused: {0}")]
    Refused(String),
    /// Another request is pending.
    #[error("another change of queue {id} is under way; try again in a moment")]
    Busy {
        /// The channel.
        id: u64,
    },
    /// The channel did not take the request in time.
    #[error(
        "queue {id} did no I/O for so long that the request was withdrawn; ask again while it is \
         in use"
    )]
    Idle {
        /// The channel.
        id: u64,
    },
    /// The channel has taken the request, and its outcome is unknown.
    #[error(
        "queue {id} took the request and has not answered yet; look whether its policy has changed"
    )]
    Unanswered {
        /// The channel.
        id: u64,
    },
    /// The channel no longer exists.
    #[error("queue {id} is closed")]
    Closed {
        /// The channel.
        id: u64,
    },
}

impl ChannelControl {
    /// Unique among all channels of this process, past and present.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The name of the device, as it was opened.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Whether the channel was dropped.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The last published state, consistent as of one moment.
    pub fn state(&self) -> QueueState {
        let (policy, mut figures) = *lock(&self.published);
        let policy = policy.to_string();
        // Read here, so that the channel makes no system call for it.
        figures.thread_cpu_ns = cpu_ns_of(figures.thread_id);
        let thread = thread_name(figures.thread_id);
        QueueState { id: self.id, device: self.device.clone(), thread, policy, figures }
    }

    /// The figures last published, without the thread's CPU time.
    fn figures(&self) -> QueueFigures {
        lock(&self.published).1
    }

    /// Leaves the request. Returns true if the channel has not taken it, and so never will.
    fn leave(&self) -> bool {
        let mut request = lock(&self.request);
        let withdrawn = matches!(*request, Request::Asked(_));
        *request = match *request {
            Request::Taken { .. } => Request::Taken { left: true },
            _ => Request::None,
        };
        withdrawn
    }

    /// Asks the channel to wait by `policy` from now on. Returns at once, with a handle for the
    /// answer.
    ///
    /// # Errors
    /// Returns [`AskError::Busy`] if another request is pending, or [`AskError::Closed`] if the
    /// channel was dropped.
    pub fn ask(self: &Arc<Self>, policy: Policy) -> Result<Asked, AskError> {
        if self.is_closed() {
            return Err(AskError::Closed { id: self.id });
        }
        let mut request = lock(&self.request);
        if !matches!(*request, Request::None) {
            return Err(AskError::Busy { id: self.id });
        }
        *request = Request::Asked(policy);
        self.asked.store(true, Ordering::Release);
        drop(request);
        Ok(Asked { control: Arc::clone(self), over: false })
    }
}

/// A pending request. Dropping it withdraws the request if the channel has not taken it.
#[derive(Debug)]
#[must_use = "a request that is dropped is withdrawn"]
pub struct Asked {
    control: Arc<ChannelControl>,
    over: bool,
}

impl Asked {
    /// The channel that was asked.
    pub fn id(&self) -> u64 {
        self.control.id
    }

    /// The answer, if there is one yet: that the change was made, or the reason why not.
    pub fn answer(&self) -> Option<Result<(), AskError>> {
        match &*lock(&self.control.request) {
            Request::Answered(answer) => Some(answer.clone().map_err(AskError::Refused)),
            _ if self.control.is_closed() => Some(Err(AskError::Closed { id: self.control.id })),
            _ => None,
        }
    }

    /// Waits for the answer. Withdraws the request if there is none within `timeout`.
    ///
    /// # Errors
    /// Returns the reason why the change was not made, as [`AskError`].
    pub fn wait(self, timeout: Duration) -> Result<(), AskError> {
        let start = Instant::now();
        loop {
            if let Some(answer) = self.answer() {
                return answer;
            }
            if start.elapsed() >= timeout {
                return self.withdraw();
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Withdraws the request. Returns its outcome if it is too late for that.
    ///
    /// # Errors
    /// Returns [`AskError::Idle`] if the request was withdrawn, [`AskError::Unanswered`] if the
    /// channel has taken it and not answered, or else the reason that [`Asked::answer`] gives.
    pub fn withdraw(mut self) -> Result<(), AskError> {
        let id = self.control.id;
        if let Some(answer) = self.answer() {
            return answer;
        }
        self.over = true;
        match self.control.leave() {
            true => Err(AskError::Idle { id }),
            false => Err(AskError::Unanswered { id }),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.over {
            self.control.leave();
        }
    }
}

/// The channel's side, on the channel's thread. Dropping it closes the [`ChannelControl`] and
/// removes it from the list; what it published last stays in the sums of [`devices`].
#[derive(Debug)]
pub struct Telemetry {
    control: Arc<ChannelControl>,
    /// Next time to publish, in ns.
    due_ns: u64,
    /// The last published state. A state that was due while a thread was reading counts as
    /// published.
    last: (Policy, QueueFigures),
}

impl Telemetry {
    /// Registers a channel to `device`, which waits by `policy`, at `now_ns`.
    pub fn new(device: &str, policy: Policy, now_ns: u64) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        // This makes a system call once per thread, so it is not on the path of an I/O.
        this_thread();
        let figures = QueueFigures { published_ns: now_ns, ..QueueFigures::default() };
        let last = (policy, figures);
        let control = Arc::new(ChannelControl {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            device: device.to_owned(),
            published: Mutex::new(last),
            asked: AtomicBool::new(false),
            request: Mutex::new(Request::None),
            closed: AtomicBool::new(false),
        });
        registry::add(&control);
        Self { control, due_ns: now_ns.saturating_add(PUBLISH_INTERVAL_NS), last }
    }

    /// The handle for other threads.
    pub fn control(&self) -> &Arc<ChannelControl> {
        &self.control
    }

    /// Whether it is time to publish, and to check for a request.
    #[inline(always)]
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// Publishes `figures` as of `now_ns`, with this thread's number; if a thread is just reading,
    /// it publishes the next time. It never waits, makes no system call after a thread's first, and
    /// allocates nothing.
    #[cold]
    pub fn publish(&mut self, now_ns: u64, policy: Policy, figures: &QueueFigures) {
        let figures = QueueFigures { thread_id: this_thread(), published_ns: now_ns, ..*figures };
        self.last = (policy, figures);
        if let Ok(mut published) = self.control.published.try_lock() {
            *published = self.last;
            self.due_ns = now_ns.saturating_add(PUBLISH_INTERVAL_NS);
        }
    }

    /// Takes the policy requested from outside, if there is a request; [`Telemetry::answer`] must
    /// follow. Without a request this is one load.
    #[inline]
    pub fn take_request(&mut self) -> Option<Policy> {
        if !self.control.asked.load(Ordering::Acquire) {
            return None;
        }
        let mut request = self.control.request.try_lock().ok()?;
        self.control.asked.store(false, Ordering::Relaxed);
        // The request may have been withdrawn.
        let Request::Asked(policy) = *request else { return None };
        *request = Request::Taken { left: false };
        Some(policy)
    }

    /// Answers the request that was taken.
    pub fn answer(&mut self, outcome: Result<(), impl Display>) {
        let outcome = outcome.map_err(|why| match why.to_string() {
            text if text.is_empty() => "no reason given".to_owned(),
            text => text,
        });
        let mut request = lock(&self.control.request);
        *request = match *request {
            Request::Taken { left: true } => Request::None,
            _ => Request::Answered(outcome),
        };
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        *lock(&self.control.published) = self.last;
        self.control.closed.store(true, Ordering::Release);
        registry::remove(&self.control);
    }
}

/// The calling thread's number, which is queried from the kernel once.
fn this_thread() -> u64 {
    thread_local! {
        static ID: u64 = rustix::thread::gettid().as_raw_nonzero().get() as u64;
    }
    ID.with(|id| *id)
}

/// CPU time of a thread of this process, in ns; 0 if it has ended.
fn cpu_ns_of(thread_id: u64) -> u64 {
    let folder = format!("/proc/self/task/{thread_id}");
    Times::of_task(folder.as_ref()).unwrap_or_default().ran_ns
}

/// The name of a thread of this process.
fn thread_name(thread_id: u64) -> String {
    if thread_id == 0 {
        return String::new();
    }
    let name = std::fs::read(format!("/proc/self/task/{thread_id}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

#[cfg(all(test, not(loom)))]
mod tests;
