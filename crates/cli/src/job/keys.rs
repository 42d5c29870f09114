//! What becomes of a key: the one place that looks it up.

use std::fmt;

use super::error::{JobError, Origin, Problem, shown};
use super::nearest::nearest_key;
use super::table::{
    Accepts, BLOCK_ENGINES, FAMILIES, IGNORED, OBEYED, OTHER_ENGINES, Obeyed, REFUSED,
};
use super::{Job, SetKey};

/// What to say of a key although it was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// Its value is worth a remark.
    Remark(String),
    /// It has no effect here.
    Ignored(Ignored),
}

/// A key without effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ignored {
    /// Its name.
    pub key: &'static str,
    /// Why it has none; many keys share a reason.
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
    /// All of a run in one line, those of one reason together.
    pub(crate) fn line(all: &[Ignored]) -> String {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for Ignored { key, why } in all {
            match reasons.iter_mut().find(|(reason, _)| reason == why) {
                Some((_, keys)) if keys.contains(key) => {}
                Some((_, keys)) => keys.push(key),
                None => reasons.push((why, vec![key])),
            }
        }
        let reasons: Vec<String> =
            reasons.iter().map(|(why, keys)| format!("{} ({why})", keys.join(", "))).collect();
        format!("fio's keys without effect here: {}", reasons.join("; "))
    }
}

impl Job {
    /// Sets `key` to `value` (`None`: the key stood alone). The single place that knows the keys.
    ///
    /// `Ok(Some(_))` is to be shown: the key has no effect, or its value is worth a remark. On the
    /// command line `time-based` is `time_based`.
    pub(crate) fn set(
        &mut self,
        key: &str,
        value: Option<&str>,
        origin: &Origin,
    ) -> Result<Option<Note>, JobError> {
        let key = match origin {
            Origin::CommandLine => key.replace('-', "_"),
            Origin::File { .. } => key.to_owned(),
        };
        let found = OBEYED
            .iter()
            .find(|known| known.usual == key || known.synonyms.contains(&key.as_str()));
        let Some(Obeyed { usual, expected, alone, .. }) = found else {
            return ignored(&key, value, origin).map(|ignored| Some(Note::Ignored(ignored)));
        };
        let fail = |why: String| {
            let value = shown(value.unwrap_or_default());
            JobError::new(origin, Problem::Value { key: origin.key(&key), value, why })
        };
        let text = match value.map(str::trim) {
            Some("") => alone.filter(|alone| alone.is_empty()),
            None => *alone,
            text => text,
        };
        let no_value = Problem::NoValue { key: origin.key(&key), expected };
        let text = text.ok_or_else(|| JobError::new(origin, no_value))?;
        let note = self.store(usual, text).map_err(fail)?;
        self.remember(usual, text, origin);
        Ok(note.map(|note| {
            Note::Remark(format!("{origin}: {}={}: {note}", origin.key(&key), shown(text)))
        }))
    }

    /// Notes that `key` was set, and forgets what it replaces.
    fn remember(&mut self, key: &'static str, text: &str, origin: &Origin) {
        if key == "name" {
            return;
        }
        self.set_keys.retain(|set| set.key != key);
        let family =
            FAMILIES.iter().find(|family| family.contains(&key)).copied().unwrap_or_default();
        // hipri=0 asks for nothing, so that it replaces nothing.
        let family = if key == "hipri" && !self.hipri { &[] } else { family };
        let farther = |set: &SetKey| {
            set.inherited || *origin == Origin::CommandLine && set.origin != Origin::CommandLine
        };
        // The two mix keys are one setting, as direct and buffered are: the latter replaces the
        // former.
        let mix = key.starts_with("rwmix") || matches!(key, "direct" | "buffered");
        let replaced: Vec<&'static str> = self
            .set_keys
            .iter()
            .filter(|set| family.contains(&set.key))
            .filter(|set| mix || farther(set))
            .map(|set| set.key)
            .collect();
        for other in replaced {
            self.set_keys.retain(|set| set.key != other);
            if !mix {
                self.reset(other);
            }
        }
        if family.len() > 1 {
            // Keys of a family may share a field. It was accepted before.
            let _ = self.store(key, text);
        }
        self.set_keys.push(SetKey {
            key,
            value: text.to_owned(),
            origin: origin.clone(),
            inherited: false,
        });
    }

    /// The job as the beginning of a section: what is set so far is from `[global]`.
    pub(super) fn inherit(&self, name: String) -> Job {
        let mut job = Job { name, ..self.clone() };
        job.set_keys.iter_mut().for_each(|set| set.inherited = true);
        job
    }
}

/// A key that has no effect; an error if it is none of those.
fn ignored(key: &str, value: Option<&str>, origin: &Origin) -> Result<Ignored, JobError> {
    let written = origin.key(key);
    let fail = |problem: Problem| Err(JobError::new(origin, problem));
    if let Some((_, why)) = REFUSED.iter().find(|(names, _)| names.contains(&key)) {
        return fail(Problem::Unsupported { key: written, why });
    }
    let found = IGNORED.iter().find_map(|(names, accepts, why)| {
        Some((*names.iter().find(|name| **name == key)?, *accepts, *why))
    });
    let Some((key, accepts, why)) = found else {
        let nearest = nearest_key(key, names()).map(|near| origin.key(near));
        return fail(Problem::UnknownKey { key: written, nearest });
    };
    let text = value.map(str::trim).unwrap_or_default();
    let refuse =
        |why: String| fail(Problem::Value { key: written.clone(), value: shown(text), why });
    match accepts {
        Accepts::Any => Ok(Ignored { key, why }),
        _ if text.is_empty() => {
            fail(Problem::NoValue { key: written, expected: "1 or 0, or as fio has it" })
        }
        Accepts::Only(values) if !values.contains(&text) => {
            refuse(format!("not supported; only {key}={} is", values.join(" or ")))
        }
        Accepts::Engine => match engine_refusal(text) {
            Some(what) => refuse(what),
            None => Ok(Ignored { key, why }),
        },
        Accepts::Only(_) | Accepts::AnyValue => Ok(Ignored { key, why }),
    }
}

/// Why `engine`, one of fio's, does something else than a job here; `None` if it does the same.
fn engine_refusal(engine: &str) -> Option<String> {
    if BLOCK_ENGINES.contains(&engine) {
        return None;
    }
    let known = OTHER_ENGINES.iter().find(|(names, _)| names.contains(&engine));
    Some(match known {
        Some((_, does)) => format!("fio's engine {engine} is not supported: it {does}"),
        None => {
            "no engine of fio's that reads and writes a device or file; leave it out".to_owned()
        }
    })
}

/// All names of keys that are obeyed or accepted.
fn names() -> impl Iterator<Item = &'static str> {
    let obeyed =
        OBEYED.iter().flat_map(|known| std::iter::once(&known.usual).chain(known.synonyms));
    obeyed.chain(IGNORED.iter().flat_map(|(names, ..)| names.iter())).copied()
}

/// The name of a key, ours or fio's, as the table has it: `time-based` is `time_based`.
pub(crate) fn known_key(key: &str) -> Option<&'static str> {
    let refused = REFUSED.iter().flat_map(|(names, _)| names.iter()).copied();
    let key = key.replace('-', "_");
    names().chain(refused).find(|known| known.replace('-', "_") == key)
}

/// Whether a key may stand alone, without a value.
pub(crate) fn may_stand_alone(key: &str) -> bool {
    match OBEYED.iter().find(|known| known.usual == key || known.synonyms.contains(&key)) {
        Some(known) => known.alone.is_some(),
        None => IGNORED
            .iter()
            .any(|(names, accepts, _)| names.contains(&key) && *accepts == Accepts::Any),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_obeyed_key_is_stored_or_refused_for_its_value() {
        for key in OBEYED {
            let error = Job::new("a").store(key.usual, "\u{7}").unwrap_err();
            assert_ne!(error, "not implemented", "{}", key.usual);
        }
    }

    #[test]
    fn every_key_of_a_family_can_be_reset() {
        for key in FAMILIES.iter().copied().flatten().filter(|key| !key.starts_with("rwmix")) {
            assert!(OBEYED.iter().any(|known| known.usual == *key), "{key}");
            let mut job = Job::new("a");
            let value = match *key {
                "bssplit" => "8k/100",
                "bsrange" => "8k-16k",
                "hipri" => "1",
                "completion" => "poll",
                "direct" | "buffered" => "1",
                _ => "8k",
            };
            job.store(key, value).unwrap();
            assert_ne!(job, Job::new("a"), "{key}");
            job.reset(key);
            assert_eq!(job, Job::new("a"), "{key}");
        }
    }

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
