//! Published rules for how long to sleep before polling: to be measured against, not to be recommended.

mod mean;

use super::class::Class;
pub use mean::{HalfMean, HalfMin};

/// What a rule wants for an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The interrupt.
    Interrupt,
    /// Sleep for so many ns, then poll; 0: poll at once.
    Sleep(u64),
}

/// One I/O that has ended, as a rule may know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// What it was.
    pub class: Class,
    /// From its submission until it was found complete, in ns: an oversleep is in it.
    pub device_ns: u64,
    /// What was to be slept for it, in ns; 0: nothing.
    pub slept_ns: u64,
    /// Whether it was complete when the sleep had ended.
    pub overslept: bool,
    /// Whether it was waited for by interrupt.
    pub interrupted: bool,
    /// How many I/Os were in flight on the queue when it was found complete, itself included.
    pub in_flight: u16,
    /// When it was found complete, in ns.
    pub now_ns: u64,
}

/// A rule.
pub trait Rule {
    /// How the next I/O, of `class`, is waited for. Asked at its submission.
    fn choose(&mut self, class: Class) -> Choice;
    /// Takes in an I/O that has ended.
    fn record(&mut self, sample: &Sample);
}

impl Rule for HalfMean {
    #[inline]
    fn choose(&mut self, _: Class) -> Choice {
        Choice::Sleep(self.sleep_ns())
    }

    #[inline]
    fn record(&mut self, sample: &Sample) {
        HalfMean::record(self, sample.device_ns, sample.now_ns);
    }
}

impl Rule for HalfMin {
    #[inline]
    fn choose(&mut self, _: Class) -> Choice {
        Choice::Sleep(self.sleep_ns())
    }

    #[inline]
    fn record(&mut self, sample: &Sample) {
        HalfMin::record(self, sample.device_ns, sample.slept_ns);
    }
}
