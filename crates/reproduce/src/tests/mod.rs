//! Every experiment, measured by a runner that makes its figures up.

mod made_up;
mod recorded;

use std::collections::BTreeSet;

use crate::document::Documents;
use crate::experiment::{Experiment, Leg};
use crate::load::experiments;
use crate::measured::Measured;
use crate::run::Options;
use crate::runner::Bench;
use crate::verdict::judge;
use made_up::MadeUp;

/// A run that lasts as long as a quick one.
const QUICK_S: f64 = 0.25;

fn options(scratch: &str, cell_s: f64, device: Option<&str>) -> Options {
    let (scratch, device) = (scratch.to_owned(), device.map(str::to_owned));
    Options { repetitions: 1, cell_s, device, scratch }
}

fn measure(seed: u64) -> Vec<(Experiment, Measured)> {
    let directory = tempfile::tempdir().unwrap();
    let scratch = directory.path().to_str().unwrap();
    let measure = |experiment: Experiment| {
        let mut runner = MadeUp::new(seed, scratch, false);
        let options = options(scratch, QUICK_S, None);
        let mut bench = Bench::new(&mut runner, &options, 0);
        bench.measure(&experiment).unwrap_or_else(|error| panic!("{}: {error}", experiment.id));
        let measured = bench.finish();
        (experiment, measured)
    };
    experiments().into_iter().map(measure).collect()
}

/// Every figure of claims and plots is measured, and what is derived can be.
#[test]
fn every_figure_is_there() {
    for (experiment, measured) in measure(1) {
        let id = &experiment.id;
        let mut here: BTreeSet<String> = BTreeSet::new();
        let mut add = |names: &mut dyn Iterator<Item = &str>| here.extend(names.map(str::to_owned));
        for claim in &experiment.claims {
            add(&mut claim.here.names());
        }
        for mark in experiment.plot.marks() {
            add(&mut mark.here.iter().flat_map(|quantity| quantity.names()));
            add(&mut mark.deviation().as_deref().into_iter());
        }
        add(&mut experiment.derived.iter().map(|(name, _)| name.as_str()));
        for name in here {
            assert!(!measured.samples(&name).is_empty(), "{id}: {name} is not measured");
        }
        for (_, curve) in experiment.plot.curves() {
            assert!(measured.curves.contains_key(curve), "{id}: {curve}");
        }
        assert!(!experiment.claims.is_empty(), "{id}: no claim");
    }
}

/// The measuring code does not know the documents' numbers: with doubled numbers it measures the
/// same.
#[test]
fn measuring_does_not_read_the_documents() {
    let doubled = Documents::read().scaled(2.0);
    for ((experiment, one), (_, other)) in measure(7).into_iter().zip(measure(7)) {
        let id = &experiment.id;
        assert_eq!(one, other, "{id}");
        for claim in &experiment.claims {
            let of = |documents| judge(claim, &experiment, &one, documents);
            assert_eq!(of(&Documents::read()).here, of(&doubled).here, "{id}: {}", claim.text);
        }
    }
}

/// An experiment that answers constants does not follow what the commands say.
#[test]
fn no_experiment_answers_a_constant() {
    for ((experiment, one), (_, other)) in measure(1).into_iter().zip(measure(2)) {
        for (name, values) in &one.values {
            let counted = name.ends_with("_count");
            let id = &experiment.id;
            assert!(counted || values != other.samples(name), "{id}: {name} is {values:?}");
        }
    }
}

/// Everything in the documents' inventory has experiments, and each experiment covers some of it.
#[test]
fn what_the_documents_show_has_its_experiments() {
    let experiments = experiments();
    let ids: BTreeSet<&str> = experiments.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids.len(), experiments.len(), "a name is used twice");
    let mut covering = BTreeSet::new();
    for line in include_str!("../../documents/inventory.csv").lines().skip(1) {
        let (covered_by, what) = line.split_once(',').unwrap();
        for id in covered_by.split(' ') {
            assert!(ids.contains(id), "{what}: {id}");
            covering.insert(id);
        }
    }
    let beyond: Vec<_> = ids.difference(&covering).collect();
    assert!(beyond.is_empty(), "{beyond:?} cover nothing");
}

#[test]
fn legs_are_told_apart() {
    for experiment in experiments() {
        if experiment.leg == Leg::Simulated {
            assert!(experiment.here.contains("imulated"), "{}", experiment.id);
            assert!(!experiment.inputs.is_empty(), "{}", experiment.id);
        }
    }
}

#[test]
fn experiments_on_a_device_are_there() {
    let ids: Vec<_> = crate::on_a_device().iter().map(Experiment::key).collect();
    assert_eq!(ids.len(), 13);
    assert!(ids.iter().all(|id| id.ends_with(".device")));
}
