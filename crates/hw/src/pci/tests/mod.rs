//! Taking and giving back on a made-up machine.

mod crash;
mod faults;
mod show;
mod sim;
mod take;
