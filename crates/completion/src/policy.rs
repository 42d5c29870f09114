//! The names of the policies (docs/policies.md).

use std::fmt;
use std::str::FromStr;
use std::sync::Once;

use super::rule::{self, RuleId};
use meantime_hw::clock::{Nanos, parse_time_ns};

/// A policy: a way to wait for a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Sleep until the device's interrupt.
    Interrupt,
    /// Classic polling: look until the completion is there.
    Poll,
    /// Hybrid polling with a fixed sleep: sleep this many ns, then poll.
    HybridFixed(u32),
    /// Adaptive hybrid polling as in Linux 4.10: sleep half the mean device time, then poll.
    HybridHalfMean,
    /// A registered rule.
    Rule(RuleId),
    /// Meantime's own policy: it chooses among polling, sleeps and the interrupt what holds the
    /// goal with the least CPU, by the times and costs seen on this machine.
    Adaptive(Goal),
}

/// The goal of [`Policy::Adaptive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Goal {
    /// The least CPU with a mean latency of at most this many thousandths over classic polling's.
    Latency(u16),
    /// The best latency with the thread using at most this many hundredths of a CPU.
    Cpu(u8),
    /// The least CPU with 99 % of I/Os done within this many ns.
    P99(u32),
    /// The least CPU with 99.9 % of I/Os done within this many ns.
    P999(u32),
}

impl Default for Goal {
    fn default() -> Self {
        Self::Latency(DEFAULT_LATENCY_PERMILLE)
    }
}

/// The default goal allows 3 % over classic polling.
const DEFAULT_LATENCY_PERMILLE: u16 = 30;

impl Goal {
    /// How much longer than the shortest time an I/O may take, as a part of that time; `None` if
    /// the goal bounds something else.
    pub(crate) fn late_part(self) -> Option<f32> {
        match self {
            Self::Latency(permille) => Some(f32::from(permille) / 1_000.0),
            Self::Cpu(_) | Self::P99(_) | Self::P999(_) => None,
        }
    }
}

impl Default for Policy {
    /// [`Policy::ADAPTIVE`].
    fn default() -> Self {
        Self::ADAPTIVE
    }
}

impl Policy {
    /// Whether it is [`Poll`](Self::Poll). This is one comparison, where the derived `==` may look
    /// at payloads.
    #[inline(always)]
    #[must_use]
    pub const fn is_poll(self) -> bool {
        matches!(self, Self::Poll)
    }

    /// The registered rule, if it is one.
    #[must_use]
    pub const fn rule(self) -> Option<RuleId> {
        match self {
            Self::Rule(rule) => Some(rule),
            _ => None,
        }
    }

    /// Meantime's own policy, with its default goal.
    pub const ADAPTIVE: Self = Self::Adaptive(Goal::Latency(DEFAULT_LATENCY_PERMILLE));

    /// Whether I/O of this policy requires a queue with an interrupt vector.
    #[inline(always)]
    pub fn wants_interrupt(self) -> bool {
        matches!(self, Self::Interrupt)
    }

    /// Whether I/O of this policy may go to a queue with an interrupt vector, if there is one.
    #[inline(always)]
    pub fn may_interrupt(self) -> bool {
        match self {
            Self::Interrupt | Self::Adaptive(_) => true,
            Self::Rule(rule) => rule.may_interrupt(),
            _ => false,
        }
    }

    /// Whether the policy blocks for some I/O, and polls for it where no queue has an interrupt
    /// vector. This excludes `adaptive`, which chooses among what there is.
    pub fn polls_instead(self) -> bool {
        self.may_interrupt() && !matches!(self, Self::Adaptive(_))
    }

    /// Whether the device time of every I/O is needed.
    #[inline(always)]
    pub fn wants_times(self) -> bool {
        !matches!(self, Self::Poll | Self::Interrupt)
    }

    /// Whether it learns from earlier I/Os.
    pub fn learns(self) -> bool {
        !matches!(self, Self::Poll | Self::Interrupt | Self::HybridFixed(_))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupt => f.write_str("interrupt"),
            Self::Poll => f.write_str("poll"),
            Self::HybridHalfMean => f.write_str("hybrid"),
            Self::Rule(rule) => f.write_str(rule.name()),
            Self::HybridFixed(ns) => write!(f, "hybrid={}", Nanos(u64::from(*ns))),
            Self::Adaptive(goal) if *goal == Goal::default() => f.write_str("adaptive"),
            Self::Adaptive(goal) => write!(f, "adaptive:{goal}"),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Latency(permille) if permille % 10 == 0 => write!(f, "latency={}", permille / 10),
            Self::Latency(permille) => write!(f, "latency={}.{}", permille / 10, permille % 10),
            Self::Cpu(percent) => write!(f, "cpu={percent}"),
            Self::P99(ns) => write!(f, "p99={}", Nanos(u64::from(ns))),
            Self::P999(ns) => write!(f, "p99.9={}", Nanos(u64::from(ns))),
        }
    }
}

impl FromStr for Goal {
    type Err = String;

    /// `latency=<percent>`, `cpu=<percent>`, `p99=<time>`, `p99.9=<time>`.
    fn from_str(text: &str) -> Result<Self, String> {
        let usage = || {
            format!(
                "{text:?} is no goal: use latency=<percent>, cpu=<percent>, p99=<time> or \
                 p99.9=<time>"
            )
        };
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let percent = || {
            let number = value.strip_suffix('%').unwrap_or(value);
            number.parse::<f64>().ok().filter(|percent| percent.is_finite()).ok_or_else(usage)
        };
        let time = || {
            let ns = parse_time_ns(value).ok_or_else(usage)?;
            u32::try_from(ns)
                .ok()
                .filter(|ns| (100..=1_000_000_000).contains(ns))
                .ok_or_else(|| format!("{text:?}: the time must be between 100ns and 1s"))
        };
        match name {
            "latency" if value.is_empty() => Ok(Self::default()),
            "latency" => match percent()? {
                percent if (0.1..=1000.0).contains(&percent) => {
                    Ok(Self::Latency((percent * 10.0).round() as u16))
                }
                _ => Err(format!(
                    "{text:?}: the percentage over classic polling must be between 0.1 and 1000"
                )),
            },
            "cpu" => match percent()? {
                percent if (1.0..=100.0).contains(&percent) && percent.fract() == 0.0 => {
                    Ok(Self::Cpu(percent as u8))
                }
                _ => Err(format!(
                    "{text:?}: the share of a CPU must be a whole number from 1 to 100 percent"
                )),
            },
            "p99" => Ok(Self::P99(time()?)),
            "p99.9" => Ok(Self::P999(time()?)),
            _ => Err(usage()),
        }
    }
}

/// The text names no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no completion policy{reason}: use interrupt, poll, adaptive, adaptive:<goal> \
     (latency=<percent>, cpu=<percent>, p99=<time>, p99.9=<time>), hybrid=<time> (e.g. \
     hybrid=2us), or for comparison hybrid{rules}"
)]
pub struct ParsePolicyError {
    text: String,
    reason: String,
    /// The names of the registered rules.
    rules: String,
}

impl ParsePolicyError {
    fn new(text: &str, reason: String) -> Self {
        let rules: String = rule::names().map(|name| format!(", {name}")).collect();
        let none = rules.is_empty().then(|| " (no other rule is registered)".to_owned());
        Self { text: text.to_owned(), reason, rules: none.unwrap_or(rules) }
    }
}

/// The longest fixed sleep, in ns: with a longer one, no look would come in reasonable time.
const LONGEST_SLEEP_NS: u64 = 1_000_000_000;

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, ParsePolicyError> {
        let error = |reason: String| ParsePolicyError::new(text, reason);
        match text {
            "interrupt" => Ok(Self::Interrupt),
            "poll" => Ok(Self::Poll),
            "hybrid" => Ok(Self::HybridHalfMean),
            "adaptive" => Ok(Self::ADAPTIVE),
            "auto" => {
                static SAID: Once = Once::new();
                SAID.call_once(|| tracing::warn!("the policy auto is called adaptive now"));
                Ok(Self::ADAPTIVE)
            }
            _ if text.starts_with("adaptive:") => {
                let goal = text["adaptive:".len()..].parse();
                goal.map(Self::Adaptive).map_err(|reason| error(format!(" ({reason})")))
            }
            _ => {
                let Some(time) = text.strip_prefix("hybrid=") else {
                    return RuleId::named(text).map(Self::Rule).ok_or_else(|| error(String::new()));
                };
                let ns =
                    parse_time_ns(time).ok_or_else(|| error(format!(" ({time:?} is no time)")))?;
                if ns == 0 || ns > LONGEST_SLEEP_NS {
                    return Err(error(" (the sleep must be between 1ns and 1s)".to_owned()));
                }
                Ok(Self::HybridFixed(ns as u32))
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let texts = [
            "interrupt",
            "poll",
            "hybrid",
            "hybrid=2us",
            "hybrid=1500ns",
            "hybrid=3ms",
            "adaptive",
            "adaptive:latency=2.5",
            "adaptive:latency=10",
            "adaptive:cpu=30",
            "adaptive:p99=25us",
            "adaptive:p99.9=1500ns",
        ];
        for text in texts {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        assert_eq!("hybrid=0.5ms".parse::<Policy>().unwrap(), Policy::HybridFixed(500_000));
        assert_eq!("adaptive:latency".parse::<Policy>().unwrap(), Policy::ADAPTIVE);
        assert_eq!("auto".parse::<Policy>().unwrap(), Policy::ADAPTIVE);
        assert_eq!("adaptive:cpu=30%".parse::<Policy>().unwrap(), Policy::Adaptive(Goal::Cpu(30)));
        assert_eq!("hybrid=4".parse::<Policy>().unwrap(), Policy::HybridFixed(4_000));
    }

    #[test]
    fn nonsense_says_what_would_do() {
        for text in [
            "",
            "pol",
            "hybrid=",
            "hybrid=x",
            "hybrid=0us",
            "hybrid=-1us",
            "hybrid=9999s",
            "poll=1us",
            "adaptive:",
            "adaptive:cpu=0",
            "adaptive:cpu=101",
            "adaptive:cpu=2.5",
            "adaptive:p99=1ns",
            "adaptive:p99=9s",
            "adaptive:latency=nan",
        ] {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains("hybrid=<time>"), "{error}");
        }
    }
}
