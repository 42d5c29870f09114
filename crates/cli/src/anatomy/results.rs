//! The results: a bar for each device, size and policy.

use meantime_completion::Policy;

use super::tally::Tally;
use super::timeline::{Part, QUEUE};
use crate::competitor::{Kind, Sample};
use crate::figures;
use crate::machine::Machine;

/// All results.
pub(crate) struct Anatomy {
    /// Direction and order, as fio names them.
    pub rw: &'static str,
    /// The bars, in the order of device, size and policy.
    pub bars: Vec<Bar>,
    /// The competing program, and its sample alone.
    pub competitor: Option<(Kind, Sample)>,
    /// CPU of the I/O thread and the competing program.
    pub cpu: usize,
    /// Time of one reading of the clock, in ns.
    pub clock_read_ns: u64,
    /// The machine of the measurement.
    pub machine: Machine,
}

impl Anatomy {
    /// Describes each I/O in words.
    pub(crate) fn what(&self) -> &'static str {
        match self.rw {
            "read" => "sequential read",
            "write" => "sequential write",
            "randwrite" => "random write",
            _ => "random read",
        }
    }

    /// Returns whether any I/O spent time in `part`. Most devices queue nothing at depth 1.
    pub(crate) fn shows(&self, part: &Part) -> bool {
        let some = |bar: &Bar| bar.alone.parts[part.at].max_ns() > 0;
        self.bars.iter().any(some) || part.at != QUEUE && self.bars.iter().any(|bar| bar.stamped)
    }
}

/// One device, size and policy.
pub(crate) struct Bar {
    /// The device.
    pub device: String,
    /// Whether the device took stamps.
    pub stamped: bool,
    /// Size of each I/O.
    pub bytes: u64,
    /// The policy.
    pub policy: Policy,
    /// Times with the CPU for itself.
    pub alone: Tally,
    /// Times with a competing program. They are empty without one.
    pub competing: Tally,
}

impl Bar {
    /// Returns policy and size.
    pub(crate) fn way(&self) -> String {
        format!("{}, {}", self.policy, figures::bytes(self.bytes))
    }
}
