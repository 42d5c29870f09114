//! Taking and giving back on a simulated machine.

mod crash;
mod faults;
mod show;
mod sim;
mod take;
