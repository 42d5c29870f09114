//! What is to be done with a device.

use std::fmt::Debug;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What to do with a device.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The device's URI.
    pub uri: &'a str,
    /// Whether data on the device may be overwritten.
    pub destroy: bool,
    /// Whether the controller may be reset and attached anew in the midst of I/O.
    pub reset: bool,
    /// How long each latency and each rate is measured.
    pub measured: Duration,
    /// Deadline of an I/O command.
    pub timeout: Duration,
    /// A shell command that cuts the device's power and gives it back.
    pub power_cycle: Option<&'a str>,
    /// How to start a process that calls [`write_until_killed`](crate::write_until_killed) with the seed that is appended as
    /// the last argument, its output to standard output.
    pub writer: Option<&'a dyn WriterCommand>,
    /// Set when the end is requested.
    pub stop: &'a AtomicBool,
}

/// Makes the command of [`Plan::writer`].
pub trait WriterCommand: Debug + Sync {
    /// The command for `seed`.
    fn command(&self, seed: u64) -> Command;
}

impl Plan<'_> {
    /// Whether the end is requested.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
