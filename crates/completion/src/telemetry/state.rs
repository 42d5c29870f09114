//! What a channel says of itself.

use super::words::{pack, unpack};

/// Words of the policy's text: 64 bytes, as a request has.
const POLICY_WORDS: usize = super::request::REQUEST_BYTES_MAX / 8;

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a channel has counted when it published, since it was made. Rates come from two of
        /// these ([`super::rates`]).
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct QueueFigures {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl QueueFigures {
            /// The names of the figures, as the control socket has them.
            pub const NAMES: [&'static str; FIGURES] = [$(stringify!($name)),*];

            /// The figures, in the order of [`QueueFigures::NAMES`].
            pub fn values(&self) -> [u64; FIGURES] {
                [$(self.$name),*]
            }

            /// The figures with these values, in the order of [`QueueFigures::NAMES`].
            pub fn from_values(values: [u64; FIGURES]) -> Self {
                let [$($name),*] = values;
                Self { $($name),* }
            }
        }
    };
}

const FIGURES: usize = 14;

figures! {
    /// Commands that have ended, in whatever way. A request that is split has several.
    ended,
    /// Commands in flight.
    in_flight,
    /// I/Os whose time is known: all of policies that need it, else a sample.
    timed,
    /// The sum of their times, from submission to having been seen, in ns.
    timed_sum_ns,
    /// Waits that a first look did not end.
    waits,
    /// Sleeps.
    sleeps,
    /// Of those, how many found the completion there already.
    oversleeps,
    /// Waits that ended otherwise than they were meant to: the spin budget ran out.
    fallbacks,
    /// Times the thread blocked for an interrupt.
    blocks,
    /// The device time that the policy expects, in ns: half of the I/Os are quicker, or the mean if
    /// it goes by that. 0: it has none.
    expected_ns,
    /// The device time that few I/Os fall short of, in ns. 0: the policy has none.
    expected_low_ns,
    /// CPU time of the thread that published, over its whole life, in ns.
    thread_cpu_ns,
    /// The thread that published.
    thread_id,
    /// When, in ns of the device's clock; for a real device the time of
    /// [`Clock::real`](meantime_hw::Clock::real).
    published_ns,
}

pub(super) const WORDS: usize = FIGURES + POLICY_WORDS;

/// A channel as it was when it last published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueState {
    /// Unique among the channels of this process, earlier ones included.
    pub id: u64,
    /// The device, as it was opened.
    pub device: String,
    /// The name of the thread that published; empty if there is no such thread any more.
    pub thread: String,
    /// How requests are waited for that name no policy.
    pub policy: String,
    /// What was counted.
    pub figures: QueueFigures,
}

/// A policy's text.
pub(super) type PolicyWords = [u64; POLICY_WORDS];

pub(super) fn policy_words(policy: &str) -> PolicyWords {
    pack(policy)
}

pub(super) fn to_words(policy: &PolicyWords, figures: &QueueFigures) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[..FIGURES].copy_from_slice(&figures.values());
    words[FIGURES..].copy_from_slice(policy);
    words
}

pub(super) fn from_words(words: &[u64; WORDS]) -> (String, QueueFigures) {
    let values = std::array::from_fn(|at| words[at]);
    (unpack(&words[FIGURES..]), QueueFigures::from_values(values))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        let figures = QueueFigures::from_values(std::array::from_fn(|at| at as u64 + 100));
        assert_eq!((figures.ended, figures.published_ns), (100, 113));
        assert_eq!(QueueFigures::NAMES[5], "sleeps");
        let (policy, read) = from_words(&to_words(&policy_words("hybrid=2us"), &figures));
        assert_eq!((policy.as_str(), read), ("hybrid=2us", figures));
    }
}
