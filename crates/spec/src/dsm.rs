//! Dataset Management's data: up to 256 ranges (1.4 §6.7, NVM 1.0 §3.2.3).

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A range of logical blocks.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct DsmRange {
    /// Context Attributes: hints on access, not needed to deallocate.
    pub context_attributes: U32,
    /// Length in logical blocks, counted from 1.
    pub length: U32,
    /// Starting LBA.
    pub slba: U64,
}

const _: () = {
    assert!(size_of::<DsmRange>() == 16);
    assert!(offset_of!(DsmRange, context_attributes) == 0);
    assert!(offset_of!(DsmRange, length) == 4 && offset_of!(DsmRange, slba) == 8);
};

impl DsmRange {
    /// `length` blocks from `slba`, no context attributes.
    #[must_use]
    pub const fn new(slba: u64, length: u32) -> Self {
        Self { context_attributes: U32::new(0), length: U32::new(length), slba: U64::new(slba) }
    }
}
