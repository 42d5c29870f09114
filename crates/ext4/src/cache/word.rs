//! The state of a slot in one word: the phase of its page, and the generation.

/// The slot is in no chain and has no owner.
const FREE: u64 = 0;
/// The page is claimed, and the claimant is reading it.
const FILLING: u64 = 1;
/// The page is in the cache.
const READY: u64 = 2;
/// The page is still claimed, but its slot is in no chain: it will not enter the cache.
const DROPPED: u64 = 3;
const PHASE: u64 = 3;

/// A thread or task waits for the claimant.
const WAITERS: u64 = 1 << 2;
/// The page is newer than the device's. It is never evicted, nor dropped by
/// [`invalidate`](super::PageCache::invalidate).
const DIRTY: u64 = 1 << 3;
/// The content is being written to the device. Such a page is never evicted or dropped either.
const WRITEBACK: u64 = 1 << 4;

/// The phase of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The slot has no owner.
    Free,
    /// The page is claimed, and being read.
    Filling,
    /// The page is in the cache.
    Ready,
    /// The page is claimed, but no longer wanted.
    Dropped,
}

/// A state. The upper half is the generation, which changes whenever the slot is freed: it repeats
/// after 2³² times, and a reader would have to copy 4 KiB for that long to mistake it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub u64);

impl Word {
    /// A slot that was never used.
    pub(super) const NEW: Self = Self(FREE);

    #[inline(always)]
    pub(super) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub(super) fn phase(self) -> Phase {
        match self.0 & PHASE {
            FREE => Phase::Free,
            FILLING => Phase::Filling,
            READY => Phase::Ready,
            _ => Phase::Dropped,
        }
    }

    /// Returns whether it is `phase` of `generation`.
    #[inline(always)]
    pub(super) fn is(self, phase: Phase, generation: u32) -> bool {
        self.phase() == phase && self.generation() == generation
    }

    /// Returns whether there are waiters.
    pub(super) fn has_waiters(self) -> bool {
        self.0 & WAITERS != 0
    }

    /// Returns whether the page may be removed.
    pub(super) fn is_clean(self) -> bool {
        self.0 & (DIRTY | WRITEBACK) == 0
    }

    /// Returns whether it is newer than the device's.
    pub(super) fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Returns whether it is being written to the device.
    pub(super) fn is_under_writeback(self) -> bool {
        self.0 & WRITEBACK != 0
    }

    /// Becomes newer than the device's.
    pub(super) fn dirtied(self) -> Self {
        Self(self.0 | DIRTY)
    }

    /// Becomes ready and dirty, without waiters.
    pub(super) fn published_dirty(self) -> Self {
        self.published().dirtied()
    }

    /// Begins a writeback. If `again`, the page stays dirty.
    pub(super) fn writing_back(self, again: bool) -> Self {
        Self(if again { self.0 } else { self.0 & !DIRTY } | WRITEBACK)
    }

    /// Ends a writeback. If `again`, the page becomes dirty.
    pub(super) fn written_back(self, again: bool) -> Self {
        Self(self.0 & !WRITEBACK | if again { DIRTY } else { 0 })
    }

    pub(super) fn with_waiters(self) -> Self {
        Self(self.0 | WAITERS)
    }

    fn of(phase: u64, generation: u32) -> Self {
        Self(phase | u64::from(generation) << 32)
    }

    /// A free slot becomes claimed.
    pub(super) fn claimed(self) -> Self {
        Self::of(FILLING, self.generation())
    }

    /// Becomes ready, without waiters.
    pub(super) fn published(self) -> Self {
        Self::of(READY, self.generation())
    }

    /// Becomes unwanted, without waiters.
    pub(super) fn dropped(self) -> Self {
        Self::of(DROPPED, self.generation())
    }

    /// Becomes free, of the next generation.
    pub(super) fn freed(self) -> Self {
        Self::of(FREE, self.generation().wrapping_add(1))
    }
}
