//! A host's association: the virtual controller that the host has, or a queue for which it waits.

use std::collections::VecDeque;

use meantime_nvme_spec::fabrics::ConnectData;
use meantime_nvme_spec::features::fid;
use meantime_nvme_spec::regs::{Cap, Cc, Csts, shn, shst};
use meantime_nvme_spec::sqe::Sqe;

use super::backend::ConnId;
use crate::event_requests::EventRequests;

/// The maximum number of events that wait for a request.
const EVENTS: usize = 8;

/// KAS: the granularity of the Keep Alive Timer, in ms.
pub(super) const KEEP_ALIVE_MS: u32 = 100;

pub(super) struct Association {
    pub(super) cntlid: u16,
    pub(super) hostid: [u8; 16],
    pub(super) hostnqn: String,
    pub(super) is_discovery: bool,
    pub(super) cc: Cc,
    /// The value of CSTS.CFS.
    pub(super) failed: bool,
    pub(super) shst: u8,
    pub(super) kato_ms: u32,
    /// The time of the last command.
    pub(super) alive_ns: u64,
    pub(super) admin: ConnId,
    /// The I/O queues with their connections.
    pub(super) io: Vec<(u16, ConnId)>,
    /// The number of I/O queues granted.
    pub(super) granted: u16,
    pub(super) requests: EventRequests,
    /// The events that wait for a request, as in DW0.
    pub(super) events: VecDeque<u32>,
}

/// The action that a change of CC asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Enable,
    Disable,
    ShutDown,
}

impl Association {
    /// Takes a new value of CC.
    pub(super) fn set_cc(&mut self, new: Cc) -> Change {
        let old = std::mem::replace(&mut self.cc, new);
        if old.en() && !new.en() {
            return Change::Disable;
        }
        if new.en() && !old.en() {
            let sizes = matches!((new.iosqes(), new.iocqes()), (0 | 6, 0 | 4));
            self.failed = new.css() != 0 || new.mps() != 0 || new.ams() != 0 || !sizes;
            self.shst = 0;
            return Change::Enable;
        }
        let asked = new.shn() != old.shn() && new.shn() != shn::NONE;
        if asked && new.shn() <= shn::ABRUPT { Change::ShutDown } else { Change::Nothing }
    }

    /// Returns CSTS. `device_ready` says whether the SSD is ready.
    pub(super) fn csts(&self, device_ready: bool) -> Csts {
        let ready = self.cc.en() && !self.failed && device_ready;
        Csts(0).with_rdy(ready).with_cfs(self.failed).with_shst(self.shst)
    }

    /// Returns whether commands other than those of Fabrics are executed.
    #[inline(always)]
    pub(super) fn takes_commands(&self) -> bool {
        self.cc.en() && !self.failed && self.shst != shst::COMPLETE
    }

    /// Returns when the host is given up.
    pub(super) fn until_ns(&self) -> Option<u64> {
        let kato_ms = u64::from(self.kato_ms.checked_next_multiple_of(KEEP_ALIVE_MS)?);
        (kato_ms > 0).then(|| self.alive_ns.saturating_add(kato_ms * 1_000_000))
    }

    /// Queues an event.
    pub(super) fn event(&mut self, event: u32) {
        if self.events.len() < EVENTS && !self.events.contains(&event) {
            self.events.push_back(event);
        }
    }
}

/// Returns CAP of a virtual controller, given that of the SSD.
pub(super) fn cap(of_ssd: u64, most_entries: u32) -> Cap {
    let cap = Cap(of_ssd).with_mqes((most_entries - 1) as u16);
    cap.with_dstrd(0).with_nssrs(false).with_ams(0).with_cmbs(false)
}

/// Returns whether each host has a value of its own for a feature.
pub(super) fn is_own_feature(feature: u8) -> bool {
    matches!(feature, fid::NUMBER_OF_QUEUES | fid::KEEP_ALIVE_TIMER)
}

/// A Connect that waits.
pub(super) struct Waiting {
    pub(super) conn: ConnId,
    pub(super) sqe: Sqe,
    pub(super) data: Box<ConnectData>,
    /// The time at which it is refused.
    pub(super) until_ns: u64,
}
