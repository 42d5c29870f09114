//! A policy as a number, for requests.

use std::ffi::{c_char, c_int};

use meantime::completion::Policy;

use crate::error::{Answer, Failed, fail, misuse};
use crate::guard::{guarded, out, text};

// The lower byte is the kind, above it is the sleep in ns. 0 is left for the channel's own.
const INTERRUPT: u64 = 1;
const POLL: u64 = 2;
const HYBRID_HALF_MEAN: u64 = 3;
const HYBRID_MIN: u64 = 4;
const HYBRID_FIXED: u64 = 5;

fn encode(policy: Policy) -> Option<u64> {
    Some(match policy {
        Policy::Interrupt => INTERRUPT,
        Policy::Poll => POLL,
        Policy::HybridHalfMean => HYBRID_HALF_MEAN,
        Policy::HybridMin => HYBRID_MIN,
        Policy::HybridFixed(ns) if ns < 1 << 56 => HYBRID_FIXED | ns << 8,
        _ => return None,
    })
}

/// The policy of a request; `None` is the channel's.
#[inline(always)]
pub fn decode(call: &str, number: u64) -> Result<Option<Policy>, Failed> {
    if number == 0 {
        return Ok(None);
    }
    let policy = match (number & 0xff, number >> 8) {
        (INTERRUPT, 0) => Policy::Interrupt,
        (POLL, 0) => Policy::Poll,
        (HYBRID_HALF_MEAN, 0) => Policy::HybridHalfMean,
        (HYBRID_MIN, 0) => Policy::HybridMin,
        (HYBRID_FIXED, ns) if ns > 0 => Policy::HybridFixed(ns),
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
/// As [`text`].
pub unsafe fn named(call: &str, name: *const c_char) -> Result<Policy, Failed> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(call, "policy", name) }?;
    name.parse::<Policy>().map_err(|error| misuse(call, error))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_policy_parse(name: *const c_char, policy: *mut u64) -> c_int {
    const CALL: &str = "mt_policy_parse";
    guarded(CALL, || -> Answer {
        let place = out(CALL, "policy", policy)?;
        // SAFETY: the header's promise.
        let parsed = unsafe { named(CALL, name) }?;
        let number = encode(parsed).ok_or_else(|| {
            fail(libc::EOPNOTSUPP, format_args!("{CALL}: {parsed} is for channels: use mt_set_policy"))
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
        for name in ["interrupt", "poll", "hybrid", "hybrid-min", "hybrid=2us", "hybrid=1s"] {
            let policy: Policy = name.parse().unwrap();
            assert_eq!(decode("", encode(policy).unwrap()).unwrap(), Some(policy), "{name}");
        }
        assert_eq!(decode("", 0).unwrap(), None);
        for number in [6, 255, POLL | 1 << 8, HYBRID_FIXED, u64::MAX] {
            assert!(decode("", number).is_err(), "{number:#x}");
        }
    }
}
