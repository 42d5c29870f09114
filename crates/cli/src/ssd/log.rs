//! The log of a served SSD, on standard error.

use std::time::{Duration, Instant};

use meantime_ssd::served::Event;
use meantime_ssd::{FaultControl, Refusal};

/// Maximum number of lines of each kind in `PER`.
const LINES_MAX: usize = 20;
/// Length of a period.
const PER: Duration = Duration::from_millis(200);

/// The log.
pub(super) struct Log {
    on: bool,
    /// Number of refusals already logged.
    seen: u64,
    /// Start of the period.
    since: Instant,
    lines: usize,
    /// Number of messages that were not shown.
    silent: u64,
}

impl Log {
    pub(super) fn new(on: bool) -> Self {
        Self { on, seen: 0, since: Instant::now(), lines: 0, silent: 0 }
    }

    /// Prints a line.
    pub(super) fn line(&self, text: &str) {
        if self.on {
            eprintln!("meantime: {text}");
        }
    }

    /// Logs an event of the server.
    pub(super) fn event(&mut self, event: &Event) {
        let text = match event {
            Event::Connected { pid: Some(pid) } => format!("a driver has connected: process {pid}"),
            Event::Connected { pid: None } => "a driver has connected".to_owned(),
            Event::Ended { why } => {
                self.catch_up();
                let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                format!("client disconnected{why}")
            }
            Event::Refused { command, errno, why } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                return self.limited(&format!("{command:?} refused: {why} ({error})"));
            }
            Event::Note(text) => return self.limited(text),
            _ => return,
        };
        self.line(&text);
    }

    /// Prints a line of a kind of which a driver can cause any number.
    fn limited(&mut self, text: &str) {
        if self.lines < LINES_MAX {
            self.lines += 1;
            self.line(text);
        } else {
            self.silent += 1;
        }
    }

    fn catch_up(&mut self) {
        if self.silent > 0 {
            self.line(&format!("and {} messages more were refused", self.silent));
        }
        (self.since, self.lines, self.silent) = (Instant::now(), 0, 0);
    }

    /// Ends a period when its time is over, and logs new refusals of the controller. Called after
    /// each event.
    pub(super) fn log_due(&mut self, ssd: &dyn FaultControl) {
        if self.since.elapsed() >= PER {
            self.catch_up();
            self.log_now(ssd);
        }
    }

    /// Logs new refusals at once.
    pub(super) fn log_now(&mut self, ssd: &dyn FaultControl) {
        let counters = ssd.counters();
        // Tolerated ones need no attention.
        let refused = counters.remembered - counters.tolerated;
        if !self.on || refused == self.seen {
            return;
        }
        let new = refused - self.seen;
        self.seen = refused;
        for text in latest(&ssd.refusals(), new) {
            self.line(&text);
        }
    }
}

/// Returns the `new` latest of `refusals` as lines, the oldest first, but no more than are shown at
/// once.
fn latest(refusals: &[Refusal], new: u64) -> Vec<String> {
    let refusals: Vec<&Refusal> = refusals.iter().filter(|refusal| !refusal.tolerated).collect();
    let shown = refusals.len().min(new.try_into().unwrap_or(usize::MAX)).min(LINES_MAX);
    let mut lines = Vec::with_capacity(shown + 1);
    if new > shown as u64 {
        lines.push(format!("{} refusals more before these", new - shown as u64));
    }
    lines.extend(refusals[refusals.len() - shown..].iter().map(|refusal| words(refusal)));
    lines
}

fn words(refusal: &Refusal) -> String {
    let Refusal { qid, cid, status, reason, .. } = refusal;
    match (cid, status) {
        (Some(cid), Some(status)) => {
            format!("queue {qid}, command {cid:#06x} refused: {reason} ({status})")
        }
        (Some(cid), None) => format!("queue {qid}, command {cid:#06x}: {reason}"),
        (None, _) => format!("queue {qid}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_shown_and_the_others_counted() {
        let refusal =
            |qid| Refusal { qid, cid: None, status: None, reason: "why", tolerated: false };
        let refusals: Vec<_> = (0..100).map(refusal).collect();
        assert_eq!(latest(&refusals, 2), ["queue 98: why", "queue 99: why"]);
        let many = latest(&refusals, 1_000);
        assert_eq!(
            (many.len(), &*many[0], &*many[20]),
            (21, "980 refusals more before these", "queue 99: why")
        );
        assert_eq!(latest(&[], 5), ["5 refusals more before these"]);
        let tolerated = Refusal { tolerated: true, ..refusal(100) };
        assert_eq!(latest(&[refusal(99), tolerated], 1), ["queue 99: why"]);
    }
}
