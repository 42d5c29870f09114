//! An offline simulator: replays device times, recorded or made up, through any policy, in virtual time.
//!
//! What waits is the code that waits in a channel: [`Gap`](super::Gap) and [`Learning`](super::Learning), called in the order and with the
//! arguments of a channel and its caller. Only the device, the clock, the timer and the interrupt are simulated, and what the
//! host's own steps cost is a parameter ([`Machine`]). One seed gives one outcome, bit for bit, on every machine with the same floating
//! point library.

mod machine;
mod outcome;
mod queue;
mod random;
mod run;
mod shape;
mod trace;

pub use machine::Machine;
pub use outcome::{Outcome, Seen};
pub use random::{Distribution, Random};
pub use run::simulate;
pub use shape::{ParseShapeError, Shape};
pub use trace::{Io, ParseTraceError, Trace};
