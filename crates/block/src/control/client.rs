//! The client of a control socket.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::answer::read_queues;
use super::error::ControlError;
use super::metrics::Metrics;
use super::place::connect;
use meantime_completion::telemetry::Snapshot;

/// The limit is longer than a channel's time to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest answer accepted, in bytes: some ten thousand channels.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// A connection to a serving process.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    timeout: Duration,
}

impl Client {
    /// Connects to the socket `path`.
    ///
    /// # Errors
    /// Fails if no process listens there, or if this user may not connect.
    pub fn connect(path: &Path) -> Result<Self, ControlError> {
        let failed = || ControlError::io("cannot connect to", path);
        let stream = connect(path).map_err(failed())?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(failed())?;
        let stream = BufReader::new(stream);
        Ok(Self { path: path.to_owned(), stream, timeout: TIMEOUT })
    }

    /// The channels of the process.
    ///
    /// # Errors
    /// Fails if the process has ended, or if it is of another version.
    pub fn snapshot(&mut self) -> Result<Snapshot, ControlError> {
        let answer = self.request(&json!({ "get": "queues" }))?;
        read_queues(&answer).ok_or_else(|| ControlError::Protocol(shortened(&answer)))
    }

    /// The metrics of the process.
    ///
    /// # Errors
    /// Fails if the process has ended, or if it is of another version.
    pub fn metrics(&mut self) -> Result<Metrics, ControlError> {
        let mut answer = self.request(&json!({ "get": "metrics" }))?;
        let metrics = answer.get_mut("metrics").map(Value::take).unwrap_or_default();
        Metrics::of_json(&metrics).ok_or_else(|| ControlError::Protocol(shortened(&answer)))
    }

    /// Limits the time that the process gets for a whole answer, 5 seconds at first.
    ///
    /// # Errors
    /// Fails if the time is 0.
    pub fn set_timeout(&mut self, timeout: Duration) -> Result<(), ControlError> {
        let set = self.stream.get_ref().set_write_timeout(Some(timeout));
        set.map_err(ControlError::io("cannot use", &self.path))?;
        self.timeout = timeout;
        Ok(())
    }

    /// Makes the channel `queue` wait by `policy`. Returns when its thread has made the change.
    ///
    /// # Errors
    /// Returns [`ControlError::Answered`] with the reason if the change was not made.
    pub fn set(&mut self, queue: u64, policy: &str) -> Result<(), ControlError> {
        let answer = self.request(&json!({ "set": { "queue": queue, "policy": policy } }))?;
        match answer.get("done") {
            Some(_) => Ok(()),
            None => Err(ControlError::Protocol(shortened(&answer))),
        }
    }

    /// Sends any request of the protocol.
    ///
    /// # Errors
    /// Returns [`ControlError::Answered`] if the answer is an error.
    pub fn request(&mut self, request: &Value) -> Result<Value, ControlError> {
        let mut line = request.to_string();
        line.push('\n');
        let begun = Instant::now();
        // A server that ends the connection with a reason may have done so before the request was
        // sent.
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        let answer = self.read_line(begun).and_then(|answer| {
            if answer.is_empty() {
                return sent.and(Err(ErrorKind::UnexpectedEof.into()));
            }
            Ok(answer)
        });
        let answer = answer.map_err(ControlError::io(
            "the process has ended, or does not answer, on",
            &self.path,
        ))?;
        let value: Value = serde_json::from_slice(&answer)
            .map_err(|error| ControlError::Protocol(error.to_string()))?;
        match value.get("error").and_then(Value::as_str) {
            Some(text) => Err(ControlError::Answered(text.to_owned())),
            None => Ok(value),
        }
    }

    /// Reads a line, or the part of it that there is at the end of the stream or at the limit of
    /// bytes. The socket's time-out is one of each read, so it is set to what is left: otherwise a
    /// process could send a byte at a time for ever.
    fn read_line(&mut self, begun: Instant) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            let left = self.timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.get_ref().set_read_timeout(Some(left))?;
            let bytes = match self.stream.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                bytes => bytes?,
            };
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(bytes.len(), |at| at + 1);
            line.extend_from_slice(&bytes[..count]);
            self.stream.consume(count);
            if end.is_some() || count == 0 || line.len() >= ANSWER_BYTES_MAX {
                return Ok(line);
            }
        }
    }
}

fn shortened(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_answer_byte_by_byte_ends_at_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slow.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let slow = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The loop ends when the client has closed the connection.
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut client = Client::connect(&path).unwrap();
        client.set_timeout(Duration::from_millis(200)).unwrap();
        let begun = Instant::now();
        assert!(matches!(client.metrics(), Err(ControlError::Io { .. })));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        drop(client);
        slow.join().unwrap();
    }
}
