//! Completion queue entry (1.4 §4.6, 2.0 §3.3.3.2).
//!
//! ```text
//! byte  0  DW0   command specific
//!       4  DW1   reserved (command specific in 2.0)
//!       8  SQHD  submission queue head pointer
//!      10  SQID  submission queue identifier
//!      12  CID   command identifier
//!      14  bit 0 phase tag, bits 15:1 status field
//! ```

use zerocopy::little_endian::{U16, U32};

use crate::status::Status;

wire! {
    /// A completion queue entry.
    #[repr(align(16))]
    pub struct Cqe, 16, Copy {
        /// Dword 0: command specific.
        0 pub dw0: U32,
        /// Dword 1: reserved in 1.4, command specific in 2.0.
        4 pub dw1: U32,
        /// SQ Head Pointer: entries before it may be reused.
        8 pub sqhd: U16,
        /// SQ Identifier: several submission queues may share a completion queue.
        10 pub sqid: U16,
        /// Command Identifier.
        12 pub cid: U16,
        /// Bit 0 the Phase Tag, bits 15:1 the Status Field.
        14 pub status_phase: U16,
    }
}

/// The phase tag, given the second of an entry's two little-endian words (SQHD, SQID, CID, status):
/// its bit 48.
#[inline(always)]
#[must_use]
pub const fn phase_of_high_word(word: u64) -> bool {
    word >> 48 & 1 != 0
}

impl Cqe {
    /// An entry with dword 1 clear.
    #[inline]
    #[must_use]
    pub const fn new(
        dw0: u32,
        sqhd: u16,
        sqid: u16,
        cid: u16,
        status: Status,
        phase: bool,
    ) -> Self {
        Self {
            dw0: U32::new(dw0),
            dw1: U32::new(0),
            sqhd: U16::new(sqhd),
            sqid: U16::new(sqid),
            cid: U16::new(cid),
            status_phase: U16::new(status.0 << 1 | phase as u16),
        }
    }

    /// Phase Tag: inverts each time the controller passes the end of the queue.
    #[inline]
    #[must_use]
    pub const fn phase(&self) -> bool {
        self.status_phase.get() & 1 != 0
    }

    /// Status Field.
    #[inline]
    #[must_use]
    pub const fn status(&self) -> Status {
        Status(self.status_phase.get() >> 1)
    }

    /// The entry as two integers, each holding eight bytes of it, the first byte least significant.
    #[inline(always)]
    #[must_use]
    pub const fn to_words(&self) -> [u64; 2] {
        [
            self.dw0.get() as u64 | (self.dw1.get() as u64) << 32,
            self.sqhd.get() as u64
                | (self.sqid.get() as u64) << 16
                | (self.cid.get() as u64) << 32
                | (self.status_phase.get() as u64) << 48,
        ]
    }

    /// The inverse of [`to_words`](Self::to_words).
    #[inline(always)]
    #[must_use]
    pub const fn from_words([low, high]: [u64; 2]) -> Self {
        Self {
            dw0: U32::new(low as u32),
            dw1: U32::new((low >> 32) as u32),
            sqhd: U16::new(high as u16),
            sqid: U16::new((high >> 16) as u16),
            cid: U16::new((high >> 32) as u16),
            status_phase: U16::new((high >> 48) as u16),
        }
    }
}
