//! Which page is where: a hash table of slots, which is read without a lock or a write.
//!
//! A bucket is the head of a chain of slots, and a sequence that is odd while the chain is changed;
//! a chain is changed by one thread at a time. A reader walks a chain whatever happens to it. What
//! it finds is right if the slot's state is of one generation before and after the key was read: a
//! slot's key changes only while the slot is free, and freeing it changes the generation. That it
//! finds nothing is right if the bucket's sequence was even and did not change.
//!
//! The same goes for the page: a reader copies, then looks whether the generation is the same
//! ([`Table::still`]). Whoever frees a slot changes the state before it takes the page away, and
//! claims one with a fence before it writes to a page: a reader that saw a byte of the next page
//! sees the next generation, too (Boehm, "Can seqlocks get along with programming language memory
//! models?", MSPC 2012).

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::task::Waker;

use super::parking::Parking;
use super::word::{Phase, Word};
use super::{Filling, Hit, LookUp};

/// What a slot holds its page in.
pub(super) trait Place {
    /// A page.
    type Page;
    /// Puts one in; gives it back if it does not fit.
    fn put(&self, page: Self::Page) -> Result<(), Self::Page>;
    /// Takes it out.
    fn take(&self) -> Option<Self::Page>;
}

/// The end of a chain.
const NOBODY: u32 = u32::MAX;

/// How many slots of a chain are passed between two looks whether it was changed under the reader:
/// one that is moved to another chain could lead around in circles.
const STEPS_PER_LOOK: u32 = if cfg!(loom) { 2 } else { 16 };

/// How often a locked bucket is looked at before its owner is let run.
const LOOKS_PER_YIELD: u32 = if cfg!(loom) { 1 } else { 64 };

/// How often somebody's fill is looked at before its waiter sleeps: about 1 µs.
const LOOKS_PER_SLEEP: u32 = if cfg!(loom) { 0 } else { 128 };

/// Slots and the chains that they are in.
pub(super) struct Table<P> {
    buckets: Box<[Bucket]>,
    slots: Box<[Slot<P>]>,
    parking: Parking,
}

struct Bucket {
    /// Odd: the chain is being changed.
    sequence: AtomicU32,
    head: AtomicU32,
}

/// One cache line, with a page's cell in it.
#[repr(align(64))]
struct Slot<P> {
    state: AtomicU64,
    file: AtomicU64,
    index: AtomicU64,
    next: AtomicU32,
    /// How often it was visited, as far as that counts.
    visits: AtomicU32,
    place: P,
}

/// A slot at one generation: its page, as long as that is in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub slot: u32,
    pub generation: u32,
}

/// What became of a page that was read for the cache.
pub(super) enum Published<T> {
    /// It is there.
    Ready,
    /// It was not wanted any more; the slot is free.
    Dropped(T),
    /// It does not fit the slot, which is free.
    Refused(T),
}

/// The most visits that are counted.
pub(super) const VISITS_MAX: u32 = 3;

/// Under loom, whether the model named `what` in the environment is to be broken, so that one sees
/// that it can be.
#[cfg(loom)]
fn weak(what: &str) -> bool {
    std::env::var("LOOM_WEAK").is_ok_and(|weak| weak == what)
}

#[cfg(not(loom))]
const fn weak(_: &str) -> bool {
    false
}

impl<P: Place> Table<P> {
    /// A table of as many slots as there are `places`, at least one, all free.
    pub(super) fn new(places: impl ExactSizeIterator<Item = P>) -> Self {
        let count = places.len().clamp(1, 1 << 30);
        let buckets = if cfg!(loom) { 1 } else { (2 * count).next_power_of_two().max(8) };
        let bucket = |_| Bucket { sequence: AtomicU32::new(0), head: AtomicU32::new(NOBODY) };
        let slot = |place| Slot {
            state: AtomicU64::new(Word::NEW.0),
            file: AtomicU64::new(0),
            index: AtomicU64::new(0),
            next: AtomicU32::new(NOBODY),
            visits: AtomicU32::new(0),
            place,
        };
        Self {
            buckets: (0..buckets).map(bucket).collect(),
            slots: places.take(count).map(slot).collect(),
            parking: Parking::default(),
        }
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    #[inline(always)]
    fn bucket(&self, file: u64, index: u64) -> &Bucket {
        // Eight pages in a row have their buckets in one cache line.
        let row = (hash(file, index >> 3) << 3) as usize | (index & 7) as usize;
        &self.buckets[row & (self.buckets.len() - 1)]
    }

    /// What is in `at`'s slot, of whatever generation.
    #[inline(always)]
    pub(super) fn place(&self, at: At) -> &P {
        &self.slots[at.slot as usize].place
    }

    /// What is known of page `index` of `file`.
    #[inline]
    pub(super) fn look_up(&self, file: u64, index: u64) -> LookUp {
        let bucket = self.bucket(file, index);
        let mut looks = 0u32;
        loop {
            if let Some(found) = self.walk(bucket, file, index) {
                return found;
            }
            looks += 1;
            pause(looks);
        }
    }

    /// One try; `None` if the chain was changed meanwhile.
    #[inline(always)]
    fn walk(&self, bucket: &Bucket, file: u64, index: u64) -> Option<LookUp> {
        // Acquire: the chain is as whoever changed it last has left it, or newer.
        let sequence = bucket.sequence.load(Ordering::Acquire);
        let mut at = bucket.head.load(Ordering::Acquire);
        let mut steps = 0u32;
        while let Some(slot) = self.slots.get(at as usize) {
            // Acquire: the key is that of this generation, or a newer one's; and so is the page.
            let state = Word(slot.state.load(Ordering::Acquire));
            if slot.index.load(Ordering::Relaxed) == index
                && slot.file.load(Ordering::Relaxed) == file
            {
                let found = At { slot: at, generation: state.generation() };
                if self.still(found) {
                    match state.phase() {
                        Phase::Ready => return Some(LookUp::Hit(Hit(found))),
                        Phase::Filling => return Some(LookUp::Filling(Filling(found))),
                        // Just taken out of the chain.
                        Phase::Free | Phase::Dropped => {}
                    }
                }
            }
            at = slot.next.load(Ordering::Acquire);
            steps += 1;
            if steps.is_multiple_of(STEPS_PER_LOOK) && !unchanged(bucket, sequence) {
                return None;
            }
        }
        unchanged(bucket, sequence).then_some(LookUp::Absent)
    }

    /// Whether the slot is of the same generation still, so that what was read of it so far is
    /// right.
    #[inline(always)]
    pub(super) fn still(&self, at: At) -> bool {
        if !weak("still") {
            // What was read before is not read after this: see the module.
            fence(Ordering::Acquire);
        }
        Word(self.slots[at.slot as usize].state.load(Ordering::Relaxed)).generation()
            == at.generation
    }

    /// Counts a visit, as far as visits count. No write if nothing changes; two at the same time
    /// may count as one.
    #[inline(always)]
    pub(super) fn visit(&self, at: At) {
        let visits = &self.slots[at.slot as usize].visits;
        let count = visits.load(Ordering::Relaxed);
        if count < VISITS_MAX {
            visits.store(count + 1, Ordering::Relaxed);
        }
    }

    /// How often it was visited; `None` if it is no longer there.
    pub(super) fn visits(&self, at: At) -> Option<u32> {
        let slot = &self.slots[at.slot as usize];
        let there = Word(slot.state.load(Ordering::Acquire)).is(Phase::Ready, at.generation);
        there.then(|| slot.visits.load(Ordering::Relaxed))
    }

    /// Forgets visits.
    pub(super) fn set_visits(&self, at: At, count: u32) {
        self.slots[at.slot as usize].visits.store(count, Ordering::Relaxed);
    }

    /// The key that `at` has, or had.
    pub(super) fn key(&self, at: At) -> (u64, u64) {
        let slot = &self.slots[at.slot as usize];
        (slot.file.load(Ordering::Relaxed), slot.index.load(Ordering::Relaxed))
    }

    /// Runs `change` while nobody else changes the chain of `bucket`.
    fn change<T>(&self, bucket: &Bucket, change: impl FnOnce() -> T) -> T {
        let mut looks = 0u32;
        let sequence = loop {
            let sequence = bucket.sequence.load(Ordering::Relaxed);
            // Acquire: after the last one's changes.
            let locked = sequence.is_multiple_of(2)
                && bucket
                    .sequence
                    .compare_exchange_weak(
                        sequence,
                        sequence.wrapping_add(1),
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok();
            if locked {
                break sequence;
            }
            looks += 1;
            pause(looks);
        };
        // Who sees one of the changes sees that there are some.
        fence(Ordering::Release);
        let result = change();
        bucket.sequence.store(sequence.wrapping_add(2), Ordering::Release);
        result
    }

    /// In a chain that is locked: the slot of a key, and the slot before it.
    fn find(&self, bucket: &Bucket, file: u64, index: u64) -> Option<(u32, Option<u32>)> {
        let (mut at, mut before) = (bucket.head.load(Ordering::Relaxed), None);
        while let Some(slot) = self.slots.get(at as usize) {
            if slot.index.load(Ordering::Relaxed) == index
                && slot.file.load(Ordering::Relaxed) == file
            {
                return Some((at, before));
            }
            (before, at) = (Some(at), slot.next.load(Ordering::Relaxed));
        }
        None
    }

    /// In a chain that is locked: takes the slot of a key out.
    fn unlink(&self, bucket: &Bucket, (slot, before): (u32, Option<u32>)) {
        let next = self.slots[slot as usize].next.load(Ordering::Relaxed);
        match before {
            Some(before) => self.slots[before as usize].next.store(next, Ordering::Release),
            None => bucket.head.store(next, Ordering::Release),
        }
    }

    /// Claims page `index` of `file` for whoever asks first, in `slot`, which is free and the
    /// caller's.
    ///
    /// # Errors
    /// It is there, or another thread's to read; the slot is still free.
    pub(super) fn claim(&self, slot: u32, file: u64, index: u64) -> Result<At, LookUp> {
        let bucket = self.bucket(file, index);
        // What is written to the key, or to a page, from now on is seen by nobody who does not see
        // that the slot was freed.
        fence(Ordering::Release);
        self.change(bucket, || {
            if let Some((there, _)) = self.find(bucket, file, index) {
                let state = Word(self.slots[there as usize].state.load(Ordering::Acquire));
                let at = At { slot: there, generation: state.generation() };
                return Err(if state.phase() == Phase::Ready {
                    LookUp::Hit(Hit(at))
                } else {
                    LookUp::Filling(Filling(at))
                });
            }
            let ours = &self.slots[slot as usize];
            let state = Word(ours.state.load(Ordering::Relaxed));
            assert!(state.phase() == Phase::Free, "a slot was given out twice");
            ours.file.store(file, Ordering::Relaxed);
            ours.index.store(index, Ordering::Relaxed);
            ours.visits.store(0, Ordering::Relaxed);
            ours.next.store(bucket.head.load(Ordering::Relaxed), Ordering::Relaxed);
            // Release: with its key.
            ours.state.store(state.claimed().0, Ordering::Release);
            bucket.head.store(slot, Ordering::Release);
            Ok(At { slot, generation: state.generation() })
        })
    }

    /// The claimant has read the page.
    pub(super) fn publish(&self, at: At, page: P::Page) -> Published<P::Page> {
        self.publish_as(at, page, Word::published)
    }

    /// The claimant has made a page that is newer than the device's.
    pub(super) fn publish_dirty(&self, at: At, page: P::Page) -> Published<P::Page> {
        self.publish_as(at, page, Word::published_dirty)
    }

    /// `at` is about to be written to: it is newer than the device's, and so stays. False: it is no
    /// longer there.
    pub(super) fn make_dirty(&self, at: At) -> bool {
        let dirty = |word: Word| (word.phase() == Phase::Ready).then(|| word.dirtied());
        self.advance(at, Ordering::AcqRel, dirty).is_some()
    }

    /// `at` is about to be written to the device; false if it is no longer there, or is being
    /// written already. `again`: stays dirty.
    pub(super) fn begin_writeback(&self, at: At, again: bool) -> bool {
        let begun = |word: Word| {
            (word.phase() == Phase::Ready && !word.is_under_writeback())
                .then(|| word.writing_back(again))
        };
        self.advance(at, Ordering::AcqRel, begun).is_some()
    }

    /// `at` was written to the device, or, if `again`, could not be.
    pub(super) fn end_writeback(&self, at: At, again: bool) {
        let ended = |word: Word| word.is_under_writeback().then(|| word.written_back(again));
        let ended = self.advance(at, Ordering::AcqRel, ended);
        debug_assert!(ended.is_some(), "what is under writeback stays");
    }

    /// What is known of `at` by whoever writes: dirty, under writeback; `None` if it is not there.
    pub(super) fn writing_state(&self, at: At) -> Option<(bool, bool)> {
        let word = Word(self.slots[at.slot as usize].state.load(Ordering::Acquire));
        word.is(Phase::Ready, at.generation).then(|| (word.is_dirty(), word.is_under_writeback()))
    }

    fn publish_as(&self, at: At, page: P::Page, to: impl Fn(Word) -> Word) -> Published<P::Page> {
        let slot = &self.slots[at.slot as usize];
        if let Err(page) = slot.place.put(page) {
            self.abandon(at);
            return Published::Refused(page);
        }
        // Release: with the page (which its cell sees to as well).
        match self.advance(at, Ordering::AcqRel, |word| {
            (word.phase() == Phase::Filling).then(|| to(word))
        }) {
            Some(before) => {
                if before.has_waiters() {
                    self.parking.wake(at.slot);
                }
                Published::Ready
            }
            None => {
                let page = slot.place.take();
                self.free_dropped(at);
                match page {
                    Some(page) => Published::Dropped(page),
                    // Only the claimant has it while it is dropped.
                    None => Published::Ready,
                }
            }
        }
    }

    /// The claimant has not read the page: whoever waits for it may claim it.
    pub(super) fn abandon(&self, at: At) {
        let (file, index) = self.key(at);
        let bucket = self.bucket(file, index);
        let before = self.change(bucket, || {
            let freed = |word: Word| (word.phase() == Phase::Filling).then(|| word.freed());
            let before = self.advance(at, Ordering::AcqRel, freed)?;
            self.unlink_if(bucket, file, index, at.slot);
            Some(before)
        });
        match before {
            Some(before) if before.has_waiters() => self.parking.wake(at.slot),
            Some(_) => {}
            None => self.free_dropped(at),
        }
    }

    /// A slot whose page was dropped is free now; it is in no chain.
    fn free_dropped(&self, at: At) {
        let freed = |word: Word| (word.phase() == Phase::Dropped).then(|| word.freed());
        let freed = self.advance(at, Ordering::AcqRel, freed);
        assert!(freed.is_some(), "a claim was given up twice");
    }

    fn unlink_if(&self, bucket: &Bucket, file: u64, index: u64, slot: u32) {
        if let Some(place) = self.find(bucket, file, index).filter(|(there, _)| *there == slot) {
            self.unlink(bucket, place);
        }
    }

    /// Changes the state of `at`, if it is of that generation, and `to` says so; what it was
    /// before.
    fn advance(&self, at: At, order: Ordering, to: impl Fn(Word) -> Option<Word>) -> Option<Word> {
        let state = &self.slots[at.slot as usize].state;
        let mut word = Word(state.load(Ordering::Relaxed));
        loop {
            let next = (word.generation() == at.generation).then(|| to(word)).flatten()?;
            match state.compare_exchange_weak(word.0, next.0, order, Ordering::Relaxed) {
                Ok(_) => return Some(word),
                Err(other) => word = Word(other),
            }
        }
    }

    /// Takes a page that is there, and clean, out of the cache. Its slot is free, and the caller's.
    pub(super) fn evict(&self, at: At) -> Option<Option<P::Page>> {
        let (file, index) = self.key(at);
        let bucket = self.bucket(file, index);
        self.change(bucket, || {
            self.free_ready(at, |word| word.is_clean() || weak("dirty"))?;
            self.unlink_if(bucket, file, index, at.slot);
            Some(())
        })?;
        Some(self.take_out(at.slot))
    }

    /// The page of a slot that was just freed.
    fn take_out(&self, slot: u32) -> Option<P::Page> {
        // As in `claim`: for who writes to the page without claiming another.
        fence(Ordering::Release);
        self.slots[slot as usize].place.take()
    }

    fn free_ready(&self, at: At, may: impl Fn(Word) -> bool) -> Option<Word> {
        let free = |word: Word| word.phase() == Phase::Ready && may(word);
        self.advance(at, Ordering::AcqRel, |word| free(word).then(|| word.freed()))
    }

    /// Forgets page `index` of `file`. If it was there, its slot, which is free and the caller's,
    /// and it. One that somebody is reading will not come into the cache; one that is dirty or
    /// under writeback stays.
    pub(super) fn forget(&self, file: u64, index: u64) -> Option<(u32, Option<P::Page>)> {
        self.forget_if(file, index, None, Word::is_clean)
    }

    /// If `at` is being read still, it will not come into the cache.
    pub(super) fn drop_filling(&self, at: At) {
        let (file, index) = self.key(at);
        self.forget_if(file, index, Some(at), |_| false);
    }

    /// The same for a page that may be dirty: what was written to it is gone.
    pub(super) fn discard(&self, file: u64, index: u64) -> Option<(u32, Option<P::Page>)> {
        self.forget_if(file, index, None, |word| !word.is_under_writeback())
    }

    fn forget_if(
        &self,
        file: u64,
        index: u64,
        only: Option<At>,
        may: impl Fn(Word) -> bool,
    ) -> Option<(u32, Option<P::Page>)> {
        let bucket = self.bucket(file, index);
        let (slot, freed, woken) = self.change(bucket, || {
            let place = self.find(bucket, file, index)?;
            let generation =
                Word(self.slots[place.0 as usize].state.load(Ordering::Acquire)).generation();
            let at = At { slot: place.0, generation };
            if only.is_some_and(|only| only != at) {
                return None;
            }
            let drop = |word: Word| (word.phase() == Phase::Filling).then(|| word.dropped());
            // In this order: one that is being read may become ready between.
            let dropped = self.advance(at, Ordering::AcqRel, drop);
            if dropped.is_none() {
                self.free_ready(at, &may)?;
            }
            self.unlink(bucket, place);
            Some((place.0, dropped.is_none(), dropped.is_some_and(Word::has_waiters)))
        })?;
        if woken {
            self.parking.wake(slot);
        }
        freed.then(|| (slot, self.take_out(slot)))
    }

    /// Whether somebody is still reading `at`.
    fn is_filling(&self, at: At) -> bool {
        Word(self.slots[at.slot as usize].state.load(Ordering::Acquire))
            .is(Phase::Filling, at.generation)
    }

    /// Marks `at`, so that its end wakes; false if there is nothing to wait for.
    fn mark(&self, at: At) -> bool {
        let marked = |word: Word| (word.phase() == Phase::Filling).then(|| word.with_waiters());
        self.advance(at, Ordering::AcqRel, marked).is_some()
    }

    /// Waits until whoever reads `at` is done with it, well or not, for `timeout_ns` at most, or
    /// less; false if it is still being read.
    pub(super) fn wait(&self, at: At, timeout_ns: u64) -> bool {
        for _ in 0..LOOKS_PER_SLEEP {
            if !self.is_filling(at) {
                return true;
            }
            std::hint::spin_loop();
        }
        let early = weak("wait");
        let mut seen = self.parking.seen(at.slot);
        if self.mark(at) {
            if early {
                // Too late: the wake-up may have been before.
                seen = self.parking.seen(at.slot);
            }
            self.parking.sleep(at.slot, seen, timeout_ns);
        }
        !self.is_filling(at)
    }

    /// Has `waker` woken when whoever reads `at` is done with it; false if that is so already, and
    /// the waker was not kept.
    pub(super) fn register(&self, at: At, waker: &Waker) -> bool {
        let is_ours = self.parking.leave(at.slot, waker);
        let marked = self.mark(at);
        // (One that another future of the task has left is for that one.)
        if !marked && is_ours {
            self.parking.take_back(at.slot, waker);
        }
        marked
    }
}

#[inline(always)]
fn unchanged(bucket: &Bucket, sequence: u32) -> bool {
    // What was read of the chain is not read after this.
    fence(Ordering::Acquire);
    sequence.is_multiple_of(2) && bucket.sequence.load(Ordering::Relaxed) == sequence
}

#[cold]
fn pause(looks: u32) {
    if looks.is_multiple_of(LOOKS_PER_YIELD) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// A number from a key whose every bit depends on all of the key (the finisher of SplitMix64).
#[inline(always)]
pub(super) fn hash(file: u64, index: u64) -> u64 {
    let mut bits =
        (file ^ index.rotate_left(32)).wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
