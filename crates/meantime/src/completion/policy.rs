//! The names of the ways to wait (DESIGN §5).

use std::fmt;
use std::str::FromStr;

/// A way to wait for a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Sleep until the device's interrupt.
    Interrupt,
    /// Classic polling: look until it is there.
    #[default]
    Poll,
    /// Hybrid polling with a fixed sleep: sleep so many ns, then poll.
    HybridFixed(u64),
    /// Adaptive hybrid polling as Linux 4.10 had it: sleep half the mean device time, then poll.
    HybridHalfMean,
    /// Hybrid polling as io_uring has it since Linux 6.13: sleep half the shortest run time seen, then poll.
    HybridMin,
}

impl Policy {
    /// Whether I/O of this policy goes to a queue with an interrupt vector.
    #[inline(always)]
    pub fn wants_interrupt(self) -> bool {
        matches!(self, Self::Interrupt)
    }

    /// Whether the device time of each I/O has to be known.
    #[inline(always)]
    pub fn wants_times(self) -> bool {
        matches!(self, Self::HybridHalfMean | Self::HybridMin | Self::HybridFixed(_))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupt => f.write_str("interrupt"),
            Self::Poll => f.write_str("poll"),
            Self::HybridHalfMean => f.write_str("hybrid"),
            Self::HybridMin => f.write_str("hybrid-min"),
            Self::HybridFixed(ns) if ns % 1_000_000 == 0 => write!(f, "hybrid={}ms", ns / 1_000_000),
            Self::HybridFixed(ns) if ns % 1_000 == 0 => write!(f, "hybrid={}us", ns / 1_000),
            Self::HybridFixed(ns) => write!(f, "hybrid={ns}ns"),
        }
    }
}

/// A text that names no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no completion policy{reason}: use interrupt, poll, hybrid, hybrid-min or hybrid=<time> (e.g. hybrid=2us)"
)]
pub struct ParsePolicyError {
    text: String,
    reason: String,
}

/// The longest fixed sleep: beyond it no completion would be looked for in reasonable time.
const LONGEST_SLEEP_NS: u64 = 1_000_000_000;

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, ParsePolicyError> {
        let error = |reason: String| ParsePolicyError { text: text.to_owned(), reason };
        match text {
            "interrupt" => Ok(Self::Interrupt),
            "poll" => Ok(Self::Poll),
            "hybrid" => Ok(Self::HybridHalfMean),
            "hybrid-min" => Ok(Self::HybridMin),
            "adaptive" | "auto" | "hybrid-bucket" | "ehp" | "pas" | "dpas" => {
                Err(error(" of this version".to_owned()))
            }
            _ => {
                let time = text.strip_prefix("hybrid=").ok_or_else(|| error(String::new()))?;
                let ns = parse_time_ns(time).ok_or_else(|| error(format!(" ({time:?} is no time)")))?;
                if ns == 0 || ns > LONGEST_SLEEP_NS {
                    return Err(error(" (the sleep must be between 1ns and 1s)".to_owned()));
                }
                Ok(Self::HybridFixed(ns))
            }
        }
    }
}

/// `2us`, `1500ns`, `0.5ms`, `1s`; a bare number is µs.
fn parse_time_ns(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "ns" => 1.0,
        "us" | "µs" | "" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let value: f64 = number.parse().ok()?;
    let ns = (value * factor).round();
    (0.0..=1e18).contains(&ns).then_some(ns as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for text in ["interrupt", "poll", "hybrid", "hybrid-min", "hybrid=2us", "hybrid=1500ns", "hybrid=3ms"]
        {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        assert_eq!("hybrid=0.5ms".parse::<Policy>().unwrap(), Policy::HybridFixed(500_000));
        assert_eq!("hybrid=4".parse::<Policy>().unwrap(), Policy::HybridFixed(4_000));
    }

    #[test]
    fn nonsense_says_what_would_do() {
        for text in
            ["", "pol", "hybrid=", "hybrid=x", "hybrid=0us", "hybrid=-1us", "hybrid=9999s", "poll=1us", "pas"]
        {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains("hybrid=<time>"), "{error}");
        }
    }
}
