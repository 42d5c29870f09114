//! How far a copy is, on a terminal's stderr.

use std::io::IsTerminal as _;
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::super::names;

/// The bar, or a spinner where the total is unknown.
pub(crate) struct Progress {
    bar: ProgressBar,
    of_one: bool,
}

impl Progress {
    /// Of one file of `bytes`, or of a whole directory; invisible unless stderr is a terminal.
    pub(crate) fn new(bytes: Option<u64>) -> Self {
        let visible = std::io::stderr().is_terminal();
        let target =
            if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(bytes, target);
        let template = match bytes {
            Some(_) => {
                "{bar:25} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {wide_msg}"
            }
            None => "{spinner} {bytes}  {bytes_per_sec}  {wide_msg}",
        };
        // A constant template; without it the default look does as well.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸ "));
        }
        Self { bar, of_one: bytes.is_some() }
    }

    /// What is copied now.
    pub(crate) fn show(&self, path: &Path) {
        if !self.bar.is_hidden() {
            self.bar.set_message(names::harmless(path.as_os_str()));
            self.bar.tick();
        }
    }

    /// So many bytes were copied; in the present file, we are at `offset`.
    pub(crate) fn at(&self, bytes: u64, offset: u64) {
        self.bar.set_position(if self.of_one { offset } else { bytes });
    }

    /// Prints something without spoiling the bar.
    pub(crate) fn above(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Takes the bar away.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
