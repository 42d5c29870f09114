//! The published state of a channel.

use super::latencies::Latencies;

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A channel's counts when it published, since its creation. Rates come from two of these
        /// ([`super::rates`]).
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct QueueFigures {
            $($(#[$doc])* pub $name: u64,)*
            /// The timed I/Os by operation and time. Not on the control socket.
            pub latencies: Latencies,
        }

        impl QueueFigures {
            /// The names of the figures, as on the control socket.
            pub const NAMES: [&'static str; FIGURES] = [$(stringify!($name)),*];

            /// The figures, in the order of [`QueueFigures::NAMES`].
            pub fn values(&self) -> [u64; FIGURES] {
                [$(self.$name),*]
            }

            /// The figures with these values, in the order of [`QueueFigures::NAMES`].
            pub fn from_values(values: [u64; FIGURES]) -> Self {
                let [$($name),*] = values;
                Self { $($name,)* latencies: Latencies::default() }
            }
        }
    };
}

const FIGURES: usize = 29;

figures! {
    /// Commands ended, with any result. A request that is split has several.
    ended,
    /// Commands in flight.
    in_flight,
    /// Timed I/Os: all I/Os of policies that need their times, otherwise a sample.
    timed,
    /// The sum of their times, from submission until found complete, in ns.
    timed_sum_ns,
    /// Waits that did not end at the first look.
    waits,
    /// Sleeps.
    sleeps,
    /// Sleeps after which the completion was there already.
    oversleeps,
    /// Waits in which the spin budget ran out.
    fallbacks,
    /// Times that the thread blocked for an interrupt.
    blocks,
    /// The device time that the policy expects, in ns: the median, or the mean if it uses that. 0:
    /// none.
    expected_ns,
    /// A low quantile of the device time, in ns. 0: the policy has none.
    expected_low_ns,
    /// Lifetime CPU time of the thread that published, in ns.
    thread_cpu_ns,
    /// The thread that published.
    thread_id,
    /// Time of publication, in ns of the device's clock; for a real device that of
    /// [`Clock::real`](meantime_hw::Clock::real).
    published_ns,
    /// How `adaptive` waits: 1 polls, 2 sleeps by plan, 3 waits for the interrupt. 0: another
    /// policy.
    way,
    /// Since when it waits so, in ns of the clock of `published_ns`; 0: since the beginning.
    way_since_ns,
    /// The part of a CPU that the thread is taken to get, in thousandths.
    cpu_share_permille,
    /// The time that an I/O was expected to take by polling at the last decision, in ns; 0:
    /// unknown.
    poll_ns,
    /// The time that an I/O was expected to take with sleeps by plan, in ns; 0: unknown.
    planned_ns,
    /// The time that an I/O was expected to take with the interrupt, in ns; 0: unknown.
    interrupt_ns,
    /// The CPU that it expected an I/O's wait to take by polling, in ns.
    poll_cpu_ns,
    /// The CPU that it expected an I/O's wait to take with sleeps by plan, in ns.
    planned_cpu_ns,
    /// The CPU that it expected an I/O's wait to take with the interrupt, in ns.
    interrupt_cpu_ns,
    /// Commands that were not complete at their deadline, and those found complete only then.
    timeouts,
    /// Abort commands sent.
    aborts,
    /// Times that a queue was deleted and created again: each queue once at a controller's reset.
    recreations,
    /// Commands repeated after a status that allows it.
    retries,
    /// Commands put back after their queue was deleted or the controller reset.
    requeued,
    /// Completions refused: of no command in flight, or with an impossible SQ head.
    refused,
}

impl QueueFigures {
    /// Adds the counts of `other`, a channel to the same device. Figures that are no counts stay.
    pub(super) fn add(&mut self, other: &Self) {
        self.ended += other.ended;
        self.in_flight += other.in_flight;
        self.timed += other.timed;
        self.timed_sum_ns += other.timed_sum_ns;
        self.waits += other.waits;
        self.sleeps += other.sleeps;
        self.oversleeps += other.oversleeps;
        self.fallbacks += other.fallbacks;
        self.blocks += other.blocks;
        self.timeouts += other.timeouts;
        self.aborts += other.aborts;
        self.recreations += other.recreations;
        self.retries += other.retries;
        self.requeued += other.requeued;
        self.refused += other.refused;
        self.latencies.add_all(&other.latencies);
    }
}

/// A channel as of its last publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueState {
    /// Unique among all channels of this process, past and present.
    pub id: u64,
    /// The name of the device, as it was opened.
    pub device: String,
    /// The name of the thread that published; empty if it has ended.
    pub thread: String,
    /// The policy of requests that name none.
    pub policy: String,
    /// The counts.
    pub figures: QueueFigures,
}
