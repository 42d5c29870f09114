//! `meantime reproduce`: the documents' tables and figures, measured again.

mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::ProgressBar;
use meantime_reproduce::{
    self as reproduce, Commands, Document, Documents, Experiment, Guest, Leg, Options, Outcome,
    Reproduction, Store,
};
use serde_json::json;

use crate::cli::ReproduceArgs;
use crate::failure::{Context as _, FAILED, Failure};
use crate::machine::{Machine, PROGRAM, REVISION};
use crate::output::{self, Target, progress_bar};
use crate::signal;

/// The number of repetitions, and the time for each cell in seconds, of a quick and of a full run.
const LENGTHS: [(usize, f64); 2] = [(3, 0.25), (9, 0.5)];

/// Runs the command.
pub(crate) fn run(args: &ReproduceArgs) -> Result<ExitCode, Failure> {
    let experiments = chosen(args)?;
    if args.list {
        return output::end(text::list(&experiments).as_bytes());
    }
    let guest = args.guest.as_deref().map(Guest::read).transpose().map_err(Failure::new)?;
    if args.html.parent() == Some(Path::new("out")) {
        let _ = std::fs::create_dir_all("out");
    }
    let html = Target::prepare(&args.html, "the page", "--html")?;
    let prepare = |path: &Option<PathBuf>, what, option| {
        path.as_deref().map(|path| Target::prepare(path, what, option)).transpose()
    };
    let json = prepare(&args.json, "the JSON", "--json")?;
    let markdown_file = prepare(&args.markdown, "the Markdown", "--markdown")?;
    let (repetitions, cell_s) = LENGTHS[usize::from(!args.quick)];
    let machine = Machine::probe();
    let device = args.device.as_deref().unwrap_or("none");
    let run = format_args!("repetitions {repetitions}\ncell {cell_s} s\ndevice {device}");
    let setting = format!("revision {REVISION}\n{run}\n{}\n", machine.line());
    let store = Store::open(&args.results, &setting, args.anew).context("cannot keep results")?;
    let scratch = args.results.join("scratch");
    std::fs::create_dir_all(&scratch).context(format_args!("cannot make {}", scratch.display()))?;
    let program = std::env::current_exe().context("cannot find this program")?;
    signal::catch();
    let options = Options {
        repetitions,
        cell_s,
        device: args.device.clone(),
        scratch: scratch.display().to_string(),
    };
    let mut commands = Commands::new(program, &signal::STOP, guest);
    let template = "{bar:25} {pos} of {len}  {elapsed}  {wide_msg}";
    let mut progress = Shown(progress_bar(Some(experiments.len() as u64), template));
    let outcomes =
        reproduce::run(&experiments, &options, &mut commands, &store, &signal::STOP, &mut progress);
    progress.0.finish_and_clear();
    let outcomes = outcomes.context("cannot keep results")?;

    let about = text::about(&machine, repetitions, cell_s, &outcomes);
    let reproduction = Reproduction::new(&outcomes, &Documents::read(), about);
    if html.file.is_some() {
        output::print(&text::claims(&reproduction))?;
    }
    html.write(&reproduction.page(PROGRAM))?;
    if let Some(target) = &markdown_file {
        target.write(&reproduction.markdown())?;
    }
    if let Some(target) = &json {
        let value = text::json(&reproduction);
        target
            .write(&output::json_text(&json!({"machine": machine.json(), "experiments": value})))?;
    }
    if let Some(path) = &html.file {
        eprintln!("meantime: the page is {}", path.display());
    }
    signal::check(Some("ended by a signal; the same command goes on from here"))?;
    let all = outcomes.iter().all(|outcome| outcome.kept.failure.is_empty());
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// Returns the experiments that the command line names.
fn chosen(args: &ReproduceArgs) -> Result<Vec<Experiment>, Failure> {
    let mut all = reproduce::experiments();
    if args.device.is_some() || args.list {
        all.extend(reproduce::on_a_device());
    }
    let guest_only = |one: &&Experiment| one.leg == Leg::Guest && args.names.contains(&one.id);
    if args.guest.is_none() && !args.list {
        if let Some(one) = all.iter().find(guest_only) {
            let what = format_args!("is measured in a virtual machine: {}", text::HOW_GUEST);
            return Err(Failure::usage(format_args!("{} {what}", one.id)));
        }
        all.retain(|experiment| experiment.leg != Leg::Guest);
    }
    for name in &args.names {
        let known = all.iter().any(|one| one.id == *name)
            || Document::ALL.iter().any(|document| document.name() == name);
        if !known {
            return Err(Failure::usage(format_args!(
                "there is no experiment or document {name}; `meantime reproduce --list` shows all"
            )));
        }
    }
    if !args.names.is_empty() {
        let named = |name: &str| args.names.iter().any(|one| one == name);
        all.retain(|one| named(&one.id) || named(one.document.name()));
    }
    Ok(all)
}

/// The progress on a terminal.
struct Shown(ProgressBar);

impl reproduce::Progress for Shown {
    fn begins(&mut self, one: &Experiment, at: usize, _: usize, left: Option<Duration>) {
        let left = left.map_or_else(String::new, |left| match left.as_secs() {
            secs if secs < 90 => format!(" · {secs} s left"),
            secs => format!(" · {} min left", secs.div_ceil(60)),
        });
        self.0.set_position(at as u64 - 1);
        self.0.set_message(format!("{} ({}){left}", one.id, one.leg.name()));
        self.0.tick();
    }

    fn ended(&mut self, outcome: &Outcome) {
        if !outcome.kept.failure.is_empty() {
            let (id, failure) = (outcome.experiment.key(), &outcome.kept.failure);
            self.0.suspend(|| eprintln!("meantime: {id}: {failure}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Experiments that name a model are refused if there is no such model.
    #[test]
    fn experiments_know_the_models_of_the_software_ssd() {
        let known: BTreeSet<&str> = meantime_reproduce::MODELS.into();
        assert_eq!(known, meantime_ssd::Model::names().iter().copied().collect());
    }
}
