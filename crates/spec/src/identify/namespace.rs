//! Identify Namespace (1.4 §5.15.2.1, NVM 1.0 §4.1.5.1).

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::Reserved;

/// Identify Namespace data structure, CNS 00h.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Namespace Size, in logical blocks.
    pub nsze: U64,
    /// Namespace Capacity, in logical blocks.
    pub ncap: U64,
    /// Namespace Utilization, in logical blocks.
    pub nuse: U64,
    /// Namespace Features, bits of [`nsfeat`].
    pub nsfeat: u8,
    /// Number of LBA Formats, 0's based.
    pub nlbaf: u8,
    /// Formatted LBA Size: 3:0 the LBA format in use (2.0: 6:5 above them), bit 4 metadata at the
    /// block's end.
    pub flbas: u8,
    /// Metadata Capabilities.
    pub mc: u8,
    /// End-to-end Data Protection Capabilities.
    pub dpc: u8,
    /// End-to-end Data Protection Type Settings; 2:0 zero if protection information is off.
    pub dps: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities; bit 0 may be shared.
    pub nmic: u8,
    /// Reservation Capabilities.
    pub rescap: u8,
    /// Format Progress Indicator: bit 7 supported, 6:0 percent still to do.
    pub fpi: u8,
    /// Deallocate Logical Block Features, see [`dlfeat`].
    pub dlfeat: u8,
    /// Namespace Atomic Write Unit Normal, in logical blocks, 0's based; counts if NSFEAT bit 1 is
    /// set.
    pub nawun: U16,
    /// Namespace Atomic Write Unit Power Fail, in logical blocks, 0's based; counts if NSFEAT bit 1
    /// is set.
    pub nawupf: U16,
    /// Namespace Atomic Compare & Write Unit, in logical blocks, 0's based.
    pub nacwu: U16,
    /// Namespace Atomic Boundary Size Normal, in logical blocks, 0's based; 0 none.
    pub nabsn: U16,
    /// Namespace Atomic Boundary Offset, in logical blocks.
    pub nabo: U16,
    /// Namespace Atomic Boundary Size Power Fail, in logical blocks, 0's based; 0 none.
    pub nabspf: U16,
    /// Namespace Optimal I/O Boundary, in logical blocks (not 0's based); 0 none.
    pub noiob: U16,
    /// NVM Capacity, in bytes.
    pub nvmcap: U128,
    /// Namespace Preferred Write Granularity, in logical blocks, 0's based; counts if NSFEAT bit 4
    /// is set.
    pub npwg: U16,
    /// Namespace Preferred Write Alignment, in logical blocks, 0's based; counts if NSFEAT bit 4 is
    /// set.
    pub npwa: U16,
    /// Namespace Preferred Deallocate Granularity, in logical blocks, 0's based; counts if NSFEAT
    /// bit 4 is set.
    pub npdg: U16,
    /// Namespace Preferred Deallocate Alignment, in logical blocks, 0's based; counts if NSFEAT bit
    /// 4 is set.
    pub npda: U16,
    /// Namespace Optimal Write Size, in logical blocks, 0's based; counts if NSFEAT bit 4 is set.
    pub nows: U16,
    /// Maximum Single Source Range Length of Copy, in logical blocks (2.0).
    pub mssrl: U16,
    /// Maximum Copy Length, in logical blocks (2.0).
    pub mcl: U32,
    /// Maximum Source Range Count of Copy, 0's based (2.0).
    pub msrc: u8,
    reserved_81: Reserved<11>,
    /// ANA Group Identifier.
    pub anagrpid: U32,
    reserved_96: Reserved<3>,
    /// Namespace Attributes; bit 0 write protected now.
    pub nsattr: u8,
    /// NVM Set Identifier.
    pub nvmsetid: U16,
    /// Endurance Group Identifier.
    pub endgid: U16,
    /// Namespace Globally Unique Identifier, big-endian; zero if not supported.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier, big-endian; zero if not supported.
    pub eui64: [u8; 8],
    /// LBA Formats: 16 in 1.4, 64 in 2.0; those up to NLBAF count.
    pub lbaf: [LbaFormat; 64],
    /// Vendor specific.
    pub vendor_specific: [u8; 3712],
}

const _: () = {
    assert!(size_of::<IdentifyNamespace>() == 4096);
    assert!(offset_of!(IdentifyNamespace, nsze) == 0);
    assert!(offset_of!(IdentifyNamespace, ncap) == 8);
    assert!(offset_of!(IdentifyNamespace, nuse) == 16);
    assert!(offset_of!(IdentifyNamespace, nsfeat) == 24);
    assert!(offset_of!(IdentifyNamespace, nlbaf) == 25);
    assert!(offset_of!(IdentifyNamespace, flbas) == 26);
    assert!(offset_of!(IdentifyNamespace, mc) == 27);
    assert!(offset_of!(IdentifyNamespace, dpc) == 28);
    assert!(offset_of!(IdentifyNamespace, dps) == 29);
    assert!(offset_of!(IdentifyNamespace, nmic) == 30);
    assert!(offset_of!(IdentifyNamespace, rescap) == 31);
    assert!(offset_of!(IdentifyNamespace, fpi) == 32);
    assert!(offset_of!(IdentifyNamespace, dlfeat) == 33);
    assert!(offset_of!(IdentifyNamespace, nawun) == 34);
    assert!(offset_of!(IdentifyNamespace, nawupf) == 36);
    assert!(offset_of!(IdentifyNamespace, nacwu) == 38);
    assert!(offset_of!(IdentifyNamespace, nabsn) == 40);
    assert!(offset_of!(IdentifyNamespace, nabo) == 42);
    assert!(offset_of!(IdentifyNamespace, nabspf) == 44);
    assert!(offset_of!(IdentifyNamespace, noiob) == 46);
    assert!(offset_of!(IdentifyNamespace, nvmcap) == 48);
    assert!(offset_of!(IdentifyNamespace, npwg) == 64);
    assert!(offset_of!(IdentifyNamespace, npwa) == 66);
    assert!(offset_of!(IdentifyNamespace, npdg) == 68);
    assert!(offset_of!(IdentifyNamespace, npda) == 70);
    assert!(offset_of!(IdentifyNamespace, nows) == 72);
    assert!(offset_of!(IdentifyNamespace, mssrl) == 74);
    assert!(offset_of!(IdentifyNamespace, mcl) == 76);
    assert!(offset_of!(IdentifyNamespace, msrc) == 80);
    assert!(offset_of!(IdentifyNamespace, anagrpid) == 92);
    assert!(offset_of!(IdentifyNamespace, nsattr) == 99);
    assert!(offset_of!(IdentifyNamespace, nvmsetid) == 100);
    assert!(offset_of!(IdentifyNamespace, endgid) == 102);
    assert!(offset_of!(IdentifyNamespace, nguid) == 104);
    assert!(offset_of!(IdentifyNamespace, eui64) == 120);
    assert!(offset_of!(IdentifyNamespace, lbaf) == 128);
    assert!(offset_of!(IdentifyNamespace, vendor_specific) == 384);
};

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
    /// The number of the LBA format FLBAS names, whether or not there is one of that number.
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

impl Default for IdentifyNamespace {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// LBA Format (1.4 §5.15.2.1, NVM 1.0 §4.1.5.1).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata Size, in bytes per block.
    pub ms: U16,
    /// LBA Data Size: 2^LBADS bytes; at least 9, or 0 if the format is not available.
    pub lbads: u8,
    /// Relative Performance: 1:0, 0 best to 3 degraded.
    pub rp: u8,
}

const _: () = {
    assert!(size_of::<LbaFormat>() == 4);
    assert!(
        offset_of!(LbaFormat, ms) == 0
            && offset_of!(LbaFormat, lbads) == 2
            && offset_of!(LbaFormat, rp) == 3
    );
};

impl LbaFormat {
    /// Blocks of 2^`lbads` bytes, no metadata.
    #[must_use]
    pub const fn new(lbads: u8) -> Self {
        Self { ms: U16::new(0), lbads, rp: 0 }
    }

    /// Bytes of data per block; `None` unless the size is one the specification permits (and fits
    /// 32 bits).
    #[must_use]
    pub const fn block_bytes(self) -> Option<u32> {
        if self.lbads >= 9 && self.lbads < 32 { Some(1 << self.lbads) } else { None }
    }
}

/// The first bytes of the I/O command set independent Identify Namespace data structure, CNS 08h
/// (2.0 §5.17.2.8); what follows is reserved.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct IndependentNamespace {
    /// Common Namespace Features.
    pub nsfeat: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities; bit 0 may be shared.
    pub nmic: u8,
    /// Reservation Capabilities.
    pub rescap: u8,
    /// Format Progress Indicator.
    pub fpi: u8,
    /// ANA Group Identifier.
    pub anagrpid: U32,
    /// Namespace Attributes; bit 0 write protected.
    pub nsattr: u8,
    reserved_9: Reserved<1>,
    /// NVM Set Identifier.
    pub nvmsetid: U16,
    /// Endurance Group Identifier.
    pub endgid: U16,
    /// Namespace Status, bits of [`nstat`].
    pub nstat: u8,
}

/// NSTAT: Namespace Status.
pub mod nstat {
    /// The namespace is ready.
    pub const READY: u8 = 1 << 0;
}

const _: () = {
    assert!(size_of::<IndependentNamespace>() == 15);
    assert!(
        offset_of!(IndependentNamespace, anagrpid) == 4
            && offset_of!(IndependentNamespace, nsattr) == 8
    );
    assert!(
        offset_of!(IndependentNamespace, nvmsetid) == 10
            && offset_of!(IndependentNamespace, nstat) == 14
    );
};
