//! The five documents' tables and figures, measured again.
//!
//! # What it is for
//! Meantime comes from five documents. Each of their tables and figures is an [`Experiment`] here:
//! what the document measured, how it is measured on this machine, and the claims that the figures
//! confirm or refute. `meantime reproduce` runs them.
//!
//! # What it owns
//! - The documents' own numbers (`documents/*.csv`), with the place where each stands.
//! - The registry: every experiment, and the inventory of what the documents contain.
//! - A run: order, repetitions, a busy machine, results kept in a directory.
//! - Verdicts.
//!
//! # What it promises
//! - Code that measures cannot read the documents' numbers: it gets a [`Runner`] and nothing else.
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
//!   measured     what came out: samples by name
//!   runner       runs a command; gives samples names (bench, anatomy, waits, calibrate)
//!   guest        what was measured in a virtual machine, from a file
//!   registry/    the experiments of each document
//!   inventory    what the documents contain, and which experiment covers it
//!   verdict      claims against samples
//!   run, store   a run, and its directory
//!   present      results as the report's page
//! ```

#![forbid(unsafe_code)]

mod document;
mod experiment;
mod guest;
mod inventory;
mod measured;
mod present;
mod registry;
mod run;
mod runner;
mod store;
mod verdict;

pub use document::{Document, Documents, Number};
pub use experiment::{Claim, Expect, Experiment, Leg, Mark, Measure, Plot, Quantity, Series};
pub use guest::{Guest, GuestError};
pub use inventory::{INVENTORY, Item, NOT_MEASURABLE, NotMeasurable};
pub use measured::Measured;
pub use present::reproduction;
pub use registry::{experiments, on_a_device};
pub use run::{Options, Outcome, Progress, run};
pub use runner::{Bench, Commands, RunError, Runner, Target};
pub use store::{Kept, Store, StoreError};
pub use verdict::{Judged, Verdict, judge};
