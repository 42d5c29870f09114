//! Replays a recorded run: it must produce the same commands, claims, verdicts and page.

use std::fmt::Write as _;

use super::made_up::{MadeUp, hash};
use super::{QUICK_S, options};
use crate::document::Documents;
use crate::experiment::{Experiment, Leg};
use crate::load::{experiments, on_a_device};
use crate::present::Reproduction;
use crate::run::Outcome;
use crate::runner::Bench;
use crate::store::Kept;

/// For each experiment: hashes of the commands with their files, and of its part of the page and of
/// the Markdown.
const RECORDED: &str = include_str!("recorded.csv");

/// Runs an experiment `repetitions` times. The commands are those of the last time.
fn kept(
    experiment: &Experiment,
    refuses: bool,
    cell_s: f64,
    device: Option<&str>,
    repetitions: u64,
) -> Kept {
    let directory = tempfile::tempdir().unwrap();
    let scratch = directory.path().to_str().unwrap();
    let mut kept = Kept::default();
    for at in 0..repetitions {
        let mut runner = MadeUp::new(at + 1, scratch, refuses);
        let options = options(scratch, cell_s, device);
        let mut bench = Bench::new(&mut runner, &options, at as usize);
        if let Err(error) = bench.measure(experiment) {
            kept.failure = error.to_string();
        }
        kept.measured.extend(bench.finish());
        kept.repetitions += 1;
        kept.commands = runner.lines;
    }
    kept
}

/// Returns the commands of a full run, a quick run and a run on a user's device; and the page and
/// the Markdown, with all permissions and without some.
fn run(experiment: &Experiment, on_a_device: Option<&Experiment>) -> (String, String) {
    let full = kept(experiment, false, 0.5, None, 3);
    let quick = kept(experiment, false, QUICK_S, None, 1);
    let refused = kept(experiment, true, QUICK_S, None, 1);
    let device = on_a_device.map(|one| kept(one, false, 0.5, Some("vfio:1"), 1).commands);
    let commands = [&full.commands, &quick.commands, &device.unwrap_or_default()];
    let commands = commands.map(|lines| lines.join("\n")).join("\n\n");
    let mut shown = String::new();
    for kept in [full, refused] {
        let outcome = Outcome { experiment: experiment.clone(), kept, earlier: false };
        let all = [outcome];
        let all = Reproduction::new(&all, &Documents::read(), Vec::new());
        let _ = write!(shown, "{}\n{}", all.page("a test"), all.markdown());
    }
    (commands, shown)
}

/// After a change of an experiment, inspect its results. If they are right, replace the recorded
/// line by the one that the test prints.
#[test]
fn a_recorded_run_comes_out_again() {
    let mut recorded = RECORDED.lines().skip(1);
    let devices = on_a_device();
    for experiment in experiments() {
        let device = devices.iter().find(|one| one.id == experiment.id);
        assert!(device.is_none_or(|one| one.leg == Leg::Device));
        let (commands, shown) = run(&experiment, device);
        let line = format!("{},{:x},{:x}", experiment.id, hash(&commands), hash(&shown));
        let before = recorded.next().unwrap_or_default();
        assert_eq!(line, before, "{commands}");
    }
    assert_eq!(recorded.next(), None);
}
