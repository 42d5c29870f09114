//! What the I/O loop takes its I/Os from.

use meantime_hw::DmaBuf;

use super::pattern::Io;

/// Chooses I/Os, pass by pass, and is called when they end.
///
/// A source that only chooses places implements the first two functions. Its writes write what
/// happens to be in the buffer.
pub trait Source {
    /// Whether [`Source::prepare`] takes its time. Then each I/O is submitted by itself, so that no
    /// latency has the filling of another one's buffer in it.
    const SLOW_TO_PREPARE: bool = false;

    /// The next I/O of this pass; `None` when it has transferred what it is to.
    fn next_in_pass(&mut self) -> Option<Io>;

    /// Starts the next pass. False if there is none left, or if the loop's caller starts it.
    fn begin_pass(&mut self) -> bool {
        false
    }

    /// The next I/O, of this pass or the next; `None`: no more for now.
    #[inline(always)]
    fn next(&mut self) -> Option<Io> {
        match self.next_in_pass() {
            None if self.begin_pass() => self.next_in_pass(),
            io => io,
        }
    }

    /// Called before `io` is submitted from `slot`; fills the buffer of a write.
    #[inline(always)]
    fn prepare(&mut self, _slot: usize, _io: &Io, _buf: &mut DmaBuf) {}

    /// Called when the I/O of `slot` has ended, with its buffer.
    #[inline(always)]
    fn ended(&mut self, _slot: usize, _io: &Io, _buf: &DmaBuf, _done: bool) {}
}

/// Counts a pass that begins, of those left (`None`: any number). False if there is none left.
pub(crate) fn pass_begins(left: &mut Option<u64>) -> bool {
    match left {
        Some(0) => return false,
        Some(left) => *left -= 1,
        None => {}
    }
    true
}
