//! Device times of each I/O, from the device's stamps or from a file, and the cost of waking up
//! here.

use std::path::Path;
use std::time::{Duration, Instant};

use meantime_baselines::sim::{self, Trace};
use meantime_bench::engine::Source as _;
use meantime_bench::pattern::{Dir, Io, Pattern};
use meantime_bench::plan::JobPlan;
use meantime_bench::run::{Devices, fill, groups, thread_cpus};
use meantime_bench::varied::{Varied, VariedSpec};
use meantime_block::{
    BlockChannel as _, BlockDevice as _, ChannelOptions, DeviceStamp, Request, StampSource,
};
use meantime_completion::calibrate::{self, Times};
use meantime_completion::{Kind, Policy};
use meantime_hw::{Clock, ThreadUsage, cpu};

use crate::bench::progress::Progress;
use crate::failure::{Failure, named};
use crate::output;
use crate::signal;

use super::grid::{GridCell, ModelFile};

/// The maximum number of I/Os of a cell. It is far smaller than the number of stamps that a device
/// keeps.
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

/// Records one I/O after the other: references are for one in flight.
fn poll(plan: &JobPlan, devices: &Devices) -> Result<Trace, Failure> {
    let (device, uri) = (devices.device(plan.devices[0]), devices.uri(plan.devices[0]));
    let lost = |why: &str| Failure::new(format_args!("{uri}: recording device times: {why}"));
    let failed = |error: &(dyn std::error::Error + 'static)| named(uri, error);
    let stamps = device.stamps().ok_or_else(|| lost("the device takes no stamps"))?;
    let options =
        ChannelOptions { depth: 1, policy: Some(Policy::Poll), ..ChannelOptions::default() };
    let mut channel = device.channel(&options).map_err(|error| failed(&error))?;
    let buf = channel.alloc(plan.job.bs_max_bytes() as usize).map_err(|error| failed(&error))?;
    let (mut spare, clock) = (Some(buf), Clock::real());
    let spec = plan.pattern(device.info(), 0);
    let mut next: Box<dyn FnMut() -> Option<Io>> = match VariedSpec::of(&plan.job, spec) {
        Some(spec) => {
            let mut varied = Varied::new(spec);
            Box::new(move || varied.next())
        }
        None => {
            let mut pattern = Pattern::new(spec);
            Box::new(move || pattern.next())
        }
    };
    let (begun, first_stamp) = (Instant::now(), stamps.written());
    let mut ios = Vec::with_capacity(IOS_MAX);
    while ios.len() < IOS_MAX && begun.elapsed() < TIME_MAX && !signal::stopped() {
        let Some(io) = next() else { break };
        let mut buf = spare.take().ok_or_else(|| lost("the device kept a buffer"))?;
        buf.set_len(io.bytes);
        let request = match io.dir {
            Dir::Read => Request::read(io.lba, buf),
            _ => Request::write(io.lba, buf),
        };
        let ticket = channel.submit(request).map_err(|rejected| failed(&rejected.error))?;
        let rung_ns = clock.now_ns();
        let done = channel.wait(ticket);
        done.result.map_err(|error| failed(&error))?;
        spare = done.buf;
        let stamp = stamp(&*stamps, first_stamp + ios.len() as u64);
        let stamp = stamp.ok_or_else(|| lost("a stamp is missing"))?;
        ios.push(sim::Io {
            kind: if io.dir == Dir::Read { Kind::Read } else { Kind::Write },
            bytes: io.bytes as u32,
            // The host reads the clock after the doorbell, and may be descheduled in between.
            device_ns: stamp.written_ns.saturating_sub(rung_ns.min(stamp.seen_ns)),
        });
    }
    Ok(Trace { ios })
}

/// Returns the stamp of a command that has ended. It is written a little later than the completion.
fn stamp(stamps: &dyn StampSource, index: u64) -> Option<DeviceStamp> {
    let begun = Instant::now();
    while stamps.written() <= index && begun.elapsed() < STAMP_PATIENCE {
        std::thread::yield_now();
    }
    stamps.get(index)
}

/// The cost of waking up on this machine.
#[derive(Debug)]
pub(super) struct WakeCosts {
    /// The time by which a sleep ends late.
    pub timer: Times,
    /// The time from an eventfd's signal until the thread that slept on it runs.
    pub interrupt: Times,
    /// CPU that the thread is charged for a sleep and for a wait by eventfd, in ns.
    pub cpu_ns: [u64; 2],
}

/// The sleep whose costs are used for all lengths.
const SLEEP_NS: u64 = 10_000;
/// Number of sleeps.
const SLEEPS: usize = 500;

/// Time for which a core is idle before it is woken by an eventfd.
const IDLE: Duration = Duration::from_micros(20);

/// The number of batches of each measurement, of which the calmest counts: a temporary disturbance
/// by other programs is not a cost of waking up.
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
            // As in the bench, the last CPU is the software SSD's.
            let mut other = None;
            if let [first, .., last] = allowed[..] {
                cpu::bind(&[first]).map_err(Failure::new)?;
                other = Some(last);
            }
            let clock = Clock::real();
            let mut interrupts = Vec::new();
            for _ in 0..BATCHES {
                let (times, cpu_ns) = charged(|| calibrate::eventfd_wake(other, IDLE, SLEEPS));
                interrupts.push((times.map_err(Failure::new)?, cpu_ns));
            }
            let (interrupt, interrupt_cpu_ns) = calmest(interrupts);
            let sleep = |_| charged(|| calibrate::oversleep(&clock, SLEEP_NS, SLEEPS));
            let (timer, timer_cpu_ns) = calmest((0..BATCHES).map(sleep).collect());
            Ok(Self { timer, interrupt, cpu_ns: [timer_cpu_ns, interrupt_cpu_ns] })
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(Failure::new("measuring wake costs failed: please report it")))
    }
}

/// Reads the device times of a cell from `dir`.
pub(super) fn read(dir: &Path, cell: &GridCell) -> Result<Trace, Failure> {
    let path = dir.join(format!("{}.trace", cell.name()));
    let refused = |error: &dyn std::fmt::Display| {
        let shown = path.display();
        Failure::new(format_args!("--replay: {shown}: {error}; leave the cell out by --filter"))
    };
    let bytes = output::read_up_to(&path, TRACE_MAX_BYTES).map_err(|error| refused(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| refused(&"this is no text"))?;
    let trace: Trace = text.parse().map_err(|error| refused(&error))?;
    if trace.ios.is_empty() { Err(refused(&"it has no I/Os")) } else { Ok(trace) }
}

/// The maximum size of a trace. No trace is this large.
const TRACE_MAX_BYTES: u64 = 1 << 28;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::grid::Shape;

    #[test]
    fn a_trace_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let cell = GridCell { device_ns: 4_100, shape: Shape::Sizes };
        let trace = Trace::of_reads([4_100, 4_200]);
        std::fs::write(dir.path().join("4.1us-sizes.trace"), trace.to_string()).unwrap();
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
        assert!(costs.timer.count() == SLEEPS && costs.interrupt.count() == SLEEPS);
        assert!(costs.cpu_ns.iter().all(|ns| *ns > 0), "{:?}", costs.cpu_ns);
    }

    #[test]
    fn device_times_are_those_of_the_model() {
        for (shape, least_ns) in
            [(Shape::Constant, 10_000), (Shape::Sizes, 9_000), (Shape::Mix7030, 4_000)]
        {
            let cell = GridCell { device_ns: 10_000, shape };
            let trace = record(&cell, &mut Progress::hidden(1)).unwrap();
            assert!(trace.ios.len() > 10, "{}", trace.ios.len());
            assert!(trace.ios.iter().all(|io| io.device_ns >= least_ns));
            let writes = trace.ios.iter().any(|io| io.kind == Kind::Write);
            assert_eq!(writes, shape == Shape::Mix7030);
        }
    }
}
