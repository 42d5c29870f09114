//! Damaged file systems in memory: made, walked whole, and judged. The tests and the fuzzer share
//! it.
#![allow(dead_code)]

pub(crate) mod base;
pub(crate) mod memory;
pub(crate) mod regions;
pub(crate) mod sums;
pub(crate) mod walk;
