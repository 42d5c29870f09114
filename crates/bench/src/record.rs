//! The recorder of a loop's I/Os.

use super::pattern::Io;

/// Called for every I/O. It is a type parameter of the loop, so unrecorded values cost nothing.
pub trait Record {
    /// Records one I/O, with the time from before its submission to the doorbell, the time from
    /// there until it was seen, and the clock `seen_ns` then.
    fn done(&mut self, io: &Io, slat_ns: u64, clat_ns: u64, seen_ns: u64);
    /// Records that `ios` I/Os were submitted at once, with `depth` in flight.
    fn submitted(&mut self, depth: usize, ios: u64);
    /// Records that `ios` I/Os were reaped at once.
    fn reaped(&mut self, ios: u64);
    /// Records the time of a flush.
    fn flushed(&mut self, ns: u64);
}

/// Records nothing.
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
