//! Where a read's bytes come from, and the caller's buffers to which they go.

use std::io::IoSliceMut;
use std::sync::Arc;

/// Where some bytes of a file are.
#[derive(Debug, Clone)]
pub(crate) enum Location {
    /// The bytes are in a hole and are zeroes.
    Zero,
    /// The bytes are on the device, from this byte on.
    Device(u64),
    /// The bytes are in memory, from the journal: in this block, from this offset on.
    Memory(Arc<[u8]>, usize),
}

/// Bytes in one place.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) place: Location,
    pub(crate) len: usize,
}

/// The caller's buffers as one range, which is read from offset 0 on.
pub(crate) struct Target<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
    /// Whether the device was read for the target.
    pub(crate) is_from_device: bool,
}

impl<'a, 'b> Target<'a, 'b> {
    pub(crate) fn new(bufs: &'a mut [IoSliceMut<'b>]) -> Self {
        Self { bufs, is_from_device: false }
    }

    /// Returns the total size of the buffers in bytes.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        match &*self.bufs {
            [one] => one.len(),
            many => many.iter().fold(0, |sum: usize, buf| sum.saturating_add(buf.len())),
        }
    }

    /// Calls `fill` with the contiguous parts of bytes `at..at + len`, in order.
    #[inline]
    pub(crate) fn each(&mut self, at: usize, len: usize, mut fill: impl FnMut(&mut [u8])) {
        if let [one] = &mut *self.bufs {
            return fill(&mut one[at..at + len]);
        }
        let (mut skip, mut left) = (at, len);
        for buf in self.bufs.iter_mut() {
            if skip >= buf.len() {
                skip -= buf.len();
                continue;
            }
            let part = left.min(buf.len() - skip);
            if part == 0 {
                break;
            }
            fill(&mut buf[skip..skip + part]);
            (skip, left) = (0, left - part);
        }
        debug_assert_eq!(left, 0, "the caller's buffers are shorter than what is read");
    }

    /// Returns the longest contiguous prefix of bytes `at..at + len`.
    pub(crate) fn contiguous(&mut self, at: usize, len: usize) -> &mut [u8] {
        let mut skip = at;
        for buf in self.bufs.iter_mut() {
            if skip < buf.len() {
                let end = buf.len().min(skip.saturating_add(len));
                return &mut buf[skip..end];
            }
            skip -= buf.len();
        }
        &mut []
    }

    /// Puts `piece` at `at`, unless it is on the device. In that case returns its first byte there.
    #[inline]
    pub(crate) fn put_piece(&mut self, at: usize, piece: &Piece) -> Option<u64> {
        match &piece.place {
            Location::Zero => self.zero(at, piece.len),
            Location::Memory(block, from) => self.put(at, &block[*from..from + piece.len]),
            Location::Device(place) => return Some(*place),
        }
        None
    }

    /// Copies `data` to `at`.
    #[inline]
    pub(crate) fn put(&mut self, at: usize, data: &[u8]) {
        let mut rest = data;
        self.each(at, data.len(), |part| {
            let (now, later) = rest.split_at(part.len());
            part.copy_from_slice(now);
            rest = later;
        });
    }

    /// Zeroes `len` bytes from `at` on.
    pub(crate) fn zero(&mut self, at: usize, len: usize) {
        self.each(at, len, |part| part.fill(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_buffers_are_one_range() {
        let (mut a, mut b, mut c) = ([9; 3], [9; 0], [9; 4]);
        let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b), IoSliceMut::new(&mut c)];
        let mut target = Target::new(&mut bufs);
        assert_eq!(target.room(), 7);
        target.put(1, &[1, 2, 3, 4]);
        target.zero(5, 2);
        target.put(7, &[]);
        assert_eq!((target.contiguous(1, 5).len(), target.contiguous(7, 1).len()), (2, 0));
        assert_eq!(target.contiguous(3, 3), [3, 4, 0]);
        assert_eq!((a, c), ([9, 1, 2], [3, 4, 0, 0]));
    }
}
