//! The client of a control socket.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::ControlError;
use super::answer::read_queues;
use super::metrics::Metrics;
use super::place::connect;
use meantime_completion::telemetry::Snapshot;

/// Longer than a channel's time to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest answer accepted, in bytes: some ten thousand channels.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// A connection to a serving process.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the socket `path`.
    ///
    /// # Errors
    /// No process listens there, or this user may not connect.
    pub fn connect(path: &Path) -> Result<Self, ControlError> {
        let failed = || ControlError::io("cannot connect to", path);
        let stream = connect(path).map_err(failed())?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed())?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(failed())?;
        Ok(Self { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// The channels of the process.
    ///
    /// # Errors
    /// The process has ended, or is of another version.
    pub fn snapshot(&mut self) -> Result<Snapshot, ControlError> {
        let answer = self.request(&json!({ "get": "queues" }))?;
        read_queues(&answer).ok_or_else(|| ControlError::Protocol(shortened(&answer)))
    }

    /// The metrics of the process.
    ///
    /// # Errors
    /// As [`Client::snapshot`].
    pub fn metrics(&mut self) -> Result<Metrics, ControlError> {
        let mut answer = self.request(&json!({ "get": "metrics" }))?;
        let metrics = answer.get_mut("metrics").map(Value::take).unwrap_or_default();
        Metrics::of_json(&metrics).ok_or_else(|| ControlError::Protocol(shortened(&answer)))
    }

    /// Limits the time that the process gets to answer, 5 seconds at first.
    ///
    /// # Errors
    /// The time is 0.
    pub fn set_timeout(&mut self, timeout: Duration) -> Result<(), ControlError> {
        let stream = self.stream.get_ref();
        let set = stream.set_read_timeout(Some(timeout));
        set.and_then(|()| stream.set_write_timeout(Some(timeout)))
            .map_err(ControlError::io("cannot use", &self.path))
    }

    /// Makes the channel `queue` wait by `policy`. Returns when its thread has made the change.
    ///
    /// # Errors
    /// [`ControlError::Answered`] with the reason if the change was not made.
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
    /// [`ControlError::Answered`] if the answer is an error.
    pub fn request(&mut self, request: &Value) -> Result<Value, ControlError> {
        let mut line = request.to_string();
        line.push('\n');
        // A server that ends the connection with a reason may have done so before the request was
        // sent.
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        let mut answer = Vec::new();
        let got = self.stream.by_ref().take(ANSWER_BYTES_MAX).read_until(b'\n', &mut answer);
        got.and_then(|count| {
            if count == 0 {
                sent.and(Err(std::io::ErrorKind::UnexpectedEof.into()))
            } else {
                Ok(())
            }
        })
        .map_err(ControlError::io("the process has ended, or does not answer, on", &self.path))?;
        let value: Value = serde_json::from_slice(&answer)
            .map_err(|error| ControlError::Protocol(error.to_string()))?;
        match value.get("error").and_then(Value::as_str) {
            Some(text) => Err(ControlError::Answered(text.to_owned())),
            None => Ok(value),
        }
    }
}

fn shortened(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}
