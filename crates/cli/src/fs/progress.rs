//! How far a copy is, on a terminal's stderr, and what it comes to.

use std::path::Path;

use indicatif::ProgressBar;

use super::names;
use crate::failure::Failure;
use crate::figures;
use crate::output::progress_bar;
use crate::signal;

/// What was copied so far, and a bar, or a spinner where the total is unknown.
pub(super) struct Progress {
    bar: ProgressBar,
    of_one: bool,
    /// Files that were copied.
    pub files: u64,
    bytes: u64,
    /// What could not be copied.
    pub failures: u64,
}

impl Progress {
    /// Of one file of `bytes`, or of a whole directory; invisible unless stderr is a terminal.
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

    /// What is copied now.
    pub(super) fn show(&self, path: &Path) {
        if !self.bar.is_hidden() {
            self.bar.set_message(names::harmless(path.as_os_str()));
            self.bar.tick();
        }
    }

    /// `bytes` more were copied; the present file is copied up to `offset`.
    pub(super) fn copied(&mut self, bytes: usize, offset: u64) {
        self.bytes += bytes as u64;
        self.bar.set_position(if self.of_one { offset } else { self.bytes });
    }

    /// Something was not copied: says why.
    pub(super) fn failed(&mut self, failure: &Failure) {
        self.failures += 1;
        self.bar.suspend(|| failure.show());
    }

    /// Takes the bar away.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Says what it comes to, unless a signal has ended it.
    pub(super) fn report(&self) {
        if !signal::stopped() && (self.files > 0 || self.failures == 0) {
            let bytes = figures::bytes(self.bytes);
            eprintln!("meantime: copied {} file(s), {bytes}", self.files);
        }
    }
}
