//! Damaged file systems in memory: made, walked completely, and judged. Shared by the tests and the
//! fuzzer.
pub mod base;
pub mod memory;
pub mod regions;
pub mod sums;
pub mod walk;
