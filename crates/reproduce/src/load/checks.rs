//! Checks that what an experiment's file names exists: models, files, commands, figures and
//! numbers. Files do not change after they were compiled in, so only tests run these checks.

use toml::Value;

use super::MODELS;
use super::lists::strings;
use crate::document::Documents;
use crate::experiment::Experiment;
use crate::quantity::Quantity;

/// The commands that steps may use.
const COMMANDS: [&str; 6] = ["bench", "anatomy", "waits", "calibrate", "run", "fs"];
/// The names that may stand in braces, besides models and files.
const PLACES: [&str; 4] = ["scratch", "tenth", "message", "simulated"];

/// Checks an experiment that was read from `value`.
pub(super) fn check(experiment: &Experiment, value: &Value) -> Result<(), String> {
    check_places(experiment, value)?;
    check_names(experiment)
}

/// Checks models, and what stands in braces.
fn check_places(experiment: &Experiment, value: &Value) -> Result<(), String> {
    let mut wrong = Ok(());
    strings(value, &mut |text| {
        let places = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
        let places = places.map(|(place, _)| place.split_once(':').unwrap_or((place, "")));
        // A model that is a file of its own is a place.
        let models = text.split("model=").skip(1).filter(|rest| !rest.starts_with('{'));
        let models = models.filter_map(|rest| rest.split(['&', ':', ' ']).next());
        for (kind, name) in places.chain(models.map(|model| ("ssd", model))) {
            let known = match kind {
                "ssd" | "disk" => MODELS.contains(&name),
                "file" => experiment.files.iter().any(|(file, _)| file == name),
                _ => PLACES.contains(&kind),
            };
            if !known {
                wrong = Err(format!("{text:?}: there is no {{{kind}:{name}}}"));
            }
        }
    });
    wrong
}

/// Checks that steps are known commands, figures some step's or derived, and numbers the
/// document's.
fn check_names(experiment: &Experiment) -> Result<(), String> {
    for step in &experiment.steps {
        for line in step.run.iter().chain(&step.instead) {
            if !line.split(' ').next().is_some_and(|command| COMMANDS.contains(&command)) {
                return Err(format!("steps.{:?}: no command of meantime: {line:?}", step.name));
            }
        }
    }
    let made = |name: &str| {
        let below = |step: &str| {
            let rest = name.strip_prefix(step);
            rest.is_some_and(|rest| rest.starts_with('/') || rest == "_per_second")
        };
        experiment.derived.iter().any(|(derived, _)| derived == name)
            || experiment.steps.iter().any(|step| below(&step.name))
            || experiment.guest.iter().any(|kernel| below(kernel))
    };
    let here = |key: String, names: Vec<&str>| {
        let unknown = names.into_iter().find(|name| !made(name));
        unknown.map_or(Ok(()), |name| Err(format!("{key}: no step makes {name:?}")))
    };
    let documents = Documents::read();
    let there = |key: String, quantity: &Option<Quantity>| {
        let mut names = quantity.iter().flat_map(Quantity::names);
        let unknown = names.find(|name| documents.get(experiment.document, name).is_none());
        unknown.map_or(Ok(()), |name| Err(format!("{key}: the document has no number {name:?}")))
    };
    for (name, quantity) in &experiment.derived {
        here(format!("derived.{name:?}"), quantity.names().collect())?;
    }
    for claim in &experiment.claims {
        here(format!("claim {:?}", claim.text), claim.here.names().collect())?;
        there(format!("claim {:?}", claim.text), &claim.there)?;
    }
    for mark in experiment.plot.marks() {
        here(
            format!("mark {:?}", mark.name),
            mark.here.iter().flat_map(Quantity::names).collect(),
        )?;
        there(format!("mark {:?}", mark.name), &mark.there)?;
    }
    for (name, curve) in experiment.plot.curves() {
        here(format!("curve {name:?}"), vec![curve])?;
    }
    Ok(())
}
