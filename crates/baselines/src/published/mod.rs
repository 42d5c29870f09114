//! Published rules for how long to sleep before polling. They are here for comparison, not for use.

mod bucket;
mod costs;
mod dpas;
mod ehp;
mod min;
mod pas;

use std::sync::OnceLock;

pub use bucket::HybridBucket;
pub use costs::WakeCosts;
pub use dpas::{Dpas, DpasMode, OPTANE_THETA};
pub use ehp::Ehp;
use meantime_completion::Policy;
use meantime_completion::rule::{RegisterError, RuleSpec, register as add};
pub use min::HalfMin;
pub use pas::Pas;

/// The published rules, as policies of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// `hybrid-bucket` (Linux 4.12 to 6.3): half the mean of I/Os of the same direction and size.
    pub hybrid_bucket: Policy,
    /// `hybrid-min` (io_uring since Linux 6.13): half the shortest run time seen.
    pub hybrid_min: Policy,
    /// `ehp`: efficient hybrid polling (JSA 2022), the minimum of the bucket less the cost of
    /// waking, or the interrupt.
    pub ehp: Policy,
    /// `pas`: per-I/O adaptive sleep (FAST 2026). After each I/O the sleep is multiplied by a
    /// factor, which depends on whether the sleep was too long.
    pub pas: Policy,
    /// `dpas`: `pas`, with changes to classic polling or the interrupt (FAST 2026).
    pub dpas: Policy,
}

/// Registers the published rules under their names. Later calls in a process return the first
/// call's result.
///
/// # Errors
/// Returns an error if one of the names is taken, or there are too many rules.
pub fn register() -> Result<Published, RegisterError> {
    static REGISTERED: OnceLock<Result<Published, RegisterError>> = OnceLock::new();
    REGISTERED.get_or_init(register_all).clone()
}

fn register_all() -> Result<Published, RegisterError> {
    let rule =
        |name, may_interrupt, make| add(RuleSpec { name, may_interrupt, make }).map(Policy::Rule);
    Ok(Published {
        hybrid_bucket: rule("hybrid-bucket", false, || Box::new(HybridBucket::default()))?,
        hybrid_min: rule("hybrid-min", false, || Box::new(HalfMin::default()))?,
        ehp: rule("ehp", true, || Box::new(Ehp::new(WakeCosts::of_this_machine())))?,
        pas: rule("pas", false, || Box::new(Pas::default()))?,
        dpas: rule("dpas", true, || Box::new(Dpas::default()))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use meantime_completion::Class;
    use meantime_completion::rule::Sample;

    /// An I/O at depth 1 that was neither slept for nor interrupted.
    pub(super) fn sample(class: Class, device_ns: u64, now_ns: u64) -> Sample {
        let (slept_ns, overslept, interrupted, in_flight) = (0, false, false, 1);
        Sample { class, device_ns, slept_ns, overslept, interrupted, in_flight, now_ns }
    }

    #[test]
    fn names_round_trip() {
        let published = register().unwrap();
        for (policy, name) in [
            (published.hybrid_bucket, "hybrid-bucket"),
            (published.hybrid_min, "hybrid-min"),
            (published.ehp, "ehp"),
            (published.pas, "pas"),
            (published.dpas, "dpas"),
        ] {
            assert_eq!(policy.to_string(), name);
            assert_eq!(name.parse(), Ok(policy));
            assert!(policy.learns() && policy.wants_times() && !policy.wants_interrupt());
            assert_eq!(policy.may_interrupt(), ["ehp", "dpas"].contains(&name));
        }
    }

    #[test]
    fn they_are_registered_once() {
        assert_eq!(register(), register());
        let again =
            add(RuleSpec { name: "pas", may_interrupt: false, make: || Box::new(Pas::default()) });
        assert_eq!(again, Err(RegisterError::Taken("pas")));
        let error = "pass".parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains("hybrid-bucket, hybrid-min, ehp, pas, dpas"), "{error}");
    }
}
