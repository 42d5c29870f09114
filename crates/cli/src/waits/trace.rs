//! Device times of each I/O, from the device's stamps, and the cost of waking up here. The
//! simulator can replay them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use meantime_bench::engine::{Ended, Engine, Faults, Limit, Record, Slots, Source};
use meantime_bench::pattern::{Dir, Io, Pattern};
use meantime_bench::plan::JobPlan;
use meantime_bench::run::{Devices, fill, groups, thread_cpus};
use meantime_bench::varied::{Varied, VariedSpec};
use meantime_block::{BlockChannel, BlockDevice, Channel, ChannelOptions, StampSource};
use meantime_completion::calibrate::{self, Times};
use meantime_completion::{Kind, Policy};
use meantime_hw::{Clock, ThreadUsage, cpu};
use meantime_lab::sim::{self, Trace};

use crate::bench::progress::Progress;
use crate::failure::{Failure, named};
use crate::output;
use crate::signal;

use super::grid::{GridCell, ModelFile};

/// Maximum number of I/Os of a cell: far fewer than the stamps that a device keeps.
const IOS_MAX: usize = 20_000;

/// Maximum time of a recording.
const TIME_MAX: Duration = Duration::from_millis(500);

/// Maximum time for the last stamp to appear after its completion.
const STAMP_PATIENCE: Duration = Duration::from_secs(2);

/// Records the device times of `cell` with classic polling, in the order of submission.
pub(super) fn record(cell: &GridCell, progress: &mut Progress) -> Result<Trace, Failure> {
    let model = ModelFile::create(cell)?;
    let uri = cell.uri(&model.path());
    let mut devices = Devices::open_devices(std::slice::from_ref(&uri), true, true)?;
    let job = cell.job(&[Policy::Poll], TIME_MAX, None)?;
    let groups = groups(vec![(job, devices.indices(std::slice::from_ref(&uri)))])?;
    let (group, plan) = (&groups[0], &groups[0].plans[0]);
    fill(plan, &mut devices, &signal::STOP, progress)?;
    let cpus = thread_cpus(plan, group, &devices);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            cpu::bind(&cpus).map_err(Failure::new)?;
            poll(plan, &devices)
        });
        thread.join().unwrap_or_else(|_| {
            Err(Failure::new("recording device times failed: please report it"))
        })
    })
}

fn poll(plan: &JobPlan, devices: &Devices) -> Result<Trace, Failure> {
    let (device, uri) = (devices.device(plan.devices[0]), devices.uri(plan.devices[0]));
    let lost = |why: &str| Failure::new(format_args!("{uri}: recording device times: {why}"));
    let stamps = device.stamps().ok_or_else(|| lost("the device takes no stamps"))?;
    let depth = plan.job.iodepth;
    let options = ChannelOptions {
        depth: depth as u16,
        policy: Some(Policy::Poll),
        interrupt: None,
        ..ChannelOptions::default()
    };
    let mut channel = device.channel(&options).map_err(|error| named(uri, &error))?;
    let mut slots = Slots::new(&channel, depth as usize, plan.job.bs_max_bytes() as usize)
        .map_err(|error| named(uri, &error))?;
    let spec = plan.pattern(device.info(), 0);
    let mut recorder = Recorder { ios: Vec::with_capacity(IOS_MAX + depth as usize) };
    let first_stamp = stamps.written();
    let ended = match VariedSpec::of(&plan.job, spec) {
        Some(spec) => run(&mut channel, &mut slots, &mut Varied::new(spec), &mut recorder),
        None => run(&mut channel, &mut slots, &mut Pattern::new(spec), &mut recorder),
    };
    if let Err(why) = ended {
        return Err(lost(&why));
    }
    with_stamps(&recorder.ios, &*stamps, first_stamp).ok_or_else(|| lost("a stamp is missing"))
}

fn run<S: Source>(
    channel: &mut Channel,
    slots: &mut Slots,
    source: &mut S,
    recorder: &mut Recorder,
) -> Result<(), String> {
    fn on<C: BlockChannel, S: Source>(
        channel: &mut C,
        slots: &mut Slots,
        source: &mut S,
        recorder: &mut Recorder,
    ) -> Result<(), String> {
        let (clock, mut faults) = (Clock::real(), Faults::default());
        let limit = Limit {
            until_ns: clock.now_ns() + TIME_MAX.as_nanos() as u64,
            max_ios: IOS_MAX as u64,
        };
        let mut engine =
            Engine { channel, slots, clock: &clock, stop: &signal::STOP, faults: &mut faults };
        let ended = engine.run(source, limit, recorder);
        match (ended, faults.first) {
            (Ended::Lost(why), _) | (_, Some(why)) => Err(why),
            _ => Ok(()),
        }
    }
    match channel {
        Channel::Nvme(channel) => on(channel, slots, source, recorder),
        Channel::Kernel(channel) => on(channel, slots, source, recorder),
    }
}

/// Keeps the host's times of each I/O, in the order of completion.
struct Recorder {
    ios: Vec<Seen>,
}

/// The host's times of an I/O.
#[derive(Debug, Clone, Copy)]
struct Seen {
    io: Io,
    rung_ns: u64,
}

impl Record for Recorder {
    #[inline(always)]
    fn done(&mut self, io: &Io, _: u64, clat_ns: u64, seen_ns: u64) {
        self.ios.push(Seen { io: *io, rung_ns: seen_ns - clat_ns });
    }

    fn submitted(&mut self, _: usize, _: u64) {}
    fn reaped(&mut self, _: u64) {}
    fn flushed(&mut self, _: u64) {}
}

/// Combines the host's times and the device's stamps: both are in the order of completion on one
/// queue. `None` if a stamp is missing.
fn with_stamps(seen: &[Seen], stamps: &dyn StampSource, first_stamp: u64) -> Option<Trace> {
    let start = Instant::now();
    while stamps.written() < first_stamp + seen.len() as u64 {
        if start.elapsed() > STAMP_PATIENCE {
            return None;
        }
        std::thread::yield_now();
    }
    let mut times = Vec::with_capacity(seen.len());
    for (at, seen) in seen.iter().enumerate() {
        let stamp = stamps.get(first_stamp + at as u64)?;
        // The host reads the clock after the doorbell, and may be descheduled in between.
        let rung_ns = seen.rung_ns.min(stamp.seen_ns);
        times.push((Seen { rung_ns, ..*seen }, stamp.written_ns));
    }
    Some(in_order(times))
}

/// Returns the I/Os in the order of submission.
fn in_order(mut times: Vec<(Seen, u64)>) -> Trace {
    times.sort_by_key(|(seen, _)| seen.rung_ns);
    let ios = times.into_iter().map(|(Seen { io, rung_ns }, written_ns)| sim::Io {
        kind: if io.dir == Dir::Read { Kind::Read } else { Kind::Write },
        bytes: io.bytes as u32,
        device_ns: written_ns.saturating_sub(rung_ns),
    });
    Trace { ios: ios.collect() }
}

/// The cost of waking up on this machine.
#[derive(Debug)]
pub(super) struct WakeCosts {
    /// Requested lengths of sleeps in ns, with their lateness.
    pub sleeps: Vec<(u64, Times)>,
    /// From an eventfd's signal until the thread that slept on it runs.
    pub interrupt: Times,
    /// CPU that the thread is charged for a sleep and for a wait by eventfd, in ns.
    pub cpu_ns: [u64; 2],
}

/// The lengths that are measured, and the number of sleeps of each.
const SLEEPS_NS: [u64; 6] = [1_000, 2_000, 5_000, 10_000, 20_000, 50_000];
const SLEEPS: usize = 500;

/// The sleep whose costs are used for all lengths.
const USUAL_SLEEP_NS: u64 = 10_000;

/// Time for which a core is idle before it is woken by an eventfd.
const IDLE: Duration = Duration::from_micros(20);

/// Number of batches of each, of which the calmest counts: a temporary disturbance by other
/// programs is not a cost of waking up.
const BATCHES: usize = 5;

/// Returns the result of `once`, which is [`SLEEPS`] sleeps, and the CPU that the thread is charged
/// for one of them, in ns.
fn charged<T>(once: impl FnOnce() -> T) -> (T, u64) {
    let before = ThreadUsage::of_thread();
    let done = once();
    let used = ThreadUsage::of_thread() - before;
    (done, (used.user_ns + used.system_ns) / SLEEPS as u64)
}

/// Returns the batch with the least mean.
fn calmest(batches: Vec<(Times, u64)>) -> (Times, u64) {
    let least = batches
        .into_iter()
        .min_by(|(one, _), (other, _)| one.mean_ns().total_cmp(&other.mean_ns()));
    least.unwrap_or_else(|| (Times::merged([]), 0))
}

impl WakeCosts {
    /// Measures this machine's costs, on the CPU where I/O is waited for.
    pub(super) fn measure() -> Result<Self, Failure> {
        let allowed = cpu::allowed();
        let thread = std::thread::spawn(move || {
            // As in the bench: the last CPU is the software SSD's.
            let mut other = None;
            if let [first, .., last] = allowed[..] {
                cpu::bind(&[first]).map_err(Failure::new)?;
                other = Some(last);
            }
            let clock = Clock::real();
            let mut interrupts = Vec::new();
            for _ in 0..BATCHES {
                let once = || calibrate::eventfd_wake(other, IDLE, SLEEPS);
                let (times, cpu_ns) = charged(once);
                interrupts.push((times.map_err(Failure::new)?, cpu_ns));
            }
            let (interrupt, interrupt_cpu_ns) = calmest(interrupts);
            let mut sleeps = Vec::new();
            let mut cpu_ns = [0, interrupt_cpu_ns];
            for asked_ns in SLEEPS_NS {
                let once = |_| charged(|| calibrate::oversleep(&clock, asked_ns, SLEEPS));
                let (times, sleep_cpu_ns) = calmest((0..BATCHES).map(once).collect());
                sleeps.push((asked_ns, times));
                if asked_ns == USUAL_SLEEP_NS {
                    cpu_ns[0] = sleep_cpu_ns;
                }
            }
            Ok(Self { sleeps, interrupt, cpu_ns })
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(Failure::new("measuring wake costs failed: please report it")))
    }

    /// Returns the lateness of a sleep of the usual length.
    pub(super) fn timer(&self) -> &Times {
        let usual = self.sleeps.iter().find(|(asked_ns, _)| *asked_ns == USUAL_SLEEP_NS);
        usual.map_or(&self.interrupt, |(_, times)| times)
    }

    fn csv(&self) -> String {
        let mut text = String::from("way,asked_ns,late_ns\n");
        for (asked_ns, times) in &self.sleeps {
            for late_ns in samples(times) {
                let _ = writeln!(text, "sleep,{asked_ns},{late_ns}");
            }
        }
        for late_ns in samples(&self.interrupt) {
            let _ = writeln!(text, "interrupt,0,{late_ns}");
        }
        text
    }
}

/// Returns all samples, ascending.
fn samples(times: &Times) -> Vec<u64> {
    let last = times.count().saturating_sub(1).max(1) as f64;
    (0..times.count()).map(|at| times.quantile_ns(at as f64 / last)).collect()
}

/// The directory of traces.
#[derive(Debug)]
pub(super) struct TraceDir(PathBuf);

impl TraceDir {
    /// Opens `path`, and creates it if it does not exist. Writes this machine's wake costs into it.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let made = std::fs::create_dir_all(path);
        made.map_err(|error| {
            Failure::new(format_args!("--traces: cannot make {}: {error}", path.display()))
        })?;
        let dir = Self(path.to_owned());
        output::can_replace(&dir.0.join("wake.csv"))
            .map_err(|error| dir.refused("wake.csv", &error))?;
        Ok(dir)
    }

    /// Writes this machine's wake costs.
    pub(super) fn write_wake(&self, costs: &WakeCosts) -> Result<(), Failure> {
        self.write("wake.csv", &costs.csv())
    }

    /// Writes the device times of a cell.
    pub(super) fn write_trace(&self, cell: &GridCell, trace: &Trace) -> Result<(), Failure> {
        let shape = cell.shape.words();
        let begin = format!(
            "# {}: {shape}\n# kind, bytes, device time in ns, in the order of submission\n",
            cell.name()
        );
        self.write(&file_name(cell), &(begin + &trace.to_string()))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.0.join(name);
        output::replace(&path, |out| out.write_all(text.as_bytes()))
            .map_err(|error| self.refused(name, &error))
    }

    fn refused(&self, name: &str, error: &std::io::Error) -> Failure {
        let dir = self.0.display();
        Failure::new(format_args!(
            "--traces: cannot write {name} in {dir}: {error}; give another directory"
        ))
    }
}

/// Reads the device times of a cell from `dir`.
pub(super) fn read(dir: &Path, cell: &GridCell) -> Result<Trace, Failure> {
    let path = dir.join(file_name(cell));
    let refused = |error: &dyn std::fmt::Display| {
        let shown = path.display();
        Failure::new(format_args!(
            "--replay: {shown}: {error}; make it by --traces, or leave the cell out by --filter"
        ))
    };
    let bytes = output::read_up_to(&path, TRACE_MAX_BYTES).map_err(|error| refused(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| refused(&"this is no text"))?;
    let trace: Trace = text.parse().map_err(|error| refused(&error))?;
    if trace.ios.is_empty() { Err(refused(&"it has no I/Os")) } else { Ok(trace) }
}

/// No trace is this large.
const TRACE_MAX_BYTES: u64 = 1 << 28;

fn file_name(cell: &GridCell) -> String {
    format!("{}.trace", cell.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::grid::Shape;

    #[test]
    fn device_times_are_in_the_order_of_submission() {
        let seen = |rung_ns| Seen { io: Io { dir: Dir::Write, lba: 0, bytes: 4096 }, rung_ns };
        let trace =
            in_order(vec![(seen(100), 160), (seen(150), 200), (seen(100), 250), (seen(300), 400)]);
        assert_eq!(trace.ios.iter().map(|io| io.device_ns).collect::<Vec<_>>(), [60, 150, 50, 100]);
        assert!(trace.to_string().starts_with("write 4096 60\n"));
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let cell = GridCell { device_ns: 4_100, shape: Shape::Sizes };
        let trace = Trace::of_reads([4_100, 4_200]);
        TraceDir::create(dir.path()).unwrap().write_trace(&cell, &trace).unwrap();
        assert_eq!(read(dir.path(), &cell).unwrap(), trace);
        let other = GridCell { device_ns: 4_200, shape: Shape::Sizes };
        assert!(read(dir.path(), &other).is_err());
        for text in ["", "read 4096\n", "\u{fffd}"] {
            std::fs::write(dir.path().join("4.2us-sizes.trace"), text).unwrap();
            assert!(read(dir.path(), &other).is_err(), "{text:?}");
        }
    }

    #[test]
    fn wake_costs_are_measured() {
        let costs = WakeCosts::measure().unwrap();
        assert_eq!(costs.sleeps.len(), SLEEPS_NS.len());
        assert!(costs.timer().count() == SLEEPS && costs.interrupt.count() == SLEEPS);
        assert!(costs.cpu_ns.iter().all(|ns| *ns > 0), "{:?}", costs.cpu_ns);
        assert_eq!(costs.csv().lines().count(), 1 + SLEEPS * (SLEEPS_NS.len() + 1));
    }

    #[test]
    fn every_sample_of_a_distribution_comes_back() {
        let times = calibrate::oversleep(&Clock::real(), 1_000, 7);
        let all = samples(&times);
        assert_eq!(all.len(), 7);
        assert_eq!((all[0], all[6]), (times.quantile_ns(0.0), times.quantile_ns(1.0)));
        assert!(all.is_sorted());
    }

    #[test]
    fn device_times_are_those_of_the_model() {
        for (shape, least_ns) in
            [(Shape::Constant, 10_000), (Shape::Sizes, 9_000), (Shape::Mix7030, 4_000)]
        {
            let cell = GridCell { device_ns: 10_000, shape };
            let trace = record(&cell, &mut Progress::hidden()).unwrap();
            assert!(trace.ios.len() > 10, "{}", trace.ios.len());
            assert!(trace.ios.iter().all(|io| io.device_ns >= least_ns));
            let writes = trace.ios.iter().any(|io| io.kind == Kind::Write);
            assert_eq!(writes, shape == Shape::Mix7030);
        }
        let deep = GridCell { device_ns: 20_000, shape: Shape::Depth4 };
        let trace = record(&deep, &mut Progress::hidden()).unwrap();
        assert!(trace.ios.len() > 10 && trace.ios.iter().all(|io| io.device_ns >= 5_000));
    }
}
