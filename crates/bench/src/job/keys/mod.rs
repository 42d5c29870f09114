//! The keys: the entry of each is the source of parsing, `--help` and docs/fio.md.
//!
//! The entries of the implemented keys are in [`io`], [`course`] and [`cpu`], by subject; fio's
//! keys that are accepted without effect or refused are in [`fios`]. [`set`] looks a key up,
//! [`list`] writes the lists of `--help` and of the manual.

mod course;
mod cpu;
pub(super) mod fios;
mod io;
mod kind;
mod list;
mod nearest;
mod set;

use kind::Field;

use super::Job;

pub use list::{KeyOption, options, subjects};
pub use set::{Ignored, Note, known_key, may_stand_alone};

/// An implemented key.
pub(super) struct Key {
    /// Its name.
    pub name: &'static str,
    /// fio's other names for it.
    pub aliases: &'static [&'static str],
    /// The field that stores its value.
    pub(super) field: Field,
    /// The default.
    pub(super) default: Default,
    /// Its help text.
    pub help: &'static str,
    /// Its meaning without `=value`, if it may stand alone.
    alone: Option<&'static str>,
    /// The jobs that it applies to; elsewhere it has no effect.
    pub(super) applies: &'static [Applies],
    /// Whether it is an error elsewhere, unless `[global]` sets it.
    is_strict: bool,
    /// The name of its value in `bench --help`, which lists it as an option.
    value_name: Option<&'static str>,
}

/// The default of a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Default {
    /// It is required, or has no default.
    None,
    /// The same as this value.
    Is(&'static str),
    /// As described by the text.
    Means(&'static str),
}

/// The jobs that a key applies to.
#[derive(Clone, Copy)]
pub(super) enum Applies {
    /// Jobs in which this key is set and asks for something.
    With(&'static str),
    /// Jobs that meet this condition.
    If(&'static Condition),
}
use Applies::{If, With};

/// A condition that a key applies under.
pub(super) struct Condition {
    is_met: fn(&Job) -> bool,
    /// Text that it is not met; `{rw}` is the job's.
    unmet: &'static str,
    /// Description of the condition.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the manual, which a test writes"))]
    pub needs: &'static str,
}

const MIXED: Condition = Condition {
    is_met: |job| job.rw.is_mixed(),
    unmet: "with rw={rw}; only rw and randrw mix",
    needs: "`rw=rw` or `randrw`",
};
const RANDOM: Condition = Condition {
    is_met: |job| job.rw.is_random(),
    unmet: "with rw={rw}, which is not random",
    needs: "random I/O",
};
const WRITES: Condition =
    Condition { is_met: Job::writes, unmet: "with rw={rw}, which writes nothing", needs: "writes" };
const RATED: Condition = Condition {
    is_met: |job| job.pace.is_rated(),
    unmet: "without rate= or rate_iops=",
    needs: "`rate` or `rate_iops`",
};
/// Keys of one subject.
pub(crate) struct Subject {
    /// The subject.
    pub name: &'static str,
    /// The keys.
    pub keys: &'static [Key],
}

/// All implemented keys.
pub(crate) const SUBJECTS: &[Subject] = &[
    Subject { name: "what", keys: io::WHAT },
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
pub(super) const FAMILIES: &[&[&str]] = &[
    &["bs", "bssplit"],
    &["rate", "rate_iops"],
    &["hipri", "completion"],
    &["rwmixread", "rwmixwrite"],
    &["direct", "buffered"],
];

const fn key(name: &'static str, field: Field, help: &'static str) -> Key {
    Key {
        name,
        aliases: &[],
        field,
        default: Default::None,
        help,
        alone: None,
        applies: &[],
        is_strict: false,
        value_name: None,
    }
}

/// Returns a key that may stand alone.
const fn flag(name: &'static str, field: Field, help: &'static str) -> Key {
    key(name, field, help).alone("1").is("0")
}

impl Key {
    const fn also(self, aliases: &'static [&'static str]) -> Key {
        Key { aliases, ..self }
    }

    const fn is(self, value: &'static str) -> Key {
        Key { default: Default::Is(value), ..self }
    }

    const fn means(self, words: &'static str) -> Key {
        Key { default: Default::Means(words), ..self }
    }

    const fn alone(self, value: &'static str) -> Key {
        Key { alone: Some(value), ..self }
    }

    const fn applies(self, applies: &'static [Applies]) -> Key {
        Key { applies, ..self }
    }

    /// Makes it an error without writes, unless `[global]` sets it.
    const fn for_writes(self) -> Key {
        Key { applies: &[If(&WRITES)], is_strict: true, ..self }
    }

    const fn listed(self, value_name: &'static str) -> Key {
        Key { value_name: Some(value_name), ..self }
    }

    /// Returns whether `key` is its name or an alias.
    fn is_called(&self, key: &str) -> bool {
        self.name == key || self.aliases.contains(&key)
    }
}

/// Returns all implemented keys, in the order of the subjects.
pub(super) fn built() -> impl Iterator<Item = &'static Key> {
    SUBJECTS.iter().flat_map(|subject| subject.keys)
}

/// Returns the implemented key with this name.
pub(super) fn find(key: &str) -> Option<&'static Key> {
    built().find(|known| known.is_called(key))
}

impl Job {
    /// Returns whether the key was set, here or in `[global]`, to another value than a job has
    /// without it.
    pub(super) fn says(&self, key: &str) -> bool {
        let differs = |key: &Key| (key.field.differs)(self, &Job::new(&self.name));
        self.is_set(key) && find(key).is_some_and(differs)
    }

    /// Returns the keys that are set and do not apply, each with the reason, and whether that is an
    /// error.
    pub(super) fn idle_keys(&self) -> Vec<(&'static str, String, bool)> {
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
