//! The counters of the target. Those of the controller are separate.

use crate::counters::counters;

counters! {
    /// A copy of the target's counters since it was started.
    TcpCounters;
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
    /// Hosts that could not authenticate themselves.
    authentications_failed,
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
    /// Number of times that the thread slept.
    sleeps,
}
