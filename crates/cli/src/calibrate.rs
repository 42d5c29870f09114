//! `meantime calibrate`: what waiting costs on this machine.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressStyle};
use meantime::completion::calibrate::{self, Times};
use meantime::hw::{Clock, cpu};
use serde_json::{Value, json};

use crate::cli::CalibrateArgs;
use crate::failure::{Failure, warn};
use crate::figures;
use crate::machine::Machine;
use crate::output;

const IDLES_US: [u64; 3] = [20, 100, 1_000];
const SLEEPS_US: [u64; 8] = [1, 2, 5, 10, 20, 50, 100, 1_000];

/// One measurement: what, with which parameter, and its times.
struct Row {
    group: &'static str,
    name: String,
    /// The parameter's key and value, for JSON.
    parameter: Option<(&'static str, Value)>,
    times: Times,
}

/// Runs the command.
pub fn run(args: &CalibrateArgs) -> Result<ExitCode, Failure> {
    let allowed = cpu::allowed();
    let (Some(&first), Some(&last)) = (allowed.first(), allowed.last()) else {
        return Err(Failure::new("the kernel does not say which CPUs this process may use"));
    };
    cpu::bind(&[first]).map_err(Failure::new)?;
    let rows = measure(args, (first != last).then_some(last))?;
    if first == last {
        warn("this process may use one CPU only: what takes two was left out");
    }
    let machine = Machine { cpus: allowed.len(), ..Machine::probe() };
    let text = if args.json {
        output::json_text(&report(&rows, &machine, first, last))
    } else {
        table(&rows, &machine, first, last)
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &CalibrateArgs, peer: Option<usize>) -> Result<Vec<Row>, Failure> {
    let scale = |count: u64| if args.quick { (count / 10).max(20) as usize } else { count as usize };
    let progress = progress();
    let mut rows = Vec::new();
    if peer.is_some() {
        progress.set_message("cache line");
        let times = calibrate::cacheline_rtt(peer).map_err(Failure::new)?;
        rows.push(Row {
            group: "cacheline_rtt",
            name: "cache line, there and back".to_owned(),
            parameter: None,
            times,
        });
    }
    progress.inc(1);
    let best = Clock::real();
    let mut clocks = vec![best.clone()];
    if best.name() != Clock::monotonic().name() {
        clocks.push(Clock::monotonic());
    }
    for clock in clocks {
        let name = clock.name();
        rows.push(Row {
            group: "clock_read",
            name: format!("read the clock, {name}"),
            parameter: Some(("clock", json!(name))),
            times: calibrate::clock_read(&clock),
        });
    }
    progress.inc(1);
    for idle_us in IDLES_US {
        if peer.is_some() {
            progress.set_message(format!("eventfd, idle for {idle_us} µs"));
            // Half a second of idleness at most.
            let count = scale((500_000 / idle_us).min(5_000));
            let times =
                calibrate::eventfd_wake(peer, Duration::from_micros(idle_us), count).map_err(Failure::new)?;
            rows.push(Row {
                group: "eventfd_wake",
                name: format!("wake by eventfd, idle for {}", label(idle_us)),
                parameter: Some(("idle_us", json!(idle_us))),
                times,
            });
        }
        progress.inc(1);
    }
    for sleep_us in SLEEPS_US {
        progress.set_message(format!("sleep of {sleep_us} µs"));
        let count = scale((500_000 / (sleep_us + 60)).min(5_000));
        rows.push(Row {
            group: "oversleep",
            name: format!("oversleep of nanosleep {}", label(sleep_us)),
            parameter: Some(("sleep_us", json!(sleep_us))),
            times: calibrate::oversleep(&best, sleep_us * 1_000, count),
        });
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(rows)
}

/// A round time.
fn label(us: u64) -> String {
    if us < 1_000 { format!("{us} µs") } else { format!("{} ms", us / 1_000) }
}

fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new((2 + IDLES_US.len() + SLEEPS_US.len()) as u64);
    // A constant template; without it the default look does as well.
    if let Ok(style) = ProgressStyle::with_template("{bar:25} {percent:>3} %  {wide_msg}") {
        bar.set_style(style.progress_chars("━╸ "));
    }
    bar
}

fn table(rows: &[Row], machine: &Machine, first: usize, last: usize) -> String {
    let mut table = Table::new();
    table.load_preset("     ─             ");
    table.set_header(["", "median", "p99", "max", "samples"]);
    let mut group = rows.first().map_or("", |row| row.group);
    for row in rows {
        if row.group != group {
            group = row.group;
            table.add_row([""; 5]);
        }
        let times = &row.times;
        let time = |q: f64| figures::time(times.quantile_ns(q) as f64);
        table.add_row([row.name.clone(), time(0.5), time(0.99), time(1.0), times.count().to_string()]);
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if at == 0 { 0 } else { 3 }, 0));
        column.set_cell_alignment(if at == 0 { CellAlignment::Left } else { CellAlignment::Right });
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    let peer = if first == last { String::new() } else { format!(", its peer on CPU {last}") };
    format!("{}\n\nMeasured on CPU {first}{peer}\n{}\n", lines.join("\n"), machine.line())
}

fn report(rows: &[Row], machine: &Machine, first: usize, last: usize) -> Value {
    let group = |name: &str| -> Vec<Value> {
        rows.iter()
            .filter(|row| row.group == name)
            .map(|row| times_json(row.parameter.as_ref(), &row.times))
            .collect()
    };
    let line = group("cacheline_rtt").into_iter().next();
    json!({
        "cacheline_rtt_ns": line.as_ref().map(|times| times["median_ns"].clone()),
        "cacheline_rtt": line,
        "clock_read": group("clock_read"),
        "eventfd_wake": group("eventfd_wake"),
        "oversleep": group("oversleep"),
        "cpu": first,
        "peer_cpu": last,
        "machine": machine.json(),
    })
}

fn times_json(parameter: Option<&(&'static str, Value)>, times: &Times) -> Value {
    let mut object = serde_json::Map::new();
    object.extend(parameter.map(|(key, value)| ((*key).to_owned(), value.clone())));
    for (key, q) in [("median_ns", 0.5), ("p99_ns", 0.99), ("max_ns", 1.0)] {
        object.insert(key.to_owned(), json!(times.quantile_ns(q)));
    }
    object.insert("mean_ns".to_owned(), json!(times.mean_ns()));
    object.insert("count".to_owned(), json!(times.count()));
    Value::Object(object)
}
