//! What is printed while a run goes on, by a thread of its own: each I/O (`--each`), and histograms
//! (`--live`).

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use indicatif::ProgressBar;
use meantime_bench::pattern::Dir;
use meantime_bench::run::{Devices, Group, Watch, WatchedCell, WatchedIo, thread_cpus};
use meantime_hw::cpu;
use meantime_report::figures::{bytes, grouped, time};
use rustix::termios::tcgetwinsize;

use super::live::Live;
use crate::cli::BenchArgs;
use crate::failure::{Context as _, Failure};
use crate::output;

/// Time between two looks at the run.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Time between two drawings on a terminal.
const DRAW_INTERVAL: Duration = Duration::from_secs(1);

/// The lowest priority of a thread, so that measuring threads on the same CPU run first.
const NICE: i32 = 19;

/// What is printed, and where.
pub(super) struct Printer {
    each: bool,
    /// How often histograms are drawn, if they are.
    live: Option<Duration>,
    /// Print to standard error, because standard output is for a machine.
    to_stderr: bool,
    /// The progress, which is drawn below what is printed.
    bar: ProgressBar,
    /// CPUs on which nothing is measured. Empty if there are none.
    cpus: Vec<usize>,
}

/// The I/Os that have been seen.
#[derive(Debug, Default)]
struct Seen {
    shown: u64,
    left_out: u64,
}

impl Printer {
    pub(super) fn new(args: &BenchArgs, to_stderr: bool, bar: ProgressBar) -> Self {
        let live = args.live.then(|| match bar.is_hidden() {
            true => args.status_interval,
            false => DRAW_INTERVAL,
        });
        Self { each: args.each, live, to_stderr, bar, cpus: Vec::new() }
    }

    /// Prefers the CPUs on which `groups` do not run.
    pub(super) fn beside(&mut self, groups: &[Group], devices: &Devices) {
        let of = |group: &Group| -> Vec<usize> {
            let jobs = group.plans.iter().flat_map(|plan| thread_cpus(plan, group, devices));
            let indices = group.plans.iter().flat_map(|plan| &plan.devices);
            jobs.chain(indices.filter_map(|index| devices.ssd_cpu(*index))).collect()
        };
        let taken: Vec<usize> = groups.iter().flat_map(of).collect();
        self.cpus = cpu::allowed().into_iter().filter(|cpu| !taken.contains(cpu)).collect();
    }

    /// Calls `run`, and prints until it returns.
    pub(super) fn during<R>(&self, run: impl FnOnce(Option<&Watch>) -> R) -> Result<R, Failure> {
        if !self.each && self.live.is_none() {
            return Ok(run(None));
        }
        let watch = &Watch::new(self.each, self.live.is_some());
        std::thread::scope(|scope| {
            let (running, over) = channel();
            let body = move || self.print(watch, &over);
            meantime_process::thread::spawn_scoped(scope, "meantime-watch", body)
                .context("cannot start the thread that prints meanwhile")?;
            let result = run(Some(watch));
            drop(running);
            Ok(result)
        })
    }

    /// Prints until the other side of `over` is dropped.
    fn print(&self, watch: &Watch, over: &Receiver<()>) {
        // Either may be refused. On Linux a nice value is one thread's.
        let _ = rustix::process::nice(NICE);
        let _ = cpu::bind(&self.cpus);
        let (mut seen, mut is_read, mut live) = (Seen::default(), true, Live::new());
        loop {
            let is_over = over.recv_timeout(LOOK_INTERVAL) != Err(RecvTimeoutError::Timeout);
            let mut lines = seen.lines(watch);
            if is_over {
                lines += &seen.sum();
            }
            if is_read && !lines.is_empty() {
                is_read = self.bar.suspend(|| self.write(&lines));
            }
            if let Some(interval) = self.live {
                self.draw(&mut live, watch, interval, is_over);
            }
            if is_over {
                return;
            }
        }
    }

    /// Draws histograms if they are due: above the bar, or as lines.
    fn draw(&self, live: &mut Live, watch: &Watch, interval: Duration, is_over: bool) {
        if self.bar.is_hidden() {
            if is_over || live.elapsed() >= interval {
                let text = live.text(watch, output::columns(), usize::MAX);
                let _ = std::io::stderr().write_all(text.as_bytes());
            }
        } else if is_over {
            self.bar.set_prefix("");
        } else if live.elapsed() >= interval {
            // Some terminals have no size.
            let size = tcgetwinsize(std::io::stderr()).ok().filter(|size| size.ws_row > 0);
            let [columns, rows] =
                size.map_or([80, 24], |size| [size.ws_col, size.ws_row].map(usize::from));
            // The bar is below, and the cursor may be below that.
            let text = live.text(watch, columns, rows.saturating_sub(2));
            self.bar.set_prefix(text.trim_end().to_owned());
        }
    }

    /// Returns false if the reader is gone. The output of the results reports other errors.
    fn write(&self, lines: &str) -> bool {
        match self.to_stderr {
            true => std::io::stderr().write_all(lines.as_bytes()).is_ok(),
            false => output::print_while_read(lines.as_bytes()).unwrap_or(false),
        }
    }
}

impl Seen {
    /// Returns a line for each I/O that ended since the last call, and one for those left out.
    fn lines(&mut self, watch: &Watch) -> String {
        let mut lines = String::new();
        let left_out = watch.take(|cell, io| {
            self.shown += 1;
            push_line(&mut lines, cell, &io);
        });
        let more = left_out - self.left_out;
        self.left_out = left_out;
        if more > 0 {
            let more = grouped(more as f64);
            let _ = writeln!(lines, "… {more} more I/Os are left out: they come too fast");
        }
        lines
    }

    /// Returns the line at the end of the run, which is empty if nothing was left out.
    fn sum(&self) -> String {
        let [shown, all] = [self.shown, self.shown + self.left_out].map(|ios| grouped(ios as f64));
        match self.left_out {
            0 => String::new(),
            left_out => {
                let left_out = grouped(left_out as f64);
                format!("{shown} of {all} I/Os are shown, {left_out} are left out\n")
            }
        }
    }
}

fn push_line(lines: &mut String, cell: &WatchedCell, io: &WatchedIo) {
    let (name, latency) = (&cell.name, time(io.latency_ns as f64));
    let operation = match io.dir {
        Some(Dir::Read) => "read",
        Some(Dir::Write) => "write",
        Some(Dir::Trim) => "trim",
        None => {
            let _ = writeln!(lines, "{name}: flush, {latency}");
            return;
        }
    };
    let (length, offset) = (bytes(io.bytes), io.offset_bytes);
    let _ = writeln!(lines, "{name}: {operation} {length} at {offset}, {latency}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_said() {
        let watch = Watch::new(true, false);
        assert_eq!(Seen::default().lines(&watch), "");
        let seen = Seen { shown: 2_048, left_out: 1_000_000 };
        assert_eq!(seen.sum(), "2,048 of 1,002,048 I/Os are shown, 1,000,000 are left out\n");
        assert_eq!(Seen { left_out: 0, ..seen }.sum(), "");
    }
}
