//! Process identity beyond the number, and whether a process still runs.

use std::fs;

use serde::{Deserialize, Serialize};

use super::attribute::{attribute, names};
use super::sysfs::Sysfs;

/// A process, distinguishable after its number is reused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessId {
    pub pid: u32,
    /// Its start time, in clock ticks since boot.
    pub start_ticks: u64,
}

impl ProcessId {
    /// This process.
    pub(super) fn own(sysfs: &Sysfs) -> Self {
        let pid = std::process::id();
        Self { pid, start_ticks: stat(sysfs, pid).map_or(0, |stat| stat.1) }
    }

    /// Whether it runs. A zombie does not.
    pub(super) fn is_alive(&self, sysfs: &Sysfs) -> bool {
        stat(sysfs, self.pid).is_some_and(|(state, start_ticks)| {
            start_ticks == self.start_ticks && !matches!(state, 'Z' | 'X')
        })
    }
}

/// State and start time (proc_pid_stat(5): fields 3 and 22).
fn stat(sysfs: &Sysfs, pid: u32) -> Option<(char, u64)> {
    let text = fs::read_to_string(sysfs.proc.join(format!("{pid}/stat"))).ok()?;
    // The name, field 2, may contain blanks and brackets.
    let mut rest = text.get(text.rfind(')')? + 1..)?.split_whitespace();
    let state = rest.next()?.chars().next()?;
    Some((state, rest.nth(18)?.parse().ok()?))
}

/// A process's name.
pub(super) fn command(sysfs: &Sysfs, pid: u32) -> Option<String> {
    attribute(&sysfs.proc.join(format!("{pid}/comm")))
}

/// `process 12 (fio)`.
pub(super) fn in_words(sysfs: &Sysfs, pid: u32) -> String {
    match command(sysfs, pid) {
        Some(name) => format!("process {pid} ({name})"),
        None => format!("process {pid}"),
    }
}

/// All processes.
pub(super) fn all(sysfs: &Sysfs) -> Vec<u32> {
    names(&sysfs.proc).iter().filter_map(|name| name.parse().ok()).collect()
}

/// An identifier of the current boot.
pub(super) fn boot_id(sysfs: &Sysfs) -> String {
    attribute(&sysfs.proc.join("sys/kernel/random/boot_id")).unwrap_or_default()
}
