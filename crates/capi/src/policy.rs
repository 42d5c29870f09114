//! A policy as a number, for requests.

use std::ffi::{c_char, c_int};

use meantime_baselines::Published;
use meantime_completion::{Goal, Policy};

use crate::error::{Answer, Failed, fail, misuse};
use crate::guard::{guarded, out, text};

// The lower byte is the kind, above it is the sleep in ns. 0 means the channel's policy.
const INTERRUPT: u64 = 1;
const POLL: u64 = 2;
const HYBRID_HALF_MEAN: u64 = 3;
const HYBRID_MIN: u64 = 4;
const HYBRID_FIXED: u64 = 5;
const HYBRID_BUCKET: u64 = 6;
const EHP: u64 = 7;
const PAS: u64 = 8;
const DPAS: u64 = 9;
/// The number in programs that were built when `auto` and `adaptive` were two policies.
const AUTO: u64 = 10;
// Goals of `adaptive`, with their figure.
const ADAPTIVE_LATENCY: u64 = 16;
const ADAPTIVE_CPU: u64 = 17;
const ADAPTIVE_P99: u64 = 18;
const ADAPTIVE_P999: u64 = 19;

/// The published rules, which this library registers by name.
pub(crate) fn published() -> Result<Published, Failed> {
    meantime_baselines::register().map_err(|error| fail(libc::EEXIST, error))
}

fn encode(policy: Policy) -> Option<u64> {
    Some(match policy {
        Policy::Interrupt => INTERRUPT,
        Policy::Poll => POLL,
        Policy::HybridHalfMean => HYBRID_HALF_MEAN,
        Policy::HybridFixed(ns) => HYBRID_FIXED | u64::from(ns) << 8,
        Policy::Rule(rule) => match rule.name() {
            "hybrid-bucket" => HYBRID_BUCKET,
            "hybrid-min" => HYBRID_MIN,
            "ehp" => EHP,
            "pas" => PAS,
            "dpas" => DPAS,
            _ => return None,
        },
        Policy::Adaptive(Goal::Latency(permille)) => ADAPTIVE_LATENCY | u64::from(permille) << 8,
        Policy::Adaptive(Goal::Cpu(percent)) => ADAPTIVE_CPU | u64::from(percent) << 8,
        Policy::Adaptive(Goal::P99(ns)) => ADAPTIVE_P99 | u64::from(ns) << 8,
        Policy::Adaptive(Goal::P999(ns)) => ADAPTIVE_P999 | u64::from(ns) << 8,
        _ => return None,
    })
}

/// The policy of a request; `None` stands for the channel's.
#[inline(always)]
pub(crate) fn decode(call: &str, number: u64) -> Result<Option<Policy>, Failed> {
    if number == 0 {
        return Ok(None);
    }
    let policy = match (number & 0xff, number >> 8) {
        (INTERRUPT, 0) => Policy::Interrupt,
        (POLL, 0) => Policy::Poll,
        (HYBRID_HALF_MEAN, 0) => Policy::HybridHalfMean,
        (HYBRID_MIN, 0) => published()?.hybrid_min,
        (HYBRID_FIXED, ns @ 1..=0xffff_ffff) => Policy::HybridFixed(ns as u32),
        (HYBRID_BUCKET, 0) => published()?.hybrid_bucket,
        (EHP, 0) => published()?.ehp,
        (PAS, 0) => published()?.pas,
        (DPAS, 0) => published()?.dpas,
        (AUTO, 0) => Policy::ADAPTIVE,
        (ADAPTIVE_LATENCY, permille @ 1..=0xffff) => {
            Policy::Adaptive(Goal::Latency(permille as u16))
        }
        (ADAPTIVE_CPU, percent @ 1..=100) => Policy::Adaptive(Goal::Cpu(percent as u8)),
        (ADAPTIVE_P99, ns @ 1..=0xffff_ffff) => Policy::Adaptive(Goal::P99(ns as u32)),
        (ADAPTIVE_P999, ns @ 1..=0xffff_ffff) => Policy::Adaptive(Goal::P999(ns as u32)),
        _ => {
            let what = "the request's policy is none: use 0 or what mt_policy_parse gives";
            return Err(misuse(call, what));
        }
    };
    Ok(Some(policy))
}

/// The policy that `name` names.
///
/// # Safety
/// `name` is NULL or ends with a NUL, and does not change during the call.
pub(crate) unsafe fn named(call: &str, name: *const c_char) -> Result<Policy, Failed> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(call, "policy", name) }?;
    published()?;
    name.parse::<Policy>().map_err(|error| misuse(call, error))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mt_policy_parse(name: *const c_char, policy: *mut u64) -> c_int {
    const CALL: &str = "mt_policy_parse";
    guarded(CALL, || -> Answer {
        let place = out(CALL, "policy", policy)?;
        // SAFETY: the header's promise.
        let parsed = unsafe { named(CALL, name) }?;
        let number = encode(parsed).ok_or_else(|| {
            fail(
                libc::EOPNOTSUPP,
                format_args!("{CALL}: {parsed} is for channels: use mt_set_policy"),
            )
        })?;
        // SAFETY: it is not NULL, and the header has it point to a policy.
        unsafe { place.write(number) };
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for name in [
            "interrupt",
            "poll",
            "hybrid",
            "hybrid-min",
            "hybrid=2us",
            "hybrid=1s",
            "hybrid-bucket",
            "ehp",
            "pas",
            "dpas",
            "adaptive",
            "adaptive:latency=2.5",
            "adaptive:cpu=30",
            "adaptive:p99=25us",
            "adaptive:p99.9=1ms",
        ] {
            published().unwrap();
            let policy: Policy = name.parse().unwrap();
            assert_eq!(decode("", encode(policy).unwrap()).unwrap(), Some(policy), "{name}");
        }
        assert_eq!(decode("", 0).unwrap(), None);
        for number in [
            11,
            255,
            ADAPTIVE_CPU | 101 << 8,
            ADAPTIVE_LATENCY,
            POLL | 1 << 8,
            HYBRID_FIXED,
            u64::MAX,
        ] {
            assert!(decode("", number).is_err(), "{number:#x}");
        }
    }
}
