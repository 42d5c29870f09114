//! A key: its names, field, default and help, and the jobs that it applies to.

use super::kind::Field;
use crate::job::Job;

/// An implemented key.
pub(in crate::job) struct Key {
    /// Its name.
    pub name: &'static str,
    /// fio's other names for it.
    pub aliases: &'static [&'static str],
    /// The field that stores its value.
    pub(in crate::job) field: Field,
    /// The default.
    pub(in crate::job) default: Default,
    /// Its help text.
    pub help: &'static str,
    /// Its meaning without `=value`, if it may stand alone.
    pub(super) alone: Option<&'static str>,
    /// The jobs to which it applies. For other jobs it has no effect.
    pub(in crate::job) applies: &'static [Applies],
    /// Whether it is an error elsewhere, unless `[global]` sets it.
    pub(super) is_strict: bool,
    /// The name of its value in `bench --help`, which lists it as an option.
    pub(super) value_name: Option<&'static str>,
}

/// The default of a key.
#[derive(Debug, Clone, Copy)]
pub(in crate::job) enum Default {
    /// It is required, or has no default.
    None,
    /// The same as this value.
    Is(&'static str),
    /// The default has the meaning that the text describes.
    Means(&'static str),
}

/// The jobs that a key applies to.
#[derive(Clone, Copy)]
pub(in crate::job) enum Applies {
    /// Jobs in which this key is set and asks for something.
    With(&'static str),
    /// Jobs that meet this condition.
    If(&'static Condition),
}
pub(super) use Applies::{If, With};

/// A condition that a key applies under.
pub(in crate::job) struct Condition {
    pub(super) is_met: fn(&Job) -> bool,
    /// The message that the condition is not met. `{rw}` stands for the job's value.
    pub(super) unmet: &'static str,
    /// Description of the condition.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the manual, which a test writes"))]
    pub needs: &'static str,
}

pub(super) const MIXED: Condition = Condition {
    is_met: |job| job.rw.is_mixed(),
    unmet: "with rw={rw}; only rw and randrw mix",
    needs: "`rw=rw` or `randrw`",
};
pub(super) const RANDOM: Condition = Condition {
    is_met: |job| job.rw.is_random(),
    unmet: "with rw={rw}, which is not random",
    needs: "random I/O",
};
const WRITES: Condition =
    Condition { is_met: Job::writes, unmet: "with rw={rw}, which writes nothing", needs: "writes" };
pub(super) const RATED: Condition = Condition {
    is_met: |job| job.pace.is_rated(),
    unmet: "without rate= or rate_iops=",
    needs: "`rate` or `rate_iops`",
};

pub(super) const fn key(name: &'static str, field: Field, help: &'static str) -> Key {
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
pub(super) const fn flag(name: &'static str, field: Field, help: &'static str) -> Key {
    key(name, field, help).alone("1").is("0")
}

impl Key {
    pub(super) const fn also(self, aliases: &'static [&'static str]) -> Key {
        Key { aliases, ..self }
    }

    pub(super) const fn is(self, value: &'static str) -> Key {
        Key { default: Default::Is(value), ..self }
    }

    pub(super) const fn means(self, words: &'static str) -> Key {
        Key { default: Default::Means(words), ..self }
    }

    pub(super) const fn alone(self, value: &'static str) -> Key {
        Key { alone: Some(value), ..self }
    }

    pub(super) const fn applies(self, applies: &'static [Applies]) -> Key {
        Key { applies, ..self }
    }

    /// Makes it an error without writes, unless `[global]` sets it.
    pub(super) const fn for_writes(self) -> Key {
        Key { applies: &[If(&WRITES)], is_strict: true, ..self }
    }

    pub(super) const fn listed(self, value_name: &'static str) -> Key {
        Key { value_name: Some(value_name), ..self }
    }

    /// Returns whether `key` is its name or an alias.
    pub(super) fn is_called(&self, key: &str) -> bool {
        self.name == key || self.aliases.contains(&key)
    }
}
