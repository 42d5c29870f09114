//! The experiments, by document.

mod aios19;
mod bates15;
mod fast12;
mod guest;
mod lkml13;
mod vault17;

use crate::experiment::Experiment;

/// Returns all experiments, in the order in which they run.
pub fn experiments() -> Vec<Experiment> {
    [
        fast12::experiments(),
        lkml13::experiments(),
        bates15::experiments(),
        vault17::experiments(),
        aios19::experiments(),
        guest::experiments(),
    ]
    .concat()
}

#[cfg(test)]
mod tests;
