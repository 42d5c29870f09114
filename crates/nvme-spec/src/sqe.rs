//! Submission queue entry (1.4 §4.2, 2.0 §3.3.3.1) and the I/O commands of the NVM command set (1.4
//! §6).
//!
//! ```text
//! byte  0  CDW0    31:16 CID, 15:14 PSDT, 9:8 FUSE, 7:0 OPC
//!       4  NSID
//!       8  CDW2, CDW3
//!      16  MPTR    metadata pointer
//!      24  DPTR    PRP1, PRP2
//!      40  CDW10 .. CDW15   command specific
//! ```

use zerocopy::little_endian::{U32, U64};

use crate::opcode::io;

pub use crate::sqe_admin::qprio;

/// NSID of a command meant for every namespace (1.4 §6.1).
pub const NSID_BROADCAST: u32 = 0xffff_ffff;

/// CDW12 bit of the commands that write or read: Force Unit Access.
pub const CDW12_FUA: u32 = 1 << 30;
/// CDW12 bit of Write Zeroes: Deallocate.
pub const CDW12_DEAC: u32 = 1 << 25;
/// CDW11 bit of Dataset Management: Attribute – Deallocate.
pub const DSM_AD: u32 = 1 << 2;

/// Fused Operation: which command of a pair (1.4 §4.2, figure 104).
pub mod fuse {
    /// A command by itself.
    pub const NONE: u8 = 0;
    /// The first of a pair; the second is the next entry.
    pub const FIRST: u8 = 1;
    /// The second.
    pub const SECOND: u8 = 2;
}

wire! {
    /// A submission queue entry.
    #[repr(align(64))]
    pub struct Sqe, 64, Copy {
        /// Command Dword 0: opcode, fused operation, PRP or SGL, command identifier.
        0 pub cdw0: U32,
        /// Namespace Identifier.
        4 pub nsid: U32,
        /// Command Dword 2.
        8 pub cdw2: U32,
        /// Command Dword 3.
        12 pub cdw3: U32,
        /// Metadata Pointer.
        16 pub mptr: U64,
        /// PRP Entry 1: the first page of the data.
        24 pub prp1: U64,
        /// PRP Entry 2: the second page, or a list of the second and all further ones.
        32 pub prp2: U64,
        /// Command Dword 10.
        40 pub cdw10: U32,
        /// Command Dword 11.
        44 pub cdw11: U32,
        /// Command Dword 12.
        48 pub cdw12: U32,
        /// Command Dword 13.
        52 pub cdw13: U32,
        /// Command Dword 14.
        56 pub cdw14: U32,
        /// Command Dword 15.
        60 pub cdw15: U32,
    }
}

const fn low(word: u64) -> U32 {
    U32::new(word as u32)
}

const fn high(word: u64) -> U32 {
    U32::new((word >> 32) as u32)
}

const fn word(low: U32, high: U32) -> u64 {
    low.get() as u64 | (high.get() as u64) << 32
}

impl Sqe {
    /// An entry that is zero but for opcode, command and namespace identifier.
    #[inline]
    #[must_use]
    pub const fn new(opcode: u8, cid: u16, nsid: u32) -> Self {
        Self::from_words([
            opcode as u64 | (cid as u64) << 16 | (nsid as u64) << 32,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ])
    }

    /// The entry as eight integers, each holding eight bytes of it, the first byte least
    /// significant.
    #[inline(always)]
    #[must_use]
    pub const fn to_words(&self) -> [u64; 8] {
        [
            word(self.cdw0, self.nsid),
            word(self.cdw2, self.cdw3),
            self.mptr.get(),
            self.prp1.get(),
            self.prp2.get(),
            word(self.cdw10, self.cdw11),
            word(self.cdw12, self.cdw13),
            word(self.cdw14, self.cdw15),
        ]
    }

    /// The inverse of [`to_words`](Self::to_words).
    #[inline(always)]
    #[must_use]
    pub const fn from_words(words: [u64; 8]) -> Self {
        Self {
            cdw0: low(words[0]),
            nsid: high(words[0]),
            cdw2: low(words[1]),
            cdw3: high(words[1]),
            mptr: U64::new(words[2]),
            prp1: U64::new(words[3]),
            prp2: U64::new(words[4]),
            cdw10: low(words[5]),
            cdw11: high(words[5]),
            cdw12: low(words[6]),
            cdw13: high(words[6]),
            cdw14: low(words[7]),
            cdw15: high(words[7]),
        }
    }

    /// Sets the Command Identifier.
    #[inline]
    pub const fn set_cid(&mut self, cid: u16) {
        self.cdw0 = U32::new(self.cdw0.get() & 0xffff | (cid as u32) << 16);
    }

    /// Makes the command a part of a fused operation; `fuse` is one of [`fuse`].
    #[inline]
    #[must_use]
    pub const fn with_fuse(mut self, fuse: u8) -> Self {
        self.cdw0 = U32::new(self.cdw0.get() & !0x300 | (fuse as u32 & 3) << 8);
        self
    }

    /// Sets the data pointer to `prp1` and `prp2`.
    #[inline]
    #[must_use]
    pub const fn with_prps(mut self, prp1: u64, prp2: u64) -> Self {
        self.prp1 = U64::new(prp1);
        self.prp2 = U64::new(prp2);
        self
    }

    /// Starting LBA of an I/O command (CDW10, CDW11).
    #[inline]
    #[must_use]
    pub const fn slba(&self) -> u64 {
        word(self.cdw10, self.cdw11)
    }

    /// Number of Logical Blocks of an I/O command (CDW12 15:0), counted from 1.
    #[inline]
    #[must_use]
    pub const fn nlb(&self) -> u32 {
        (self.cdw12.get() & 0xffff) + 1
    }

    /// Number of Ranges of a Dataset Management command (CDW10 7:0), counted from 1.
    #[inline]
    #[must_use]
    pub const fn nr(&self) -> u32 {
        (self.cdw10.get() & 0xff) + 1
    }

    /// An I/O command on `nlb` blocks (1 to 65536) from `slba`.
    #[inline]
    const fn blocks(opcode: u8, cid: u16, nsid: u32, slba: u64, nlb: u32, flags: u32) -> Self {
        assert!(nlb >= 1 && nlb <= 0x1_0000, "number of logical blocks out of range");
        let cdw12 = (nlb - 1) | flags;
        let cdw0 = opcode as u64 | (cid as u64) << 16;
        Self::from_words([cdw0 | (nsid as u64) << 32, 0, 0, 0, 0, slba, cdw12 as u64, 0])
    }

    /// Read (1.4 §6.9) `nlb` blocks (1 to 65536).
    #[inline]
    #[must_use]
    pub const fn read(cid: u16, nsid: u32, slba: u64, nlb: u32, prp1: u64, prp2: u64) -> Self {
        Self::blocks(io::READ, cid, nsid, slba, nlb, 0).with_prps(prp1, prp2)
    }

    /// Write (1.4 §6.15) `nlb` blocks (1 to 65536); with `fua`, completed only once on the medium.
    #[inline]
    #[must_use]
    pub const fn write(
        cid: u16,
        nsid: u32,
        slba: u64,
        nlb: u32,
        prp1: u64,
        prp2: u64,
        fua: bool,
    ) -> Self {
        let flags = if fua { CDW12_FUA } else { 0 };
        Self::blocks(io::WRITE, cid, nsid, slba, nlb, flags).with_prps(prp1, prp2)
    }

    /// Read, write or compare by `opcode` (1.4 §6.9, §6.15 and §6.6, whose entries differ in
    /// nothing else). `nlb` is 0's based, as on the wire.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::too_many_arguments)] // The fields of the entry.
    pub const fn transfer(
        opcode: u8,
        cid: u16,
        nsid: u32,
        slba: u64,
        nlb: u16,
        prp1: u64,
        prp2: u64,
        fua: bool,
    ) -> Self {
        debug_assert!(opcode == io::READ || opcode == io::WRITE || opcode == io::COMPARE);
        let cdw0 = opcode as u64 | (cid as u64) << 16;
        // `fua` is 0 or 1, so this needs no branch.
        let cdw12 = nlb as u64 | (fua as u64) << CDW12_FUA.trailing_zeros();
        Self::from_words([cdw0 | (nsid as u64) << 32, 0, 0, prp1, prp2, slba, cdw12, 0])
    }

    /// Flush (1.4 §6.8).
    #[inline]
    #[must_use]
    pub const fn flush(cid: u16, nsid: u32) -> Self {
        Self::new(io::FLUSH, cid, nsid)
    }

    /// Write Zeroes (1.4 §6.17); `deac` lets the controller deallocate instead.
    #[inline]
    #[must_use]
    pub const fn write_zeroes(
        cid: u16,
        nsid: u32,
        slba: u64,
        nlb: u32,
        deac: bool,
        fua: bool,
    ) -> Self {
        let flags = if deac { CDW12_DEAC } else { 0 } | if fua { CDW12_FUA } else { 0 };
        Self::blocks(io::WRITE_ZEROES, cid, nsid, slba, nlb, flags)
    }

    /// Dataset Management (1.4 §6.7) that deallocates `nr_ranges` ranges (1 to 256), listed in the
    /// data.
    #[inline]
    #[must_use]
    pub const fn dsm_deallocate(cid: u16, nsid: u32, nr_ranges: u32, prp1: u64, prp2: u64) -> Self {
        assert!(nr_ranges >= 1 && nr_ranges <= 256, "number of ranges out of range");
        let mut sqe = Self::new(io::DATASET_MANAGEMENT, cid, nsid).with_prps(prp1, prp2);
        sqe.cdw10 = U32::new(nr_ranges - 1);
        sqe.cdw11 = U32::new(DSM_AD);
        sqe
    }

    /// Compare (1.4 §6.6) `nlb` blocks (1 to 65536) with the data.
    #[inline]
    #[must_use]
    pub const fn compare(cid: u16, nsid: u32, slba: u64, nlb: u32, prp1: u64, prp2: u64) -> Self {
        Self::blocks(io::COMPARE, cid, nsid, slba, nlb, 0).with_prps(prp1, prp2)
    }

    /// Verify (1.4 §6.14) `nlb` blocks (1 to 65536): read without transferring.
    #[inline]
    #[must_use]
    pub const fn verify(cid: u16, nsid: u32, slba: u64, nlb: u32) -> Self {
        Self::blocks(io::VERIFY, cid, nsid, slba, nlb, 0)
    }

    /// Write Uncorrectable (1.4 §6.16): mark `nlb` blocks (1 to 65536) so that reading them fails.
    #[inline]
    #[must_use]
    pub const fn write_uncorrectable(cid: u16, nsid: u32, slba: u64, nlb: u32) -> Self {
        Self::blocks(io::WRITE_UNCORRECTABLE, cid, nsid, slba, nlb, 0)
    }
}

command_fields! {
    /// Opcode.
    cdw0 [7:0] opcode: u8,
    /// Command Identifier.
    cdw0 [31:16] cid: u16,
    /// Fused Operation: one of [`fuse`], or 3, which is reserved.
    cdw0 [9:8] fuse: u8,
    /// PRP or SGL for Data Transfer: 0 PRPs.
    cdw0 [15:14] psdt: u8,
    /// Force Unit Access of an I/O command.
    cdw12 [30] fua: bool,
    /// Deallocate of a Write Zeroes command.
    cdw12 [25] deac: bool,
}
