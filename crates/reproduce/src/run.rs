//! A run: selects and repeats experiments, and checks whether the machine was quiet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::experiment::{Experiment, Leg};
use crate::guest::FileError;
use crate::runner::{Bench, Commands, RunError};
use crate::store::{Kept, Store};

/// The CPU use of other programs, in percent of one CPU, above which a repetition does not count.
const OTHERS_MAX_PERCENT: f64 = 15.0;
/// The maximum number of times that a repetition is repeated because of other programs.
const REPEATED_MAX: u32 = 2;

/// The options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Repetitions of each experiment.
    pub repetitions: usize,
    /// Time for each cell of a repetition, in seconds.
    pub cell_s: f64,
    /// The user's device. Experiments of the machine's leg use it instead of a software SSD.
    pub device: Option<String>,
    /// A directory for experiments' files.
    pub scratch: String,
}

/// An experiment with what it came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The experiment.
    pub experiment: Experiment,
    /// Its kept results.
    pub kept: Kept,
    /// Whether it is of an earlier run.
    pub earlier: bool,
}

/// Receives the progress of a run.
pub trait Progress {
    /// Called when an experiment begins: the `at`th of `all`, with the time that is left, if it is
    /// known.
    fn begins(&mut self, experiment: &Experiment, at: usize, all: usize, left: Option<Duration>);
    /// An experiment has ended.
    fn ended(&mut self, outcome: &Outcome);
}

/// Runs `experiments` except those that `store` has. Stops between commands when `stop` is set, and
/// returns what was measured until then.
///
/// # Errors
/// Returns an error if results cannot be kept.
pub fn run(
    experiments: &[Experiment],
    options: &Options,
    commands: &mut Commands<'_>,
    store: &Store,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Vec<Outcome>, FileError> {
    let mut outcomes = Vec::new();
    let (mut spent, mut done) = (Duration::ZERO, 0u32);
    // The figures of the virtual machine are in a file of their own: they are taken from there, not
    // from `store`.
    let earlier = |one: &Experiment| store.get(&one.key()).filter(|_| one.leg != Leg::Guest);
    let to_do =
        |from: usize| experiments[from..].iter().filter(|one| earlier(one).is_none()).count();
    for (at, experiment) in experiments.iter().enumerate() {
        if let Some(kept) = earlier(experiment) {
            outcomes.push(Outcome { experiment: experiment.clone(), kept, earlier: true });
            continue;
        }
        let left = (done > 0).then(|| spent / done * to_do(at) as u32);
        progress.begins(experiment, at + 1, experiments.len(), left);
        let begun = Instant::now();
        let kept = measure(experiment, options, commands);
        if stop.load(Ordering::Relaxed) {
            break;
        }
        (spent, done) = (spent + begun.elapsed(), done + 1);
        store.put(&experiment.key(), &kept)?;
        let outcome = Outcome { experiment: experiment.clone(), kept, earlier: false };
        progress.ended(&outcome);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn measure(experiment: &Experiment, options: &Options, commands: &mut Commands<'_>) -> Kept {
    let repetitions = match experiment.leg {
        // The simulator's results are the same each time.
        Leg::Simulated => 1,
        Leg::Guest => commands.boots().max(1),
        _ => options.repetitions,
    };
    let mut kept = Kept::default();
    let mut repetition = 0;
    commands.take_lines();
    while repetition < repetitions {
        let load = Load::now();
        let mut bench = Bench::new(commands, options, repetition);
        let done = bench.measure(experiment);
        let others_percent = match bench.boots.as_slice() {
            [] => load.others_percent(),
            boots => boots.iter().map(|boot| boot.others_percent).fold(0.0, f64::max),
        };
        for boot in bench.boots.as_slice() {
            kept.repeated += boot.repeated;
            kept.ended_s = kept.ended_s.max(boot.ended_s);
        }
        let measured = bench.finish();
        if let Err(error) = done {
            kept.failure = error.to_string();
            if !matches!(error, RunError::Interrupted) {
                kept.measured.extend(measured);
            }
            break;
        }
        let busy = others_percent > OTHERS_MAX_PERCENT && experiment.leg != Leg::Simulated;
        if busy && experiment.leg != Leg::Guest && kept.repeated < REPEATED_MAX {
            kept.repeated += 1;
            continue;
        }
        kept.others_percent = kept.others_percent.max(others_percent);
        kept.disturbed += u32::from(busy);
        kept.repetitions += 1;
        kept.measured.extend(measured);
        repetition += 1;
    }
    kept.commands = commands.take_lines();
    // The virtual machine's boots say when they ended.
    if kept.ended_s == 0 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        kept.ended_s = now.map_or(0, |since| since.as_secs());
    }
    kept
}

/// The CPU time of every other process, and the time that the hypervisor took, at an instant.
///
/// Processes that end meanwhile are not counted, since the experiment's own commands are among
/// them. The total in /proc/stat minus their time cannot be used instead: it would count threads of
/// the commands as another program's.
struct Load {
    at: Instant,
    processes: HashMap<u32, u64>,
    stolen_ticks: u64,
}

/// Ticks of /proc are hundredths of a second on every Linux.
const TICKS_PER_S: f64 = 100.0;

impl Load {
    fn now() -> Self {
        let own = std::process::id();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let others = pids.filter(|pid| *pid != own);
        let processes = others.filter_map(|pid| Some((pid, ticks(pid)?))).collect();
        Self { at: Instant::now(), processes, stolen_ticks: stolen_ticks() }
    }

    /// Returns how much others have used since, in percent of one CPU.
    fn others_percent(&self) -> f64 {
        let now = Self::now();
        let used = |(pid, after): (&u32, &u64)| {
            after.saturating_sub(self.processes.get(pid).copied().unwrap_or(0))
        };
        let others: u64 = now.processes.iter().map(used).sum();
        let stolen = now.stolen_ticks.saturating_sub(self.stolen_ticks);
        let ticks = (now.at - self.at).as_secs_f64() * TICKS_PER_S;
        if ticks > 0.0 { (others + stolen) as f64 / ticks * 100.0 } else { 0.0 }
    }
}

/// Returns the CPU time of a process.
fn ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The fields after the name, which may contain spaces; utime and stime are fields 14 and 15.
    let fields = stat.rsplit_once(") ")?.1;
    Some(fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum())
}

/// Returns the CPU time that the hypervisor took.
fn stolen_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // cpu user nice system idle iowait irq softirq steal
    let steal = stat.lines().next().and_then(|line| line.split_whitespace().nth(8));
    steal.and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}
