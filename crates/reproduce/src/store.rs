//! The directory of a run: a file for each experiment, so that a run that was cut off goes on.

use std::path::{Path, PathBuf};

use crate::guest::FileError;
use crate::measured::Measured;
use serde::{Deserialize, Serialize};

/// The result of an experiment, in the form in which it is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The measured figures.
    pub measured: Measured,
    /// The commands.
    pub commands: Vec<String>,
    /// Repetitions that count.
    pub repetitions: u32,
    /// Repetitions that were thrown away since something else used the CPUs.
    pub repeated: u32,
    /// Repetitions that count although something else used the CPUs.
    pub disturbed: u32,
    /// The most that other programs used of the CPUs in a repetition that counts, in percent of
    /// one CPU.
    pub others_percent: f64,
    /// The reason if it was not measured, otherwise empty.
    pub failure: String,
    /// The end time, in seconds since 1970.
    pub ended_s: u64,
}

impl Kept {
    /// Whether something else used the CPUs in most repetitions, so that no verdict can be trusted.
    pub fn is_disturbed(&self) -> bool {
        self.disturbed * 2 > self.repetitions
    }
}

/// The directory.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// Opens the directory, and creates it if it does not exist. Removes all results if `anew`, or
    /// if they have another `setting` (its revision, lengths, devices): they cannot be mixed with
    /// new ones.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read or written. Returns an error and removes
    /// nothing if it has files but is not a directory of results.
    pub fn open(directory: &Path, setting: &str, anew: bool) -> Result<Self, FileError> {
        let store = Self { directory: directory.to_owned() };
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error: std::io::Error| FileError { path, why: error.to_string() }
        };
        std::fs::create_dir_all(directory).map_err(failed(directory))?;
        let path = directory.join("setting");
        let before = std::fs::read_to_string(&path).ok();
        let mut entries = std::fs::read_dir(directory).map_err(failed(directory))?;
        if before.is_none() && entries.next().is_some() {
            let what = "the directory has files that are no results; give --results another one";
            return Err(failed(directory)(std::io::Error::other(what)));
        }
        if anew || before.as_deref() != Some(setting) {
            for entry in std::fs::read_dir(directory).map_err(failed(directory))?.flatten() {
                let path = entry.path();
                if path.extension().is_some_and(|end| end == "json") {
                    std::fs::remove_file(&path).map_err(failed(&path))?;
                }
            }
            std::fs::write(&path, setting).map_err(failed(&path))?;
        }
        Ok(store)
    }

    fn path(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    /// Returns the results of an experiment. Returns `None` if no readable file exists or if the
    /// experiment could not be measured: it then runs again.
    pub fn get(&self, id: &str) -> Option<Kept> {
        let kept: Kept = serde_json::from_slice(&std::fs::read(self.path(id)).ok()?).ok()?;
        kept.failure.is_empty().then_some(kept)
    }

    /// Keeps the results of an experiment.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn put(&self, id: &str, kept: &Kept) -> Result<(), FileError> {
        let path = self.path(id);
        let text = serde_json::to_vec_pretty(kept).unwrap_or_default();
        // The rename makes the file appear whole or not at all.
        let beside = self.directory.join(format!(".{id}.new"));
        let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, &path));
        written.map_err(|error| FileError { path, why: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_results_are_removed_and_only_what_was_measured_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let foreign = dir.path().join("package.json");
        std::fs::write(&foreign, "{}").unwrap();
        let refused = Store::open(dir.path(), "one", true).unwrap_err().to_string();
        assert!(refused.contains("--results") && foreign.exists(), "{refused}");

        let results = dir.path().join("results");
        let open = |setting: &str, anew| Store::open(&results, setting, anew).unwrap();
        let failed = Kept { failure: "no db_bench".to_owned(), ..Kept::default() };
        let store = open("one", false);
        store.put("measured", &Kept::default()).unwrap();
        store.put("failed", &failed).unwrap();
        let again = open("one", false);
        assert!(again.get("measured").is_some() && again.get("failed").is_none());
        assert!(open("one", true).get("measured").is_none());
        store.put("measured", &Kept::default()).unwrap();
        assert!(open("two", false).get("measured").is_none());
    }
}
