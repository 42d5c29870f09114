//! A line, as bytes: four cache lines, then data.
//!
//! A call moves two of these cache lines between the CPUs: the request's, and the reply's. The
//! words for sleeping have cache lines of their own, which stay shared as long as both sides are
//! awake.

use crate::park::Parking;
use crate::sync::{AtomicI64, AtomicU32, AtomicU64};

/// The maximum number of bytes of data in one call.
pub const DATA_BYTES: usize = 1 << 20;
/// The offset of a line's data, in bytes. They begin at a page.
#[cfg(not(loom))]
pub const DATA_AT: usize = 4096;
/// The size of a line's memory, in bytes.
#[cfg(not(loom))]
pub(crate) const LINE_BYTES: usize = DATA_AT + DATA_BYTES;

/// The words that the client writes.
#[repr(C, align(64))]
pub(crate) struct RequestWords {
    /// The request's number, from 1. It is stored last, with Release.
    pub(crate) number: AtomicU32,
    pub(crate) op: AtomicU32,
    pub(crate) flags: AtomicU32,
    pub(crate) len: AtomicU32,
    pub(crate) handle: AtomicU64,
    pub(crate) offset: AtomicU64,
    /// The client's CPU.
    pub(crate) cpu: AtomicU32,
    pub(crate) closings: AtomicU64,
}

/// The words that the owner writes.
#[repr(C, align(64))]
pub(crate) struct ReplyWords {
    /// The number of the request that is answered. It is stored last, with Release.
    pub(crate) number: AtomicU32,
    pub(crate) status: AtomicU32,
    pub(crate) result: AtomicI64,
    pub(crate) end: AtomicU64,
    /// The owner's CPU.
    pub(crate) cpu: AtomicU32,
    /// This is 1 once the owner has ended the line.
    pub(crate) ended: AtomicU32,
}

/// The head of a line.
#[repr(C, align(64))]
pub(crate) struct Line {
    pub(crate) request: RequestWords,
    pub(crate) reply: ReplyWords,
    /// The word of the client, which waits for replies.
    pub(crate) client: Parking,
    /// The word of the owner, which waits for requests.
    pub(crate) owner: Parking,
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Line, reply) == 64);
    assert!(offset_of!(Line, client) == 128);
    assert!(offset_of!(Line, owner) == 192);
    assert!(size_of::<Line>() == 256 && size_of::<Line>() <= DATA_AT);
};
