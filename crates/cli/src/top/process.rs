//! The process to look at.

use meantime_block::control::{self, Client, ControlError, Served};

use crate::failure::Failure;

/// A process that serves a control socket, and its command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// The process and its socket.
    pub(crate) served: Served,
    /// Its command line, which is empty if it cannot be read.
    pub(crate) command: String,
}

impl Process {
    pub(crate) fn of(served: Served) -> Self {
        let path = format!("/proc/{}/cmdline", served.pid);
        let bytes = std::fs::read(path).unwrap_or_default();
        let command = command_line(&bytes);
        Self { served, command }
    }

    /// Connects to it.
    pub(super) fn connect(&self) -> Result<Client, Failure> {
        Client::connect(&self.served.path).map_err(|error| self.failure(&error))
    }

    /// Whether it is `meantime ssd`, which has no queues. Only the exporter looks at it.
    fn is_ssd(&self) -> bool {
        self.command.split(' ').nth(1) == Some("ssd")
    }

    /// Returns the error as text for the shell.
    pub(super) fn failure(&self, error: &ControlError) -> Failure {
        Failure::new(format_args!("process {}: {error}", self.served.pid))
    }
}

/// Returns the words of `/proc/PID/cmdline` as one line, in which nothing moves the cursor.
fn command_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let (program, arguments) = text.split_once('\0').unwrap_or((&text, ""));
    let name = program.rsplit('/').next().unwrap_or_default();
    let words = std::iter::once(name).chain(arguments.split('\0')).filter(|word| !word.is_empty());
    plain(&words.collect::<Vec<_>>().join(" "))
}

/// Replaces control characters in `text`, which a terminal would obey.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Explains how to start a process that can be looked at.
const HOW: &str = "start one, e.g. `meantime bench --rw randread --device mem:256M --time-based \
                   --runtime 60 &`, or serve from your own program (control::serve)";

/// Finds the processes that can be looked at: process `pid`, or all of this user's.
pub(crate) fn find(pid: Option<u32>) -> Result<Vec<Process>, Failure> {
    if let Some(pid) = pid {
        let served = control::served_by(pid).map_err(Failure::new)?;
        let served = served.ok_or_else(|| Failure::new(not_served(pid)))?;
        return Ok(vec![Process::of(served)]);
    }
    let (all, own) = (control::served().map_err(Failure::new)?, std::process::id());
    let others = all.into_iter().filter(|served| served.pid != own).map(Process::of);
    let found: Vec<Process> = others.filter(|process| !process.is_ssd()).collect();
    if found.is_empty() {
        return Err(Failure::new(format_args!(
            "no process of this user serves a control socket: {HOW}"
        )));
    }
    Ok(found)
}

fn not_served(pid: u32) -> String {
    if std::path::Path::new(&format!("/proc/{pid}")).exists() {
        format!(
            "process {pid} serves no control socket that this user may use (it may be another \
             user's, of another program, or begun with \
             --no-control); `meantime top` alone finds those that do"
        )
    } else {
        format!("there is no process {pid}: {HOW}")
    }
}

/// Returns the only one of `processes`, or an error that lists them.
pub(super) fn only(mut processes: Vec<Process>) -> Result<Process, Failure> {
    match processes.pop() {
        Some(process) if processes.is_empty() => Ok(process),
        last => {
            let all = processes.iter().chain(&last);
            let list: Vec<String> = all
                .map(|process| {
                    format!("{} ({})", process.served.pid, shortened(&process.command, 60))
                })
                .collect();
            Err(Failure::usage(format_args!(
                "several processes can be looked at, name one: {}",
                list.join(", ")
            )))
        }
    }
}

/// Cuts `text` to at most this number of characters.
pub(crate) fn shortened(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(characters_max.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, command: &str) -> Process {
        let served = Served { pid, path: format!("/run/{pid}.sock").into() };
        Process { served, command: command.to_owned() }
    }

    #[test]
    fn a_command_line_is_one_line() {
        assert_eq!(
            command_line(b"/usr/bin/meantime\0bench\0--rw\0randread\0"),
            "meantime bench --rw randread"
        );
        assert_eq!(command_line(b"meantime\0a\nb\x1b[2J\0"), "meantime a b [2J");
        assert_eq!(command_line(b""), "");
    }

    #[test]
    fn several_processes_are_named() {
        assert_eq!(only(vec![process(7, "a")]).unwrap(), process(7, "a"));
        let error = format!("{:?}", only(vec![process(7, "a"), process(8, "b")]).unwrap_err());
        assert!(error.contains("7 (a), 8 (b)"), "{error}");
    }

    #[test]
    fn what_is_cut_says_so() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("ab cd", 4), "ab…");
    }
}
