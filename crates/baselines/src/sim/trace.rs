//! Sequences of I/Os with their device times.

use std::fmt;
use std::str::FromStr;

use meantime_completion::{Class, Kind};

/// One I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// The kind of I/O.
    pub kind: Kind,
    /// Number of bytes.
    pub bytes: u32,
    /// The time from the doorbell to the completion entry, in ns.
    pub device_ns: u64,
}

/// The kinds by their names in a text.
const KINDS: [(&str, Kind); 3] =
    [("read", Kind::Read), ("write", Kind::Write), ("other", Kind::Other)];

/// I/Os in the order of their submission, with the device's times at the depth of the replay.
///
/// As text it has one I/O a line: `read 4096 10250` (kind, bytes, device time in ns; kinds are
/// `read`, `write`, `other`). `#` begins a comment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// The I/Os.
    pub ios: Vec<Io>,
}

impl Trace {
    /// Returns reads of 4 KiB.
    pub fn of_reads(device_ns: impl IntoIterator<Item = u64>) -> Self {
        let io = |device_ns| Io { kind: Kind::Read, bytes: 4096, device_ns };
        Self { ios: device_ns.into_iter().map(io).collect() }
    }

    /// Returns the mean device time in ns, or 0 without I/Os.
    pub fn mean_ns(&self) -> f64 {
        self.ios.iter().map(|io| io.device_ns as f64).sum::<f64>() / self.ios.len().max(1) as f64
    }

    /// Returns the class of an I/O that is alone in flight.
    pub(super) fn class_at_depth_1(io: &Io) -> Class {
        Class::new(io.kind, io.bytes, 1)
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for io in &self.ios {
            let name = KINDS.iter().find(|(_, kind)| *kind == io.kind).map_or("", |(name, _)| name);
            writeln!(f, "{name} {} {}", io.bytes, io.device_ns)?;
        }
        Ok(())
    }
}

/// The error for a line that is not an I/O.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line}: {text:?} is no I/O: write read|write|other, bytes, and the device time in ns, \
     e.g. \"read 4096 10250\""
)]
pub struct ParseTraceError {
    line: usize,
    text: String,
}

/// The limit of a device time, which is an hour. A longer one is a mistake, and sums of those could
/// overflow.
const LONGEST_NS: u64 = 3_600_000_000_000;

impl FromStr for Trace {
    type Err = ParseTraceError;

    fn from_str(text: &str) -> Result<Self, ParseTraceError> {
        let mut ios = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default().trim();
            if !content.is_empty() {
                let text = || line.chars().take(80).collect();
                let error = || ParseTraceError { line: index + 1, text: text() };
                ios.push(parse_io(content).ok_or_else(error)?);
            }
        }
        Ok(Self { ios })
    }
}

fn parse_io(text: &str) -> Option<Io> {
    let mut words = text.split_whitespace();
    let name = words.next()?;
    let (_, kind) = *KINDS.iter().find(|(known, _)| *known == name)?;
    let bytes = words.next()?.parse().ok()?;
    let device_ns = words.next()?.parse().ok().filter(|ns| *ns <= LONGEST_NS)?;
    words.next().is_none().then_some(Io { kind, bytes, device_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let text = "read 4096 10250\nwrite 512 7\nother 0 3600000000000\n";
        let trace: Trace = text.parse().unwrap();
        assert_eq!(trace.ios[1], Io { kind: Kind::Write, bytes: 512, device_ns: 7 });
        assert_eq!(trace.to_string(), text);
        assert_eq!("# nothing\n\n read 1 2 # two\n".parse::<Trace>().unwrap().ios.len(), 1);
    }

    #[test]
    fn nonsense_names_its_line() {
        for line in [
            "read",
            "read 4096",
            "read 4096 1 2",
            "trim 4096 1",
            "read -1 1",
            "read 1 3600000000001",
        ] {
            let error = format!("read 1 1\n{line}\n").parse::<Trace>().unwrap_err().to_string();
            assert!(error.starts_with("line 2") && error.contains("read 4096 10250"), "{error}");
        }
    }
}
