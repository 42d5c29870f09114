//! An offline simulator: replays device times, recorded or made up, through any policy, in virtual
//! time.
//!
//! The waiting code is a channel's: a [`Waiter`](meantime_completion::waiter::Waiter), called in
//! the order and with the arguments of a channel and its caller. Only the device, the clock, the
//! timer and the interrupt are simulated, and the cost of the host's own steps is a parameter
//! ([`Machine`]). One seed gives one outcome, bit for bit, on every machine with the same floating
//! point library.
//!
//! Two references come with it, for one I/O at a time. [`informed`] knows both distributions, of
//! device time and of wake cost, but not the values that this I/O and this sleep will draw: no
//! policy can do better in the long run. [`oracle`] knows the time of this I/O too: a bound that no
//! policy reaches.

mod competition;
mod distribution;
mod machine;
mod outcome;
mod queue;
mod reference;
mod run;
mod shape;
mod trace;

pub use competition::Competition;
pub use distribution::Distribution;
pub use machine::Machine;
pub use outcome::{Outcome, Seen};
pub use reference::{Reference, Rest, Schedule, informed, oracle};
pub use run::simulate;
pub use shape::{ParseShapeError, Shape};
pub use trace::{Io, ParseTraceError, Trace};
