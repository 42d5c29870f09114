//! The experiments, by document.

mod aios19;
mod bates15;
mod fast12;
mod guest;
mod lkml13;
mod vault17;

use crate::experiment::{Claim, Experiment, Leg};

/// Returns all experiments, in the order in which they run.
pub fn experiments() -> Vec<Experiment> {
    let mut all = [
        fast12::experiments(),
        lkml13::experiments(),
        bates15::experiments(),
        vault17::experiments(),
        aios19::experiments(),
        guest::experiments(),
    ]
    .concat();
    for one in all.iter_mut().filter(|one| LEFT_OPEN.contains(&one.id)) {
        one.claims = std::mem::take(&mut one.claims).into_iter().map(Claim::ours).collect();
    }
    all
}

/// Experiments on questions that the documents ask, and leave open.
const LEFT_OPEN: [&str; 9] = [
    "lkml13-batch",
    "lkml13-pm-qos",
    "bates15-mixes",
    "bates15-stalls",
    "bates15-coalescing",
    "vault17-interrupts",
    "vault17-priority",
    "vault17-reaping",
    "vault17-user-hybrid",
];

/// Experiments that need no model of a device, and only read.
const ON_A_DEVICE: [&str; 13] = [
    "fast12-table1",
    "fast12-figure1",
    "fast12-figure2",
    "fast12-saturation",
    "lkml13-batch",
    "bates15-split",
    "bates15-worst",
    "bates15-drivers",
    "vault17-latency",
    "vault17-distribution",
    "vault17-cpu",
    "vault17-tail-idle",
    "vault17-hipri",
];

/// Returns the experiments that can be done on a device of the user's.
pub fn on_a_device() -> Vec<Experiment> {
    let all = experiments().into_iter().filter(|one| ON_A_DEVICE.contains(&one.id));
    all.map(|one| Experiment { leg: Leg::Device, ..one }).collect()
}

#[cfg(test)]
mod tests;
