//! Published rules for how long to sleep before polling: to be measured against, not to be
//! recommended.

mod bucket;
mod costs;
mod dpas;
mod ehp;
mod mean;
mod pas;

use super::class::Class;
pub use bucket::HybridBucket;
pub use costs::WakeCosts;
pub use dpas::{Dpas, DpasMode, OPTANE_THETA};
pub use ehp::Ehp;
pub use mean::{HalfMean, HalfMin};
pub use pas::Pas;

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
    /// How an I/O of `class` is waited for. Asked at its submission, if there is an interrupt to be
    /// chosen, and again when it is waited for: asked twice, it says the same.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// An I/O at depth 1 that was neither slept for nor interrupted.
    pub(super) fn sample(class: Class, device_ns: u64, now_ns: u64) -> Sample {
        let (slept_ns, overslept, interrupted, in_flight) = (0, false, false, 1);
        Sample { class, device_ns, slept_ns, overslept, interrupted, in_flight, now_ns }
    }
}
