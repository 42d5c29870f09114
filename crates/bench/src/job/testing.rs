//! Helpers that create jobs for tests.

use super::keys::table::SUBJECTS;
use super::{Job, Origin};

/// Creates a job with these keys, as from the command line.
pub(crate) fn job(keys: &[(&str, &str)]) -> Job {
    let mut job = Job::new("a");
    for (key, value) in keys {
        let set = job.set(key, Some(value), &Origin::CommandLine);
        set.unwrap_or_else(|error| panic!("{error}"));
    }
    job
}

/// Returns the names of a subject's keys.
pub(crate) fn keys_of(subject: &str) -> impl Iterator<Item = &'static str> {
    let subject = SUBJECTS.iter().find(|known| known.name == subject).unwrap();
    subject.keys.iter().map(|key| key.name)
}
