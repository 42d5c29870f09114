//! What a group waits for beside channels: memory that others change, and other threads.

use std::sync::Arc;

use meantime_completion::alert::Alert;
use meantime_hw::EventFd;

/// Memory that another thread or process changes, e.g. the tail of a ring of messages.
///
/// While the group's thread is awake it looks; while it sleeps, the other side has to signal an
/// event. So that no change is missed, each side writes and then reads, with sequentially
/// consistent accesses: the group calls [`park`](Self::park), then [`is_ready`](Self::is_ready),
/// and sleeps; the other side changes the memory, then checks whether the group is parked, and if
/// so signals [`event`](Self::event).
pub trait Watch {
    /// Whether there is something. Called in each round of looks: at most a few loads.
    fn is_ready(&mut self) -> bool;

    /// Announces to the other side that the thread is about to sleep.
    fn park(&mut self);

    /// Announces that it is awake.
    fn unpark(&mut self);

    /// The event that the other side signals. The group takes its signals.
    fn event(&self) -> &EventFd;
}

/// No watch.
#[derive(Debug)]
pub enum NoWatch {}

impl Watch for NoWatch {
    fn is_ready(&mut self) -> bool {
        match *self {}
    }

    fn park(&mut self) {
        match *self {}
    }

    fn unpark(&mut self) {
        match *self {}
    }

    fn event(&self) -> &EventFd {
        match *self {}
    }
}

/// Ends waits of a [`PollGroup`](super::PollGroup), from any thread.
#[derive(Debug, Clone)]
pub struct GroupWaker(pub(super) Arc<WakeEvent>);

impl GroupWaker {
    /// Ends the current wait, or the next one, with [`Ready::Woken`](super::Ready::Woken). Several
    /// calls may count as one.
    pub fn wake(&self) {
        self.0.alert.raise(|| self.0.event.signal());
    }
}

/// What ends a group's sleep.
#[derive(Debug)]
pub(super) struct WakeEvent {
    pub(super) alert: Alert,
    pub(super) event: EventFd,
}
