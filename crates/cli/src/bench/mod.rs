//! `meantime bench`: runs jobs, compares devices and policies.

mod against;
mod changed;
pub(crate) mod clash;
mod goals;
mod live;
mod log_files;
pub(crate) mod plan;
pub(crate) mod progress;
mod watch;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::SystemTime;

use meantime_bench::run::{self, Devices, Group, LeftOut, Rtts, RunOptions};
use meantime_report::figures::{median, wrapped};
use meantime_report::results::Report;
use meantime_report::run::{RunResult, report_json, run_text};
use serde_json::{Map, Value, json};

use crate::cli::BenchArgs;
use crate::competitor::CompetitorGroup;
use crate::failure::{Context as _, FAILED, Failure, warn};
use crate::machine::{Machine, PROGRAM, command_line};
use crate::output::{self, Outputs, Tables};
use crate::{metrics, signal};

use changed::Control;
use log_files::LogFiles;
use progress::Progress;
use watch::Printer;

/// All results.
#[derive(Default)]
struct Measured {
    results: Vec<RunResult>,
    left_out: Vec<LeftOut>,
    logs: LogFiles,
    /// The name and the cache-line time of each group.
    rtts: Vec<(String, Rtts)>,
    /// The most memory of a group that devices may read and write, in bytes.
    dma_bytes: usize,
}

/// Runs the command.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    if let Some(other) = &args.against {
        return against::run(args, other);
    }
    let (jobs, warnings) = plan::jobs(args)?;
    let wanted = jobs.iter().map(|job| plan::wanted(job, args)).collect::<Result<Vec<_>, _>>()?;
    output::check_distinct(&[
        ("--json", args.json.as_deref()),
        ("--html", args.html.as_deref()),
        ("--csv", args.tables.csv.as_deref()),
        ("--markdown", args.tables.markdown.as_deref()),
        ("--output", args.output.as_deref()),
    ])?;
    let outputs = Outputs::prepare(args.json.as_deref(), args.html.as_deref())?;
    let outputs = outputs.with(Tables::prepare(&args.tables)?).with_text(args.output.as_deref())?;
    // From here on there are threads and devices to shut down properly.
    signal::catch();
    signal::catch_status();
    let _metrics = metrics::serve(args.metrics.as_deref())?;
    let writes = |device: &str| {
        let mut writing = jobs.iter().zip(&wanted).filter(|(job, _)| job.changes());
        writing.any(|(_, wanted)| wanted.iter().any(|one| one.device == device))
    };
    let mut devices = Devices::open(&wanted.concat(), writes, false)?;
    let jobs = jobs.into_iter().zip(&wanted).map(|(job, wanted)| (job, devices.indices_of(wanted)));
    let mut groups = run::groups(jobs.collect())?;
    let mut measured = Measured::default();
    for group in &mut groups {
        measured.left_out.extend(run::leave_out(group, &devices)?);
    }
    run::batches(&groups).try_for_each(|batch| run::check(batch, &devices, args.floor))?;
    clash::check_run(args, &wanted.concat(), &groups)?;
    log_files::prepare(&groups)?;
    devices.keep_created();
    warnings.iter().for_each(warn);
    let machine = Machine::probe();
    let control = Control::serve(!args.no_control);

    let failed = run_groups(args, &groups, &mut devices, &mut measured, &outputs);
    let unmounted = devices.unmount();
    if !measured.results.is_empty() {
        let mut facts = facts(&measured, &machine, devices.page_kind());
        facts.insert("policies_changed".to_owned(), control.json());
        let report = report_json(&measured.results, &[], facts, SystemTime::now());
        let page = Report::new(&[(None, report.clone())]).context("cannot make the report")?;
        outputs.show(&summary(&measured, &page, &machine, devices.page_kind()))?;
        outputs.show(&control.text())?;
        outputs.write(|| report, || page.page(PROGRAM))?;
        outputs.write_tables(&page)?;
        std::mem::take(&mut measured.logs).write()?;
    }
    failed?;
    unmounted?;
    signal::check(Some(match measured.results.is_empty() {
        true => "ended by a signal before anything was measured",
        false => "ended by a signal; the results are those measured until then",
    }))?;
    let bad = measured.results.iter().any(|result| result.errors + result.verify_errors > 0);
    Ok(if bad { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

fn run_groups(
    args: &BenchArgs,
    groups: &[Group],
    devices: &mut Devices,
    measured: &mut Measured,
    outputs: &Outputs,
) -> Result<(), Failure> {
    let count = run::batches(groups).count();
    let mut progress = match args.quiet {
        true => Progress::hidden(count),
        false => Progress::with_lines(count, args.status_interval),
    };
    if args.live {
        progress = progress.with_text();
    }
    let mut printer = Printer::new(args, outputs.take_stdout(), progress.bar());
    for batch in run::batches(groups).take_while(|_| !signal::stopped()) {
        printer.beside(batch, devices);
        let outcome = printer.during(|watch| {
            let (rounds, floor) = (args.rounds, args.floor);
            let options = RunOptions { rounds, floor, stop: &signal::STOP, watch };
            run::run::<CompetitorGroup, _>(batch, devices, &options, &mut progress)
        });
        let outcome = outcome?.inspect_err(|_| progress.clear())?;
        let mut text = String::new();
        for mut job in outcome.results {
            let logged = measured.logs.add(&mut job);
            let result = job.into_result();
            text += &run_text(&result);
            text += &logged;
            text.push('\n');
            measured.results.push(result);
        }
        progress.above(|| outputs.show(&text))?;
        measured.rtts.push((name_of(batch), outcome.rtts));
        measured.dma_bytes = measured.dma_bytes.max(outcome.dma_bytes);
    }
    progress.clear();
    Ok(())
}

/// Returns the name of groups that had turns one after the other.
fn name_of(batch: &[Group]) -> String {
    match batch {
        [one] => one.name(),
        [first, rest @ ..] => format!("{} and {} more", first.name(), rest.len()),
        [] => String::new(),
    }
}

/// Returns the table, its legend, disturbances of its figures, and the machine.
fn summary(
    measured: &Measured,
    report: &Report,
    machine: &Machine,
    page_kind: Option<&str>,
) -> String {
    let columns = output::columns();
    let mut text = report.table(columns);
    let mut caption =
        "Latencies from submission to having seen the completion; CPU is user + system time of the \
         waiting threads \
         over wall time; ± is the standard deviation of the turns' figures, in percent of their \
         mean; \"vs\" is the change of the mean against the device's first row"
            .to_owned();
    if measured.results.iter().any(|result| result.floor_ratio.is_some()) {
        caption += "; floor ratio is the median, over all turns, of a turn's median latency to the \
                    floor around it";
    }
    if measured.results.iter().any(|result| result.competitor_percent.is_some()) {
        caption += "; rival: the share of their lone speed that the competing programs on the same \
                    CPU kept";
    }
    caption += ".";
    let _ = writeln!(text, "{}", wrapped(&caption, columns));
    for line in measured.results.iter().filter_map(goals::missed) {
        let _ = writeln!(text, "{line}");
    }
    let left_out: BTreeSet<&String> = measured.left_out.iter().map(|one| &one.why).collect();
    for why in left_out {
        let _ = writeln!(text, "Not measured: {why}");
    }
    text += &report.warnings(columns);
    let _ = writeln!(text, "\n{}", machine.line());
    let _ = writeln!(text, "DMA memory in {}", page_kind.unwrap_or("pages of unknown kind"));
    let rtts: Vec<String> =
        measured.rtts.iter().filter_map(|(name, rtts)| rtt_text(name, rtts)).collect();
    if !rtts.is_empty() {
        let _ = writeln!(text, "Cache-line round trip: {}", rtts.join("; "));
        let (repeated, disturbed) = moves(measured);
        if repeated + disturbed > 0 {
            let _ = writeln!(
                text,
                "The CPUs moved: of the turns around which it changed by more than half, \
                 {repeated} were repeated and {disturbed} counted all the same"
            );
        }
    }
    text
}

fn rtt_text(name: &str, rtts: &Rtts) -> Option<String> {
    let (before_ns, after_ns) = rtts.ends_ns()?;
    let (low, high) = (rtts.probes_ns.iter().min()?, rtts.probes_ns.iter().max()?);
    Some(format!("{name} {before_ns} ns before, {after_ns} after ({low} to {high})"))
}

/// Returns two numbers of turns around which the cache-line time changed: turns that were repeated,
/// and turns that were counted nevertheless.
fn moves(measured: &Measured) -> (u64, u64) {
    let sum = |of: fn(&Rtts) -> u64| measured.rtts.iter().map(|(_, rtts)| of(rtts)).sum();
    (sum(|rtts| rtts.repeated), sum(|rtts| rtts.disturbed))
}

/// Returns the JSON's `meantime` object.
fn facts(measured: &Measured, machine: &Machine, page_kind: Option<&str>) -> Map<String, Value> {
    let mut facts = machine.json();
    let (repeated, disturbed) = moves(measured);
    let probes: Vec<u64> =
        measured.rtts.iter().flat_map(|(_, rtts)| rtts.probes_ns.iter().copied()).collect();
    let probes_ns: Vec<f64> = probes.iter().map(|ns| *ns as f64).collect();
    let by_job = measured.rtts.iter().map(|(name, rtts)| {
        let (before_ns, after_ns) = rtts.ends_ns().unzip();
        json!({ "jobname": name, "before": before_ns, "after": after_ns })
    });
    facts.insert("command".to_owned(), command_line());
    facts.insert("dma_pages".to_owned(), json!(page_kind));
    facts.insert("dma_bytes".to_owned(), json!(measured.dma_bytes));
    facts.insert("cacheline_rtt_ns".to_owned(), json!(median(&probes_ns)));
    facts.insert("cacheline_rtt_ns_by_job".to_owned(), by_job.collect());
    facts.insert("turns_repeated".to_owned(), json!(repeated));
    facts.insert("turns_disturbed".to_owned(), json!(disturbed));
    facts.insert("left_out".to_owned(), measured.left_out.iter().map(left_out_json).collect());
    facts.insert("interrupted".to_owned(), json!(signal::stopped()));
    facts
}

fn left_out_json(left_out: &LeftOut) -> Value {
    json!({
        "jobname": left_out.job,
        "device": left_out.device,
        "completion": left_out.policy.to_string(),
        "why": left_out.why,
    })
}
