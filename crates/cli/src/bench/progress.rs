//! Progress on stderr: a bar on a terminal, else lines now and then, with the figures so far. It
//! changes only between turns: drawing must not disturb the measurement. With `--each` and `--live`
//! another thread draws, too.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use meantime_completion::Policy;
use meantime_report::figures::{grouped, time};
use meantime_report::run::Turn;

use crate::failure::warn;
use crate::output::{progress_bar, set_style};
use crate::signal;

const STEPS: u64 = 1000;

/// The most jobs whose figures are printed at once.
const SHOWN_MAX: usize = 16;

/// What the bar looks like.
const LINE: &str = "{bar:25} {percent:>3} %  {elapsed} of {duration}  {wide_msg}";

/// The progress of a run.
pub(crate) struct Progress {
    bar: ProgressBar,
    jobs: usize,
    jobs_begun: usize,
    /// The time between two lines, and when the last one was due; `None` if there are no lines.
    lines: Cell<Option<(Duration, Instant)>>,
    /// What had turns, in the order of the first ones.
    turned: RefCell<Vec<Turned>>,
}

/// The figures so far of a job on a device with a policy.
struct Turned {
    name: String,
    turns: u64,
    /// The sum of the turns' rates. Turns are about equally long.
    iops_sum: f64,
    /// The sum of the turns' mean latencies, each weighted with the rate.
    weighted_ns_sum: f64,
    /// It had a turn since the last lines.
    is_new: bool,
}

impl Turned {
    fn new(name: &str) -> Self {
        let name = name.to_owned();
        Self { name, turns: 0, iops_sum: 0.0, weighted_ns_sum: 0.0, is_new: true }
    }

    fn add(&mut self, turn: &Turn) {
        self.turns += 1;
        self.iops_sum += turn.iops;
        self.weighted_ns_sum += turn.iops * turn.mean_ns;
        self.is_new = true;
    }

    /// Returns its line if it had a turn since the last call.
    fn new_line(&mut self) -> Option<String> {
        std::mem::take(&mut self.is_new).then(|| format!("  {}\n", self.line()))
    }

    fn line(&self) -> String {
        let iops = grouped((self.iops_sum / self.turns as f64).round());
        let mean = time(self.weighted_ns_sum / self.iops_sum.max(f64::MIN_POSITIVE));
        let plural = if self.turns == 1 { "" } else { "s" };
        format!("{}: {iops} IOPS, mean {mean} in {} turn{plural}", self.name, self.turns)
    }
}

impl Progress {
    /// Creates the progress of `jobs` jobs. It is invisible unless stderr is a terminal.
    pub(crate) fn new(jobs: usize) -> Self {
        let bar = progress_bar(Some(STEPS * jobs as u64), LINE);
        Self { bar, jobs, jobs_begun: 0, lines: Cell::new(None), turned: RefCell::default() }
    }

    /// The same, with lines every so often where stderr is no terminal.
    pub(crate) fn with_lines(jobs: usize, every: Duration) -> Self {
        let lines = (!std::io::stderr().is_terminal()).then(|| (every, Instant::now()));
        Self { lines: Cell::new(lines), ..Self::new(jobs) }
    }

    /// Creates a progress that shows nothing unless it is asked to.
    pub(crate) fn hidden(jobs: usize) -> Self {
        Self { bar: ProgressBar::hidden(), ..Self::new(jobs) }
    }

    /// Prints lines if they are due, or SIGUSR1 asked for them.
    fn lines(&self, position: u64) {
        let due = self.lines.get().filter(|(every, last)| last.elapsed() >= *every);
        if let Some((every, _)) = due {
            self.lines.set(Some((every, Instant::now())));
        }
        if due.is_some() | signal::take_status() {
            let percent = position * 100 / (STEPS * self.jobs.max(1) as u64);
            let text = format!("meantime: {percent} % done, {}\n", self.bar.message());
            let text = text + &self.figures();
            self.above(|| eprint!("{text}"));
        }
    }

    /// Returns a line for each that had a turn since the last call.
    fn figures(&self) -> String {
        let mut turned = self.turned.borrow_mut();
        let new = turned.iter_mut().filter_map(|one| one.new_line());
        let mut lines: Vec<String> = new.collect();
        let more = lines.len().saturating_sub(SHOWN_MAX);
        if more > 0 {
            lines.truncate(SHOWN_MAX);
            lines.push(format!("  … and {more} more\n"));
        }
        lines.concat()
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

    fn turned(&self, name: &str, turn: &Turn) {
        let mut turned = self.turned.borrow_mut();
        let at = turned.iter().position(|one| one.name == name).unwrap_or_else(|| {
            turned.push(Turned::new(name));
            turned.len() - 1
        });
        turned[at].add(turn);
    }

    fn done(&self, share: f64) {
        let before = STEPS * self.jobs_begun.saturating_sub(1) as u64;
        let position = before + (share * STEPS as f64) as u64;
        self.bar.set_position(position);
        self.lines(position);
    }

    fn error(&self, message: impl Display) {
        self.above(|| eprintln!("meantime: {message}"));
    }

    fn warning(&self, message: impl Display) {
        self.above(|| warn(message));
    }
}
