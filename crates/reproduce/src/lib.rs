//! The five documents' tables and figures, measured again.
//!
//! # What it is for
//! Meantime comes from five documents. Each of their tables and figures is an [`Experiment`] here:
//! what the document measured, how it is measured on this machine, and the claims that the figures
//! confirm or refute. `meantime reproduce` runs them.
//!
//! # What it owns
//! - The documents' own numbers (`documents/*.csv`), with the place where each stands.
//! - The experiments (`experiments/*.toml`), and the inventory of what the documents contain.
//! - A run: order, repetitions, a busy machine, results kept in a directory.
//! - Verdicts.
//!
//! # What it promises
//! - What measures cannot read the documents' numbers: it gets a [`Runner`] and nothing else.
//! - An experiment runs the `meantime` command, so a reader can repeat each measurement by hand:
//!   results have the command lines.
//! - Legs are never mixed in one comparison. What is simulated is *consistent* or not; it never
//!   *holds*.
//! - A figure that is the same in each repetition is reported as constant, not as measured.
//!
//! # Parts, in reading order
//! ```text
//!   document     the documents and their numbers
//!   experiment   an experiment: its texts, its claims, its plot
//!   quantity     figures, and what is computed from several of them
//!   load         reads the experiments: experiments/*.toml
//!   measured     what came out: samples by name
//!   runner       runs an experiment's commands; gives what they measured names
//!   guest        what was measured in a virtual machine, from a file
//!   verdict      claims against samples
//!   run, store   a run, and its directory
//!   present      results as a page and as Markdown
//! ```

#![forbid(unsafe_code)]

mod document;
mod experiment;
mod guest;
mod load;
mod measured;
mod present;
mod quantity;
mod run;
mod runner;
mod store;
#[cfg(test)]
mod tests;
mod verdict;

pub use document::{Document, Documents};
pub use experiment::{Claim, Expect, Experiment, Leg, Mark, Plot, Step};
pub use guest::{FileError, Guest};
pub use load::{MODELS, experiments, on_a_device};
pub use measured::Measured;
pub use present::{Entry, Reproduction, Shown};
pub use quantity::{Kind, Quantity};
pub use run::{Options, Outcome, Progress, run};
pub use runner::{Bench, Commands, RunError, Runner};
pub use store::{Kept, Store};
pub use verdict::{Judged, Verdict, judge};
