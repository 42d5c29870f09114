//! `meantime calibrate`: what waiting costs on this machine.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressStyle};
use meantime::completion::calibrate::{self, Times};
use meantime::hw::{Clock, HwError, PmQos, cpu, pm_qos};
use serde_json::{Map, Value, json};

use crate::cli::CalibrateArgs;
use crate::failure::{Failure, warn};
use crate::figures;
use crate::idle::Idle;
use crate::machine::Machine;
use crate::output;

const IDLES_US: [u64; 3] = [20, 100, 1_000];
const SLEEPS_US: [u64; 8] = [1, 2, 5, 10, 20, 50, 100, 1_000];

/// So often without and with the limit on idling alternate within a measurement.
const ROUNDS: usize = 4;

/// One measurement: what, with which parameter, and its times.
struct Row {
    group: &'static str,
    name: String,
    /// The parameter's key and value, for JSON.
    parameter: Option<(&'static str, Value)>,
    times: Times,
    /// The same while no CPU may enter a C-state that takes time to leave; `None` if that is not possible, or makes no difference.
    held: Option<Times>,
}

/// Whether the limit on idling can be had, and was there before.
struct Limit {
    /// Why not.
    refused: Option<String>,
    /// Somebody else's.
    in_force_us: Option<i32>,
}

impl Limit {
    fn probe() -> Self {
        let refused = PmQos::hold(0).err().map(|error| format!("{}: {error}", pm_qos::CPU_DMA_LATENCY));
        Self { refused, in_force_us: PmQos::in_force_us().ok().flatten() }
    }

    fn can_be_held(&self) -> bool {
        self.refused.is_none()
    }
}

/// Runs the command.
pub fn run(args: &CalibrateArgs) -> Result<ExitCode, Failure> {
    let allowed = cpu::allowed();
    let (Some(&first), Some(&last)) = (allowed.first(), allowed.last()) else {
        return Err(Failure::new("the kernel does not say which CPUs this process may use"));
    };
    cpu::bind(&[first]).map_err(Failure::new)?;
    let limit = Limit::probe();
    let rows = measure(args, (first != last).then_some(last), &limit)?;
    if first == last {
        warn("this process may use one CPU only: what takes two was left out");
    }
    let machine = Machine { cpus: allowed.len(), ..Machine::probe() };
    let report = Report { rows, machine, idle: Idle::probe(first), limit, first, last };
    let text = if args.json { output::json_text(&report.json()) } else { report.text() };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Measures `count` samples in all, without the limit and, if it can be had, with it, in turns.
fn both(
    limit: &Limit,
    count: usize,
    once: impl Fn(usize) -> Result<Times, HwError>,
) -> Result<(Times, Option<Times>), Failure> {
    let rounds = if limit.can_be_held() { ROUNDS } else { 1 };
    let each = count.div_ceil(rounds);
    let (mut free, mut held) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        free.push(once(each).map_err(Failure::new)?);
        if limit.can_be_held() {
            let _held = PmQos::hold(0).map_err(|error| {
                Failure::new(format_args!("cannot hold {} any more: {error}", pm_qos::CPU_DMA_LATENCY))
            })?;
            held.push(once(each).map_err(Failure::new)?);
        }
    }
    Ok((Times::merged(free), limit.can_be_held().then(|| Times::merged(held))))
}

fn measure(args: &CalibrateArgs, peer: Option<usize>, limit: &Limit) -> Result<Vec<Row>, Failure> {
    let scale = |count: u64| if args.quick { (count / 10).max(20) as usize } else { count as usize };
    let progress = progress();
    let mut rows = Vec::new();
    if peer.is_some() {
        progress.set_message("cache line");
        let (times, held) = both(limit, ROUNDS, |_| calibrate::cacheline_rtt(peer))?;
        let name = "cache line, there and back".to_owned();
        rows.push(Row { group: "cacheline_rtt", name, parameter: None, times, held });
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
            held: None,
        });
    }
    progress.inc(1);
    for idle_us in IDLES_US {
        if peer.is_some() {
            progress.set_message(format!("eventfd, idle for {idle_us} µs"));
            // Half a second of idleness at most.
            let count = scale((500_000 / idle_us).min(5_000));
            let idle = Duration::from_micros(idle_us);
            let (times, held) = both(limit, count, |count| calibrate::eventfd_wake(peer, idle, count))?;
            rows.push(Row {
                group: "eventfd_wake",
                name: format!("wake by eventfd, idle for {}", label(idle_us)),
                parameter: Some(("idle_us", json!(idle_us))),
                times,
                held,
            });
        }
        progress.inc(1);
    }
    for sleep_us in SLEEPS_US {
        progress.set_message(format!("sleep of {sleep_us} µs"));
        let count = scale((500_000 / (sleep_us + 60)).min(5_000));
        let (times, held) =
            both(limit, count, |count| Ok(calibrate::oversleep(&best, sleep_us * 1_000, count)))?;
        rows.push(Row {
            group: "oversleep",
            name: format!("oversleep of nanosleep {}", label(sleep_us)),
            parameter: Some(("sleep_us", json!(sleep_us))),
            times,
            held,
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

/// What was measured, and where.
struct Report {
    rows: Vec<Row>,
    machine: Machine,
    idle: Idle,
    limit: Limit,
    first: usize,
    last: usize,
}

impl Report {
    fn text(&self) -> String {
        let held = self.limit.can_be_held();
        let mut table = Table::new();
        table.load_preset("     ─             ");
        let mut header = vec!["", "median", "p99", "max"];
        if held {
            header.extend(["PM QoS 0:\nmedian", "\np99", "\nmax"]);
            header[1..4].copy_from_slice(&["\nmedian", "\np99", "\nmax"]);
        }
        header.push(if held { "\nsamples" } else { "samples" });
        let columns = header.len();
        table.set_header(header);
        let mut group = self.rows.first().map_or("", |row| row.group);
        for row in &self.rows {
            if row.group != group {
                group = row.group;
                table.add_row(vec![""; columns]);
            }
            let time = |times: &Times, q: f64| figures::time(times.quantile_ns(q) as f64);
            let mut cells = vec![row.name.clone()];
            cells.extend([0.5, 0.99, 1.0].map(|q| time(&row.times, q)));
            if held {
                let of_held = |q| row.held.as_ref().map_or_else(|| "–".to_owned(), |times| time(times, q));
                cells.extend([0.5, 0.99, 1.0].map(of_held));
            }
            cells.push(row.times.count().to_string());
            table.add_row(cells);
        }
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding((if at == 0 { 0 } else { 3 }, 0));
            column.set_cell_alignment(if at == 0 { CellAlignment::Left } else { CellAlignment::Right });
        }
        let mut lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        lines.push(String::new());
        match &self.limit.refused {
            None => lines.push(format!(
                "PM QoS 0: the same while {} is held at 0, so that no CPU enters a C-state that takes time to leave",
                pm_qos::CPU_DMA_LATENCY
            )),
            Some(why) => lines.push(format!("Without the figures for PM QoS 0 ({why}); they need root")),
        }
        if let Some(us) = self.limit.in_force_us {
            lines.push(format!(
                "Another program holds it at {us} µs: the other figures are not those of a CPU left to itself"
            ));
        }
        lines.extend(self.idle.lines(self.machine.virtual_machine));
        let Self { first, last, .. } = self;
        let peer = if first == last { String::new() } else { format!(", its peer on CPU {last}") };
        lines.push(format!("Measured on CPU {first}{peer}"));
        lines.push(self.machine.line());
        lines.join("\n") + "\n"
    }

    fn json(&self) -> Value {
        let group = |name: &str, of: fn(&Row) -> Option<&Times>| -> Vec<Value> {
            let rows = self.rows.iter().filter(|row| row.group == name);
            rows.filter_map(|row| Some(times_json(row.parameter.as_ref(), of(row)?))).collect()
        };
        fn free_of(row: &Row) -> Option<&Times> {
            Some(&row.times)
        }
        fn held_of(row: &Row) -> Option<&Times> {
            row.held.as_ref()
        }
        let line = group("cacheline_rtt", free_of).into_iter().next();
        json!({
            "cacheline_rtt_ns": line.as_ref().map(|times| times["median_ns"].clone()),
            "cacheline_rtt": line,
            "clock_read": group("clock_read", free_of),
            "eventfd_wake": group("eventfd_wake", free_of),
            "oversleep": group("oversleep", free_of),
            "pm_qos": {
                "held": self.limit.can_be_held(),
                "refused": self.limit.refused,
                "in_force_us": self.limit.in_force_us,
                "cacheline_rtt": group("cacheline_rtt", held_of).into_iter().next(),
                "eventfd_wake": group("eventfd_wake", held_of),
                "oversleep": group("oversleep", held_of),
            },
            "idle": self.idle.json(),
            "cpu": self.first,
            "peer_cpu": self.last,
            "machine": self.machine.json(),
        })
    }
}

fn times_json(parameter: Option<&(&'static str, Value)>, times: &Times) -> Value {
    let mut object = Map::new();
    object.extend(parameter.map(|(key, value)| ((*key).to_owned(), value.clone())));
    for (key, q) in [("median_ns", 0.5), ("p99_ns", 0.99), ("max_ns", 1.0)] {
        object.insert(key.to_owned(), json!(times.quantile_ns(q)));
    }
    object.insert("mean_ns".to_owned(), json!(times.mean_ns()));
    object.insert("count".to_owned(), json!(times.count()));
    Value::Object(object)
}
