//! The table of all keys, by subject, and the lists of `--help` and docs/fio.md.

use itertools::Itertools as _;
use meantime_report::figures::wrapped;

use super::key::{Default, If, Key, With};
use super::{course, cpu, io};
use crate::job::Job;
use crate::job::sweep::SWEPT;

/// Keys of one subject.
pub(in crate::job) struct Subject {
    /// The subject.
    pub name: &'static str,
    /// The keys.
    pub keys: &'static [Key],
}

/// All implemented keys.
pub(in crate::job) const SUBJECTS: &[Subject] = &[
    Subject { name: "what", keys: io::WHAT },
    Subject { name: "traces", keys: io::TRACES },
    Subject { name: "checks", keys: io::CHECKS },
    Subject { name: "where", keys: io::WHERE },
    Subject { name: "files", keys: io::FILES },
    Subject { name: "how long", keys: course::HOW_LONG },
    Subject { name: "how many", keys: course::HOW_MANY },
    Subject { name: "durability", keys: course::DURABILITY },
    Subject { name: "pace", keys: course::PACE },
    Subject { name: "waiting", keys: cpu::WAITING },
    Subject { name: "CPU", keys: cpu::CPU },
    Subject { name: "priority", keys: cpu::PRIORITY },
    Subject { name: "jobs", keys: course::JOBS },
    Subject { name: "logs", keys: course::LOGS },
];

/// Keys that set the same thing in different words. A key that is set nearer to the job replaces
/// one that is set farther away: the command line is nearest, then the section, then `[global]`.
pub(in crate::job) const FAMILIES: &[&[&str]] = &[
    &["bs", "bssplit"],
    &["rate", "rate_iops"],
    &["hipri", "completion"],
    &["rwmixread", "rwmixwrite"],
    &["direct", "buffered"],
];

/// Returns all implemented keys, in the order of the subjects.
pub(in crate::job) fn built() -> impl Iterator<Item = &'static Key> {
    SUBJECTS.iter().flat_map(|subject| subject.keys)
}

/// Returns the implemented key with this name.
pub(in crate::job) fn find(key: &str) -> Option<&'static Key> {
    built().find(|known| known.is_called(key))
}

impl Job {
    /// Returns whether the key was set, here or in `[global]`, to another value than a job has
    /// without it.
    pub(in crate::job) fn says(&self, key: &str) -> bool {
        let differs = |key: &Key| (key.field.differs)(self, &Job::new(&self.name));
        self.is_set(key) && find(key).is_some_and(differs)
    }

    /// Returns the keys that are set and do not apply, each with the reason, and whether that is an
    /// error.
    pub(in crate::job) fn idle_keys(&self) -> Vec<(&'static str, String, bool)> {
        let mut idle = Vec::new();
        for key in built().filter(|key| self.is_set(key.name)) {
            let why = key.applies.iter().find_map(|applies| match applies {
                With(other) if !self.says(other) => Some(format!("without {other}=")),
                If(condition) if !(condition.is_met)(self) => {
                    Some(condition.unmet.replace("{rw}", self.rw.as_str()))
                }
                _ => None,
            });
            idle.extend(why.map(|why| (key.name, why, key.is_strict)));
        }
        idle
    }
}

/// A key that `bench --help` lists as an option.
pub struct KeyOption {
    /// The key's name.
    pub name: &'static str,
    /// The name of its value.
    pub value_name: &'static str,
    /// Its help text, with the default.
    pub help: String,
    /// Its meaning without a value, if it may stand alone.
    pub alone: Option<&'static str>,
}

/// Returns the keys that `bench --help` lists as options.
pub fn options() -> impl Iterator<Item = KeyOption> {
    built().filter_map(|key| {
        let Key { name, value_name, help, .. } = *key;
        let value_name = value_name?;
        let is_flag = value_name == "0|1";
        let list = if SWEPT.contains(&name) { "; a list is a sweep" } else { "" };
        let help = format!("{help}{list}");
        let help = match key.default {
            Default::Is(value) if !is_flag => format!("{help} [default: {value}]"),
            Default::Means(words) => format!("{help} [default: {words}]"),
            _ => help,
        };
        let alone = if is_flag { Some("1") } else { key.alone.filter(|alone| !alone.is_empty()) };
        Some(KeyOption { name, value_name, help, alone })
    })
}

/// Returns the names of all implemented keys, by subject, in lines.
pub fn subjects() -> String {
    const INDENT: usize = 14;
    const WIDTH: usize = 88;
    let lines = |subject: &Subject| {
        let keys = subject.keys.iter().map(|key| key.name).join(", ");
        let keys = wrapped(&keys, WIDTH - INDENT);
        let keys = keys.replace('\n', &format!("\n{:INDENT$}", ""));
        format!("  {:<1$}{keys}", subject.name, INDENT - 2)
    };
    SUBJECTS.iter().map(lines).join("\n")
}
