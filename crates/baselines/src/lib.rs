//! Reference points to measure Meantime against, and experiments.
//!
//! # What it is for
//! Nothing here is part of the product: the library does not depend on this crate. The command and
//! the tests compare policies with published rules, and measurements with lower bounds.
//!
//! # What it promises
//! - A published rule behaves as published. Its type documents what the publication leaves open.
//! - The simulator runs the `Waiter` that channels use; only device, clock, timer and interrupt are
//!   simulated. Equal seeds give equal figures.
//! - [`register`] may be called more than once. It gives the rules their names, so that
//!   `hybrid-bucket`, `hybrid-min`, `ehp`, `pas` and `dpas` are policies of this process.
//!
//! # Parts, in reading order
//! ```text
//!   published/    one file for each published rule
//!   sim/          device times through any policy in virtual time; lower bounds for a goal
//!   floor         the exchange between two cores that no protocol can beat
//!   exchange/     the same over TCP: request and answer without a protocol
//! ```

pub mod exchange;
pub mod floor;
pub mod published;
pub mod sim;

pub use published::{Published, register};
