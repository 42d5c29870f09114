//! Device times, I/O by I/O, as the device stamped them; and what waking up costs here. A simulator can replay them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use meantime::block::{BlockChannel, BlockDevice, Channel, ChannelOptions, StampSource};
use meantime::completion::Policy;
use meantime::completion::calibrate::{self, Times};
use meantime::hw::{Clock, cpu};

use crate::bench::devices::Devices;
use crate::bench::engine::{Ended, Engine, Faults, Limit, Plain, Slots, Source};
use crate::bench::pattern::{Dir, Io, Pattern};
use crate::bench::plan::JobPlan;
use crate::bench::progress::Progress;
use crate::bench::tally::Record;
use crate::bench::varied::{Varied, VariedSpec};
use crate::bench::{cells, fill, group};
use crate::failure::{Failure, named};
use crate::output;
use crate::signal;

use super::grid::{GridCell, ModelFile};

/// So many I/Os of a cell at most; well below what a device keeps of its stamps.
const IOS_MAX: usize = 20_000;

/// For so long at most.
const TIME_MAX: Duration = Duration::from_millis(500);

/// How long the last stamp may take to appear after its completion.
const STAMP_PATIENCE: Duration = Duration::from_secs(2);

/// One I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceIo {
    /// Direction.
    pub dir: Dir,
    /// Size.
    pub bytes: usize,
    /// How many were in flight when it was submitted, itself included.
    pub in_flight: usize,
    /// When its doorbell was rung, since the first one's.
    pub submitted_ns: u64,
    /// From then until the completion was written.
    pub device_ns: u64,
}

/// The device times of `cell`, by classic polling, in the order of submission.
pub fn record(cell: &GridCell, progress: &mut Progress) -> Result<Vec<TraceIo>, Failure> {
    let model = ModelFile::create(cell)?;
    let uri = cell.uri(&model.path());
    let mut devices = Devices::open(std::slice::from_ref(&uri), true)?;
    let job = cell.job(&[Policy::Poll], TIME_MAX, None)?;
    let groups = group::groups(vec![(job, devices.indices(std::slice::from_ref(&uri)))])?;
    let (group, plan) = (&groups[0], &groups[0].plans[0]);
    fill::fill(plan, &mut devices, progress)?;
    let cpus = cells::thread_cpus(plan, group, &devices);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            cpu::bind(&cpus).map_err(Failure::new)?;
            poll(plan, &devices)
        });
        thread.join().unwrap_or_else(|_| Err(Failure::new("recording device times failed: please report it")))
    })
}

fn poll(plan: &JobPlan, devices: &Devices) -> Result<Vec<TraceIo>, Failure> {
    let (device, uri) = (devices.get(plan.devices[0]), devices.uri(plan.devices[0]));
    let lost = |why: &str| Failure::new(format_args!("{uri}: recording device times: {why}"));
    let stamps = device.stamps().ok_or_else(|| lost("the device takes no stamps"))?;
    let depth = plan.job.iodepth;
    let options = ChannelOptions { depth: depth as u16, policy: Policy::Poll, interrupt: None };
    let mut channel = device.channel(&options).map_err(|error| named(uri, &error))?;
    let mut slots = Slots::new(&channel, depth as usize, plan.job.bs_max_bytes() as usize)
        .map_err(|error| named(uri, &error))?;
    let spec = plan.pattern(device.info(), 0);
    let mut recorder = Recorder { ios: Vec::with_capacity(IOS_MAX + depth as usize) };
    let first_stamp = stamps.written();
    let ended = match VariedSpec::of(&plan.job, spec) {
        Some(spec) => run(&mut channel, &mut slots, &mut Varied::new(spec), &mut recorder),
        None => run(&mut channel, &mut slots, &mut Plain(Pattern::new(spec)), &mut recorder),
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
        let limit = Limit { until_ns: clock.now_ns() + TIME_MAX.as_nanos() as u64, max_ios: IOS_MAX as u64 };
        let mut engine = Engine { channel, slots, clock: &clock, stop: &signal::STOP, faults: &mut faults };
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

/// Keeps what the host sees of each I/O, in the order of completion.
struct Recorder {
    ios: Vec<Seen>,
}

/// What the host sees of an I/O.
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

/// What the host has seen, and what the device has stamped: both in the order of completion on one queue. `None`: a stamp is missing.
fn with_stamps(seen: &[Seen], stamps: &dyn StampSource, first_stamp: u64) -> Option<Vec<TraceIo>> {
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
        // The host's reading comes after the doorbell, and it may have been descheduled in between.
        let rung_ns = seen.rung_ns.min(stamp.seen_ns);
        times.push((Seen { rung_ns, ..*seen }, stamp.written_ns));
    }
    Some(in_order(times))
}

/// In the order of submission, with how many were in flight then.
fn in_order(mut times: Vec<(Seen, u64)>) -> Vec<TraceIo> {
    times.sort_by_key(|(seen, _)| seen.rung_ns);
    let begin_ns = times.first().map_or(0, |(seen, _)| seen.rung_ns);
    let mut under_way: Vec<u64> = Vec::new();
    let trace = times.into_iter().map(|(Seen { io, rung_ns }, written_ns)| {
        under_way.retain(|written_ns| *written_ns > rung_ns);
        under_way.push(written_ns);
        TraceIo {
            dir: io.dir,
            bytes: io.bytes,
            in_flight: under_way.len(),
            submitted_ns: rung_ns - begin_ns,
            device_ns: written_ns.saturating_sub(rung_ns),
        }
    });
    trace.collect()
}

/// A cell's device times as a file.
fn csv(trace: &[TraceIo]) -> String {
    let mut text = String::from("direction,bytes,in_flight,submitted_ns,device_ns\n");
    for io in trace {
        let dir = if io.dir == Dir::Read { "read" } else { "write" };
        let _ = writeln!(text, "{dir},{},{},{},{}", io.bytes, io.in_flight, io.submitted_ns, io.device_ns);
    }
    text
}

/// How late sleeps of some length end here.
#[derive(Debug)]
pub struct WakeCosts {
    /// Asked for in ns, and the samples in ns.
    pub sleeps: Vec<(u64, Vec<u64>)>,
}

/// The lengths that are measured, and how often.
const SLEEPS_NS: [u64; 6] = [1_000, 2_000, 5_000, 10_000, 20_000, 50_000];
const SLEEPS: usize = 500;

impl WakeCosts {
    /// This machine's, on the CPU where I/O is waited for.
    pub fn measure() -> Result<Self, Failure> {
        let allowed = cpu::allowed();
        let thread = std::thread::spawn(move || {
            // As the bench: the last one is the software SSD's.
            if let [first, .., _] = allowed[..] {
                cpu::bind(&[first]).map_err(Failure::new)?;
            }
            let clock = Clock::real();
            let of = |asked_ns: u64| (asked_ns, samples(&calibrate::oversleep(&clock, asked_ns, SLEEPS)));
            Ok(Self { sleeps: SLEEPS_NS.into_iter().map(of).collect() })
        });
        thread.join().unwrap_or_else(|_| Err(Failure::new("measuring wake costs failed: please report it")))
    }

    fn csv(&self) -> String {
        let mut text = String::from("asked_ns,late_ns\n");
        for (asked_ns, samples) in &self.sleeps {
            for late_ns in samples {
                let _ = writeln!(text, "{asked_ns},{late_ns}");
            }
        }
        text
    }
}

/// All samples, ascending.
fn samples(times: &Times) -> Vec<u64> {
    let last = times.count().saturating_sub(1).max(1) as f64;
    (0..times.count()).map(|at| times.quantile_ns(at as f64 / last)).collect()
}

/// Where traces go.
#[derive(Debug)]
pub struct TraceDir(PathBuf);

impl TraceDir {
    /// `path`, made if it is not there; with this machine's wake costs in it.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let made = std::fs::create_dir_all(path);
        made.map_err(|error| {
            Failure::new(format_args!("--traces: cannot make {}: {error}", path.display()))
        })?;
        let dir = Self(path.to_owned());
        output::can_replace(&dir.0.join("wake.csv")).map_err(|error| dir.refused("wake", &error))?;
        Ok(dir)
    }

    /// Writes this machine's wake costs.
    pub fn write_wake(&self, costs: &WakeCosts) -> Result<(), Failure> {
        self.write("wake", &costs.csv())
    }

    /// Writes the device times of a cell.
    pub fn write_trace(&self, cell: &GridCell, trace: &[TraceIo]) -> Result<(), Failure> {
        self.write(&cell.name(), &csv(trace))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.0.join(format!("{name}.csv"));
        output::replace(&path, |out| out.write_all(text.as_bytes()))
            .map_err(|error| self.refused(name, &error))
    }

    fn refused(&self, name: &str, error: &std::io::Error) -> Failure {
        let dir = self.0.display();
        Failure::new(format_args!(
            "--traces: cannot write {name}.csv in {dir}: {error}; give another directory"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::grid::Shape;

    #[test]
    fn what_was_in_flight_is_counted_at_submission() {
        let seen = |rung_ns| Seen { io: Io { dir: Dir::Read, lba: 0, bytes: 4096 }, rung_ns };
        // Submitted at 100 (twice), 150 and 300; written at 160, 200, 250 and 400.
        let trace = in_order(vec![(seen(100), 160), (seen(150), 200), (seen(100), 250), (seen(300), 400)]);
        let found: Vec<(usize, u64, u64)> =
            trace.iter().map(|io| (io.in_flight, io.submitted_ns, io.device_ns)).collect();
        assert_eq!(found, [(1, 0, 60), (2, 0, 150), (3, 50, 50), (1, 200, 100)]);
        assert_eq!(csv(&trace[..1]), "direction,bytes,in_flight,submitted_ns,device_ns\nread,4096,1,0,60\n");
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
        for (shape, least_ns) in [(Shape::Constant, 10_000), (Shape::Sizes, 9_000), (Shape::Mix7030, 4_000)] {
            let cell = GridCell { device_ns: 10_000, shape };
            let trace = record(&cell, &mut Progress::hidden()).unwrap();
            assert!(trace.len() > 10, "{}", trace.len());
            assert!(trace.iter().all(|io| io.device_ns >= least_ns && io.in_flight == 1));
            let writes = trace.iter().any(|io| io.dir == Dir::Write);
            assert_eq!(writes, shape == Shape::Mix7030);
        }
        let deep = GridCell { device_ns: 20_000, shape: Shape::Depth4 };
        let trace = record(&deep, &mut Progress::hidden()).unwrap();
        assert_eq!(trace.iter().map(|io| io.in_flight).max(), Some(4));
    }
}
