//! Control of a running software SSD. In this process it goes by [`FaultControl`], from other
//! processes through a socket.
//!
//! [`serve`] answers on a Unix socket, for `meantime ssd ctl` or anything that can write a line:
//!
//! A request is one line of at most 4,096 bytes. The answer consists of lines. Those with results
//! begin with a blank, and the last is `ok`, or `error: ` and the reason. A client may send several
//! requests. The server closes its connection after ten seconds without one.
//!
//! | line | |
//! |---|---|
//! | `faults` | the fault rules in force, each as it can be added, and how often it has happened |
//! | `faults add RULE` | injects one more fault; RULE as in [`FaultRule::parse_line`] |
//! | `faults clear` | stops injecting faults |
//! | `slow TIME` | delays every I/O command by TIME, e.g. 2ms: a rule like any other |
//! | `power-cut [SEED]` | power fails and returns: a random subset of unflushed writes is lost |
//! | `unplug`, `plug` | the device leaves the bus, and comes back to it |
//! | `counters` | the SSD's counters |
//! | `refusals` | its latest refusals, and why |
//!
//! The socket has mode 0600, and only this process's user and root are answered (SO_PEERCRED).
//!
//! [`FaultRule::parse_line`]: crate::FaultRule::parse_line

mod command;
mod fault_control;
mod server;

pub(crate) use fault_control::call;
pub use fault_control::{Action, AddFaultError, FaultControl};
pub use server::{ControlServer, LINE_BYTES_MAX, serve};
