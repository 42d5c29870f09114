//! Counts the requests of each kind that were served, and the calls of the shared-memory path.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use meantime_shm_rpc::message::{Op, Reply, Request, Status};

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

/// The results of the requests of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// The requests that were served, with any result.
    pub served: u64,
    /// Those of them whose result was an error.
    pub failed: u64,
    /// The time that serving them took, without answering, in ns.
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

    /// Returns the kinds by their names in lower case, such as `getattr`, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (String, Requests)> {
        self.0.iter().zip(0u32..).filter_map(|(kind, number)| {
            let opcode = Opcode::of(number)?;
            let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
            // The part is read before the whole, so that it is never larger.
            let failed = get(&kind.failed);
            let time_ns = get(&kind.time_ns);
            let requests = Requests { served: get(&kind.served), failed, time_ns };
            Some((format!("{opcode:?}").to_ascii_lowercase(), requests))
        })
    }
}

/// The live counts of a mount's calls of the shared-memory path.
#[derive(Debug, Default)]
pub struct CallCounts {
    kinds: [AtomicU64; 7],
    bytes: AtomicU64,
    long: AtomicU64,
    stale: AtomicU64,
    /// The memory of the lines.
    pub(super) line_bytes: AtomicU64,
}

/// The counts of the shared-memory path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Calls {
    /// Reads that were executed.
    pub reads: u64,
    /// Writes that were executed.
    pub writes: u64,
    /// Calls of `fsync` and `fdatasync`.
    pub syncs: u64,
    /// Calls that set a size, return attributes, or leave a file to the kernel.
    pub others: u64,
    /// Bytes that were read or written.
    pub bytes: u64,
    /// Calls sent back to take the FUSE path, since the kernel caches the file.
    pub long: u64,
    /// Calls sent back since their file was closed.
    pub stale: u64,
    /// Bytes of memory that programs' lines have now
    /// ([`Options::shared_memory_limit`](crate::Options::shared_memory_limit)).
    pub line_bytes: u64,
}

impl CallCounts {
    pub(super) fn add(&self, request: &Request, reply: &Reply) {
        let count = match reply.status {
            Status::Long | Status::Left => &self.long,
            Status::Stale => &self.stale,
            Status::Done | Status::Resized => {
                if matches!(request.op, Op::Read | Op::Write) && reply.result > 0 {
                    self.bytes.fetch_add(reply.result as u64, Ordering::Relaxed);
                }
                &self.kinds[request.op as usize - 1]
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts.
    pub fn get(&self) -> Calls {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let kind = |op: Op| get(&self.kinds[op as usize - 1]);
        Calls {
            reads: kind(Op::Read),
            writes: kind(Op::Write),
            syncs: kind(Op::SyncData) + kind(Op::SyncAll),
            others: kind(Op::Truncate) + kind(Op::Attributes) + kind(Op::Leave),
            bytes: get(&self.bytes),
            long: get(&self.long),
            stale: get(&self.stale),
            line_bytes: get(&self.line_bytes),
        }
    }
}
