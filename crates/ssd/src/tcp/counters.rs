//! What the target has counted. The controller's counters are beside these.

use crate::counters::Count;

macro_rules! counters {
    ($( $(#[doc = $doc:literal])* $name:ident, )*) => {
        /// A copy of the target's counters since it was started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct TcpCounters {
            $( $(#[doc = $doc])* pub $name: u64, )*
        }

        #[derive(Default)]
        pub(super) struct SharedCounters {
            $( pub(super) $name: Count, )*
        }

        impl TcpCounters {
            /// Every counter with its name, in order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$( (stringify!($name), self.$name), )*].into_iter()
            }
        }

        impl SharedCounters {
            pub(super) fn snapshot(&self) -> TcpCounters {
                TcpCounters { $( $name: self.$name.get(), )* }
            }
        }
    };
}

counters! {
    /// Connections accepted.
    connections,
    /// Connections closed at once, because there were too many.
    too_many,
    /// Connections that have ended, for any reason.
    ended,
    /// Hosts that have connected: associations made.
    associations,
    /// Associations that have ended.
    associations_ended,
    /// Connects refused.
    connects_refused,
    /// PDUs after which the connection had to end: TermReqs sent.
    fatal_errors,
    /// TermReqs received.
    terminated_by_hosts,
    /// Wrong data digests received.
    data_digest_errors,
    /// Keep Alive Timers expired.
    keep_alives_expired,
    /// Connections closed since they took too long to connect, to send data, or to take answers.
    too_slow,
    /// R2Ts sent.
    r2ts,
    /// Faults injected: connections closed, at a command or within a PDU.
    injected_closes,
    /// Faults injected: wrong digests sent.
    injected_digests,
    /// Times the thread slept.
    sleeps,
}
