//! Tests that every job ends. Each pair of the keys that shape a job's course runs under the
//! stepped SSD's clock, once until its runtime is over and once until the stop flag is set, each at
//! another moment.
//!
//! Time is virtual, and a loop that does not check for the end is found by the number of readings
//! of the clock for which it continues. Nothing here depends on how fast the machine is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use itertools::{Itertools as _, iproduct};
use meantime_block::{BlockDevice as _, ChannelOptions, NvmeDevice};
use meantime_completion::Policy;
use meantime_nvme::{Controller, ControllerOptions};
use meantime_ssd::{SsdConfig, SteppedSsd};
use meantime_testkit::port::Meddling;
use meantime_testkit::rig;

use super::*;
use crate::job::Job;
use crate::job::testing::{job, keys_of};
use crate::pattern::{Dir, Io, Pattern};
use crate::plan::JobPlan;
use crate::run::cells;
use crate::run::checks::check_ranges;
use crate::run::group::{Group, groups};
use crate::run::schedule::{CellState, Turns, nanos, warm_up_ns};

/// The settings: a key and its value, and others that it needs. A key that shapes a course is here,
/// or in [`ELSEWHERE`].
const SETTINGS: &[&[(&str, &str)]] = &[
    &[("rw", "write")],
    &[("rw", "randread")],
    &[("rw", "randrw")],
    &[("rw", "randtrim")],
    &[("rw", "randtrimwrite")],
    &[("rwmixread", "90"), ("rw", "randrw")],
    &[("bs", "8k")],
    &[("bssplit", "4k/70:16k/30")],
    &[("size", "64k")],
    &[("offset", "256k")],
    // Passes far smaller than what is read back after each.
    &[("io_size", "4k"), ("size", "512k"), ("time_based", "1")],
    &[("number_ios", "37")],
    &[("loops", "3"), ("size", "16k")],
    &[("time_based", "0")],
    &[("time_based", "1")],
    &[("ramp_time", "4ms")],
    &[("iodepth", "1")],
    &[("iodepth", "16")],
    &[("iodepth_batch", "1")],
    &[("iodepth_batch", "0")],
    &[("iodepth_batch_complete_min", "0")],
    &[("iodepth_batch_complete_min", "3")],
    &[("iodepth_batch_complete_max", "2"), ("iodepth_batch_complete_min", "1")],
    &[("fsync", "1")],
    &[("fsync", "3")],
    &[("fsync", "100")],
    &[("fdatasync", "2")],
    &[("sync", "dsync")],
    &[("end_fsync", "1")],
    &[("rate", "20m")],
    &[("rate_iops", "1")],
    &[("rate_iops", "5k")],
    &[("rate_process", "poisson"), ("rate_iops", "5k")],
    &[("thinktime", "100us")],
    &[("thinktime", "1h")],
    &[("thinktime_blocks", "3"), ("thinktime", "500us")],
    &[("thinktime_spin", "200us"), ("thinktime", "300us")],
    &[("verify", "crc32c")],
    &[("verify", "meta"), ("do_verify", "0")],
];

/// Keys of the same subjects that no thread of a job sees.
const ELSEWHERE: &[&str] = &["runtime", "numjobs", "rwmixwrite"];

/// The job without these settings: it writes, deep enough for a flush before the depth is reached.
const PLAIN: [(&str, &str); 2] = [("rw", "randwrite"), ("iodepth", "4")];

/// The time by which a reading of the clock moves it. An I/O takes about ten readings.
const TICK_NS: u64 = 5_000;

const RUNTIME: &str = "3ms";

/// The number of readings that may follow the end: all of the range is read back, and the job waits
/// for what was in flight. An I/O takes about ten readings alone, and three among others.
const READINGS_AFTER_END: u64 = 2_000;

/// The number of readings that may follow the stop flag, for the rest of a nap, and for what was in
/// flight.
const READINGS_AFTER_STOP: u64 = 1_000;
const NS_AFTER_STOP: u64 = 60_000_000;

/// The event at which a job is to end.
#[derive(Debug, Clone, Copy)]
enum End {
    /// After its runtime.
    Runtime,
    /// The job ends when the stop flag is set, at this reading of the clock.
    Stop(u64),
}

/// An SSD for many jobs.
struct Rig {
    ssd: SteppedSsd,
    meddling: Arc<Meddling>,
    device: NvmeDevice,
}

impl Rig {
    fn new() -> Self {
        let config = SsdConfig::with_namespace(1 << 20, 512);
        let (ssd, meddling, opened) = rig::open(config, ControllerOptions::default(), |_| {});
        let controller: Arc<Controller> = opened.unwrap();
        ssd.set_tick_ns(TICK_NS);
        Self { ssd, meddling, device: meantime_testkit::device(&controller) }
    }

    /// Fails the test once the clock was read too often after the end, and sets `stop` when that is
    /// due. Returns the time at which it was set, 0 before.
    fn watch(&self, what: String, end: End, due_ns: u64, stop: &'static AtomicBool) -> Set {
        let set_ns = Set::default();
        let (mut readings, mut late, theirs) = (0, 0, Arc::clone(&set_ns));
        self.meddling.on_time(move |now_ns| {
            readings += 1;
            let most = match end {
                End::Runtime => READINGS_AFTER_END,
                End::Stop(at) => {
                    if readings == at {
                        theirs.store(now_ns, Ordering::Relaxed);
                        stop.store(true, Ordering::Relaxed);
                    }
                    READINGS_AFTER_STOP
                }
            };
            late += u64::from(now_ns > due_ns || stop.load(Ordering::Relaxed));
            // This is checked once, because the channel's end reads the clock as well.
            assert!(late != most, "{what}: goes on after {end:?}");
        });
        set_ns
    }

    /// Runs the job of `keys` as a run does, in turns, until it ends.
    fn run(&self, group: &Group, what: String, end: End) {
        let plan = &group.plans[0];
        let options = ChannelOptions {
            depth: plan.job.iodepth as u16,
            policy: Some(Policy::Poll),
            ..ChannelOptions::default()
        };
        let mut channel = self.device.channel(&options).unwrap();
        let clock = channel.clock().clone();
        let (depth, bytes) = (plan.job.iodepth as usize, plan.job.bs_max_bytes() as usize);
        let mut slots = Slots::new(&channel, depth, bytes).unwrap();
        let info = self.device.info();

        let stop: &'static AtomicBool = Box::leak(Box::default());
        let task = cells::task(plan, info, [0, 0]);
        let mut visited = Visited::new(task, stop);
        let amount = Pattern::total_bytes(&plan.pattern(info, 0));
        let turns = Turns::new(plan, amount, None, false, plan.runtime);
        let mut state = CellState::default();
        let first_ns = warm_up_ns(true, plan, false);
        let due_ns = self.ssd.peek_ns() + first_ns + plan.runtime.map_or(0, nanos);
        let set_ns = self.watch(what.clone(), end, due_ns, stop);
        let stopped = || stop.load(Ordering::Relaxed);
        while !stopped()
            && let Some(visit) = turns.next(&state, warm_up_ns(state.turns == 0, plan, false))
        {
            let report =
                visited.visit(&mut channel, &mut slots, &clock, visit, state.wall_ns, None);
            assert_eq!(report.lost, None, "{what}");
            state.finished = report.finished;
            state.count(&[report], None, None);
        }
        if !stopped() && plan.verifies() && !state.finished {
            visited.read_back(&mut channel, &mut slots, &clock);
        }
        if !stopped() && plan.job.syncing.end_fsync && plan.job.writes() {
            visited.flush(&mut channel, &mut slots, &clock);
        }
        let (ended_ns, set_ns) = (self.ssd.peek_ns(), set_ns.load(Ordering::Relaxed));
        assert!(set_ns == 0 || ended_ns - set_ns <= NS_AFTER_STOP, "{what}: sleeps after {end:?}");
        self.meddling.on_time(|_| {});
    }
}

type Set = Arc<AtomicU64>;

/// Returns the job of `keys` beside those of a plain one, if there can be such a job.
fn plan(rig: &Rig, keys: &[(&str, &str)], end: End) -> Option<Group> {
    // A signal ends what would go on for long.
    let runtime = if matches!(end, End::Runtime) { RUNTIME } else { "1h" };
    let job: Job = job(&[&PLAIN, &[("runtime", runtime), ("completion", "poll")], keys].concat());
    job.validate().ok()?;
    let group = groups(vec![(job, vec![0])]).unwrap().remove(0);
    let plan: &JobPlan = &group.plans[0];
    check_ranges(plan, rig.device.info()).ok()?;
    Some(group)
}

/// Runs each pair of settings to the end that `end` gives for its number.
fn every_pair_ends(end: impl Fn(usize) -> End) {
    let rig = Rig::new();
    let mut ran = 0;
    for (at, (one, other)) in SETTINGS.iter().tuple_combinations().enumerate() {
        if iproduct!(*one, *other).any(|((key, _), (again, _))| key == again) {
            continue;
        }
        let (keys, end) = ([*one, *other].concat(), end(at));
        if let Some(group) = plan(&rig, &keys, end) {
            rig.run(&group, format!("{keys:?}"), end);
            ran += 1;
        }
    }
    assert!(ran > 600, "{ran} pairs");
}

#[test]
fn every_pair_of_keys_ends_in_time() {
    every_pair_ends(|_| End::Runtime);
}

/// At once, in the first I/Os, in the warm-up, and in the job's course.
#[test]
fn every_pair_of_keys_ends_when_it_is_told_to() {
    every_pair_ends(|at| End::Stop(2 << (at % 11)));
}

#[test]
fn what_shapes_a_course_is_among_the_pairs() {
    for key in ["what", "how long", "how many", "durability", "pace"].map(keys_of) {
        for key in key.filter(|key| !ELSEWHERE.contains(key)) {
            let is_set = SETTINGS.iter().any(|keys| keys.iter().any(|(set, _)| *set == key));
            assert!(is_set, "{key} is in no setting");
        }
    }
}

/// When I/Os began, and the number of flushes.
#[derive(Default)]
struct Began(Vec<(u64, Io)>, usize);

impl Record for Began {
    fn done(&mut self, io: &Io, slat_ns: u64, clat_ns: u64, seen_ns: u64) {
        self.0.push((seen_ns - clat_ns - slat_ns, *io));
    }

    fn submitted(&mut self, _: usize, _: u64) {}

    fn reaped(&mut self, _: u64) {}

    fn flushed(&mut self, _: u64) {
        self.1 += 1;
    }
}

/// No I/O begins before its time, nor much later.
#[test]
fn a_trace_is_replayed_at_its_times() {
    const TRACE: &str = "fio version 3 iolog\n10 /d open\n10 /d write 4096 4096\n\
                         15 /d read 8192 512\n5010 /d sync 0 0\n9010 /d write 512 1024\n";
    let rig = Rig::new();
    let plan = |keys: &[(&str, &str)], trace: &str| {
        let keys = [&[("read_iolog", "t.log"), ("completion", "poll")], keys].concat();
        let mut job = job(&keys);
        job.read_trace(|_| Ok(trace.into())).unwrap();
        job.validate().unwrap();
        groups(vec![(job, vec![0])]).unwrap().remove(0)
    };
    for (keys, depth, due_us) in [
        (&[][..], "4", [0, 5, 9_000]),
        (&[("replay_time_scale", "50")], "4", [0, 10, 18_000]),
        (&[("replay_time_scale", "900")], "1", [0, 0, 1_000]),
        (&[("replay_no_stall", "1")], "4", [0; 3]),
    ] {
        let group = plan(&[&[("iodepth", depth)], keys].concat(), TRACE);
        let plan = &group.plans[0];
        let info = rig.device.info();
        check_ranges(plan, info).unwrap();
        let depth: u16 = depth.parse().unwrap();
        let policy = Some(Policy::Poll);
        let options = ChannelOptions { depth, policy, ..ChannelOptions::default() };
        let mut channel = rig.device.channel(&options).unwrap();
        let clock = channel.clock().clone();
        let mut slots = Slots::new(&channel, usize::from(depth), 4096).unwrap();
        let (stop, mut faults) = (AtomicBool::new(false), Faults::default());
        let Task { mut work, mut shape, number_ios, .. } = cells::task(plan, info, [0, 0]);
        assert_eq!(number_ios, Some(3));
        let mut engine = Engine {
            channel: &mut channel,
            slots: &mut slots,
            clock: &clock,
            stop: &stop,
            faults: &mut faults,
        };
        let (mut began, shape) = (Began::default(), shape.as_mut());
        let start_ns = rig.ssd.peek_ns();
        assert_eq!(run(&mut engine, &mut work, shape, Limit::NONE, &mut began), Ended::Dry);
        assert_eq!((faults.errors, began.1), (0, 1));
        began.0.sort_unstable_by_key(|(ns, _)| *ns);
        let ios = began.0.iter().map(|(_, io)| (io.dir, io.lba, io.bytes)).collect_vec();
        let expected = [(Dir::Write, 8, 4096), (Dir::Read, 16, 512), (Dir::Write, 1, 1024)];
        assert_eq!(ios, expected, "{keys:?}");
        for (at, due_us) in due_us.iter().enumerate() {
            let late_ns = began.0[at].0.checked_sub(start_ns + due_us * 1_000).unwrap();
            assert!(late_ns < 500_000, "{keys:?}: I/O {at} is {late_ns} ns late");
        }
    }
    let beyond = plan(&[], "fio version 2 iolog\n/d read 1048064 1024\n");
    let error = check_ranges(&beyond.plans[0], rig.device.info()).unwrap_err().to_string();
    assert!(error.contains("t.log: line 2: ") && error.contains("1048576 bytes"), "{error}");
    let odd = plan(&[], "fio version 2 iolog\n/d add\n/d read 100 512\n");
    let error = check_ranges(&odd.plans[0], rig.device.info()).unwrap_err().to_string();
    assert!(error.contains("line 3: ") && error.contains("blocks have 512"), "{error}");
}
