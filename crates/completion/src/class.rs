//! The class of an I/O, which predicts its time: direction, size, and number in flight.

/// The kind of an I/O, for policies that learn from past ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Class(u8);

/// The operation of an I/O, as far as its time depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A read.
    Read = 0,
    /// A write.
    Write = 1,
    /// Anything else: flushes, zeroes, deallocations.
    Other = 2,
}

impl Class {
    /// Number of values of [`Class::index`].
    pub const COUNT: usize = 1 << 8;
    /// Number of sizes distinguished: up to 512 B, up to 1 KiB, … up to 64 KiB, more.
    pub const SIZES: usize = 9;

    /// The class of an I/O of `bytes`, submitted as one of `in_flight` in flight, including itself.
    #[inline(always)]
    pub fn new(kind: Kind, bytes: u32, in_flight: usize) -> Self {
        // 0 to 8: the exponent of the next power of two, less that of 512.
        let size =
            (32 - (bytes.saturating_sub(1) >> 9).leading_zeros()).min(Self::SIZES as u32 - 1);
        let depth = (usize::BITS - 1 - (in_flight | 1).leading_zeros()).min(3);
        Self((kind as u8) << 6 | (size as u8) << 2 | depth as u8)
    }

    /// An index for tables.
    #[inline(always)]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The operation.
    pub fn kind(self) -> Kind {
        match self.0 >> 6 {
            0 => Kind::Read,
            1 => Kind::Write,
            _ => Kind::Other,
        }
    }

    /// Which size: 0 is up to 512 B, 8 is more than 64 KiB.
    #[inline(always)]
    pub fn size(self) -> usize {
        usize::from(self.0 >> 2 & 0xf)
    }

    /// Which depth: 0 is 1 in flight, 1 is 2 or 3, 2 is 4 to 7, 3 is more.
    #[inline(always)]
    pub fn depth(self) -> usize {
        usize::from(self.0 & 3)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_depths_by_powers_of_two() {
        let size = |bytes| Class::new(Kind::Read, bytes, 1).size();
        assert_eq!(
            [0, 1, 512, 513, 1024, 4096, 65_536, 65_537, u32::MAX].map(size),
            [0, 0, 0, 1, 1, 3, 7, 8, 8]
        );
        let depth = |in_flight| Class::new(Kind::Write, 4096, in_flight).depth();
        assert_eq!([0, 1, 2, 3, 4, 7, 8, 1000].map(depth), [0, 0, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn parts_come_back() {
        for kind in [Kind::Read, Kind::Write, Kind::Other] {
            let class = Class::new(kind, 16_384, 5);
            assert_eq!((class.kind(), class.size(), class.depth()), (kind, 5, 2));
            assert!(class.index() < Class::COUNT);
        }
    }
}
