//! What a queue has learned, and how each policy makes a way to wait of it.

use super::class::Class;
use super::gap::{Waited, Way};
use super::plan::Plan;
use super::policy::Policy;
use super::published::{Choice, HalfMean, HalfMin, Rule, Sample};

/// An I/O under way, as the policies see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flight {
    /// What it is.
    pub class: Class,
    /// When it was submitted, in ns.
    pub submitted_ns: u64,
    /// Whether it went to the queue with an interrupt.
    pub interrupted: bool,
    /// Whether it was waited for before: a published rule sleeps once an I/O.
    pub waited: bool,
}

/// The device time that a policy goes by, in ns; 0: it goes by none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    /// What half of the I/Os fall short of, or the mean if the policy goes by that.
    pub median_ns: u64,
    /// What few I/Os fall short of.
    pub low_ns: u64,
}

/// What one thread's channel has learned of its device. Belongs to the channel.
#[derive(Debug, Default)]
pub struct Learning {
    mean: HalfMean,
    min: HalfMin,
}

impl Learning {
    /// Makes room for what `policy` learns, so that its I/O does not have to.
    pub fn prepare(&mut self, policy: Policy) {
        let _ = policy;
    }

    /// The mean device time that `hybrid` goes by, in ns; 0 while there is none.
    pub fn mean_ns(&self) -> u64 {
        self.mean.mean_ns()
    }

    /// How long the device is expected to take, for whoever looks from outside.
    pub fn expected(&self, policy: Policy) -> Expected {
        match policy {
            Policy::HybridHalfMean => Expected { median_ns: self.mean.mean_ns(), low_ns: 0 },
            // Half of it is slept.
            Policy::HybridMin => Expected { median_ns: 0, low_ns: 2 * self.min.sleep_ns() },
            _ => Expected::default(),
        }
    }

    /// Whether an I/O of `class` is to go to the queue with an interrupt. Asked when it is submitted, if there is such a queue and
    /// [`Policy::may_interrupt`].
    pub fn interrupts(&mut self, policy: Policy, class: Class) -> bool {
        match policy {
            Policy::Interrupt => true,
            _ => self.rule(policy).is_some_and(|rule| rule.choose(class) == Choice::Interrupt),
        }
    }

    /// How to wait for `flight`.
    #[inline]
    pub fn way(&mut self, policy: Policy, flight: &Flight) -> Way {
        match policy {
            _ if flight.interrupted => Way::Interrupt,
            Policy::Poll => Way::Poll,
            Policy::Adaptive(_) | Policy::Auto => {
                Way::Planned { plan: Plan::SPIN, since_ns: flight.submitted_ns }
            }
            _ if flight.waited => Way::Poll,
            Policy::HybridFixed(ns) => Way::Sleep(u64::from(ns)),
            _ => match self.rule(policy).map(|rule| rule.choose(flight.class)) {
                Some(Choice::Sleep(ns)) => Way::Sleep(ns),
                // Without such a queue it is polled.
                Some(Choice::Interrupt) | None => Way::Poll,
            },
        }
    }

    /// Takes in an I/O that ended well in a wait that was like `waited`; `None`: it was found without waiting.
    #[inline]
    pub fn record(&mut self, policy: Policy, sample: &Sample, waited: Option<&Waited>) {
        let _ = waited;
        if let Some(rule) = self.rule(policy) {
            rule.record(sample);
        }
    }

    fn rule(&mut self, policy: Policy) -> Option<&mut dyn Rule> {
        Some(match policy {
            Policy::HybridHalfMean => &mut self.mean,
            Policy::HybridMin => &mut self.min,
            _ => return None,
        })
    }
}
