//! Identify Namespace (1.4 §5.15.2.1, NVM 1.0 §4.1.5.1).

use zerocopy::little_endian::{U16, U32, U64, U128};

use crate::bytes::Reserved;

wire! {
    /// Identify Namespace data structure, CNS 00h.
    pub struct IdentifyNamespace, 4096 {
        /// Namespace Size, in logical blocks.
        0 pub nsze: U64,
        /// Namespace Capacity, in logical blocks.
        8 pub ncap: U64,
        /// Namespace Utilization, in logical blocks.
        16 pub nuse: U64,
        /// Namespace Features, bits of [`nsfeat`].
        24 pub nsfeat: u8,
        /// Number of LBA Formats, 0's based.
        25 pub nlbaf: u8,
        /// Formatted LBA Size: 3:0 the LBA format in use (2.0: 6:5 above them), bit 4 metadata at
        /// the block's end.
        26 pub flbas: u8,
        27 unused_27: Reserved<3>,
        /// Namespace Multi-path I/O and Namespace Sharing Capabilities; bit 0 may be shared.
        30 pub nmic: u8,
        /// Reservation Capabilities.
        31 pub rescap: u8,
        /// Format Progress Indicator: bit 7 supported, 6:0 percent still to do.
        32 pub fpi: u8,
        /// Deallocate Logical Block Features, see [`dlfeat`].
        33 pub dlfeat: u8,
        34 unused_34: Reserved<4>,
        /// Namespace Atomic Compare & Write Unit, in logical blocks, 0's based.
        38 pub nacwu: U16,
        /// Namespace Atomic Boundary Size Normal, in logical blocks, 0's based; 0 none.
        40 pub nabsn: U16,
        /// Namespace Atomic Boundary Offset, in logical blocks.
        42 pub nabo: U16,
        /// Namespace Atomic Boundary Size Power Fail, in logical blocks, 0's based; 0 none.
        44 pub nabspf: U16,
        /// Namespace Optimal I/O Boundary, in logical blocks (not 0's based); 0 none.
        46 pub noiob: U16,
        /// NVM Capacity, in bytes.
        48 pub nvmcap: U128,
        64 unused_64: Reserved<28>,
        /// ANA Group Identifier.
        92 pub anagrpid: U32,
        96 reserved_96: Reserved<3>,
        /// Namespace Attributes; bit 0 write protected now.
        99 pub nsattr: u8,
        /// NVM Set Identifier.
        100 pub nvmsetid: U16,
        /// Endurance Group Identifier.
        102 pub endgid: U16,
        /// Namespace Globally Unique Identifier, big-endian; zero if not supported.
        104 pub nguid: [u8; 16],
        /// IEEE Extended Unique Identifier, big-endian; zero if not supported.
        120 pub eui64: [u8; 8],
        /// LBA Formats: 16 in 1.4, 64 in 2.0; those up to NLBAF count.
        128 pub lbaf: [LbaFormat; 64],
        /// Vendor specific.
        384 pub vendor_specific: [u8; 3712],
    }
}

/// NSFEAT: Namespace Features.
pub mod nsfeat {
    /// NAWUN, NAWUPF and NACWU are this namespace's own.
    pub const ATOMICITY: u8 = 1 << 1;
}

/// DLFEAT: Deallocate Logical Block Features.
pub mod dlfeat {
    /// All bytes 00h.
    pub const READ_ZEROES: u8 = 1;
    /// Write Zeroes supports its Deallocate bit.
    pub const WRITE_ZEROES_DEALLOCATE: u8 = 1 << 3;
}

impl IdentifyNamespace {
    /// The number of the LBA format that FLBAS names, whether or not a format of that number
    /// exists.
    #[must_use]
    pub const fn lba_format_index(&self) -> u8 {
        // NVM 1.0: bits 6:5 count only if there are more than 16 formats.
        let high = if self.nlbaf > 15 { self.flbas >> 5 & 3 } else { 0 };
        high << 4 | self.flbas & 0xf
    }

    /// The LBA format in use; `None` if FLBAS names one beyond NLBAF.
    #[must_use]
    pub fn lba_format_in_use(&self) -> Option<LbaFormat> {
        let index = self.lba_format_index();
        if index > self.nlbaf { None } else { self.lbaf.get(usize::from(index)).copied() }
    }
}

wire! {
    /// LBA Format (1.4 §5.15.2.1, NVM 1.0 §4.1.5.1).
    pub struct LbaFormat, 4, Copy {
        /// Metadata Size, in bytes per block.
        0 pub ms: U16,
        /// LBA Data Size: 2^LBADS bytes; at least 9, or 0 if the format is not available.
        2 pub lbads: u8,
        /// Relative Performance: 1:0, 0 best to 3 degraded.
        3 pub rp: u8,
    }
}

impl LbaFormat {
    /// Blocks of 2^`lbads` bytes, no metadata.
    #[must_use]
    pub const fn new(lbads: u8) -> Self {
        Self { ms: U16::new(0), lbads, rp: 0 }
    }

    /// Bytes of data per block; `None` unless the specification permits the size and it fits 32
    /// bits.
    #[must_use]
    pub const fn block_bytes(self) -> Option<u32> {
        if self.lbads >= 9 && self.lbads < 32 { Some(1 << self.lbads) } else { None }
    }
}

wire! {
    /// The first bytes of the I/O command set independent Identify Namespace data structure, CNS
    /// 08h (2.0 §5.17.2.8); what follows is reserved.
    pub struct IndependentNamespace, 15, Copy {
        /// Common Namespace Features.
        0 pub nsfeat: u8,
        /// Namespace Multi-path I/O and Namespace Sharing Capabilities; bit 0 may be shared.
        1 pub nmic: u8,
        /// Reservation Capabilities.
        2 pub rescap: u8,
        /// Format Progress Indicator.
        3 pub fpi: u8,
        /// ANA Group Identifier.
        4 pub anagrpid: U32,
        /// Namespace Attributes; bit 0 write protected.
        8 pub nsattr: u8,
        9 reserved_9: Reserved<1>,
        /// NVM Set Identifier.
        10 pub nvmsetid: U16,
        /// Endurance Group Identifier.
        12 pub endgid: U16,
        /// Namespace Status, bits of [`nstat`].
        14 pub nstat: u8,
    }
}

/// NSTAT: Namespace Status.
pub mod nstat {
    /// The namespace is ready.
    pub const READY: u8 = 1 << 0;
}
