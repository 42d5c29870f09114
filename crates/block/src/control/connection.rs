//! One connection of the server: it never holds more than a line and its answer in memory.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use serde_json::Value;

use super::answer::{self, Next};
use meantime_completion::Policy;
use meantime_completion::telemetry::Asked;

/// The longest line accepted, in bytes.
pub const LINE_BYTES_MAX: usize = 4096;

/// A channel's time to answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// A client's time to read its answer.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// A policy change made from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The channel's number.
    pub queue: u64,
    /// The policy before.
    pub before: String,
    /// The policy after.
    pub after: String,
}

struct Pending {
    asked: Asked,
    policy: Policy,
    before: String,
    since: Instant,
}

/// A client.
pub(super) struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// When writing `output` began.
    output_since: Instant,
    pending: Option<Pending>,
    /// Whether to read nothing more: the client has closed its side, or sent an invalid line.
    last: bool,
}

impl Connection {
    /// A connection on `stream`, which must not block.
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            output_since: Instant::now(),
            pending: None,
            last: false,
        }
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// The events to poll for.
    pub(super) fn interest(&self) -> PollFlags {
        if !self.output.is_empty() {
            PollFlags::OUT
        } else if self.pending.is_some() || self.last {
            PollFlags::empty()
        } else {
            PollFlags::IN
        }
    }

    /// The time after which to return without an event.
    pub(super) fn patience(&self) -> Option<Duration> {
        if self.pending.is_some() {
            Some(Duration::from_millis(2))
        } else if !self.output.is_empty() {
            Some(READ_TIMEOUT)
        } else {
            None
        }
    }

    /// Does all work possible without blocking. Returns false if the connection is over.
    pub(super) fn go_on(&mut self, ready: PollFlags, changes: &mut Vec<Change>) -> bool {
        if ready.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return false;
        }
        if ready.contains(PollFlags::IN) && !self.read() {
            return false;
        }
        loop {
            self.look_at_pending(changes);
            if !self.write() {
                return false;
            }
            if !self.output.is_empty() {
                return self.output_since.elapsed() < READ_TIMEOUT;
            }
            if self.pending.is_some() {
                return true;
            }
            match self.next_line() {
                Some(line) => self.handle(&line),
                // The line was too long, so the error is sent first.
                None if !self.output.is_empty() => {}
                None => return !self.last,
            }
        }
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; LINE_BYTES_MAX];
        match self.stream.read(&mut bytes) {
            Ok(0) => {
                self.last = true;
                true
            }
            Ok(count) => {
                self.input.extend_from_slice(&bytes[..count]);
                true
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.input.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n');
        match end {
            Some(end) => {
                let mut line: Vec<u8> = self.input.drain(..=end).collect();
                line.pop();
                Some(line)
            }
            None if self.input.len() >= LINE_BYTES_MAX => {
                self.input.clear();
                self.last = true;
                self.say(&answer::error(format_args!("a line has at most {LINE_BYTES_MAX} bytes")));
                None
            }
            // This is a last line without a newline.
            None if self.last && !self.input.is_empty() => Some(std::mem::take(&mut self.input)),
            None => None,
        }
    }

    fn handle(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        match answer::handle(line) {
            Next::Answer(value) => self.say(&value),
            Next::Asked { asked, policy, before } => {
                self.pending = Some(Pending { asked, policy, before, since: Instant::now() });
            }
        }
    }

    fn look_at_pending(&mut self, changes: &mut Vec<Change>) {
        let Some(pending) = &self.pending else { return };
        let id = pending.asked.id();
        let answered = match pending.asked.answer() {
            Some(answered) => answered,
            None if pending.since.elapsed() < ASK_TIMEOUT => return,
            None => Ok(()),
        };
        let Some(Pending { asked, policy, before, .. }) = self.pending.take() else { return };
        // Withdrawing returns the answer, if there is one.
        let outcome = answered.and_then(|()| asked.withdraw());
        let after = policy.to_string();
        if outcome.is_ok() && before != after {
            changes.push(Change { queue: id, before, after });
        }
        self.say(&answer::outcome(id, policy, &outcome));
    }

    fn say(&mut self, value: &Value) {
        self.output = value.to_string().into_bytes();
        self.output.push(b'\n');
        self.output_since = Instant::now();
    }

    /// Writes the output. Returns false if the client has closed the connection.
    fn write(&mut self) -> bool {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }
}
