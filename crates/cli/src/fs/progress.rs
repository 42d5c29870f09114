//! The progress of a copy, on a terminal's stderr, and its summary.

use std::path::Path;

use indicatif::ProgressBar;

use super::names;
use crate::failure::Failure;
use crate::figures;
use crate::output::progress_bar;
use crate::signal;

/// The amount copied so far, and a bar, or a spinner where the total is unknown.
pub(super) struct Progress {
    bar: ProgressBar,
    of_one: bool,
    /// Number of files copied.
    pub files: u64,
    bytes: u64,
    /// Number of files that could not be copied.
    pub failures: u64,
}

impl Progress {
    /// Creates the progress of one file of `bytes`, or of a whole directory. It is invisible unless
    /// stderr is a terminal.
    pub(super) fn new(bytes: Option<u64>) -> Self {
        let template = match bytes {
            Some(_) => {
                "{bar:25} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {wide_msg}"
            }
            None => "{spinner} {bytes}  {bytes_per_sec}  {wide_msg}",
        };
        let bar = progress_bar(bytes, template);
        Self { bar, of_one: bytes.is_some(), files: 0, bytes: 0, failures: 0 }
    }

    /// Shows the file being copied.
    pub(super) fn show(&self, path: &Path) {
        if !self.bar.is_hidden() {
            self.bar.set_message(names::harmless(path));
            self.bar.tick();
        }
    }

    /// Adds `bytes`. The present file is copied up to `offset`.
    pub(super) fn copied(&mut self, bytes: usize, offset: u64) {
        self.bytes += bytes as u64;
        self.bar.set_position(if self.of_one { offset } else { self.bytes });
    }

    /// Counts and reports a failure. Returns it instead if `is_final`, when what follows would
    /// fail, too.
    pub(super) fn failed(&mut self, failure: Failure, is_final: bool) -> Result<(), Failure> {
        if is_final {
            return Err(failure);
        }
        self.failures += 1;
        self.bar.suspend(|| failure.show());
        Ok(())
    }

    /// Removes the bar.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints the summary, unless a signal has ended the copy.
    pub(super) fn report(&self) {
        if !signal::stopped() && (self.files > 0 || self.failures == 0) {
            let bytes = figures::bytes(self.bytes);
            eprintln!("meantime: copied {} file(s), {bytes}", self.files);
        }
    }
}
