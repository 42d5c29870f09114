//! `meantime calibrate`: the cost of waiting on this machine.

mod idle_cost;
mod measure;

use std::process::ExitCode;
use std::time::Instant;

use meantime_completion::calibrate::Times;
use meantime_hw::{PmQos, cpu, pm_qos};
use serde_json::{Value, json};

use crate::cli::CalibrateArgs;
use crate::failure::{Failure, warn};
use crate::figures;
use crate::idle::Idle;
use crate::machine::Machine;
use crate::output;

use idle_cost::IdleCost;
use measure::{Row, measure};

/// The maximum share of time spent waiting for other threads. Above it, figures are not those of an
/// idle machine. A thread that is alone and often woken waits some 1 %.
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
    output::end(text.as_bytes())
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
        table.set_header(if held {
            let of_held = ["PM QoS 0:\nmedian", "\np99", "\nmax"];
            [&["", "\nmedian", "\np99", "\nmax"], &of_held[..], &["\nsamples"]].concat()
        } else {
            vec!["", "median", "p99", "max", "samples"]
        });
        let mut group = self.rows.first().map_or("", |row| row.group);
        for row in &self.rows {
            if std::mem::replace(&mut group, row.group) != row.group {
                table.add_row([""]);
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
        let mut text = output::figure_lines(table, 3).join("\n") + "\n\n";
        text += &idle_cost::text(&self.idle_costs());
        text += &match &self.limit.refused {
            None => format!(
                "PM QoS 0: the same while {} is held at 0, so that no CPU enters a C-state that \
                 takes time to leave\n",
                pm_qos::CPU_DMA_LATENCY
            ),
            Some(why) => format!("Without the figures for PM QoS 0 ({why}); they need root\n"),
        };
        if let Some(us) = self.limit.in_force_us {
            text += &format!(
                "Another program holds it at {us} µs: the other figures are not those of a CPU \
                 left to itself\n"
            );
        }
        text += &self.idle.text(self.machine.virtual_machine);
        if let Some(percent) = self.waited_percent.filter(|percent| *percent > WAITED_MAX_PERCENT) {
            text += &format!(
                "Other programs wanted this CPU: for {percent:.0} % of the time they kept it from \
                 what is measured here. A CPU that is not\n\
                 idle is in no idle state; run this again when the machine is quiet\n"
            );
        }
        let Self { first, last, .. } = self;
        let peer = if first == last { String::new() } else { format!(", its peer on CPU {last}") };
        text + &format!("Measured on CPU {first}{peer}\n{}\n", self.machine.line())
    }

    /// Returns the cost of idle states in a wake-up, by the CPU's idle time. The list is empty
    /// without the limit.
    fn idle_costs(&self) -> Vec<IdleCost> {
        let wakes = self.rows.iter().filter(|row| row.group == "eventfd_wake");
        let cost = |row: &Row| {
            IdleCost::of(row.parameters["idle_us"].as_u64()?, &row.times, row.held.as_ref()?)
        };
        wakes.filter_map(cost).collect()
    }

    fn json(&self) -> Value {
        let (mut report, mut held) = (json!({}), json!({}));
        for name in GROUPS {
            let rows = || self.rows.iter().filter(|row| row.group == name);
            // This group has only one row.
            let single = name == "cacheline_rtt";
            let shaped =
                |mut rows: Vec<Value>| if single { rows.pop().into() } else { Value::from(rows) };
            report[name] = shaped(rows().map(|row| row.json(&row.times)).collect());
            if name != "clock_read" {
                let of_held = |row: &Row| row.held.as_ref().map(|times| row.json(times));
                held[name] = shaped(rows().filter_map(of_held).collect());
            }
        }
        report["cacheline_rtt_ns"] = report["cacheline_rtt"]["median_ns"].clone();
        held["held"] = json!(self.limit.can_be_held());
        held["refused"] = json!(self.limit.refused);
        held["in_force_us"] = json!(self.limit.in_force_us);
        report["pm_qos"] = held;
        report["idle_cost"] = json!(self.idle_costs());
        report["idle"] = json!(self.idle);
        report["waited_percent"] = json!(self.waited_percent);
        report["cpu"] = json!(self.first);
        report["peer_cpu"] = json!(self.last);
        report["machine"] = json!(self.machine.json());
        report
    }
}

impl Row {
    /// Returns its parameters, and `times`, which are its own.
    fn json(&self, times: &Times) -> Value {
        let mut object = self.parameters.clone();
        for (key, q) in [("median_ns", 0.5), ("p99_ns", 0.99), ("max_ns", 1.0)] {
            object[key] = json!(times.quantile_ns(q));
        }
        object["mean_ns"] = json!(times.mean_ns());
        object["count"] = json!(times.count());
        object
    }
}
