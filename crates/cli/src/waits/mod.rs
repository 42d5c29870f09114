//! `meantime waits`: compares policies over a grid of device times and shapes.

mod grid;
mod made;
mod measure;
mod simulated;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum as _;
use meantime_baselines::sim;
use meantime_bench::run::Progress as _;
use meantime_completion::Policy;
use meantime_report::waits::{
    CellResult, Setting, cell_table, json, legend, page, summaries, summary_table,
};

use crate::bench::progress::Progress;
use crate::cli::WaitsArgs;
use crate::failure::{FAILED, Failure};
use crate::job::{Job, Origin};
use crate::machine::{Machine, PROGRAM, command_line};
use crate::output::{self, Outputs};
use crate::signal;

use grid::{GridCell, Shape};
use measure::Spec;
pub(crate) use simulated::Whose;
use trace::WakeCosts;

/// The defaults of the options.
struct Usual {
    policies: &'static str,
    times_ns: &'static [u64],
    shapes: &'static [Shape],
    runtime: Duration,
}

const WHOLE: Usual = Usual {
    policies: "interrupt,poll,hybrid,hybrid-bucket,hybrid-min,ehp,pas,dpas,adaptive",
    times_ns: &grid::DEVICE_TIMES_NS,
    shapes: &Shape::ALL,
    runtime: Duration::from_secs(1),
};

/// The defaults with `--quick`.
const QUICK: Usual = Usual {
    policies: "interrupt,poll,hybrid,adaptive",
    times_ns: &[4_100, 10_000, 50_000],
    shapes: &[Shape::Constant, Shape::Lognormal, Shape::Bimodal],
    runtime: Duration::from_millis(250),
};

/// The request of the command line.
#[derive(Debug)]
struct Plan {
    cells: Vec<GridCell>,
    spec: Spec,
    /// Whether everything runs in the simulator instead of live, and with which wake costs.
    simulated: Option<Whose>,
    /// Directory of device times for the simulation.
    replay: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &WaitsArgs) -> Result<ExitCode, Failure> {
    let plan = plan(args)?;
    let outputs = Outputs::prepare(args.json.as_deref(), args.html.as_deref())?;
    signal::catch();
    let mut results = Vec::new();
    let failed = match plan.simulated {
        Some(whose) => simulate(&plan, whose, &mut results, &outputs),
        None => measure(&plan, &mut results, &outputs),
    };
    if !results.is_empty() {
        report(&plan, &results, &outputs)?;
    }
    failed?;
    signal::check(Some("ended by a signal; the results are those measured until then"))?;
    let bad = results.iter().flat_map(|cell| &cell.ways).any(|way| way.errors > 0);
    Ok(if bad { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// Measures every cell.
fn measure(plan: &Plan, results: &mut Vec<CellResult>, outputs: &Outputs) -> Result<(), Failure> {
    let machine = simulated::this_machine(&WakeCosts::measure()?);
    each_cell(plan, plan.spec.passes(), results, outputs, |cell, progress| {
        let mut measured = measure::measure(cell, &plan.spec, progress)?;
        if !measured.ways.is_empty() && !signal::stopped() && cell.shape.depth() == 1 {
            let trace = trace::record(cell, progress)?;
            simulated::hold_against_references(&mut measured, cell, &trace, &machine);
        }
        Ok(measured)
    })
}

/// Simulates every cell.
fn simulate(
    plan: &Plan,
    whose: Whose,
    results: &mut Vec<CellResult>,
    outputs: &Outputs,
) -> Result<(), Failure> {
    let machine = match whose {
        Whose::BareMetal => sim::Machine::bare_metal(),
        Whose::ThisMachine => simulated::this_machine(&WakeCosts::measure()?),
    };
    let policies = &plan.spec.policies;
    each_cell(plan, 1, results, outputs, |cell, progress| {
        let trace = plan.replay.as_deref().map(|dir| trace::read(dir, cell)).transpose()?;
        progress.job();
        let mut begun = 0;
        Ok(simulated::cell(cell, policies, &machine, trace, &mut |policy| {
            progress.cell(&cell.name(), "simulator", policy);
            progress.done(f64::from(begun) / policies.len() as f64);
            begun += 1;
            !signal::stopped()
        }))
    })
}

/// Calls `one` to make the result of each cell, and shows each result when it is there.
fn each_cell(
    plan: &Plan,
    passes: usize,
    results: &mut Vec<CellResult>,
    outputs: &Outputs,
    mut one: impl FnMut(&GridCell, &mut Progress) -> Result<CellResult, Failure>,
) -> Result<(), Failure> {
    let mut progress = Progress::new(plan.cells.len() * passes);
    for cell in plan.cells.iter().take_while(|_| !signal::stopped()) {
        let result = one(cell, &mut progress).inspect_err(|_| progress.clear())?;
        // After Ctrl-C it is possible that none of its policies had a turn.
        if result.ways.is_empty() {
            break;
        }
        let text = cell_table(&result, output::columns()) + "\n";
        results.push(result);
        progress.above(|| outputs.show(&text))?;
    }
    progress.clear();
    Ok(())
}

/// Writes the summary of the cells to the requested outputs.
fn report(plan: &Plan, results: &[CellResult], outputs: &Outputs) -> Result<(), Failure> {
    let summaries = summaries(results);
    let machine = Machine::probe();
    let table = summary_table(&summaries, results.len(), output::columns());
    outputs.show(&format!("{table}\n{}\n\n{}\n", legend(results), machine.line()))?;
    let mut facts = machine.json();
    facts.insert("command".to_owned(), command_line());
    facts.insert("interrupted".to_owned(), serde_json::json!(signal::stopped()));
    let whose = plan.simulated.and_then(|whose| whose.to_possible_value());
    let setting = Setting {
        facts,
        runtime_ms: plan.spec.runtime.as_millis() as u64,
        competitor: plan.spec.competitor.clone(),
        simulated: whose.map(|whose| whose.get_name().to_owned()),
    };
    outputs.write(
        || json(results, &summaries, &setting),
        || page(results, &summaries, &setting, PROGRAM),
    )
}

fn plan(args: &WaitsArgs) -> Result<Plan, Failure> {
    let usual = if args.quick { &QUICK } else { &WHOLE };
    let times_ns = args.times.as_deref().map(grid::parse_times).transpose()?;
    let shapes = args.shapes.as_deref().map(grid::parse_shapes).transpose()?;
    let (times_ns, shapes) =
        (times_ns.as_deref().unwrap_or(usual.times_ns), shapes.as_deref().unwrap_or(usual.shapes));
    let cells = grid::cells(times_ns, shapes, args.filter.as_deref())?;
    let policies = policies(args.policies.as_deref().unwrap_or(usual.policies))?;
    let (mut runtime, mut competitor) = (usual.runtime, None);
    // The job parses its own keys: only one place knows their values.
    let mut job = Job::new("waits");
    if let Some(text) = &args.runtime {
        job.set("runtime", Some(text), &Origin::CommandLine)?;
        runtime = job.runtime.unwrap_or_default();
    }
    if let Some(kind) = &args.competitor {
        job.set("competitor", Some(kind), &Origin::CommandLine)?;
        competitor = job.competitor.map(|kind| kind.to_string());
    }
    if runtime < Duration::from_millis(1) {
        return Err(Failure::usage("--runtime: give a millisecond at least, better a second"));
    }
    let spec = Spec { policies, runtime, competitor };
    Ok(Plan { cells, spec, simulated: args.simulate, replay: args.replay.clone() })
}

/// Returns the policies of a list, and `poll`.
fn policies(list: &str) -> Result<Vec<Policy>, Failure> {
    let mut policies = grid::parse_list("--policies", list, |name| {
        name.parse::<Policy>().map_err(|error| error.to_string())
    })?;
    if !policies.contains(&Policy::Poll) {
        policies.insert(0, Policy::Poll);
    }
    Ok(policies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> WaitsArgs {
        use clap::Parser as _;
        let _ = meantime_baselines::register();
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: WaitsArgs,
        }
        Line::parse_from(std::iter::once(&"waits").chain(words)).args
    }

    #[test]
    fn the_whole_grid_and_a_quick_one() {
        let whole = plan(&args(&[])).unwrap();
        assert_eq!((whole.cells.len(), whole.spec.policies.len()), (49, 9));
        assert_eq!((whole.spec.rounds(), whole.spec.passes()), (10, 1));
        let quick = plan(&args(&["--quick", "--competitor"])).unwrap();
        assert_eq!((quick.cells.len(), quick.spec.policies.len()), (9, 4));
        assert_eq!((quick.spec.competitor.as_deref(), quick.spec.passes()), (Some("tsc"), 2));
        let own =
            ["--quick", "--times", "20", "--runtime", "2", "--policies", "pas,adaptive:cpu=30"];
        let own = plan(&args(&own)).unwrap();
        assert_eq!((own.cells.len(), own.spec.runtime), (3, Duration::from_secs(2)));
        assert_eq!(own.spec.policies[0], Policy::Poll);
    }

    #[test]
    fn what_cannot_be_obeyed() {
        for words in [
            &["--policies", "pol"][..],
            &["--policies", "pas,pas"],
            &["--times", "0"],
            &["--shapes", "square"],
            &["--filter", "nothing"],
            &["--runtime", "0"],
            &["--runtime", "x"],
            &["--competitor", "nobody"],
        ] {
            assert!(plan(&args(words)).is_err(), "{words:?}");
        }
    }
}
