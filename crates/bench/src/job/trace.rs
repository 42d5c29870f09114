//! A recorded trace, fio's iolog (`read_iolog`): its I/Os and flushes, with their times.

use std::path::Path;
use std::sync::Arc;

use super::error::{JobError, Why};
use super::settings::{BS_MAX_BYTES, Extent, Rw};
use super::{Job, value};
use crate::pattern::Dir;

const HEADERS: [(&str, u8); 2] = [("fio version 2 iolog", 2), ("fio version 3 iolog", 3)];

/// `read_iolog`, `replay_no_stall`, `replay_time_scale`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayKeys {
    /// The file with the trace.
    pub log: Option<String>,
    /// Whether the trace is replayed as fast as it goes.
    pub no_stall: bool,
    /// The speed, in percent of the recorded one.
    pub speed_percent: u32,
}

impl Default for ReplayKeys {
    fn default() -> Self {
        Self { log: None, no_stall: false, speed_percent: 100 }
    }
}

/// What is done in a step of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// A read or write.
    Io {
        /// The direction.
        dir: Dir,
        /// The first byte.
        offset_bytes: u64,
        /// The length in bytes.
        bytes: u64,
    },
    /// A flush of all writes before it.
    Flush,
}

/// A step of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// The time from the trace's beginning, as recorded. It is never before the last step's.
    pub at_ns: u64,
    /// What is done.
    pub action: Action,
    /// The line of the file.
    pub line: usize,
}

/// A trace of one device or file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    pub(crate) steps: Vec<Step>,
}

impl Trace {
    /// Parses an iolog of version 2 or 3.
    ///
    /// # Errors
    /// Returns why it cannot be replayed, with the line.
    pub fn parse(text: &str) -> Result<Self, Why> {
        let mut lines = text.lines();
        let header = lines.next().unwrap_or_default().trim();
        let Some((_, version)) = HEADERS.iter().find(|(known, _)| *known == header) else {
            let [(two, _), (three, _)] = HEADERS;
            return Err(format!(
                "line 1: expected \"{two}\" or \"{three}\"; a trace of blktrace is not read"
            ));
        };
        let mut reader = Reader { version: *version, first_us: None, at_ns: 0, file: None };
        let mut steps = Vec::new();
        for (line, text) in (2..).zip(lines) {
            let action = reader.action(text).map_err(|why| format!("line {line}: {why}"))?;
            let at_ns = reader.at_ns;
            steps.extend(action.map(|action| Step { at_ns, action, line }));
        }
        let trace = Self { steps };
        if trace.ios().next().is_none() {
            return Err("it has no read and no write".to_owned());
        }
        Ok(trace)
    }

    /// Returns the direction, offset and length in bytes, and line of each I/O.
    pub(crate) fn ios(&self) -> impl Iterator<Item = (Dir, u64, u64, usize)> {
        self.steps.iter().filter_map(|step| match step.action {
            Action::Io { dir, offset_bytes, bytes } => Some((dir, offset_bytes, bytes, step.line)),
            Action::Flush => None,
        })
    }

    /// Returns the largest length of an I/O in this direction, in bytes.
    fn max_bytes(&self, dir: Dir) -> Option<u64> {
        self.ios().filter(|io| io.0 == dir).map(|(_, _, bytes, _)| bytes).max()
    }
}

/// Reads a trace's lines.
struct Reader<'t> {
    version: u8,
    /// The first time of version 3, in µs, from which times count.
    first_us: Option<u64>,
    at_ns: u64,
    /// The file whose I/Os the trace has.
    file: Option<&'t str>,
}

impl<'t> Reader<'t> {
    /// Returns what a line says is done, if that is anything.
    fn action(&mut self, line: &'t str) -> Result<Option<Action>, Why> {
        let mut words = line.split_whitespace().peekable();
        if words.peek().is_none() {
            return Ok(None);
        }
        if self.version == 3 {
            let time_us = number("a time in microseconds", words.next())?;
            let first_us = *self.first_us.get_or_insert(time_us);
            self.pass(time_us.saturating_sub(first_us).saturating_mul(1_000));
        }
        let (Some(file), Some(action)) = (words.next(), words.next()) else {
            return Err("expected a file's name and an action".to_owned());
        };
        let dir = match action {
            "add" | "open" | "close" => return Ok(None),
            "wait" if self.version == 2 => {
                let until_ms = number("a time in milliseconds", words.next())?;
                self.pass(until_ms.saturating_mul(1_000_000));
                return Ok(None);
            }
            "wait" => return Err("version 3 has times, and no wait".to_owned()),
            "sync" | "datasync" => None,
            "read" => Some(Dir::Read),
            "write" => Some(Dir::Write),
            "trim" => return Err("trims are not replayed; leave the line out".to_owned()),
            other => {
                let other = super::error::shown(other);
                return Err(format!("{other} is no action of an iolog"));
            }
        };
        if *self.file.get_or_insert(file) != file {
            let [one, other] = [self.file.unwrap_or_default(), file].map(super::error::shown);
            return Err(format!(
                "it has I/O on {other}, and before on {one}: a job has one device; make it a \
                 trace for each"
            ));
        }
        let Some(dir) = dir else { return Ok(Some(Action::Flush)) };
        let offset_bytes = number("an offset in bytes", words.next())?;
        let bytes = number("a length in bytes", words.next())?;
        if bytes == 0 || bytes > BS_MAX_BYTES {
            return Err(format!("the length is {bytes} bytes; 1 to {BS_MAX_BYTES} are possible"));
        }
        if offset_bytes.checked_add(bytes).is_none() {
            return Err("offset + length does not fit in 64 bits".to_owned());
        }
        Ok(Some(Action::Io { dir, offset_bytes, bytes }))
    }

    /// Goes on to a time of the trace. As in fio, an earlier one is the present.
    fn pass(&mut self, to_ns: u64) {
        self.at_ns = self.at_ns.max(to_ns);
    }
}

fn number(what: &str, word: Option<&str>) -> Result<u64, Why> {
    word.and_then(|word| word.parse().ok()).ok_or_else(|| match word {
        Some(word) => format!("expected {what}, found {}", super::error::shown(word)),
        None => format!("expected {what}"),
    })
}

/// Parses the value of `read_iolog`.
pub(super) fn name(text: &str) -> Result<Option<String>, Why> {
    if text == "-" || text.contains(':') {
        return Err("a job replays one file, whose name has no \":\"".to_owned());
    }
    value::printable(text).map(Some)
}

impl Job {
    /// Reads the trace of `read_iolog` by `read`, if the job has that key. From then on the job
    /// does what the trace says: its directions, places and sizes.
    ///
    /// # Errors
    /// Returns why the file cannot be read or replayed.
    pub fn read_trace(
        &mut self,
        read: impl FnOnce(&Path) -> std::io::Result<Vec<u8>>,
    ) -> Result<(), JobError> {
        let Some(log) = self.replay.log.clone() else { return Ok(()) };
        let text = read(Path::new(&log)).map_err(|error| error.to_string());
        let trace = text.and_then(|text| Trace::parse(&String::from_utf8_lossy(&text)));
        let mut trace =
            trace.map_err(|why| self.error_of("read_iolog", format!("{log}: {why}")))?;
        let [read_bytes, write_bytes] = [Dir::Read, Dir::Write].map(|dir| trace.max_bytes(dir));
        self.rw = match (read_bytes, write_bytes) {
            (_, None) => Rw::RandRead,
            (None, _) => Rw::RandWrite,
            _ => Rw::RandRw,
        };
        self.rwmixread_percent = 50;
        // A flush at the end is that of a job; without writes there is nothing to flush.
        let last = trace.steps.pop_if(|step| step.action == Action::Flush);
        self.syncing.end_fsync |= last.is_some() && write_bytes.is_some();
        trace.steps.retain(|step| write_bytes.is_some() || step.action != Action::Flush);
        self.sizes = [None, None];
        (self.bs_read_bytes, self.bs_write_bytes) = match (read_bytes, write_bytes) {
            (Some(read), Some(write)) => (read, write),
            (one, other) => [one.or(other).unwrap_or_default(); 2].into(),
        };
        (self.offset, self.size) = (Extent::default(), None);
        self.io_size = Some(Extent::Bytes(trace.ios().map(|(_, _, bytes, _)| bytes).sum()));
        let ios = trace.ios().count() as u64;
        self.number_ios = Some(self.number_ios.map_or(ios, |most| most.min(ios)));
        self.trace = Some(Arc::new(trace));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::testing::job;

    const READ: Action = Action::Io { dir: Dir::Read, offset_bytes: 8192, bytes: 4096 };
    const WRITE: Action = Action::Io { dir: Dir::Write, offset_bytes: 0, bytes: 512 };

    fn steps(text: &str) -> Vec<(u64, Action, usize)> {
        let steps = Trace::parse(text).unwrap().steps;
        steps.iter().map(|step| (step.at_ns, step.action, step.line)).collect()
    }

    #[test]
    fn version_3_has_microseconds_from_the_first_line_on() {
        let text = "fio version 3 iolog\n25 /d add\n137 /d open\n142 /d read 8192 4096\n\
                    10190 /d write 0 512\n10180 /d datasync 0 0\n\n10225 /d read 8192 4096\n\
                    50342 /d close\n";
        let us = 1_000;
        let expected = [
            (117 * us, READ, 4),
            (10_165 * us, WRITE, 5),
            (10_165 * us, Action::Flush, 6),
            (10_200 * us, READ, 8),
        ];
        assert_eq!(steps(text), expected);
    }

    #[test]
    fn version_2_waits_until_milliseconds_have_passed() {
        let text = "fio version 2 iolog\n/d add\n/d open\n/d read 8192 4096\n/d wait 300 0\n\
                    /d read 8192 4096\n/d wait 300 0\n/d write 0 512\n/d wait 1000 0\n/d sync 0 0\n";
        let ms = 1_000_000;
        let expected = [
            (0, READ, 4),
            (300 * ms, READ, 6),
            (300 * ms, WRITE, 8),
            (1000 * ms, Action::Flush, 10),
        ];
        assert_eq!(steps(text), expected);
    }

    #[test]
    fn what_cannot_be_replayed_is_said_with_its_line() {
        let (two, three) = (HEADERS[0].0, HEADERS[1].0);
        for (text, why) in [
            (String::new(), "line 1: expected \"fio version 2 iolog\" or"),
            ("0, 0, 4096\n".to_owned(), "line 1: "),
            (format!("{two}\n/d add\n"), "no read and no write"),
            (format!("{two}\n/d trim 0 4096\n"), "line 2: trims"),
            (format!("{two}\n/d\n"), "line 2: expected a file's name and an action"),
            (format!("{two}\n/d add\n/d read 0\n"), "line 3: expected a length"),
            (format!("{two}\n/d read x 1\n"), "line 2: expected an offset in bytes, found x"),
            (format!("{two}\n/d read 0 0\n"), "line 2: the length is 0"),
            (format!("{two}\n/d read {} 1\n", u64::MAX), "line 2: offset + length"),
            (format!("{two}\n/d read 0 512\n/e write 0 512\n"), "line 3: it has I/O on /e"),
            (format!("{two}\n/d erase 0 512\n"), "line 2: erase is no action"),
            (format!("{three}\n/d read 0 512\n"), "line 2: expected a time"),
            (format!("{three}\n0 /d wait 0 0\n"), "line 2: version 3 has times"),
        ] {
            let error = Trace::parse(&text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_job_does_what_its_trace_says() {
        let text = "fio version 2 iolog\n/d read 8192 4096\n/d write 0 512\n/d sync 0 0\n";
        let mut job = job(&[("read_iolog", "t.log"), ("bs", "64k"), ("size", "1m")]);
        job.read_trace(|_| Ok(text.into())).unwrap();
        assert!(job.reads() && job.writes() && job.syncing.end_fsync);
        assert_eq!((job.bs_read_bytes, job.bs_write_bytes), (4096, 512));
        assert_eq!((job.size, job.number_ios, job.is_time_based()), (None, Some(2), false));
        let warnings = job.validate().unwrap().join("\n");
        assert!(warnings.contains("size has no effect with read_iolog"), "{warnings}");

        let mut job = crate::job::testing::job(&[("read_iolog", "t.log"), ("rate_iops", "1")]);
        job.read_trace(|_| Ok(text.into())).unwrap();
        assert!(job.validate().unwrap_err().to_string().contains("read_iolog"));
        let error = job.read_trace(|_| Err(std::io::ErrorKind::NotFound.into())).unwrap_err();
        assert!(error.to_string().contains("t.log"), "{error}");
    }
}
