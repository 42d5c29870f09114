//! Policies on synthetic devices, compared with the optimum: `cargo run --release -p meantime
//! --example grid -- [WORD...]`.
//!
//! A word that names a policy is one to run; `ios=N` and `seed=N` set length and seed, `depth=N`
//! the number in flight, `oracle` also shows the oracle, `frontier` compares the CPU of each policy
//! with the least at its own mean latency, and `trace=FILE` takes device times from a file. Any other
//! word is a filter: a row is shown if its name, e.g. `bare/4.1us/lognormal=0.2`, contains each word,
//! or one of its alternatives: `bare 10us|20us`.

use std::error::Error;

use meantime::completion::{Goal, Policy};
use meantime_baselines::sim::{Machine, Reference, Shape, Trace, informed, oracle, simulate};

const DEVICE_NS: [u64; 7] = [2_000, 4_100, 7_300, 10_000, 20_000, 50_000, 100_000];

struct Options {
    policies: Vec<Policy>,
    filters: Vec<String>,
    ios: usize,
    seed: u64,
    depth: usize,
    oracle: bool,
    frontier: bool,
    trace: Option<String>,
}

impl Options {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            policies: Vec::new(),
            filters: Vec::new(),
            ios: 30_000,
            seed: 1,
            depth: 1,
            oracle: false,
            frontier: false,
            trace: None,
        };
        for word in std::env::args().skip(1) {
            match word.split_once('=') {
                Some(("ios", value)) => options.ios = value.parse()?,
                Some(("seed", value)) => options.seed = value.parse()?,
                Some(("depth", value)) => options.depth = value.parse()?,
                Some(("trace", file)) => options.trace = Some(file.to_owned()),
                _ if word == "oracle" => options.oracle = true,
                _ if word == "frontier" => options.frontier = true,
                _ => match word.parse() {
                    Ok(policy) => options.policies.push(policy),
                    Err(error) if word.contains(':') => return Err(Box::new(error)),
                    Err(_) => options.filters.push(word),
                },
            }
        }
        if options.policies.is_empty() {
            options.policies =
                ["adaptive", "pas", "hybrid", "interrupt"].map(|name| name.parse().unwrap()).into();
        }
        Ok(options)
    }

    fn shows(&self, name: &str) -> bool {
        self.filters.iter().all(|filter| filter.split('|').any(|part| name.contains(part)))
    }
}

/// The distance of a policy from polling and from `informed`, over all rows.
#[derive(Default)]
struct Summary {
    latency: Vec<f64>,
    cpu: Vec<f64>,
}

fn median_and_most(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values.get(values.len() / 2).copied().unwrap_or(0.0), values.last().copied().unwrap_or(0.0))
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1_000.0
}

/// The goal against which a policy is measured.
fn goal_of(policy: Policy) -> Goal {
    match policy {
        Policy::Adaptive(goal) => goal,
        _ => Goal::default(),
    }
}

struct Row {
    name: String,
    machine: Machine,
    trace: Trace,
}

fn rows(options: &Options) -> Result<Vec<Row>, Box<dyn Error>> {
    let machines = [("bare", Machine::bare_metal()), ("vm", Machine::vm())];
    let mut rows = Vec::new();
    for (machine_name, machine) in machines {
        if let Some(file) = &options.trace {
            let trace = std::fs::read_to_string(file)?.parse()?;
            rows.push(Row { name: format!("{machine_name}/{file}"), machine, trace });
            continue;
        }
        for device_ns in DEVICE_NS {
            for shape in Shape::GRID {
                let trace = shape.trace(device_ns, options.ios, options.seed);
                let name = format!("{machine_name}/{}us/{shape}", us(device_ns));
                rows.push(Row { name, machine: machine.clone(), trace });
            }
        }
    }
    rows.retain(|row| options.shows(&row.name));
    Ok(rows)
}

fn main() -> Result<(), Box<dyn Error>> {
    meantime_baselines::register()?;
    let options = Options::parse()?;
    println!(
        "{:<28} {:<18} {:>9} {:>6} {:>8} {:>8} {:>7} {:>9} {:>7} {:>7}",
        "", "", "mean µs", "/poll", "p99", "p99.9", "CPU %", "CPU ns/IO", "/inf.", "overs%"
    );
    let mut summaries: Vec<Summary> = options.policies.iter().map(|_| Summary::default()).collect();
    for Row { name, machine, trace } in rows(&options)? {
        let run = |policy| simulate(&trace, &machine, policy, options.depth, options.seed);
        let poll = run(Policy::Poll);
        let line = |who: &str,
                    outcome: &meantime_baselines::sim::Outcome,
                    informed_cpu_ns: f64,
                    note: &str| {
            println!(
                "{:<28} {:<18} {:>9.2} {:>6.3} {:>8.2} {:>8.2} {:>7.1} {:>9.0} {:>7.2} {:>7.2}{note}",
                name,
                who,
                outcome.mean_ns() / 1_000.0,
                outcome.mean_ns() / poll.mean_ns(),
                us(outcome.quantile_ns(0.99)),
                us(outcome.quantile_ns(0.999)),
                outcome.cpu_percent(),
                outcome.cpu_ns_per_io(),
                outcome.cpu_ns_per_io() / informed_cpu_ns,
                100.0 * outcome.oversleep_rate(),
            );
        };
        let mut known: Vec<(Goal, Reference)> = Vec::new();
        for goal in options.policies.iter().map(|policy| goal_of(*policy)) {
            // The references assume one I/O at a time.
            if options.depth == 1 && !known.iter().any(|(of, _)| *of == goal) {
                known.push((goal, informed(&trace, &machine, goal, options.seed)));
            }
        }
        line(
            "poll",
            &poll,
            known.first().map_or(f64::NAN, |(_, known)| known.outcome.cpu_ns_per_io()),
            "",
        );
        for (goal, reference) in &known {
            let note = if reference.reachable { "" } else { "  (cannot be reached)" };
            let cpu_ns = reference.outcome.cpu_ns_per_io();
            line(&format!("informed:{goal}"), &reference.outcome, cpu_ns, note);
            if options.oracle {
                let oracle = oracle(&trace, &machine, *goal, options.seed);
                line(&format!("oracle:{goal}"), &oracle.outcome, cpu_ns, note);
            }
        }
        for (policy, summary) in options.policies.iter().zip(&mut summaries) {
            let outcome = run(*policy);
            let late = (outcome.mean_ns() / poll.mean_ns() - 1.0).max(0.001);
            let goal = match options.frontier {
                true => Goal::Latency((1_000.0 * late).round() as u16),
                false => goal_of(*policy),
            };
            if options.frontier && options.depth == 1 && !known.iter().any(|(of, _)| *of == goal) {
                known.push((goal, informed(&trace, &machine, goal, options.seed)));
            }
            let informed = known.iter().find(|(of, _)| *of == goal);
            let informed_cpu_ns =
                informed.map_or(f64::NAN, |(_, known)| known.outcome.cpu_ns_per_io());
            line(&policy.to_string(), &outcome, informed_cpu_ns, "");
            summary.latency.push(outcome.mean_ns() / poll.mean_ns());
            summary.cpu.push(outcome.cpu_ns_per_io() / informed_cpu_ns);
        }
    }
    println!(
        "\nover all rows: mean latency over poll's, CPU over informed's (median, most); within 15 %"
    );
    for (policy, summary) in options.policies.iter().zip(&mut summaries) {
        let (latency, cpu) =
            (median_and_most(&mut summary.latency), median_and_most(&mut summary.cpu));
        println!(
            "{:<18} {:>6.3} {:>6.3}   {:>6.2} {:>6.2}   {:>3} of {}",
            policy.to_string(),
            latency.0,
            latency.1,
            cpu.0,
            cpu.1,
            summary.cpu.iter().filter(|cpu| **cpu <= 1.15).count(),
            summary.cpu.len()
        );
    }
    Ok(())
}
