//! `meantime anatomy`: one I/O's time line.

mod fast12;
mod json;
mod measure;
mod results;
mod svg;
mod tally;
#[cfg(test)]
mod testing;
mod text;
mod timeline;

use std::process::ExitCode;
use std::time::Duration;

use meantime_bench::competitor::Competitors as _;
use meantime_bench::pattern::{Pattern, Rng};
use meantime_bench::plan::JobPlan;
use meantime_bench::run::{self, Devices, Progress as _};
use meantime_block::{BlockChannel as _, BlockDevice as _, ChannelOptions};
use meantime_completion::{Policy, calibrate};
use meantime_hw::{Clock, cpu};

use crate::bench::progress::Progress;
use crate::bench::{clash, plan};
use crate::cli::AnatomyArgs;
use crate::competitor::{CompetitorGroup, Kind, Sample};
use crate::failure::{Failure, named, warn};
use crate::job::{Job, Origin};
use crate::machine::Machine;
use crate::output::Outputs;
use crate::signal;

use measure::{Cell, Meter};
use results::{Anatomy, Bar};
use tally::Tally;

/// Length of a turn.
const TURN: Duration = Duration::from_millis(250);

/// Unrecorded I/O at the beginning of each turn.
const WARM_UP: Duration = Duration::from_millis(2);

/// The mean of `hybrid` is first known after 100 ms.
const FIRST_MEAN: Duration = Duration::from_millis(120);

/// Longer than a software SSD takes to park, so that its core is free for another one's thread.
const PARK_PAUSE: Duration = Duration::from_millis(4);

/// Time for which the competing program is measured alone, in each round.
const ALONE: Duration = Duration::from_millis(100);

const DEFAULT_RUNTIME: Duration = Duration::from_secs(2);

/// The request of the command line.
struct Request {
    uris: Vec<String>,
    /// One for each size.
    jobs: Vec<Job>,
    runtime: Duration,
    competitor: Option<Kind>,
}

/// Runs the command.
pub(crate) fn run(args: &AnatomyArgs) -> Result<ExitCode, Failure> {
    let request = request(args)?;
    let (json, svg) = (args.json.as_deref(), args.svg.as_deref());
    let outputs = Outputs::prepare_as(json, svg, ["the SVG", "--svg"])?;
    let inputs: Vec<_> = request.uris.iter().flat_map(|uri| clash::files_of(uri)).collect();
    clash::check(&inputs, &clash::named([("--json", &args.json), ("--svg", &args.svg)]))?;
    // From here on there are threads and devices to shut down properly.
    signal::catch();
    let mut devices =
        Devices::open_devices(&request.uris, request.jobs.iter().any(Job::writes), true)?;
    let indices = devices.indices(&request.uris);
    let plans = plans(&request, &devices, &indices)?;
    check_commands(&plans, &devices)?;
    let cpu = io_cpu(args, &devices, &indices)?;
    devices.keep_created();

    let mut progress = Progress::new(1);
    let measured = measure(&request, &plans, &mut devices, cpu, &mut progress);
    progress.clear();
    let anatomy = measured?;
    if anatomy.bars.is_empty() {
        signal::check(Some("ended by a signal before anything was measured"))?;
    }
    outputs.show(&text::report(&anatomy))?;
    outputs.write(|| json::report(&anatomy), || svg::draw(&anatomy))?;
    signal::check(Some("ended by a signal; the figures are those measured until then"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the plan for each size, checked against the devices.
fn plans(request: &Request, devices: &Devices, indices: &[usize]) -> Result<Vec<JobPlan>, Failure> {
    // One size after the other.
    let jobs = request.jobs.iter().map(|job| {
        let mut job = job.clone();
        job.stonewall = true;
        (job, indices.to_vec())
    });
    let groups = run::groups(jobs.collect())?;
    for group in &groups {
        run::check(std::slice::from_ref(group), devices, false)?;
    }
    Ok(groups.into_iter().flat_map(|group| group.plans).collect())
}

/// Returns the command line, checked as far as possible without devices.
fn request(args: &AnatomyArgs) -> Result<Request, Failure> {
    let uris = plan::distinct(&args.device)?;
    let origin = Origin::CommandLine;
    let mut base = Job::new("anatomy");
    let mut warnings = Vec::new();
    for (key, value) in [
        ("rw", Some(&args.rw)),
        ("completion", Some(&args.completion)),
        ("runtime", args.runtime.as_ref()),
    ] {
        if let Some(value) = value {
            warnings.extend(base.set(key, Some(value), &origin)?.map(|note| note.to_string()));
        }
    }
    if base.trims() {
        let what = "trims carry no data, whose time line this is; take reads or writes";
        return Err(Failure::usage(format_args!("--rw={}: {what}", args.rw)));
    }
    if base.reads() && base.writes() {
        let what = "reads and writes have different time lines; take one after the other";
        return Err(Failure::usage(format_args!("--rw={}: {what}", args.rw)));
    }
    let runtime = base.runtime.unwrap_or(DEFAULT_RUNTIME);
    (base.runtime, base.time_based) = (Some(runtime), Some(true));
    let mut jobs: Vec<Job> = Vec::new();
    for bytes in &args.bs {
        let mut job = base.clone();
        warnings.extend(job.set("bs", Some(bytes.trim()), &origin)?.map(|note| note.to_string()));
        job.validate()?;
        if jobs.iter().any(|other| other.bs_max_bytes() == job.bs_max_bytes()) {
            return Err(Failure::usage(format_args!("--bs: {bytes} is listed twice")));
        }
        jobs.push(job);
    }
    let competitor = Some(&args.competitor).filter(|text| *text != "none");
    let competitor = competitor
        .map(|text| text.parse())
        .transpose()
        .map_err(|what: String| Failure::usage(format_args!("--competitor: {what}, or none")))?;
    warnings.iter().for_each(warn);
    Ok(Request { uris, jobs, runtime, competitor })
}

/// Checks that each I/O is one command, as a time line requires.
fn check_commands(plans: &[JobPlan], devices: &Devices) -> Result<(), Failure> {
    // All of them have the same devices.
    let bytes = plans.iter().map(|plan| plan.job.bs_max_bytes()).max().unwrap_or(0);
    for index in plans.iter().flat_map(|plan| &plan.devices) {
        let info = devices.device(*index).info();
        let (uri, most) = (&info.uri, u64::from(info.max_transfer_bytes));
        if bytes > most {
            return Err(Failure::new(format_args!(
                "--bs={bytes}: {uri} takes at most {most} bytes in one command, and a time line is \
                 that of one; give a smaller --bs"
            )));
        }
    }
    Ok(())
}

/// Returns the CPU to do I/O on. It is not the CPU of a software SSD, unless there is no other.
fn io_cpu(args: &AnatomyArgs, devices: &Devices, indices: &[usize]) -> Result<usize, Failure> {
    let allowed = cpu::allowed();
    let ssd_cpus: Vec<usize> = indices.iter().filter_map(|index| devices.ssd_cpu(*index)).collect();
    if let Some(cpu) = args.cpu {
        if !allowed.contains(&cpu) {
            return Err(Failure::usage(format_args!(
                "--cpu={cpu}: this process may not use it; it may use {allowed:?}"
            )));
        }
        if ssd_cpus.contains(&cpu) {
            warn(format_args!("--cpu={cpu} is also a software SSD's: neither has it for itself"));
        }
        return Ok(cpu);
    }
    if allowed.len() == 1 {
        let what = "the software SSD and the I/O share it, and wait for each other";
        warn(format_args!("this process may use one CPU only: {what}"));
    }
    let free = allowed.iter().find(|cpu| !ssd_cpus.contains(cpu)).or(allowed.first());
    let none = || Failure::new("the kernel does not say which CPUs this process may use");
    free.copied().ok_or_else(none)
}

fn measure(
    request: &Request,
    plans: &[JobPlan],
    devices: &mut Devices,
    cpu: usize,
    progress: &mut Progress,
) -> Result<Anatomy, Failure> {
    // Probe before this thread is bound: the report has the number of the machine's CPUs.
    let machine = Machine::probe();
    progress.job();
    for plan in plans {
        run::fill(plan, devices, &signal::STOP, progress)?;
    }
    cpu::bind(&[cpu]).map_err(Failure::new)?;
    let started = request.competitor.map(|kind| CompetitorGroup::start(cpu, kind, 1));
    let mut competitor = started.transpose().map_err(Failure::new)?;
    let clock_read_ns = calibrate::clock_read_in_order(&Clock::real()).median_ns();
    let mut cells = cells(plans, devices)?;
    let alone = take_turns(request.runtime, &mut cells, devices, competitor.as_mut(), progress)?;
    let bars = cells.into_iter().map(|cell| cell.bar).filter(|bar| bar.alone.ios() > 0);
    Ok(Anatomy {
        rw: request.jobs[0].rw.as_str(),
        bars: bars.collect(),
        competitor: request.competitor.map(|kind| (kind, alone)),
        cpu,
        clock_read_ns,
        machine,
    })
}

/// Returns a cell for every device, size and policy.
fn cells(plans: &[JobPlan], devices: &Devices) -> Result<Vec<Cell>, Failure> {
    let mut cells = Vec::new();
    for device in &plans[0].devices {
        let (opened, uri) = (devices.device(*device), devices.uri(*device));
        let can = |policy: &Policy| opened.can_wait(*policy);
        let refused: Vec<_> =
            plans[0].policies.iter().filter_map(|policy| can(policy).err()).collect();
        match refused.first() {
            Some(error) if refused.len() == plans[0].policies.len() => {
                return Err(named(uri, error));
            }
            _ => refused.iter().for_each(|error| warn(format_args!("not measured: {error}"))),
        }
        for plan in plans {
            for policy in plan.policies.iter().filter(|policy| can(policy).is_ok()) {
                let options =
                    ChannelOptions { depth: 1, policy: Some(*policy), ..ChannelOptions::default() };
                let channel = opened.channel(&options).map_err(|error| named(uri, &error))?;
                let bytes = plan.job.bs_max_bytes();
                let mut buf = channel.alloc(bytes as usize).map_err(|error| named(uri, &error))?;
                Rng::new(bytes).fill(&mut buf);
                let bar = Bar {
                    device: uri.to_owned(),
                    stamped: opened.stamps().is_some(),
                    bytes,
                    policy: *policy,
                    alone: Tally::default(),
                    competing: Tally::default(),
                };
                let pattern = Pattern::new(plan.pattern(opened.info(), 0));
                cells.push(Cell { bar, device: *device, channel, pattern, buf: Some(buf) });
            }
        }
    }
    Ok(cells)
}

/// Runs the rounds: the competing program alone, then each cell, alone and with the competing
/// program. Returns the sample of the competing program alone.
fn take_turns(
    runtime: Duration,
    cells: &mut [Cell],
    devices: &Devices,
    mut competitor: Option<&mut CompetitorGroup>,
    progress: &mut Progress,
) -> Result<Sample, Failure> {
    let rounds = runtime.as_nanos().div_ceil(TURN.as_nanos()).max(1) as u32;
    let turn = runtime / rounds;
    let mut meter = Meter::new();
    let (steps, mut step) = (cells.len() * rounds as usize, 0);
    let (mut last_device, mut alone) = (None, Sample::default());
    for round in 0..rounds {
        if let Some(competitor) = &mut competitor {
            alone += competitor.alone(ALONE);
        }
        for cell in cells.iter_mut() {
            if signal::stopped() {
                return Ok(alone);
            }
            if last_device.replace(cell.device).is_some_and(|last| last != cell.device) {
                std::thread::sleep(PARK_PAUSE);
            }
            let device = devices.device(cell.device);
            progress.cell("anatomy", &cell.bar.device, cell.bar.policy);
            let learns = round == 0 && cell.bar.policy.learns();
            meter.warm_up(cell, device, if learns { FIRST_MEAN } else { WARM_UP })?;
            meter.measure(cell, device, turn, None)?;
            if let Some(competitor) = &mut competitor {
                competitor.resume();
                let measured = meter
                    .warm_up(cell, device, WARM_UP)
                    .and_then(|()| meter.measure(cell, device, turn, competitor.first()));
                competitor.pause();
                measured?;
            }
            step += 1;
            progress.done(step as f64 / steps as f64);
        }
    }
    Ok(alone)
}
