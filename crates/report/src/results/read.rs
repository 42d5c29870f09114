//! Reads results from a report file's JSON: ours and fio's. An impossible value is an error with
//! its place in the file, what was expected and what was found.

use std::collections::BTreeMap;

use itertools::Itertools as _;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::latency::Latency;
use super::model::{LeftOut, Run, Source, Spread};
use super::workload::Workload;
use crate::machine::{command, fact};
use crate::run::{SLOWEST_ONE_IN, SeriesPoint, Settings, Turn};

const WANTED: &str =
    "the JSON of `meantime bench --json` or of `fio --output-format=json` (or json+)";

/// Finds the JSON in `bytes`. fio mixes its warnings with it, and its text may follow
/// (`--output-format=json,normal`).
pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(format!("this is no text: expected {WANTED}"));
    };
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let is_json = text.starts_with(['{', '[', '"']);
    let begin = if is_json { 0 } else { text.find("\n{").map_or(0, |at| at + 1) };
    let first = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<Value>().next();
    let Some(value) = first else { return Err(format!("the file is empty: expected {WANTED}")) };
    value.map_err(|error| {
        let begins: String = text.lines().next().unwrap_or("").chars().take(40).collect();
        if error.is_eof() {
            let line = error.line();
            return format!(
                "the JSON ends in its middle (line {line}): was the run or a copy cut off?"
            );
        }
        format!(
            "this is no JSON ({error}): expected {WANTED}, found a text that begins with {begins:?}"
        )
    })
}

/// The file itself, its results, and what it could not measure.
pub(super) type Parsed = (Source, Vec<Run>, Vec<LeftOut>);

/// Keys that deliberately slow a thread down.
const PACES: [&str; 4] = ["rate", "rate_iops", "thinktime", "latency_target"];

/// A figure from 0 on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
struct Figure(f64);

impl TryFrom<f64> for Figure {
    type Error = String;

    fn try_from(figure: f64) -> Result<Self, String> {
        let wrong = || format!("expected a number from 0 on, found {figure}");
        (figure >= 0.0).then_some(Self(figure)).ok_or_else(wrong)
    }
}

/// The parts of a file that the report needs.
#[derive(Deserialize)]
struct File {
    #[serde(rename = "fio version")]
    tool: String,
    time: Option<String>,
    #[serde(default, rename = "global options")]
    global: Map<String, Value>,
    jobs: Vec<Job>,
    #[serde(default)]
    meantime: Map<String, Value>,
}

/// The parts of a job that the report needs.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Job {
    jobname: Option<String>,
    groupid: Option<u64>,
    error: Option<i64>,
    errors: Option<u64>,
    verify_errors: Option<u64>,
    #[serde(default, rename = "job options")]
    options: Map<String, Value>,
    read: Direction,
    write: Direction,
    job_runtime: Option<Figure>,
    usr_cpu: Option<Figure>,
    sys_cpu: Option<Figure>,
    medium: Option<String>,
    slowest_1_in_6000_ns: Option<Figure>,
    floor_ns: Option<Figure>,
    floor_ratio: Option<Figure>,
    competitor_percent: Option<Figure>,
    energy_uj_per_io: Option<Figure>,
    #[serde(default)]
    series: Vec<SeriesPoint>,
    #[serde(default)]
    turns: Vec<Turn>,
    #[serde(default)]
    sweep: BTreeMap<String, String>,
}

/// Reads or writes.
#[derive(Default, Deserialize)]
#[serde(default, expecting = "an object")]
struct Direction {
    iops: Option<Figure>,
    runtime: Option<Figure>,
    lat_ns: Distribution,
    clat_ns: Distribution,
}

/// A latency.
#[derive(Default, Deserialize)]
struct Distribution {
    #[serde(rename = "N")]
    n: u64,
    min: Figure,
    max: Figure,
    mean: Figure,
    bins: Option<BTreeMap<u64, u64>>,
    percentile: Option<BTreeMap<String, Figure>>,
}

/// Deserialises a value. The error names the place of what is wrong.
fn take<'a, T: Deserialize<'a>>(value: &'a Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| error.to_string())
}

/// Reads the JSON of a report, which is in the file at `path`, if it is in any, and the source of
/// this number.
pub(super) fn read(at: usize, path: &Option<String>, report: &Value) -> Result<Parsed, String> {
    if !report.is_object() {
        return Err(format!("the file: expected an object, found {}", found(report)));
    }
    for key in ["jobs", "fio version"] {
        let what = || format!("no \"{key}\" in it: expected {WANTED}, found {}", found(report));
        report.get(key).ok_or_else(what)?;
    }
    let file: File = take(report)?;
    let told = file.meantime.iter().filter_map(|(name, value)| Some((name.clone(), fact(value)?)));
    let tool = Some(("tool".to_owned(), file.tool.replacen('-', " ", 1)));
    let time = file.time.map(|time| ("time".to_owned(), time.trim().to_owned()));
    let source = Source {
        path: path.clone(),
        command: file.meantime.get("command").and_then(command),
        facts: tool.into_iter().chain(time).chain(told).collect(),
        ..Source::default()
    };
    if file.jobs.is_empty() {
        return Err("\"jobs\" is empty: there is nothing to report".to_owned());
    }
    let runs = file.jobs.into_iter().map(|job| run(job, &file.global, at, source.is_fio()));
    let runs = runs.collect();
    let left_out = file.meantime.get("left_out").map(take).transpose();
    let left_out: Option<Vec<LeftOut>> =
        left_out.map_err(|error| format!("meantime.left_out: {error}"))?;
    let mut left_out = left_out.unwrap_or_default();
    left_out.iter_mut().for_each(|one| one.source = at);
    Ok((source, runs, left_out))
}

fn run(job: Job, global: &Map<String, Value>, at: usize, is_fio: bool) -> Run {
    // A job's own keys take the place of those of all jobs.
    let mut options = global.clone();
    options.extend(job.options);
    let of = |key: &str| options.get(key).and_then(Value::as_str);
    let positive = |of: Option<Figure>| figure(of).filter(|figure| *figure > 0.0);
    let mut run = Run {
        source: at,
        workload: Workload::new(&options),
        job: printable(job.jobname.as_deref().unwrap_or("unnamed")),
        errors: match (job.errors, job.verify_errors) {
            (None, None) => u64::from(job.error.unwrap_or(0) != 0),
            (io, verify) => io.unwrap_or(0).saturating_add(verify.unwrap_or(0)),
        },
        medium: job.medium.filter(|medium| !medium.is_empty()),
        group: job.groupid,
        floor_ns: positive(job.floor_ns),
        floor_ratio: positive(job.floor_ratio),
        competitor_percent: figure(job.competitor_percent),
        energy_uj_per_io: figure(job.energy_uj_per_io),
        is_paced: PACES.iter().any(|key| options.contains_key(*key)),
        runtime_ms: figure(job.job_runtime).unwrap_or(0.0),
        // An interval without an I/O has no latency.
        spread: spread(&job.turns),
        sweep: job.sweep,
        series: job.series.into_iter().filter(|point| point.ios > 0).collect(),
        ..Run::default()
    };
    run.series.sort_by_key(|point| point.at_ms);
    let runtime_ms = add_directions(&mut run, [("read", job.read), ("write", job.write)]);
    let slowest = positive(job.slowest_1_in_6000_ns);
    run.slowest_ns = slowest.or_else(|| run.latency.slowest_1_in(SLOWEST_ONE_IN));
    let (user, system) = (figure(job.usr_cpu), figure(job.sys_cpu));
    run.cpu_percent = user.or(system).map(|_| user.unwrap_or(0.0) + system.unwrap_or(0.0));
    run.device = if is_fio {
        fios_way(&mut run, &options);
        // fio reports a group's CPU time over the sum of its threads' times.
        let threads = (run.runtime_ms / runtime_ms).round().max(1.0);
        run.cpu_percent = run.cpu_percent.map(|percent| percent * threads);
        format!("kernel:{}", of("filename").unwrap_or(" (a file of fio's)"))
    } else {
        let hogs = of("hog").and_then(|hogs| hogs.parse().ok()).unwrap_or(0);
        let [sched, pm_qos] = ["sched", "pm_qos"].map(|key| of(key).map(str::to_owned));
        let settings = Settings { sched, pm_qos, hogs };
        run.way = of("completion").unwrap_or("unknown").to_owned() + &settings.words();
        of("device").or_else(|| of("filename")).unwrap_or("unknown").to_owned()
    };
    run
}

/// Returns the standard deviations of the figures of the turns that have any I/O.
fn spread(turns: &[Turn]) -> Spread {
    let percent = |of: fn(&Turn) -> f64| {
        let turns = turns.iter().filter(|turn| turn.mean_ns > 0.0);
        let figures: Vec<f64> = turns.map(of).collect();
        let n = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / n;
        let squares: f64 = figures.iter().map(|of| (of - mean).powi(2)).sum();
        (figures.len() > 1 && mean > 0.0).then(|| (squares / (n - 1.0)).sqrt() * 100.0 / mean)
    };
    Spread {
        mean: percent(|turn| turn.mean_ns),
        p50: percent(|turn| turn.p50_ns as f64),
        p99: percent(|turn| turn.p99_ns as f64),
        iops: percent(|turn| turn.iops),
        cpu: percent(|turn| turn.cpu_percent),
    }
}

/// Adds reads and writes up, and keeps both if there were both. Returns the time that they took.
fn add_directions(run: &mut Run, directions: [(&str, Direction); 2]) -> f64 {
    let mut runtime_ms = 1.0f64;
    for (name, stats) in directions {
        let iops = figure(stats.iops).unwrap_or(0.0);
        run.iops += iops;
        runtime_ms = runtime_ms.max(figure(stats.runtime).unwrap_or(0.0));
        let (latency, caveat) = latency(stats.lat_ns, stats.clat_ns);
        if latency.n > 0 {
            run.caveats.extend(caveat.filter(|caveat| !run.caveats.contains(caveat)));
            run.latency = run.latency.merged(&latency);
            let (label, slowest_ns) = (name.to_owned(), latency.slowest_1_in(SLOWEST_ONE_IN));
            run.directions.push(Run { label, latency, slowest_ns, iops, ..Run::default() });
        }
    }
    if run.directions.len() < 2 {
        run.directions.clear();
    }
    runtime_ms
}

fn figure(figure: Option<Figure>) -> Option<f64> {
    figure.map(|Figure(figure)| figure)
}

/// Returns the latency from submission on. Where the file has only its mean and extremes, the
/// distribution is that of clat.
fn latency(total: Distribution, completion: Distribution) -> (Latency, Option<&'static str>) {
    let [mut total, completion] = [total, completion].map(Distribution::latency);
    if total.n == 0 {
        return (completion, None);
    }
    if !total.steps.is_empty() {
        return (total, None);
    }
    (total.steps, total.is_coarse) = (completion.steps, completion.is_coarse);
    let caveat = (!total.steps.is_empty()).then_some(CAVEAT_CLAT);
    (total, caveat)
}

impl Distribution {
    fn latency(self) -> Latency {
        let Self { n, min: Figure(min_ns), max: Figure(max_ns), mean: Figure(mean_ns), .. } = self;
        let max_ns = max_ns.max(min_ns);
        let mut latency = Latency { n, min_ns, max_ns, mean_ns, ..Latency::default() };
        if let Some(bins) = self.bins {
            latency.set_bins(&bins);
        } else if let Some(list) = self.percentile {
            let known = list.iter().map(|(at, ns)| Some((ns.0, at.parse::<f64>().ok()? / 100.0)));
            let within = |(_, at): &(f64, f64)| (f64::MIN_POSITIVE..1.0).contains(at);
            latency.set_percentiles(known.flatten().filter(within));
        }
        latency
    }
}

/// The percentiles are of another latency than the mean.
pub(super) const CAVEAT_CLAT: &str =
    "percentiles are of the completion latency (clat, without submission); the file has no others";
/// The caveat for fio without `direct=1`.
pub(super) const CAVEAT_CACHE: &str =
    "went through the page cache (direct=0): many of its I/Os may never have reached the device";

fn fios_way(run: &mut Run, options: &Map<String, Value>) {
    let text = |key: &str| options.get(key).and_then(Value::as_str);
    let is_set = |key: &str| options.contains_key(key) && text(key) != Some("0");
    const KERNELS: &str = "sync psync vsync pvsync pvsync2 libaio posixaio io_uring io_uring_cmd \
                           mmap splice sg";
    let engine = text("ioengine").unwrap_or("psync");
    let polled = if is_set("hipri") { ", polled" } else { "" };
    let is_kernel = KERNELS.split(' ').contains(&engine);
    run.way = match is_kernel {
        true => format!("fio, kernel ({engine}{polled})"),
        false => format!("fio, {engine}{polled}"),
    };
    let is_cached = is_kernel && !["io_uring_cmd", "sg"].contains(&engine);
    if is_cached && !is_set("direct") && text("buffered") != Some("0") {
        run.caveats.push(CAVEAT_CACHE);
    }
}

/// Makes a name printable on one line of a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Describes a value in a few words.
fn found(value: &Value) -> String {
    let begin = |text: &str| format!("{:?}", text.chars().take(30).collect::<String>());
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("the text {}", begin(text)),
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(map) if map.contains_key("cacheline_rtt_ns") => {
            "what `meantime calibrate --json` writes".to_owned()
        }
        Value::Object(map) if map.contains_key("client_stats") => {
            "what fio writes as a client (client_stats); run the job without --client".to_owned()
        }
        Value::Object(map) if map.is_empty() => "an object without keys".to_owned(),
        Value::Object(map) => {
            let more = if map.len() > 5 { ", …" } else { "" };
            let keys = map.keys().take(5).map(|key| begin(key)).join(", ");
            format!("an object with {keys}{more}")
        }
    }
}
