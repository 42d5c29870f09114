//! Progress on stderr: a bar on a terminal, else a line now and then. It changes only between turns:
//! drawing must not disturb the measurement. With `--each` and `--live` another thread draws, too.

use std::cell::Cell;
use std::fmt::Display;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use meantime_completion::Policy;

use crate::failure::warn;
use crate::output::{progress_bar, set_style};

const STEPS: u64 = 1000;

/// What the bar looks like.
const LINE: &str = "{bar:25} {percent:>3} %  {elapsed} of {duration}  {wide_msg}";

/// The progress of a run.
pub(crate) struct Progress {
    bar: ProgressBar,
    jobs: usize,
    jobs_begun: usize,
    /// The time between two lines, and when the last one was due; `None` if there are no lines.
    lines: Cell<Option<(Duration, Instant)>>,
}

impl Progress {
    /// Creates the progress of `jobs` jobs. It is invisible unless stderr is a terminal.
    pub(crate) fn new(jobs: usize) -> Self {
        let bar = progress_bar(Some(STEPS * jobs as u64), LINE);
        Self { bar, jobs, jobs_begun: 0, lines: Cell::new(None) }
    }

    /// The same, with a line every so often where stderr is no terminal.
    pub(crate) fn with_lines(jobs: usize, every: Duration) -> Self {
        let lines = (!std::io::stderr().is_terminal()).then(|| (every, Instant::now()));
        Self { lines: Cell::new(lines), ..Self::new(jobs) }
    }

    /// Creates a progress that shows nothing.
    pub(crate) fn hidden() -> Self {
        let bar = ProgressBar::hidden();
        Self { bar, jobs: 0, jobs_begun: 0, lines: Cell::new(None) }
    }

    /// Prints a line if one is due.
    fn line(&self, position: u64) {
        let Some((every, last)) = self.lines.get() else { return };
        if last.elapsed() >= every {
            self.lines.set(Some((every, Instant::now())));
            let percent = position * 100 / (STEPS * self.jobs.max(1) as u64);
            eprintln!("meantime: {percent} % done, {}", self.bar.message());
        }
    }

    /// Prints above the bar.
    pub(crate) fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Returns the bar, for another thread that prints above it. Its prefix is a text above it.
    pub(super) fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }

    /// Makes room for a text above the bar.
    pub(super) fn with_text(self) -> Self {
        set_style(&self.bar, &format!("{{prefix}}\n{LINE}"));
        self
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl meantime_bench::run::Progress for Progress {
    fn job(&mut self) {
        self.jobs_begun += 1;
        self.done(0.0);
    }

    fn filling(&self, uri: &str) {
        self.bar.set_message(format!("filling {uri}"));
        self.bar.tick();
    }

    fn cell(&self, job: &str, uri: &str, policy: Policy) {
        let Self { jobs_begun, jobs, .. } = self;
        self.bar.set_message(format!("{job} ({jobs_begun} of {jobs}) · {uri} · {policy}"));
        self.bar.tick();
    }

    fn done(&self, share: f64) {
        let before = STEPS * self.jobs_begun.saturating_sub(1) as u64;
        let position = before + (share * STEPS as f64) as u64;
        self.bar.set_position(position);
        self.line(position);
    }

    fn error(&self, message: impl Display) {
        self.above(|| eprintln!("meantime: {message}"));
    }

    fn warning(&self, message: impl Display) {
        self.above(|| warn(message));
    }
}
