//! How many requests of each kind were served.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::fuse::Opcode;

/// A kind's counts. They are written with each request, which takes microseconds.
#[derive(Debug, Default)]
struct Kind {
    served: AtomicU64,
    failed: AtomicU64,
    time_ns: AtomicU64,
}

/// The live counts of a mount's requests, which outlive it.
#[derive(Debug)]
pub struct RequestCounts([Kind; Opcode::NUMBERS]);

/// What happened to the requests of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// Served, with any result.
    pub served: u64,
    /// Of these, those with an error as result.
    pub failed: u64,
    /// The time that serving them took, in ns, without answering.
    pub time_ns: u64,
}

impl RequestCounts {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Kind::default()))
    }

    /// Counts a request that took `time`. Requests of unknown kinds are not counted.
    pub(super) fn add(&self, opcode: Option<Opcode>, is_ok: bool, time: Duration) {
        let Some(kind) = opcode.and_then(|opcode| self.0.get(opcode as usize)) else { return };
        kind.served.fetch_add(1, Ordering::Relaxed);
        kind.failed.fetch_add(u64::from(!is_ok), Ordering::Relaxed);
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        kind.time_ns.fetch_add(time_ns, Ordering::Relaxed);
    }

    /// The kinds by their names in lower case, as `getattr`, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (String, Requests)> {
        self.0.iter().zip(0u32..).filter_map(|(kind, number)| {
            let opcode = Opcode::of(number)?;
            let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
            // The part before the whole, so that it is never more.
            let failed = get(&kind.failed);
            let time_ns = get(&kind.time_ns);
            let requests = Requests { served: get(&kind.served), failed, time_ns };
            Some((format!("{opcode:?}").to_ascii_lowercase(), requests))
        })
    }
}
