//! The source of the loop's I/Os.

use meantime_hw::DmaBuf;

use super::pattern::Io;

/// Chooses I/Os, pass by pass, and is called when they end.
///
/// A source that only chooses places implements the first two functions. Its writes transfer the
/// old content of the buffer.
pub trait Source {
    /// Whether [`Source::prepare`] is slow. Then each I/O is submitted by itself, so that no
    /// latency includes the filling of another I/O's buffer.
    const SLOW_TO_PREPARE: bool = false;

    /// Returns the next I/O of this pass, or `None` at its end.
    fn next_in_pass(&mut self) -> Option<Io>;

    /// Starts the next pass. Returns false if there is none left, or if the loop's caller starts
    /// it.
    fn begin_pass(&mut self) -> bool {
        false
    }

    /// Returns the next I/O, of this pass or the next, or `None` if there is no more for now.
    #[inline(always)]
    fn next(&mut self) -> Option<Io> {
        match self.next_in_pass() {
            None if self.begin_pass() => self.next_in_pass(),
            io => io,
        }
    }

    /// Is called before `io` is submitted from `slot`. It fills the buffer of a write.
    #[inline(always)]
    fn prepare(&mut self, _slot: usize, _io: &Io, _buf: &mut DmaBuf) {}

    /// Called when the I/O of `slot` has ended, with its buffer.
    #[inline(always)]
    fn ended(&mut self, _slot: usize, _io: &Io, _buf: &DmaBuf, _done: bool) {}
}

/// Counts a pass that begins, of those left (`None` for any number). Returns false if there is none
/// left.
pub(crate) fn pass_begins(left: &mut Option<u64>) -> bool {
    match left {
        Some(0) => return false,
        Some(left) => *left -= 1,
        None => {}
    }
    true
}
