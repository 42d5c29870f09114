//! Runs an experiment's steps, and gives what they measured names.

mod commands;
mod derive;
mod places;
mod steps;
mod values;

use serde_json::Value;
use thiserror::Error;

use crate::guest::Boot;
use crate::measured::Measured;
use crate::run::Options;

pub use commands::Commands;

/// Why an experiment could not be measured.
#[derive(Debug, Error)]
pub enum RunError {
    /// A command failed.
    #[error("`{command}` failed: {message}")]
    Failed {
        /// The command line.
        command: String,
        /// Its text on standard error, or how it ended.
        message: String,
    },
    /// The machine does not have what the experiment needs.
    #[error("{0}")]
    Missing(String),
    /// A signal ended the run.
    #[error("ended by a signal")]
    Interrupted,
}

/// Runs commands. Tests have one of their own, so measuring code cannot tell where figures are
/// from.
pub trait Runner {
    /// Runs `meantime` with `args` and `--json -`, and returns the JSON.
    ///
    /// # Errors
    /// Returns an error if the command fails, or its output is no JSON.
    fn json(&mut self, args: &[String]) -> Result<Value, RunError>;

    /// Runs `meantime`, or another program of this machine, and returns its standard output.
    ///
    /// # Errors
    /// Returns [`RunError::Missing`] if there is no such program, and an error if it fails.
    fn text(&mut self, program: &str, args: &[String]) -> Result<String, RunError>;

    /// Returns the figures of the `at`th boot of a kernel in the virtual machine.
    ///
    /// # Errors
    /// Returns [`RunError::Missing`] if there was no such boot.
    fn guest(&mut self, kernel: &str, at: usize) -> Result<Boot, RunError>;
}

/// One repetition of an experiment.
pub struct Bench<'a> {
    runner: &'a mut dyn Runner,
    options: &'a Options,
    /// The number of the repetition, from 0.
    repetition: usize,
    /// The user's device, if it is measured.
    device: Option<&'a str>,
    measured: Measured,
    /// Time for each cell, in seconds.
    cell_s: f64,
    /// The boots that it used.
    pub(crate) boots: Vec<Boot>,
    /// The image of the experiment, which is removed at the end.
    disk: Option<String>,
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        if let Some(path) = &self.disk {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl<'a> Bench<'a> {
    /// Creates the `repetition`th.
    pub fn new(runner: &'a mut dyn Runner, options: &'a Options, repetition: usize) -> Self {
        Self {
            runner,
            options,
            repetition,
            device: None,
            measured: Measured::default(),
            cell_s: options.cell_s,
            boots: Vec::new(),
            disk: None,
        }
    }

    /// Returns what was measured.
    pub fn finish(mut self) -> Measured {
        std::mem::take(&mut self.measured)
    }
}
