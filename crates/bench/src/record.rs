//! The recorder of a loop's I/Os.

use super::pattern::Io;

/// Is called for every I/O. It is a type parameter of the loop: what is not recorded costs nothing.
pub trait Record {
    /// One I/O: from before its submission to the doorbell, and on until it was seen, at `seen_ns`
    /// by the clock.
    fn done(&mut self, io: &Io, slat_ns: u64, clat_ns: u64, seen_ns: u64);
    /// `ios` I/Os were submitted at once; `depth` were in flight then.
    fn submitted(&mut self, depth: usize, ios: u64);
    /// `ios` I/Os were taken back at once.
    fn reaped(&mut self, ios: u64);
    /// A flush, and how long it took.
    fn flushed(&mut self, ns: u64);
}

/// Nothing is recorded.
#[derive(Debug)]
pub struct Unrecorded;

impl Record for Unrecorded {
    #[inline(always)]
    fn done(&mut self, _: &Io, _: u64, _: u64, _: u64) {}
    #[inline(always)]
    fn submitted(&mut self, _: usize, _: u64) {}
    #[inline(always)]
    fn reaped(&mut self, _: u64) {}
    #[inline(always)]
    fn flushed(&mut self, _: u64) {}
}
