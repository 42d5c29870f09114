//! Runs a workload on a recorded SSD.

use std::panic::{AssertUnwindSafe, catch_unwind};

use meantime_ext4::{Error, FileSystem};
use meantime_ssd::FaultPlan;
use meantime_testkit::power_cut::History;

use crate::device::{Attached, Base, Config, attach};
use crate::drive::{Ours, failed};
use crate::model::{Fail, Model};
use crate::ops::{Op, Shown};
use crate::place::Place;
use crate::recovery::{Kind, Violation};

/// One thread's operations, on a tree of its own.
pub(crate) struct Script<'a> {
    pub root: &'a str,
    /// Operations done and synced before recording begins.
    pub warm: Vec<Op>,
    pub ops: Vec<Op>,
}

/// The event numbers at which each operation began and returned.
type Marks = Vec<(usize, usize)>;

/// The mark of an operation that has not returned, or has failed.
const NEVER: usize = usize::MAX;

/// A recorded run.
pub(crate) struct Run {
    pub history: History,
    pub tracks: Vec<Track>,
    pub config: Config,
    pub what: String,
    /// Whether a call failed because the device did.
    pub failed: bool,
}

pub(crate) struct Track {
    pub root: String,
    pub model: Model,
    /// The number of operations before recording began.
    pub warm: usize,
    pub marks: Marks,
}

fn workload(why: impl Into<String>) -> Violation {
    Violation::new(Kind::Workload, why)
}

/// Why a call failed.
pub(crate) struct Failed {
    /// The model's error, or `None` if the model has no such error.
    fail: Option<Fail>,
    text: String,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { fail: failed(&error), text: error.to_string() }
    }
}

impl From<String> for Failed {
    fn from(text: String) -> Self {
        Self { fail: None, text }
    }
}

/// Checks that the model and the file system agree, also on why an operation fails.
pub(crate) fn compare(model: &mut Model, op: &Op, done: Result<(), Failed>) -> Result<(), String> {
    let number = model.len() + 1;
    match (model.apply(op), done) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(fail), Err(Failed { fail: Some(found), .. })) if found == fail => Ok(()),
        (Err(fail), Err(Failed { text, .. })) => {
            Err(format!("operation {number}, {op:?}: {text}, instead of {fail:?}"))
        }
        (Ok(()), Err(Failed { text, .. })) => Err(format!("operation {number}, {op:?}: {text}")),
        (Err(fail), Ok(())) => {
            Err(format!("operation {number}, {op:?}: done, instead of {fail:?}"))
        }
    }
}

/// Records a run, and returns a panic as a violation.
pub(crate) fn run(
    place: &mut Place,
    base: &Base,
    config: &Config,
    scripts: &[Script<'_>],
    faults: Option<FaultPlan>,
    seed: u64,
) -> Result<Run, Violation> {
    match catch_unwind(AssertUnwindSafe(|| record(place, base, config, scripts, faults, seed))) {
        Ok(run) => run,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(workload(format!("a panic: {}", text.unwrap_or_default())))
        }
    }
}

/// Runs the scripts, each in a thread if there are several, on the content of `base`. The device
/// has `faults` from the start of recording.
fn record(
    place: &mut Place,
    base: &Base,
    config: &Config,
    scripts: &[Script<'_>],
    faults: Option<FaultPlan>,
    seed: u64,
) -> Result<Run, Violation> {
    place.load(base);
    let attached = attach(place.medium(), config, seed);
    let ssd = &attached.ssd;
    let fs = FileSystem::mount(attached.device(), &config.mount_options())
        .map_err(|error| workload(format!("mount: {error}")))?;
    let what = scripts.iter().map(|script| format!("{}[{}]", script.root, Shown(&script.ops)));
    let what = what.collect::<Vec<_>>().join(" | ");
    let mut tracks = Vec::new();
    for script in scripts {
        let mut model = Model::new(config.block_bytes as u64);
        for op in script.warm.iter().chain([&Op::Sync]).filter(|op| **op != Op::Remount) {
            let done = Ours { fs: &fs, root: script.root }.apply(op, &model);
            compare(&mut model, op, done.map_err(Failed::from)).map_err(workload)?;
        }
        let warm = model.len();
        tracks.push(Track { root: script.root.into(), model, warm, marks: Vec::new() });
    }
    fs.sync().map_err(|error| workload(format!("sync: {error}")))?;
    ssd.run_until_idle();
    place.begin();
    let recorder = ssd.record();
    let is_faulty = faults.is_some();
    if let Some(plan) = faults {
        ssd.set_faults(plan);
    }
    let position = || recorder.position();
    let (fs, failed) = if let ([script], [track]) = (scripts, &mut tracks[..]) {
        alone(fs, &attached, config, script, track, is_faulty, &position)
    } else {
        let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
            let (fs, position) = (&fs, &position);
            let work = |(script, track): (&Script<'_>, &mut Track)| {
                for op in script.ops.iter().filter(|op| **op != Op::Remount) {
                    let begun = position();
                    let done = Ours { fs, root: script.root }.apply(op, &track.model);
                    track.marks.push((begun, position()));
                    compare(&mut track.model, op, done.map_err(Failed::from))?;
                }
                Ok(())
            };
            let pairs = scripts.iter().zip(&mut tracks);
            let threads: Vec<_> =
                pairs.map(|(script, track)| scope.spawn(move || work((script, track)))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        results.into_iter().collect::<Result<Vec<()>, String>>().map(|_| (Some(fs), false))
    }
    .map_err(|why| workload(format!("{why} [{what}] {config:?}")))?;
    let history = recorder.take().into();
    // A dropped mount ends as by a crash, or not. It is not recorded any more, and its writes are
    // overwritten.
    ssd.set_faults(FaultPlan::NONE);
    let last = ssd.record();
    drop(fs);
    ssd.run_until_idle();
    drop(attached);
    place.wrote(&history);
    place.wrote(&last.take().into());
    Ok(Run { history, tracks, config: *config, what, failed })
}

/// Runs one thread's operations. Returns the file system, if it is still mounted, and whether a
/// call failed because the device did, which ends the run.
fn alone(
    fs: FileSystem,
    attached: &Attached,
    config: &Config,
    script: &Script<'_>,
    track: &mut Track,
    is_faulty: bool,
    position: &impl Fn() -> usize,
) -> Result<(Option<FileSystem>, bool), String> {
    let mut fs = Some(fs);
    let mut failed = false;
    let has_failed = || attached.ssd.counters().injected_errors > 0;
    for op in &script.ops {
        let begun = position();
        let mounted = fs.take().expect("mounted");
        let mut done = if *op == Op::Remount {
            let unmounted = mounted.unmount().map_err(|error| format!("unmount: {error}"));
            unmounted.map_err(Failed::from).and_then(|()| {
                let again = FileSystem::mount(attached.device(), &config.mount_options());
                fs = Some(again.map_err(|error| format!("mount: {error}"))?);
                Ok(())
            })
        } else {
            let done = Ours { fs: &mounted, root: script.root }.apply(op, &track.model);
            fs = Some(mounted);
            done.map_err(Failed::from)
        };
        let refused = track.model.would_fail(op);
        let is_faulty = is_faulty && has_failed();
        if !(is_faulty && done.is_err() && refused.is_none()) {
            // An operation that would have failed anyway may fail because of the device instead.
            if let Err(Failed { fail: fail @ None, .. }) = &mut done
                && is_faulty
            {
                *fail = refused;
            }
            track.marks.push((begun, position()));
            compare(&mut track.model, op, done)?;
            continue;
        }
        failed = true;
        // A failed sync promises nothing. Any other operation may have happened or not, and is the
        // last.
        if op.is_sync() && fs.is_some() {
            track.marks.push((begun, position()));
            compare(&mut track.model, &Op::Step, Ok(()))?;
        } else {
            track.marks.push((begun, NEVER));
            compare(&mut track.model, op, Ok(()))?;
            break;
        }
    }
    Ok((fs, failed))
}
