//! The Keep Alive Timer (1.4 §5.21.1.15, §7.12).
//!
//! The timer is traffic based (CTRATT.TBKAS): every fetched command restarts it. A busy controller
//! therefore need not check it. An idle one compares the counters along with its other checks. The
//! timer expires after one to two times its value.
//!
//! Commands that wait to be fetched also restart it, once, because the controller's thread may not
//! have run for that long, or there may be no room for completions. A host that is gone rings no
//! doorbell.

use meantime_nvme_spec::features::{KeepAliveTimer, fid};
use meantime_nvme_spec::status::{Status, StatusCode};

use super::{Controller, KeepAlive};

/// KAS, in units of 100 ms.
pub(super) const GRANULARITY_100MS: u16 = 1;

/// SQ and command identifier of an error that belongs to no command (1.4 §5.14.1.1).
const NO_COMMAND: u16 = 0xffff;

impl Controller {
    fn commands_fetched(&self) -> u64 {
        // I/O commands have completed, or are pending.
        let io = self.counters.cqes.get().wrapping_add(self.pending.len() as u64);
        self.counters.admin_commands.get().wrapping_add(io)
    }

    /// Returns a number that changes when the host rings a submission queue's doorbell with a valid
    /// value.
    fn tails(&self) -> u64 {
        self.sqs.iter().fold(0, |tails: u64, sq| {
            let tail = sq.doorbell.load();
            let tail = if tail < sq.ring.entries() { tail } else { sq.head };
            tails.wrapping_mul(0x0100_0000_01b3).wrapping_add(tail.into())
        })
    }

    /// Restarts the timer, because the host was active, or has set the feature.
    pub(super) fn restart_keep_alive(&mut self, now_ns: u64) {
        self.keep_alive =
            KeepAlive { since_ns: now_ns, seen: self.commands_fetched(), tails: self.tails() };
    }

    /// Returns when the timer expires unless a command comes, or `None` if it is off.
    pub(crate) fn keep_alive_until_ns(&self) -> Option<u64> {
        let kato_ms = u64::from(KeepAliveTimer(self.features[fid::KEEP_ALIVE_TIMER]).kato());
        if kato_ms == 0 || self.sqs.is_empty() || self.regs.is_shut_down() {
            return None;
        }
        // The time is rounded up to what KAS says.
        let timeout_ms = kato_ms.next_multiple_of(u64::from(GRANULARITY_100MS) * 100);
        Some(self.keep_alive.since_ns.saturating_add(timeout_ms * 1_000_000))
    }

    /// Checks whether the host has sent anything since the last check. If that was too long ago,
    /// the controller records an error, stops and sets CSTS.CFS, as it has no connection to end.
    pub(crate) fn look_for_life(&mut self, now_ns: u64) {
        let Some(until_ns) = self.keep_alive_until_ns() else { return };
        if self.commands_fetched() != self.keep_alive.seen || self.tails() != self.keep_alive.tails
        {
            self.restart_keep_alive(now_ns);
        } else if now_ns >= until_ns {
            let status = Status::from_code(StatusCode::KeepAliveTimerExpired);
            self.errors.record(NO_COMMAND, NO_COMMAND, status, false);
            self.fatal(
                "the Keep Alive Timer has expired: no command came for as long as the host has set",
            );
        }
    }
}
