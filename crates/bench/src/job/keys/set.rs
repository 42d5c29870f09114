//! Sets a key. Only this module looks keys up.

use std::fmt;

use itertools::Itertools as _;

use super::super::error::{JobError, Origin, Problem, shown};
use super::super::section::{Job, SetKey};
use super::fios::{self, Accepts, BLOCK_ENGINES, IGNORED, LEFT_TO_FIO, OTHER_ENGINES, REFUSED};
use super::key::Key;
use super::nearest::nearest_key;
use super::table::{FAMILIES, built, find};

/// A note on an accepted key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A remark on its value.
    Remark(String),
    /// It has no effect here.
    Ignored(Ignored),
}

/// A key without effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ignored {
    /// Its name.
    pub key: &'static str,
    /// The reason why it has no effect. Many keys share a reason.
    pub why: &'static str,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Remark(remark) => f.write_str(remark),
            Note::Ignored(ignored) => f.write_str(&Ignored::line(&[*ignored])),
        }
    }
}

impl Ignored {
    /// Returns all ignored keys of a run in one line, grouped by reason.
    pub fn line(all: &[Ignored]) -> String {
        let reasons = all.iter().map(|ignored| ignored.why).unique().map(|why| {
            let keys = all.iter().filter(|ignored| ignored.why == why).map(|ignored| ignored.key);
            format!("{} ({why})", keys.unique().join(", "))
        });
        format!("fio's keys without effect here: {}", reasons.format("; "))
    }
}

impl Job {
    /// Sets `key` to `value`, which is `None` if the key stood alone. Only this function knows the
    /// keys.
    ///
    /// The caller shows a returned note: the key has no effect, or there is a remark on its value.
    /// On the command line `time-based` is `time_based`.
    pub fn set(
        &mut self,
        key: &str,
        value: Option<&str>,
        origin: &Origin,
    ) -> Result<Option<Note>, JobError> {
        let written = match origin {
            Origin::CommandLine => key.replace('-', "_"),
            Origin::File { .. } => key.to_owned(),
        };
        let Some(key) = find(&written) else {
            return ignored(&written, value, origin).map(|ignored| Some(Note::Ignored(ignored)));
        };
        let written = origin.key(&written);
        let text = match value.map(str::trim) {
            Some("") => key.alone.filter(|alone| alone.is_empty()),
            None => key.alone,
            text => text,
        };
        let Some(text) = text else {
            let expected = (key.field.takes)(self);
            return Err(JobError::new(origin, Problem::NoValue { key: written, expected }));
        };
        let remark = (key.field.set)(self, text).map_err(|why| {
            let value = shown(value.unwrap_or_default());
            JobError::new(origin, Problem::Value { key: written.clone(), value, why })
        })?;
        self.remember(key, text, origin);
        Ok(remark
            .map(|remark| Note::Remark(format!("{origin}: {written}={}: {remark}", shown(text)))))
    }

    /// Records that `key` was set, and removes what it replaces.
    fn remember(&mut self, key: &Key, text: &str, origin: &Origin) {
        let Key { name, field, .. } = *key;
        if name == "name" {
            return;
        }
        self.set_keys.retain(|set| set.key != name);
        let family = FAMILIES.iter().find(|family| family.contains(&name)).copied();
        // hipri=0 asks for nothing, so it replaces nothing.
        let family = family.filter(|_| name != "hipri" || self.hipri).unwrap_or_default();
        // The two mix keys are one setting, and so are direct and buffered: the later key replaces
        // the earlier one.
        let mix = name.starts_with("rwmix") || matches!(name, "direct" | "buffered");
        let farther = |set: &SetKey| {
            set.inherited || *origin == Origin::CommandLine && set.origin != Origin::CommandLine
        };
        let is_replaced = |set: &SetKey| family.contains(&set.key) && (mix || farther(set));
        let replaced: Vec<SetKey> = self.set_keys.extract_if(.., |set| is_replaced(set)).collect();
        for other in replaced.iter().filter(|_| !mix).filter_map(|set| find(set.key)) {
            (other.field.reset)(self, &Job::new(""));
        }
        if !family.is_empty() {
            // Keys of a family may share a field. The value was accepted before.
            let _ = (field.set)(self, text);
        }
        let (value, origin) = (text.to_owned(), origin.clone());
        self.set_keys.push(SetKey { key: name, value, origin, inherited: false });
    }

    /// Returns the job at the beginning of a section, where everything that is set comes from
    /// `[global]`.
    pub(in crate::job) fn inherit(&self, name: String) -> Job {
        let mut job = Job { name, ..self.clone() };
        job.set_keys.iter_mut().for_each(|set| set.inherited = true);
        job
    }
}

/// Returns the note on a key without effect, or an error for any other key.
fn ignored(key: &str, value: Option<&str>, origin: &Origin) -> Result<Ignored, JobError> {
    let written = origin.key(key);
    let fail = |problem: Problem| Err(JobError::new(origin, problem));
    if let Some((_, why)) = REFUSED.iter().find(|(group, _)| fios::find(group, key).is_some()) {
        return fail(Problem::Unsupported { key: written, why });
    }
    if fios::find(LEFT_TO_FIO, key).is_some() {
        let command = origin.fio_command(key, value.unwrap_or("1"));
        return fail(Problem::LeftToFio { key: written, command });
    }
    let found = IGNORED
        .iter()
        .find_map(|(group, accepts, why)| Some((fios::find(group, key)?, *accepts, *why)));
    let Some((key, accepts, why)) = found else {
        let nearest = nearest_key(key, names()).map(|near| origin.key(near));
        return fail(Problem::UnknownKey { key: written, nearest });
    };
    let text = value.map(str::trim).unwrap_or_default();
    let refusal = match accepts {
        Accepts::Any | Accepts::AnyValue => None,
        Accepts::Only(values) => (!values.contains(&text))
            .then(|| format!("not supported; only {key}={} is", values.join(" or "))),
        Accepts::Engine => engine_refusal(text),
    };
    match refusal {
        _ if text.is_empty() && accepts != Accepts::Any => {
            let expected = "1 or 0, or as fio has it".to_owned();
            fail(Problem::NoValue { key: written, expected })
        }
        Some(why) => fail(Problem::Value { key: written, value: shown(text), why }),
        None => Ok(Ignored { key, why }),
    }
}

/// Returns why `engine`, one of fio's, differs from a job here, or `None` if it does the same.
fn engine_refusal(engine: &str) -> Option<String> {
    if fios::find(BLOCK_ENGINES, engine).is_some() {
        return None;
    }
    let known = OTHER_ENGINES.iter().find(|(group, _)| fios::find(group, engine).is_some());
    Some(match known {
        Some((_, does)) => format!("fio's engine {engine} is not supported: it {does}"),
        None => {
            "no engine of fio's that reads and writes a device or file; leave it out".to_owned()
        }
    })
}

/// Returns all names of keys that are implemented or accepted.
fn names() -> impl Iterator<Item = &'static str> {
    let built = built().flat_map(|known| std::iter::once(known.name).chain(known.aliases.to_vec()));
    built.chain(IGNORED.iter().flat_map(|(group, ..)| fios::names(group)))
}

/// Returns the name of a key, ours or fio's, as in the table, so that `time-based` is `time_based`.
pub fn known_key(key: &str) -> Option<&'static str> {
    let refused = REFUSED.iter().flat_map(|(group, _)| fios::names(group));
    let key = key.replace('-', "_");
    let left = fios::names(LEFT_TO_FIO);
    names().chain(refused).chain(left).find(|known| known.replace('-', "_") == key)
}

/// Returns whether a key may stand alone, without a value.
pub fn may_stand_alone(key: &str) -> bool {
    match find(key) {
        Some(known) => known.alone.is_some(),
        None => IGNORED.iter().any(|(group, accepts, _)| {
            fios::find(group, key).is_some() && *accepts == Accepts::Any
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_keys() {
        let near =
            |key: &str| match ignored(key, Some("1"), &Origin::CommandLine).unwrap_err().problem {
                Problem::UnknownKey { nearest, .. } => nearest,
                problem => panic!("{problem}"),
            };
        assert_eq!(near("io_depth").as_deref(), Some("--iodepth"));
        assert_eq!(near("SIZE").as_deref(), Some("--size"));
        assert_eq!(near("block_size").as_deref(), Some("--blocksize"));
        assert_eq!((near("x"), near("frobnicate")), (None, None));
    }
}
