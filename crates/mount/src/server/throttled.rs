//! Messages that programs can cause again and again.

use std::time::{Duration, Instant};

use meantime_process::lock::{Mutex, Rank};

use super::lock::locked;

/// The time between two lines of one message.
const INTERVAL: Duration = Duration::from_secs(60);
/// The pause before an operation that failed unexpectedly is tried again.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// One message. It is logged the first time, and then at most once in an [`INTERVAL`], with the
/// number of times that it was caused until then.
pub(crate) struct ThrottledMessage(Mutex<Times>);

#[derive(Default)]
struct Times {
    /// The time when the message was last logged.
    at: Option<Instant>,
    /// The number of times that it was caused since.
    unlogged: u64,
}

impl ThrottledMessage {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Rank::Served, Times::default()))
    }

    /// Calls `log` if a line is due. It gets the number of times since the last line, unless that
    /// is one.
    pub(crate) fn log_if_due(&self, log: impl FnOnce(Option<u64>)) {
        if let Some(times) = self.at(Instant::now()) {
            log((times > 1).then_some(times));
        }
    }

    /// Counts the message `now`. Returns the number of times since the last line, if a line is due.
    fn at(&self, now: Instant) -> Option<u64> {
        let mut times = locked(&self.0);
        times.unlogged += 1;
        if times.at.is_some_and(|last| now < last + INTERVAL) {
            return None;
        }
        times.at = Some(now);
        Some(std::mem::take(&mut times.unlogged))
    }

    /// Ends the counting. Calls `log` with the number of times since the last line, unless that is
    /// 0.
    pub(crate) fn end(&self, log: impl FnOnce(u64)) {
        let mut times = locked(&self.0);
        let unlogged = std::mem::take(&mut times.unlogged);
        drop(times);
        if unlogged > 0 {
            log(unlogged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_logged_once_in_a_while_and_its_times_are_counted() {
        let message = ThrottledMessage::new();
        let begun = Instant::now();
        let at = |seconds| message.at(begun + Duration::from_secs(seconds));
        assert_eq!(at(0), Some(1));
        assert!((0..1000).all(|_| at(59).is_none()));
        assert_eq!((at(60), at(61), at(62)), (Some(1001), None, None));
        let mut left = Vec::new();
        message.end(|times| left.push(times));
        message.end(|times| left.push(times));
        assert_eq!(left, [2]);
    }
}
