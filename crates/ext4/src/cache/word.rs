//! The state of a slot in one word: what phase its page is in, and of which generation.

/// Nobody's: in no chain.
const FREE: u64 = 0;
/// Claimed; its claimant reads the page.
const FILLING: u64 = 1;
/// The page is there.
const READY: u64 = 2;
/// Still the claimant's, but in no chain any more: what it reads is not for the cache.
const DROPPED: u64 = 3;
const PHASE: u64 = 3;

/// Somebody sleeps until the claimant is done.
const WAITERS: u64 = 1 << 2;
/// The page is newer than the device's. Never evicted, nor dropped by
/// [`invalidate`](super::PageCache::invalidate).
const DIRTY: u64 = 1 << 3;
/// What the page held is being written to the device. The same holds.
const WRITEBACK: u64 = 1 << 4;

/// What a slot is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nobody's.
    Free,
    /// Claimed, the page under way.
    Filling,
    /// The page is there.
    Ready,
    /// Claimed, and the page no longer wanted.
    Dropped,
}

/// A state. The upper half is the generation, which changes whenever the slot is freed: 2³² times
/// before one comes back, while a reader who would mistake it is at a copy of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub u64);

impl Word {
    /// A slot that nobody has had.
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

    /// Whether it is `phase` of `generation`.
    #[inline(always)]
    pub(super) fn is(self, phase: Phase, generation: u32) -> bool {
        self.phase() == phase && self.generation() == generation
    }

    /// Whether somebody sleeps.
    pub(super) fn has_waiters(self) -> bool {
        self.0 & WAITERS != 0
    }

    /// Whether the page may be taken away.
    pub(super) fn is_clean(self) -> bool {
        self.0 & (DIRTY | WRITEBACK) == 0
    }

    /// Whether it is newer than the device's.
    pub(super) fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Whether it is being written to the device.
    pub(super) fn is_under_writeback(self) -> bool {
        self.0 & WRITEBACK != 0
    }

    /// Newer than the device's, from now on.
    pub(super) fn dirtied(self) -> Self {
        Self(self.0 | DIRTY)
    }

    /// The page is there, newer than the device's, and nobody sleeps any more.
    pub(super) fn published_dirty(self) -> Self {
        self.published().dirtied()
    }

    /// Being written to the device; `again`: what was written to it meanwhile is still to come.
    pub(super) fn writing_back(self, again: bool) -> Self {
        Self(if again { self.0 } else { self.0 & !DIRTY } | WRITEBACK)
    }

    /// No longer being written to the device; `again`: that has to be repeated.
    pub(super) fn written_back(self, again: bool) -> Self {
        Self(self.0 & !WRITEBACK | if again { DIRTY } else { 0 })
    }

    pub(super) fn with_waiters(self) -> Self {
        Self(self.0 | WAITERS)
    }

    fn of(phase: u64, generation: u32) -> Self {
        Self(phase | u64::from(generation) << 32)
    }

    /// A free slot, claimed.
    pub(super) fn claimed(self) -> Self {
        Self::of(FILLING, self.generation())
    }

    /// The page is there, and nobody sleeps any more.
    pub(super) fn published(self) -> Self {
        Self::of(READY, self.generation())
    }

    /// The page is not wanted any more, and nobody sleeps any more.
    pub(super) fn dropped(self) -> Self {
        Self::of(DROPPED, self.generation())
    }

    /// Free, of the next generation.
    pub(super) fn freed(self) -> Self {
        Self::of(FREE, self.generation().wrapping_add(1))
    }
}
