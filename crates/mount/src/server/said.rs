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
pub(crate) struct Said(Mutex<Times>);

#[derive(Default)]
struct Times {
    /// The time when the message was last logged.
    at: Option<Instant>,
    /// The number of times that it was caused since.
    unsaid: u64,
}

impl Said {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Rank::Served, Times::default()))
    }

    /// Calls `say` if a line is due. It gets the number of times since the last line, unless that
    /// is one.
    pub(crate) fn again(&self, say: impl FnOnce(Option<u64>)) {
        if let Some(times) = self.at(Instant::now()) {
            say((times > 1).then_some(times));
        }
    }

    /// Counts the message `now`. Returns the number of times since the last line, if a line is due.
    fn at(&self, now: Instant) -> Option<u64> {
        let mut times = locked(&self.0);
        times.unsaid += 1;
        if times.at.is_some_and(|last| now < last + INTERVAL) {
            return None;
        }
        times.at = Some(now);
        Some(std::mem::take(&mut times.unsaid))
    }

    /// Ends the counting. Calls `say` with the number of times since the last line, unless that is
    /// 0.
    pub(crate) fn end(&self, say: impl FnOnce(u64)) {
        let mut times = locked(&self.0);
        let unsaid = std::mem::take(&mut times.unsaid);
        drop(times);
        if unsaid > 0 {
            say(unsaid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_said_once_in_a_while_and_its_times_are_counted() {
        let said = Said::new();
        let begun = Instant::now();
        let at = |seconds| said.at(begun + Duration::from_secs(seconds));
        assert_eq!(at(0), Some(1));
        assert!((0..1000).all(|_| at(59).is_none()));
        assert_eq!((at(60), at(61), at(62)), (Some(1001), None, None));
        let mut rest = Vec::new();
        said.end(|times| rest.push(times));
        said.end(|times| rest.push(times));
        assert_eq!(rest, [2]);
    }
}
