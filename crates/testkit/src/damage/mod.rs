//! Damaged file systems in memory: made, walked whole, and judged. The tests and the fuzzer share
//! it.
pub mod base;
pub mod memory;
pub mod regions;
pub mod sums;
pub mod walk;
