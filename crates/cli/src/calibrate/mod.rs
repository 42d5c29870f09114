//! `meantime calibrate`: the cost of waiting on this machine.

mod idle_cost;
mod measure;

use std::process::ExitCode;
use std::time::Instant;

use meantime_completion::calibrate::Times;
use meantime_hw::{PmQos, cpu, pm_qos};
use serde_json::{Map, Value, json};

use crate::cli::CalibrateArgs;
use crate::failure::{Failure, warn};
use crate::figures;
use crate::idle::Idle;
use crate::machine::Machine;
use crate::output;

use idle_cost::IdleCost;
use measure::{Row, measure};

/// With a larger share of time spent waiting for other threads, figures are not those of an idle
/// machine. A thread that is alone and often woken waits some 1 %.
const WAITED_MAX_PERCENT: f64 = 3.0;

/// The groups of rows, in their order; in JSON each is a key.
const GROUPS: [&str; 7] = [
    "cacheline_rtt",
    "clock_read",
    "eventfd_wake",
    "futex_wake",
    "oversleep",
    "oversleep_by_way",
    "sleep_cpu",
];

/// The limit on idling: whether it is available, and whether it was set before.
struct Limit {
    /// Why it is not available.
    refused: Option<String>,
    /// The limit of another program.
    in_force_us: Option<i32>,
}

impl Limit {
    fn probe() -> Self {
        let refused =
            PmQos::hold(0).err().map(|error| format!("{}: {error}", pm_qos::CPU_DMA_LATENCY));
        Self { refused, in_force_us: PmQos::in_force_us().ok().flatten() }
    }

    fn can_be_held(&self) -> bool {
        self.refused.is_none()
    }
}

/// Runs the command.
pub(crate) fn run(args: &CalibrateArgs) -> Result<ExitCode, Failure> {
    let allowed = cpu::allowed();
    let (Some(&first), Some(&last)) = (allowed.first(), allowed.last()) else {
        return Err(Failure::new("the kernel does not say which CPUs this process may use"));
    };
    cpu::bind(&[first]).map_err(Failure::new)?;
    let limit = Limit::probe();
    let (start, waited_before_ns) = (Instant::now(), cpu::thread_waited_ns());
    let rows = measure(args, (first != last).then_some(last), &limit)?;
    let wall_ns = start.elapsed().as_nanos() as f64;
    let waited_percent = cpu::thread_waited_ns()
        .zip(waited_before_ns)
        .map(|(after_ns, before_ns)| after_ns.saturating_sub(before_ns) as f64 * 100.0 / wall_ns);
    if first == last {
        warn("this process may use one CPU only: what takes two was left out");
    }
    let machine = Machine { cpus: allowed.len(), ..Machine::probe() };
    let report =
        Report { rows, machine, idle: Idle::probe(first), limit, first, last, waited_percent };
    let text = if args.json { output::json_text(&report.json()) } else { report.text() };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The results, and the machine.
struct Report {
    rows: Vec<Row>,
    machine: Machine,
    idle: Idle,
    limit: Limit,
    first: usize,
    last: usize,
    /// Share of the time in which other threads ran on the CPU that this one needed.
    waited_percent: Option<f64>,
}

impl Report {
    fn text(&self) -> String {
        let held = self.limit.can_be_held();
        let mut table = output::bare_table();
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
                let of_held =
                    |q| row.held.as_ref().map_or_else(|| "–".to_owned(), |times| time(times, q));
                cells.extend([0.5, 0.99, 1.0].map(of_held));
            }
            cells.push(row.times.count().to_string());
            table.add_row(cells);
        }
        let mut lines = output::figure_lines(table, 3);
        lines.push(String::new());
        lines.extend(idle_cost::lines(&self.idle_costs()));
        match &self.limit.refused {
            None => lines.push(format!(
                "PM QoS 0: the same while {} is held at 0, so that no CPU enters a C-state that \
                 takes time to leave",
                pm_qos::CPU_DMA_LATENCY
            )),
            Some(why) => {
                lines.push(format!("Without the figures for PM QoS 0 ({why}); they need root"))
            }
        }
        if let Some(us) = self.limit.in_force_us {
            lines.push(format!(
                "Another program holds it at {us} µs: the other figures are not those of a CPU \
                 left to itself"
            ));
        }
        lines.extend(self.idle.lines(self.machine.virtual_machine));
        if let Some(percent) = self.waited_percent.filter(|percent| *percent > WAITED_MAX_PERCENT) {
            lines.push(format!(
                "Other programs wanted this CPU: for {percent:.0} % of the time they kept it from \
                 what is measured here. A CPU that is not\n\
                 idle is in no idle state; run this again when the machine is quiet"
            ));
        }
        let Self { first, last, .. } = self;
        let peer = if first == last { String::new() } else { format!(", its peer on CPU {last}") };
        lines.push(format!("Measured on CPU {first}{peer}"));
        lines.push(self.machine.line());
        lines.join("\n") + "\n"
    }

    /// Returns the cost of idle states in a wake-up, by the CPU's idle time; empty without the
    /// limit.
    fn idle_costs(&self) -> Vec<IdleCost> {
        let wakes = self.rows.iter().filter(|row| row.group == "eventfd_wake");
        let cost = |row: &Row| {
            let (_, idle_us) = row.parameters.first()?;
            IdleCost::of(idle_us.as_u64()?, &row.times, row.held.as_ref()?)
        };
        wakes.filter_map(cost).collect()
    }

    fn json(&self) -> Value {
        let group = |name: &str, of: &dyn Fn(&Row) -> Option<Times>| -> Vec<Value> {
            let rows = self.rows.iter().filter(|row| row.group == name);
            rows.filter_map(|row| Some(times_json(&row.parameters, &of(row)?))).collect()
        };
        let mut report = Map::new();
        let mut held = Map::new();
        for name in GROUPS {
            let free_rows = group(name, &|row| Some(row.times.clone()));
            let held_rows = group(name, &|row| row.held.clone());
            // This group has only one row.
            let single = name == "cacheline_rtt";
            let shaped =
                |mut rows: Vec<Value>| if single { rows.pop().into() } else { Value::from(rows) };
            report.insert(name.to_owned(), shaped(free_rows));
            if name != "clock_read" {
                held.insert(name.to_owned(), shaped(held_rows));
            }
        }
        report.insert("cacheline_rtt_ns".to_owned(), report["cacheline_rtt"]["median_ns"].clone());
        held.extend([
            ("held".to_owned(), json!(self.limit.can_be_held())),
            ("refused".to_owned(), json!(self.limit.refused)),
            ("in_force_us".to_owned(), json!(self.limit.in_force_us)),
        ]);
        report.extend([
            ("pm_qos".to_owned(), Value::Object(held)),
            ("idle_cost".to_owned(), json!(self.idle_costs())),
            ("idle".to_owned(), json!(self.idle)),
            ("waited_percent".to_owned(), json!(self.waited_percent)),
            ("cpu".to_owned(), json!(self.first)),
            ("peer_cpu".to_owned(), json!(self.last)),
            ("machine".to_owned(), Value::Object(self.machine.json())),
        ]);
        Value::Object(report)
    }
}

fn times_json(parameters: &[(&'static str, Value)], times: &Times) -> Value {
    let mut object = Map::new();
    object.extend(parameters.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    for (key, q) in [("median_ns", 0.5), ("p99_ns", 0.99), ("max_ns", 1.0)] {
        object.insert(key.to_owned(), json!(times.quantile_ns(q)));
    }
    object.insert("mean_ns".to_owned(), json!(times.mean_ns()));
    object.insert("count".to_owned(), json!(times.count()));
    Value::Object(object)
}
