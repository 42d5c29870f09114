//! What can be done to a software SSD while it runs: in this process by [`FaultControl`], from
//! others through a socket.
//!
//! [`serve`] answers on a Unix socket, for `meantime ssd ctl` or anything that can write a line:
//!
//! A request is one line of at most 4,096 bytes. The answer is lines: those with results begin with
//! a blank, and the last is `ok`, or `error: ` and why. A client may send several requests; the
//! server closes its connection after ten seconds without one.
//!
//! | line | |
//! |---|---|
//! | `faults` | the fault rules in force, each as it can be added, and how often it has happened |
//! | `faults add RULE` | injects one more fault; RULE as in [`FaultRule::parse_line`] |
//! | `faults clear` | stops injecting faults |
//! | `slow TIME` | every I/O command takes that much longer, e.g. 2ms: a rule like any other |
//! | `power-cut [SEED]` | power fails and returns: a random subset of unflushed writes is lost |
//! | `unplug`, `plug` | the device leaves the bus, and comes back to it |
//! | `counters` | the SSD's counters |
//! | `refusals` | its latest refusals, and why |
//!
//! The socket has mode 0600, and only this process's user and root are answered (SO_PEERCRED).

mod command;
mod server;

pub use server::{ControlServer, LINE_BYTES_MAX, serve};

use crate::controller::Refusal;
use crate::counters::Counters;
use crate::faults::{FaultHits, FaultPlan, FaultRule, TooManyRules};

/// Why a fault was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddFaultError {
    /// There are enough already.
    #[error(transparent)]
    TooMany(#[from] TooManyRules),
    /// The SSD has ended.
    #[error("the SSD has ended")]
    Ended,
}

/// A software SSD while it runs. Once it has ended nothing happens, and there is nothing to tell.
pub trait FaultControl: Send + Sync {
    /// Injects faults by `plan` from now on, and no others; its seed counts.
    fn set_faults(&self, plan: FaultPlan);

    /// Injects one more fault.
    ///
    /// # Errors
    /// [`AddFaultError`].
    fn add_fault(&self, rule: FaultRule) -> Result<(), AddFaultError>;

    /// The fault rules in force, in order, and how often each has happened.
    fn faults(&self) -> Vec<FaultHits>;

    /// Stops injecting faults.
    fn clear_faults(&self);

    /// Cuts the power and brings it back: a random subset (by `seed`) of unflushed writes is lost,
    /// and the controller is reset. Returns how many writes were lost.
    fn cut_power(&self, seed: u64) -> u64;

    /// The device leaves the bus: registers read all ones, and nothing completes.
    fn unplug(&self);

    /// The device comes back to the bus, disabled, with what it held.
    fn plug(&self);

    /// What it has done so far.
    fn counters(&self) -> Counters;

    /// The latest refusals with their reasons, oldest first.
    fn refusals(&self) -> Vec<Refusal>;
}
