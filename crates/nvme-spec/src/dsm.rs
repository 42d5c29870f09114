//! Dataset Management's data: up to 256 ranges (1.4 §6.7, NVM 1.0 §3.2.3).

use zerocopy::little_endian::{U32, U64};

wire! {
    /// A range of logical blocks.
    pub struct DsmRange, 16, Copy {
        /// Context Attributes: hints on access, not needed to deallocate.
        0 pub context_attributes: U32,
        /// Length in logical blocks, counted from 1.
        4 pub length: U32,
        /// Starting LBA.
        8 pub slba: U64,
    }
}

impl DsmRange {
    /// `length` blocks from `slba`, no context attributes.
    #[must_use]
    pub const fn new(slba: u64, length: u32) -> Self {
        Self { context_attributes: U32::new(0), length: U32::new(length), slba: U64::new(slba) }
    }
}
