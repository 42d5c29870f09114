//! Figures that were measured in a virtual machine: a file of `scripts/guest.sh reproduce`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

/// A file of boots, each of which measured every row.
#[derive(Debug, Clone, Deserialize)]
pub struct Guest {
    /// The command that measured.
    pub command: String,
    /// Programs, kernels and lengths.
    about: Vec<String>,
    boots: Vec<Boot>,
}

/// The figures of one boot.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Boot {
    /// The kernel's version: two numbers.
    pub kernel: String,
    /// The number of times that it was repeated because other programs used the CPU.
    pub repeated: u32,
    /// The CPU use of other programs on the machine around the guest, in percent of one CPU.
    pub others_percent: f64,
    /// The end time, in seconds since 1970.
    pub ended_s: u64,
    /// Each row: `controller`, `bytes`, `way`, the kernel's `interrupts` and `reads`, and the `job`
    /// of `meantime bench`.
    pub cells: Vec<Value>,
    /// Programs, kernels and lengths, of the whole file.
    #[serde(skip)]
    pub about: Vec<String>,
}

/// Why a file of figures cannot be read or written.
#[derive(Debug, Error)]
#[error("{}: {why}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub why: String,
}

impl Guest {
    /// Reads a file.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, is no such file, or has no boot.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let failed = |why: String| FileError { path: path.to_owned(), why };
        let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        let guest: Self = serde_json::from_slice(&text).map_err(|error| {
            failed(format!("not a file of `scripts/guest.sh reproduce`: {error}"))
        })?;
        if guest.boots.is_empty() {
            return Err(failed("it has no boot".into()));
        }
        Ok(guest)
    }

    /// Returns how many boots each of its kernels has.
    pub fn boots(&self) -> usize {
        let mut counts = BTreeMap::<&str, usize>::new();
        for boot in &self.boots {
            *counts.entry(&boot.kernel).or_default() += 1;
        }
        counts.into_values().min().unwrap_or(0)
    }

    /// Returns the `at`th boot of a kernel.
    pub(crate) fn boot(&self, kernel: &str, at: usize) -> Option<Boot> {
        let boot = self.boots.iter().filter(|boot| boot.kernel == kernel).nth(at)?.clone();
        Some(Boot { about: self.about.clone(), ..boot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boots_are_counted_by_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guest.json");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Guest::read(&path)
        };
        let boot = |kernel: &str, others: u32| {
            format!(
                r#"{{"kernel": "{kernel}", "repeated": 0, "others_percent": {others},
                "ended_s": 1, "cells": []}}"#
            )
        };
        let file = |boots: &[String]| {
            let boots = boots.join(",");
            format!(r#"{{"command": "c", "about": ["a"], "boots": [{boots}]}}"#)
        };
        let guest = read(&file(&[boot("5.10", 1), boot("6.1", 2), boot("5.10", 3)])).unwrap();
        assert_eq!(guest.boots(), 1);
        assert_eq!(guest.boot("5.10", 1).unwrap().others_percent, 3.0);
        assert!(guest.boot("6.1", 1).is_none() && guest.boot("4.10", 0).is_none());
        assert!(read(&file(&[])).unwrap_err().to_string().contains("no boot"));
        assert!(read("{}").unwrap_err().to_string().contains("guest.sh reproduce"));
    }
}
