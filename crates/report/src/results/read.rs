//! From a report file's JSON to results: ours and fio's. Whatever a file says that it cannot mean
//! is an error with the place in it, what was expected and what was found.

use serde_json::{Map, Value};

use super::latency::{Latency, Shape, Steps};
use super::model::{LeftOut, Moment, Run, Source};
use super::workload::Workload;
use crate::run::{SLOWEST_ONE_IN, Settings};

/// The JSON in `bytes`. fio mixes its warnings with it, and its text may follow
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
            format!(
                "the JSON ends in its middle (line {}): was the run or a copy cut off?",
                error.line()
            )
        } else {
            format!("this is no JSON ({error}): {WANTED}, found a text that begins with {begins:?}")
        }
    })
}

/// What one file says.
#[derive(Debug)]
pub(super) struct Parsed {
    /// The file itself.
    pub source: Source,
    /// Its results, each with its workload and device.
    pub runs: Vec<(Workload, String, Run)>,
    /// What it could not measure.
    pub left_out: Vec<LeftOut>,
}

const WANTED: &str =
    "the JSON of `meantime bench --json` or of `fio --output-format=json` (or json+)";

/// Reads a report's JSON.
pub(super) fn read(report: &Value) -> Result<Parsed, String> {
    let top = object(report, "the file")?;
    let Some(jobs) = top.get("jobs") else {
        return Err(format!("no \"jobs\" in it: expected {WANTED}, found {}", found(report)));
    };
    let Some(tool) = top.get("fio version").and_then(Value::as_str) else {
        return Err(format!(
            "no \"fio version\" in it: expected {WANTED}, found {}",
            found(report)
        ));
    };
    let jobs = array(jobs, "jobs")?;
    if jobs.is_empty() {
        return Err("\"jobs\" is empty: there is nothing to report".to_owned());
    }
    let none = Map::new();
    let global = top.get("global options").and_then(Value::as_object).unwrap_or(&none);
    let facts = top.get("meantime").and_then(Value::as_object).unwrap_or(&none);
    let source = Source {
        tool: tool.to_owned(),
        time: time(top),
        command: facts.get("command").and_then(command),
        facts: facts
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), fact(value)?)))
            .collect(),
        ..Source::default()
    };
    let mut runs = Vec::with_capacity(jobs.len());
    for (at, job) in jobs.iter().enumerate() {
        runs.push(run(
            object(job, &format!("jobs[{at}]"))?,
            global,
            &source,
            &format!("jobs[{at}]"),
        )?);
    }
    let left_out = facts.get("left_out").map_or(Ok(Vec::new()), left_out)?;
    Ok(Parsed { source, runs, left_out })
}

fn run(
    job: &Map<String, Value>,
    global: &Map<String, Value>,
    source: &Source,
    place: &str,
) -> Result<(Workload, String, Run), String> {
    let none = Map::new();
    let options = job.get("job options").and_then(Value::as_object).unwrap_or(&none);
    let mut run = Run {
        job: printable(job.get("jobname").and_then(Value::as_str).unwrap_or("unnamed")),
        errors: match (
            job.get("errors").and_then(Value::as_u64),
            job.get("verify_errors").and_then(Value::as_u64),
        ) {
            (None, None) => u64::from(job.get("error").and_then(Value::as_u64).unwrap_or(0) != 0),
            (io, verify) => io.unwrap_or(0).saturating_add(verify.unwrap_or(0)),
        },
        medium: text(job, "medium").filter(|medium| !medium.is_empty()).map(str::to_owned),
        group: job.get("groupid").and_then(Value::as_u64),
        floor_ns: positive(job, "floor_ns"),
        floor_ratio: positive(job, "floor_ratio"),
        competitor_percent: number(job, "competitor_percent"),
        is_paced: PACES.iter().any(|key| options.contains_key(*key) || global.contains_key(*key)),
        runtime_ms: number(job, "job_runtime").unwrap_or(0.0),
        ..Run::default()
    };
    let steps = if source.is_fio() { Steps::Within } else { Steps::Lowest };
    let mut runtime_ms = 0.0f64;
    for name in ["read", "write"] {
        let place = format!("{place}.{name}");
        let stats = job
            .get(name)
            .ok_or_else(|| format!("{place} is missing: expected an object with \"lat_ns\""))?;
        let stats = object(stats, &place)?;
        let (latency, caveat) = latency(stats, steps, &place)?;
        run.iops += number(stats, "iops").unwrap_or(0.0);
        run.bytes_per_second += number(stats, "bw_bytes").unwrap_or(0.0);
        runtime_ms = runtime_ms.max(number(stats, "runtime").unwrap_or(0.0));
        if latency.n > 0 {
            run.caveats.extend(caveat.filter(|caveat| !run.caveats.contains(caveat)));
            run.directions.push((name, latency, number(stats, "iops").unwrap_or(0.0)));
        }
    }
    run.latency =
        run.directions.iter().fold(Latency::default(), |sum, (_, latency, _)| sum.merged(latency));
    if run.directions.len() < 2 {
        run.directions.clear();
    }
    let slowest = positive(job, "slowest_1_in_6000_ns");
    run.slowest_ns = slowest.or_else(|| run.latency.slowest_1_in(SLOWEST_ONE_IN));
    let device = if source.is_fio() {
        fios_way(&mut run, options, global);
        // fio reports a group's CPU time over the sum of its threads' times.
        let threads =
            (number(job, "job_runtime").unwrap_or(0.0) / runtime_ms.max(1.0)).round().max(1.0);
        run.cpu_percent = cpu_percent(job).map(|percent| percent * threads);
        let file = text(options, "filename").or_else(|| text(global, "filename"));
        file.map_or_else(|| "kernel: (a file of fio's)".to_owned(), |file| format!("kernel:{file}"))
    } else {
        let of = |key: &str| text(options, key).map(str::to_owned);
        let hogs = text(options, "hog").and_then(|hogs| hogs.parse().ok()).unwrap_or(0);
        let settings = Settings { sched: of("sched"), pm_qos: of("pm_qos"), hogs };
        run.way = text(options, "completion").unwrap_or("unknown").to_owned() + &settings.words();
        run.cpu_percent = cpu_percent(job);
        text(options, "device")
            .or_else(|| text(options, "filename"))
            .unwrap_or("unknown")
            .to_owned()
    };
    run.series = job
        .get("series")
        .map_or(Ok(Vec::new()), |list| series(list, &format!("{place}.series")))?;
    Ok((Workload::new(options, global), device, run))
}

/// The latency from submission on; where only mean and extremes of it are told, the distribution is
/// that of clat.
fn latency(
    stats: &Map<String, Value>,
    steps: Steps,
    place: &str,
) -> Result<(Latency, Option<&'static str>), String> {
    let part = |name: &str| -> Result<(Latency, Shape), String> {
        let Some(value) = stats.get(name) else { return Ok((Latency::default(), Shape::Unknown)) };
        let place = format!("{place}.{name}");
        let part = object(value, &place)?;
        let figure = |key| figure(part, key, &place);
        let mut latency = Latency {
            n: figure("N")? as u64,
            min_ns: figure("min")?,
            max_ns: figure("max")?,
            mean_ns: figure("mean")?,
            shape: Shape::Unknown,
        };
        latency.max_ns = latency.max_ns.max(latency.min_ns);
        let shape = match (part.get("bins"), part.get("percentile")) {
            (Some(bins), _) => {
                let bins =
                    bins_of(object(bins, &format!("{place}.bins"))?, &format!("{place}.bins"))?;
                Latency::histogram(&bins, steps, (latency.min_ns, latency.max_ns))
            }
            (None, Some(list)) => {
                percentiles(object(list, &format!("{place}.percentile"))?, &place)?
            }
            (None, None) => Shape::Unknown,
        };
        Ok((latency, shape))
    };
    let ((mut total, shape), (completion, completion_shape)) = (part("lat_ns")?, part("clat_ns")?);
    if total.n == 0 {
        total = Latency { shape: completion_shape, ..completion };
        return Ok((total, None));
    }
    if shape != Shape::Unknown {
        total.shape = shape;
        return Ok((total, None));
    }
    let caveat = (completion_shape != Shape::Unknown).then_some(CAVEAT_CLAT);
    total.shape = completion_shape;
    Ok((total, caveat))
}

/// Percentiles of another latency than the mean's.
pub(super) const CAVEAT_CLAT: &str =
    "percentiles are of the completion latency (clat, without submission); the file has no others";
/// fio without `direct=1`.
pub(super) const CAVEAT_CACHE: &str =
    "went through the page cache (direct=0): many of its I/Os may never have reached the device";

fn fios_way(run: &mut Run, options: &Map<String, Value>, global: &Map<String, Value>) {
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
    let get = |key| text(options, key).or_else(|| text(global, key));
    let is_set = |key| {
        let value = options.get(key).or_else(|| global.get(key));
        value.is_some_and(|value| !matches!(value.as_str(), Some("0")))
    };
    let engine = get("ioengine").unwrap_or("psync");
    let kernel = KERNELS.contains(&engine);
    let polled = if is_set("hipri") { ", polled" } else { "" };
    run.way = format!(
        "fio, {}{engine}{polled}{}",
        if kernel { "kernel (" } else { "" },
        if kernel { ")" } else { "" }
    );
    if kernel
        && engine != "io_uring_cmd"
        && engine != "sg"
        && !is_set("direct")
        && get("buffered") != Some("0")
    {
        run.caveats.push(CAVEAT_CACHE);
    }
}

fn bins_of(bins: &Map<String, Value>, place: &str) -> Result<Vec<(u64, u64)>, String> {
    let pair = |(ns, count): (&String, &Value)| match (ns.parse(), count.as_u64()) {
        (Ok(ns), Some(count)) => Ok((ns, count)),
        _ => Err(format!(
            "{place} has {ns:?}: {}; expected a latency in ns and a count",
            found(count)
        )),
    };
    bins.iter().map(pair).collect()
}

fn percentiles(list: &Map<String, Value>, place: &str) -> Result<Shape, String> {
    let mut known = Vec::with_capacity(list.len());
    for (at, ns) in list {
        match (at.parse::<f64>(), ns.as_f64()) {
            (Ok(at), Some(ns)) if (0.0..=100.0).contains(&at) && ns >= 0.0 => {
                known.push((ns, at / 100.0))
            }
            _ => {
                let found = found(ns);
                return Err(format!(
                    "{place}.percentile has {at:?}: {found}; expected a percentile and a latency in ns"
                ));
            }
        }
    }
    known.retain(|(_, at)| (f64::MIN_POSITIVE..1.0).contains(at));
    known.sort_by(|a, b| a.1.total_cmp(&b.1));
    Ok(if known.is_empty() { Shape::Unknown } else { Shape::Percentiles(known) })
}

fn series(list: &Value, place: &str) -> Result<Vec<Moment>, String> {
    let mut moments = Vec::new();
    for (at, moment) in array(list, place)?.iter().enumerate() {
        let place = format!("{place}[{at}]");
        let moment = object(moment, &place)?;
        // A stretch without an I/O has no latency.
        if moment.get("ios").and_then(Value::as_u64) != Some(0) {
            moments.push(Moment {
                at_ms: figure(moment, "at_ms", &place)?,
                mean_ns: figure(moment, "mean_ns", &place)?,
                p99_ns: positive(moment, "p99_ns"),
            });
        }
    }
    moments.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
    Ok(moments)
}

fn left_out(list: &Value) -> Result<Vec<LeftOut>, String> {
    let mut all = Vec::new();
    for (at, one) in array(list, "meantime.left_out")?.iter().enumerate() {
        let one = object(one, &format!("meantime.left_out[{at}]"))?;
        let text = |key| text(one, key).unwrap_or("unknown").to_owned();
        all.push(LeftOut {
            source: 0,
            device: text("device"),
            way: text("completion"),
            why: text("why"),
        });
    }
    Ok(all)
}

fn cpu_percent(job: &Map<String, Value>) -> Option<f64> {
    let (user, system) = (number(job, "usr_cpu"), number(job, "sys_cpu"));
    (user.is_some() || system.is_some()).then(|| user.unwrap_or(0.0) + system.unwrap_or(0.0))
}

fn time(top: &Map<String, Value>) -> Option<String> {
    text(top, "time").map(|time| time.trim().to_owned())
}

/// A command line as one text, from a text or a list of arguments.
fn command(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => {
            let words: Option<Vec<String>> =
                words.iter().map(|word| word.as_str().map(shell_word)).collect();
            words.map(|words| words.join(" "))
        }
        _ => None,
    }
}

/// A word as a shell wants it.
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

/// A name as it can be shown on one line of a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Keys by which a thread is told to take its time.
const PACES: [&str; 4] = ["rate", "rate_iops", "thinktime", "latency_target"];

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key)?.as_str()
}

/// A figure that may be missing; one below 0 counts as missing.
fn number(map: &Map<String, Value>, key: &str) -> Option<f64> {
    map.get(key)?.as_f64().filter(|figure| figure.is_finite() && *figure >= 0.0)
}

fn positive(map: &Map<String, Value>, key: &str) -> Option<f64> {
    number(map, key).filter(|figure| *figure > 0.0)
}

/// A figure that must be there.
fn figure(map: &Map<String, Value>, key: &str, place: &str) -> Result<f64, String> {
    let value =
        map.get(key).ok_or_else(|| format!("{place}.{key} is missing: expected a number"))?;
    let figure = value.as_f64().filter(|figure| figure.is_finite() && *figure >= 0.0);
    figure.ok_or_else(|| {
        format!("{place}.{key}: expected a number from 0 on, found {}", found(value))
    })
}

fn object<'a>(value: &'a Value, place: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{place}: expected an object, found {}", found(value)))
}

fn array<'a>(value: &'a Value, place: &str) -> Result<&'a Vec<Value>, String> {
    value.as_array().ok_or_else(|| format!("{place}: expected a list, found {}", found(value)))
}

/// A value in a few words.
fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(yes) => yes.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("the text {:?}", text.chars().take(30).collect::<String>()),
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(map) if map.contains_key("cacheline_rtt_ns") => {
            "what `meantime calibrate --json` writes".to_owned()
        }
        Value::Object(map) if map.contains_key("client_stats") => {
            "what fio writes as a client (client_stats); run the job without --client".to_owned()
        }
        Value::Object(map) if map.is_empty() => "an object without keys".to_owned(),
        Value::Object(map) => {
            let keys: Vec<String> = map
                .keys()
                .take(5)
                .map(|key| format!("{:?}", key.chars().take(30).collect::<String>()))
                .collect();
            format!(
                "an object with {}{}",
                keys.join(", "),
                if map.len() > keys.len() { ", …" } else { "" }
            )
        }
    }
}
