//! Reads results from a report file's JSON: ours and fio's. An impossible value is an error with
//! its place in the file, what was expected and what was found.

use itertools::Itertools as _;
use serde_json::{Map, Value};

use super::latency::{Latency, Shape, Steps};
use super::model::{LeftOut, Moment, Run, Source};
use super::workload::Workload;
use crate::run::{SLOWEST_ONE_IN, Settings};

/// Finds the JSON in `bytes`. fio mixes its warnings with it, and its text may follow
/// (`--output-format=json,normal`).
pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    const WANTED: &str =
        "expected the JSON of `meantime bench --json` or of `fio --output-format=json`";
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(format!("the file is empty: {WANTED}"));
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(format!("this is no text: {WANTED}"));
    };
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let is_json = text.starts_with(['{', '[', '"']);
    let begin = if is_json { 0 } else { text.find("\n{").map_or(0, |at| at + 1) };
    let first = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<Value>().next();
    let Some(value) = first else { return Err(format!("the file is empty: {WANTED}")) };
    value.map_err(|error| {
        let line = text.lines().next().unwrap_or("");
        let begins: String = line.chars().take(40).collect();
        if error.is_eof() {
            let line = error.line();
            return format!(
                "the JSON ends in its middle (line {line}): was the run or a copy cut off?"
            );
        }
        format!("this is no JSON ({error}): {WANTED}, found a text that begins with {begins:?}")
    })
}

/// The content of one file.
#[derive(Debug)]
pub(super) struct Parsed {
    /// The file itself.
    pub source: Source,
    /// Its results, each with its workload and device.
    pub runs: Vec<(Workload, String, Run)>,
    /// Devices and policies that it could not measure.
    pub left_out: Vec<LeftOut>,
}

const WANTED: &str =
    "the JSON of `meantime bench --json` or of `fio --output-format=json` (or json+)";

/// Keys that deliberately slow a thread down.
const PACES: [&str; 4] = ["rate", "rate_iops", "thinktime", "latency_target"];

/// A value and its place in the file, for errors.
struct At<'a> {
    place: String,
    value: &'a Value,
}

impl<'a> At<'a> {
    fn expected(&self, what: &str) -> String {
        format!("{}: expected {what}, found {}", self.place, found(self.value))
    }

    fn object(&self) -> Result<&'a Map<String, Value>, String> {
        self.value.as_object().ok_or_else(|| self.expected("an object"))
    }

    fn list(&self) -> Result<impl Iterator<Item = At<'a>>, String> {
        let list = self.value.as_array().ok_or_else(|| self.expected("a list"))?;
        let place = self.place.clone();
        let at = move |(nth, value)| At { place: format!("{place}[{nth}]"), value };
        Ok(list.iter().enumerate().map(at))
    }

    /// Returns the value of `key`, if it is set.
    fn get(&self, key: &str) -> Option<At<'a>> {
        let place = match self.place.as_str() {
            TOP => key.to_owned(),
            place => format!("{place}.{key}"),
        };
        self.value.get(key).map(|value| At { place, value })
    }

    /// Returns the value of `key`, which must be `what`.
    fn need(&self, key: &str, what: &str) -> Result<At<'a>, String> {
        self.object()?;
        self.get(key).ok_or_else(|| format!("{}.{key} is missing: expected {what}", self.place))
    }

    /// Returns a required figure.
    fn figure(&self, key: &str) -> Result<f64, String> {
        let at = self.need(key, "a number")?;
        self.number(key).ok_or_else(|| at.expected("a number from 0 on"))
    }

    /// Returns an optional figure; one below 0 counts as missing.
    fn number(&self, key: &str) -> Option<f64> {
        self.value.get(key)?.as_f64().filter(|figure| figure.is_finite() && *figure >= 0.0)
    }

    fn positive(&self, key: &str) -> Option<f64> {
        self.number(key).filter(|figure| *figure > 0.0)
    }

    fn count(&self, key: &str) -> Option<u64> {
        self.value.get(key)?.as_u64()
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.value.get(key)?.as_str()
    }
}

/// The name of the whole file in errors.
const TOP: &str = "the file";

/// A job's keys: its own, and those of all jobs as defaults.
struct Options<'a>([&'a Map<String, Value>; 2]);

impl<'a> Options<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.iter().find_map(|options| options.get(key))
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key)?.as_str()
    }

    fn is_set(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.as_str() != Some("0"))
    }
}

/// Reads a report's JSON.
pub(super) fn read(report: &Value) -> Result<Parsed, String> {
    let top = At { place: TOP.to_owned(), value: report };
    top.object()?;
    let none =
        |what: &str| format!("no \"{what}\" in it: expected {WANTED}, found {}", found(report));
    let jobs = top.get("jobs").ok_or_else(|| none("jobs"))?;
    let tool = top.text("fio version").ok_or_else(|| none("fio version"))?;
    let none = Map::new();
    let global = report.get("global options").and_then(Value::as_object).unwrap_or(&none);
    let facts = report.get("meantime").and_then(Value::as_object).unwrap_or(&none);
    let told = facts.iter().filter_map(|(name, value)| Some((name.clone(), fact(value)?)));
    let source = Source {
        tool: tool.to_owned(),
        time: top.text("time").map(|time| time.trim().to_owned()),
        command: facts.get("command").and_then(command),
        facts: told.collect(),
        ..Source::default()
    };
    let runs: Vec<_> =
        jobs.list()?.map(|job| run(&job, global, &source)).collect::<Result<_, _>>()?;
    if runs.is_empty() {
        return Err("\"jobs\" is empty: there is nothing to report".to_owned());
    }
    let left_out = match top.get("meantime").and_then(|facts| facts.get("left_out")) {
        Some(list) => list.list()?.map(|one| left_out(&one)).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    Ok(Parsed { source, runs, left_out })
}

fn run(
    job: &At<'_>,
    global: &Map<String, Value>,
    source: &Source,
) -> Result<(Workload, String, Run), String> {
    let none = Map::new();
    let own = job.object()?.get("job options").and_then(Value::as_object).unwrap_or(&none);
    let options = Options([own, global]);
    let mut run = Run {
        job: printable(job.text("jobname").unwrap_or("unnamed")),
        errors: match (job.count("errors"), job.count("verify_errors")) {
            (None, None) => u64::from(job.count("error").unwrap_or(0) != 0),
            (io, verify) => io.unwrap_or(0).saturating_add(verify.unwrap_or(0)),
        },
        medium: job.text("medium").filter(|medium| !medium.is_empty()).map(str::to_owned),
        group: job.count("groupid"),
        floor_ns: job.positive("floor_ns"),
        floor_ratio: job.positive("floor_ratio"),
        competitor_percent: job.number("competitor_percent"),
        energy_uj_per_io: job.number("energy_uj_per_io"),
        is_paced: PACES.iter().any(|key| options.get(key).is_some()),
        runtime_ms: job.number("job_runtime").unwrap_or(0.0),
        ..Run::default()
    };
    let steps = if source.is_fio() { Steps::Within } else { Steps::Lowest };
    let mut runtime_ms = 1.0f64;
    for name in ["read", "write"] {
        let stats = job.need(name, "an object with \"lat_ns\"")?;
        stats.object()?;
        let (latency, caveat) = latency(&stats, steps)?;
        let iops = stats.number("iops").unwrap_or(0.0);
        run.iops += iops;
        run.bytes_per_second += stats.number("bw_bytes").unwrap_or(0.0);
        runtime_ms = runtime_ms.max(stats.number("runtime").unwrap_or(0.0));
        if latency.n > 0 {
            run.caveats.extend(caveat.filter(|caveat| !run.caveats.contains(caveat)));
            run.directions.push((name, latency, iops));
        }
    }
    run.latency =
        run.directions.iter().fold(Latency::default(), |sum, (_, latency, _)| sum.merged(latency));
    if run.directions.len() < 2 {
        run.directions.clear();
    }
    let slowest = job.positive("slowest_1_in_6000_ns");
    run.slowest_ns = slowest.or_else(|| run.latency.slowest_1_in(SLOWEST_ONE_IN));
    let (user, system) = (job.number("usr_cpu"), job.number("sys_cpu"));
    run.cpu_percent = user.or(system).map(|_| user.unwrap_or(0.0) + system.unwrap_or(0.0));
    let device = if source.is_fio() {
        fios_way(&mut run, &options);
        // fio reports a group's CPU time over the sum of its threads' times.
        let threads = (run.runtime_ms / runtime_ms).round().max(1.0);
        run.cpu_percent = run.cpu_percent.map(|percent| percent * threads);
        format!("kernel:{}", options.text("filename").unwrap_or(" (a file of fio's)"))
    } else {
        let of = |key: &str| own.get(key).and_then(Value::as_str);
        let hogs = of("hog").and_then(|hogs| hogs.parse().ok()).unwrap_or(0);
        let [sched, pm_qos] = ["sched", "pm_qos"].map(|key| of(key).map(str::to_owned));
        let settings = Settings { sched, pm_qos, hogs };
        run.way = of("completion").unwrap_or("unknown").to_owned() + &settings.words();
        of("device").or_else(|| of("filename")).unwrap_or("unknown").to_owned()
    };
    if let Some(list) = job.get("series") {
        run.series = series(&list)?;
    }
    Ok((Workload::new(own, global), device, run))
}

/// Returns the latency from submission on. Where the file has only its mean and extremes, the
/// distribution is that of clat.
fn latency(stats: &At<'_>, steps: Steps) -> Result<(Latency, Option<&'static str>), String> {
    let part = |name: &str| -> Result<Latency, String> {
        let Some(part) = stats.get(name) else { return Ok(Latency::default()) };
        part.object()?;
        let mut latency = Latency {
            n: part.figure("N")? as u64,
            min_ns: part.figure("min")?,
            max_ns: part.figure("max")?,
            mean_ns: part.figure("mean")?,
            shape: Shape::Unknown,
        };
        latency.max_ns = latency.max_ns.max(latency.min_ns);
        let ends_ns = (latency.min_ns, latency.max_ns);
        latency.shape = match (part.get("bins"), part.get("percentile")) {
            (Some(bins), _) => Latency::histogram(&pairs_of(&bins)?, steps, ends_ns),
            (None, Some(list)) => percentiles(&list)?,
            (None, None) => Shape::Unknown,
        };
        Ok(latency)
    };
    let (mut total, completion) = (part("lat_ns")?, part("clat_ns")?);
    if total.n == 0 {
        return Ok((completion, None));
    }
    if total.shape != Shape::Unknown {
        return Ok((total, None));
    }
    total.shape = completion.shape;
    let caveat = (total.shape != Shape::Unknown).then_some(CAVEAT_CLAT);
    Ok((total, caveat))
}

/// The percentiles are of another latency than the mean.
pub(super) const CAVEAT_CLAT: &str =
    "percentiles are of the completion latency (clat, without submission); the file has no others";
/// For fio without `direct=1`.
pub(super) const CAVEAT_CACHE: &str =
    "went through the page cache (direct=0): many of its I/Os may never have reached the device";

fn fios_way(run: &mut Run, options: &Options<'_>) {
    const KERNELS: [&str; 12] = [
        "sync",
        "psync",
        "vsync",
        "pvsync",
        "pvsync2",
        "libaio",
        "posixaio",
        "io_uring",
        "io_uring_cmd",
        "mmap",
        "splice",
        "sg",
    ];
    let engine = options.text("ioengine").unwrap_or("psync");
    let polled = if options.is_set("hipri") { ", polled" } else { "" };
    let is_kernel = KERNELS.contains(&engine);
    run.way = match is_kernel {
        true => format!("fio, kernel ({engine}{polled})"),
        false => format!("fio, {engine}{polled}"),
    };
    let is_cached = is_kernel && !["io_uring_cmd", "sg"].contains(&engine);
    if is_cached && !options.is_set("direct") && options.text("buffered") != Some("0") {
        run.caveats.push(CAVEAT_CACHE);
    }
}

fn pairs_of(bins: &At<'_>) -> Result<Vec<(u64, u64)>, String> {
    let pair = |(ns, count): (&String, &Value)| match (ns.parse(), count.as_u64()) {
        (Ok(ns), Some(count)) => Ok((ns, count)),
        _ => Err(format!(
            "{} has {ns:?}: {}; expected a latency in ns and a count",
            bins.place,
            found(count)
        )),
    };
    bins.object()?.iter().map(pair).collect()
}

fn percentiles(list: &At<'_>) -> Result<Shape, String> {
    let mut known = Vec::new();
    for (at, ns) in list.object()? {
        match (at.parse::<f64>(), ns.as_f64()) {
            (Ok(at), Some(ns)) if (0.0..=100.0).contains(&at) && ns >= 0.0 => {
                known.push((ns, at / 100.0))
            }
            _ => {
                let (place, found) = (&list.place, found(ns));
                return Err(format!(
                    "{place} has {at:?}: {found}; expected a percentile and a latency in ns"
                ));
            }
        }
    }
    known.retain(|(_, at)| (f64::MIN_POSITIVE..1.0).contains(at));
    known.sort_by(|a, b| a.1.total_cmp(&b.1));
    Ok(if known.is_empty() { Shape::Unknown } else { Shape::Percentiles(known) })
}

fn series(list: &At<'_>) -> Result<Vec<Moment>, String> {
    let mut moments = Vec::new();
    for moment in list.list()? {
        moment.object()?;
        // An interval without an I/O has no latency.
        if moment.count("ios") != Some(0) {
            moments.push(Moment {
                at_ms: moment.figure("at_ms")?,
                mean_ns: moment.figure("mean_ns")?,
                p99_ns: moment.positive("p99_ns"),
            });
        }
    }
    moments.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
    Ok(moments)
}

fn left_out(one: &At<'_>) -> Result<LeftOut, String> {
    one.object()?;
    let text = |key| one.text(key).unwrap_or("unknown").to_owned();
    Ok(LeftOut { source: 0, device: text("device"), way: text("completion"), why: text("why") })
}

/// Returns a command line as one text, from a text or a list of arguments.
fn command(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => {
            let words = words.iter().map(|word| word.as_str().map(shell_word));
            words.collect::<Option<Vec<String>>>().map(|words| words.join(" "))
        }
        _ => None,
    }
}

/// Quotes a word for a shell.
pub(super) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn fact(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(yes) => Some(if *yes { "yes" } else { "no" }.to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Makes a name printable on one line of a terminal.
fn printable(text: &str) -> String {
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
