//! Finds pages: a hash table of slots, which is read without a lock or a write.
//!
//! A bucket is the head of a chain of slots, and a sequence that is odd while the chain is changed;
//! one thread at a time changes a chain. A reader walks a chain while it may change. A slot that it
//! finds is right if the slot's state has the same generation before and after the key was read: a
//! slot's key changes only while the slot is free, and freeing it changes the generation. A result
//! of absent is right if the bucket's sequence was even and did not change.
//!
//! The same holds for the page: a reader copies, then checks that the generation is the same
//! ([`Table::still`]). Freeing a slot changes the state before the page is taken out, and a claim
//! has a fence before the page is written to: a reader that saw a byte of the next page also sees
//! the next generation (Boehm, "Can seqlocks get along with programming language memory models?",
//! MSPC 2012).

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::task::Waker;

use super::parking::Parking;
use super::word::{Phase, Word};
use super::{Filling, Hit, LookUp};

/// The cell in which a slot holds its page.
pub(super) trait PageSlot {
    /// A page.
    type Page;
    /// Puts a page in, or returns it if it does not fit.
    fn put(&self, page: Self::Page) -> Result<(), Self::Page>;
    /// Takes the page out.
    fn take(&self) -> Option<Self::Page>;
}

/// The end of a chain.
const NOBODY: u32 = u32::MAX;

/// Steps along a chain between two checks whether it was changed. A slot that is moved to another
/// chain could otherwise lead the reader in circles.
const STEPS_PER_LOOK: u32 = if cfg!(loom) { 2 } else { 16 };

/// Polls of a locked bucket per yield.
const LOOKS_PER_YIELD: u32 = if cfg!(loom) { 1 } else { 64 };

/// Polls of another reader's fill before a waiter sleeps: about 1 µs.
const LOOKS_PER_SLEEP: u32 = if cfg!(loom) { 0 } else { 128 };

/// Slots and their chains.
pub(super) struct Table<P> {
    buckets: Box<[Bucket]>,
    slots: Box<[Slot<P>]>,
    parking: Parking,
}

struct Bucket {
    /// This number is odd while the chain is being changed.
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
    /// Its visits, up to `VISITS_MAX`.
    visits: AtomicU32,
    place: P,
}

/// A slot at one generation: identifies its page while that is in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub slot: u32,
    pub generation: u32,
}

/// The fate of a page that is being read when it is to be removed.
#[derive(Clone, Copy)]
enum BeingRead {
    /// The page enters the cache all the same.
    Stays,
    /// The page does not enter the cache.
    Goes,
    /// The page does not enter the cache if it is this one.
    GoesIf(At),
}

/// The result of publishing a page.
pub(super) enum Published<T> {
    /// It is in the cache.
    Ready,
    /// It was invalidated; the slot is free.
    Dropped(T),
    /// It does not fit the slot, which is free.
    Refused(T),
}

/// The maximum number of visits counted.
pub(super) const VISITS_MAX: u32 = 3;

/// Under loom, whether to weaken the order `what`, as the environment asks, to show that the models
/// can fail.
#[cfg(loom)]
fn weak(what: &str) -> bool {
    std::env::var("LOOM_WEAK").is_ok_and(|weak| weak == what)
}

#[cfg(not(loom))]
const fn weak(_: &str) -> bool {
    false
}

impl<P: PageSlot> Table<P> {
    /// Makes a table of as many slots as there are `places`, at least one, all free.
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

    /// Returns the cell of `at`'s slot, of any generation.
    #[inline(always)]
    pub(super) fn place(&self, at: At) -> &P {
        &self.slots[at.slot as usize].place
    }

    /// Returns the state of page `index` of `file`.
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

    /// Tries to find the page once. Returns `None` if the chain was changed meanwhile.
    #[inline(always)]
    fn walk(&self, bucket: &Bucket, file: u64, index: u64) -> Option<LookUp> {
        // Acquire: this thread sees the chain as it was after its last change, or newer.
        let sequence = bucket.sequence.load(Ordering::Acquire);
        let mut at = bucket.head.load(Ordering::Acquire);
        let mut steps = 0u32;
        while let Some(slot) = self.slots.get(at as usize) {
            // Acquire: this thread sees the key and the page of this generation, or newer ones.
            let state = Word(slot.state.load(Ordering::Acquire));
            if slot.index.load(Ordering::Relaxed) == index
                && slot.file.load(Ordering::Relaxed) == file
            {
                let found = At { slot: at, generation: state.generation() };
                if self.still(found) {
                    match state.phase() {
                        Phase::Ready => return Some(LookUp::Hit(Hit(found))),
                        Phase::Filling => return Some(LookUp::Filling(Filling(found))),
                        // The slot was just removed from the chain.
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

    /// Returns whether the slot still has the same generation, so that what was read of it is
    /// right.
    #[inline(always)]
    pub(super) fn still(&self, at: At) -> bool {
        if !weak("still") {
            // The fence keeps earlier reads before this one, as the module's documentation says.
            fence(Ordering::Acquire);
        }
        Word(self.slots[at.slot as usize].state.load(Ordering::Relaxed)).generation()
            == at.generation
    }

    /// Counts a visit, up to `VISITS_MAX`. Writes nothing if the count does not change. Two visits
    /// at the same time may count as one.
    #[inline(always)]
    pub(super) fn visit(&self, at: At) {
        let visits = &self.slots[at.slot as usize].visits;
        let count = visits.load(Ordering::Relaxed);
        if count < VISITS_MAX {
            visits.store(count + 1, Ordering::Relaxed);
        }
    }

    /// Returns the page's visits, or `None` if the page is no longer in the cache.
    pub(super) fn visits(&self, at: At) -> Option<u32> {
        let slot = &self.slots[at.slot as usize];
        let there = Word(slot.state.load(Ordering::Acquire)).is(Phase::Ready, at.generation);
        there.then(|| slot.visits.load(Ordering::Relaxed))
    }

    /// Sets its visits.
    pub(super) fn set_visits(&self, at: At, count: u32) {
        self.slots[at.slot as usize].visits.store(count, Ordering::Relaxed);
    }

    /// Returns the key that `at` has or had.
    pub(super) fn key(&self, at: At) -> (u64, u64) {
        let slot = &self.slots[at.slot as usize];
        (slot.file.load(Ordering::Relaxed), slot.index.load(Ordering::Relaxed))
    }

    /// Runs `change` with the chain of `bucket` locked.
    fn change<T>(&self, bucket: &Bucket, change: impl FnOnce() -> T) -> T {
        let mut looks = 0u32;
        let sequence = loop {
            let sequence = bucket.sequence.load(Ordering::Relaxed);
            // Acquire: this thread sees the changes of the previous owner.
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
        // A reader that sees one of the changes sees the odd sequence.
        fence(Ordering::Release);
        let result = change();
        bucket.sequence.store(sequence.wrapping_add(2), Ordering::Release);
        result
    }

    /// Returns the slot of a key in a locked chain, and the slot before it.
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

    /// Removes the slot of a key from a locked chain.
    fn unlink(&self, bucket: &Bucket, (slot, before): (u32, Option<u32>)) {
        let next = self.slots[slot as usize].next.load(Ordering::Relaxed);
        match before {
            Some(before) => self.slots[before as usize].next.store(next, Ordering::Release),
            None => bucket.head.store(next, Ordering::Release),
        }
    }

    /// Claims page `index` of `file` in `slot`, which is free and owned by the caller. One thread
    /// succeeds.
    ///
    /// # Errors
    /// Fails if the page is ready, or if another thread is reading it. The slot is still free then.
    pub(super) fn claim(&self, slot: u32, file: u64, index: u64) -> Result<At, LookUp> {
        let bucket = self.bucket(file, index);
        // A reader that sees later writes to the key or the page also sees that the slot was freed.
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
            // Release: a thread that sees this state also sees the slot's key.
            ours.state.store(state.claimed().0, Ordering::Release);
            bucket.head.store(slot, Ordering::Release);
            Ok(At { slot, generation: state.generation() })
        })
    }

    /// Publishes the page that the claimant has read.
    pub(super) fn publish(&self, at: At, page: P::Page) -> Published<P::Page> {
        self.publish_as(at, page, Word::published)
    }

    /// Publishes a page that the claimant has made, newer than the device's.
    pub(super) fn publish_dirty(&self, at: At, page: P::Page) -> Published<P::Page> {
        self.publish_as(at, page, Word::published_dirty)
    }

    /// Makes `at` dirty, before it is written to: it cannot be evicted then. Returns false if it is
    /// no longer in the cache.
    pub(super) fn make_dirty(&self, at: At) -> bool {
        let dirty = |word: Word| (word.phase() == Phase::Ready).then(|| word.dirtied());
        self.advance(at, Ordering::AcqRel, dirty).is_some()
    }

    /// Begins the writeback of `at`. If `again`, the page stays dirty. Returns false if it is no
    /// longer in the cache, or already under writeback.
    pub(super) fn begin_writeback(&self, at: At, again: bool) -> bool {
        let begun = |word: Word| {
            (word.phase() == Phase::Ready && !word.is_under_writeback())
                .then(|| word.writing_back(again))
        };
        self.advance(at, Ordering::AcqRel, begun).is_some()
    }

    /// Ends the writeback of `at`. If `again`, the writeback failed, and the page becomes dirty.
    pub(super) fn end_writeback(&self, at: At, again: bool) {
        let ended = |word: Word| word.is_under_writeback().then(|| word.written_back(again));
        let ended = self.advance(at, Ordering::AcqRel, ended);
        debug_assert!(ended.is_some(), "what is under writeback stays");
    }

    /// Returns whether `at` is dirty and whether it is under writeback, or `None` if it is not in
    /// the cache.
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
        // Release: a thread that sees this state also sees the page. The page's cell orders that,
        // too.
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
                    // This is not reached: only the claimant has the page while it is dropped.
                    None => Published::Ready,
                }
            }
        }
    }

    /// Abandons a claim, so that a waiter may claim the page.
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

    /// Frees the slot of a dropped page, which is in no chain.
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

    /// Changes the state of `at` to the result of `to`, if the generation is the same. Returns the
    /// previous state, or `None` if `to` refuses.
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

    /// Removes a ready and clean page. Its slot is free then, and owned by the caller.
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

    /// Takes the page out of a slot that was just freed.
    fn take_out(&self, slot: u32) -> Option<P::Page> {
        // This fence has the same purpose as that in `claim`, for a writer to the page that does
        // not claim another.
        fence(Ordering::Release);
        self.slots[slot as usize].place.take()
    }

    fn free_ready(&self, at: At, may: impl Fn(Word) -> bool) -> Option<Word> {
        let free = |word: Word| word.phase() == Phase::Ready && may(word);
        self.advance(at, Ordering::AcqRel, |word| free(word).then(|| word.freed()))
    }

    /// Removes page `index` of `file`. Returns its slot, which is free and owned by the caller
    /// then, and its memory, if it was ready. A page that is being read will not enter the cache;
    /// one that is dirty or under writeback stays.
    pub(super) fn forget(&self, file: u64, index: u64) -> Option<(u32, Option<P::Page>)> {
        self.forget_if(file, index, BeingRead::Goes, Word::is_clean)
    }

    /// Removes page `index` of `file` like [`forget`](Self::forget), but lets a page that is being
    /// read enter the cache.
    pub(super) fn forget_clean(&self, file: u64, index: u64) -> Option<(u32, Option<P::Page>)> {
        self.forget_if(file, index, BeingRead::Stays, Word::is_clean)
    }

    /// Prevents `at` from entering the cache, if it is still being read.
    pub(super) fn drop_filling(&self, at: At) {
        let (file, index) = self.key(at);
        self.forget_if(file, index, BeingRead::GoesIf(at), |_| false);
    }

    /// Removes a page that may be dirty: what was written to it is lost.
    pub(super) fn discard(&self, file: u64, index: u64) -> Option<(u32, Option<P::Page>)> {
        self.forget_if(file, index, BeingRead::Goes, |word| !word.is_under_writeback())
    }

    fn forget_if(
        &self,
        file: u64,
        index: u64,
        being_read: BeingRead,
        may: impl Fn(Word) -> bool,
    ) -> Option<(u32, Option<P::Page>)> {
        let bucket = self.bucket(file, index);
        let (slot, freed, woken) = self.change(bucket, || {
            let place = self.find(bucket, file, index)?;
            let generation =
                Word(self.slots[place.0 as usize].state.load(Ordering::Acquire)).generation();
            let at = At { slot: place.0, generation };
            if matches!(being_read, BeingRead::GoesIf(only) if only != at) {
                return None;
            }
            let drop = |word: Word| (word.phase() == Phase::Filling).then(|| word.dropped());
            // The order matters: a page that is being read may become ready between the two steps.
            let dropped = match being_read {
                BeingRead::Stays => None,
                BeingRead::Goes | BeingRead::GoesIf(_) => self.advance(at, Ordering::AcqRel, drop),
            };
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

    /// Returns whether `at` is still being read.
    fn is_filling(&self, at: At) -> bool {
        Word(self.slots[at.slot as usize].state.load(Ordering::Acquire))
            .is(Phase::Filling, at.generation)
    }

    /// Marks `at`, so that its end wakes. Returns false if there is nothing to wait for.
    fn mark(&self, at: At) -> bool {
        let marked = |word: Word| (word.phase() == Phase::Filling).then(|| word.with_waiters());
        self.advance(at, Ordering::AcqRel, marked).is_some()
    }

    /// Waits until `at` has been published, abandoned or dropped, for `timeout_ns` at most. It may
    /// return early. Returns false if the page is still being read.
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
                // The mark came too late: the wake-up may have preceded it.
                seen = self.parking.seen(at.slot);
            }
            self.parking.sleep(at.slot, seen, timeout_ns);
        }
        !self.is_filling(at)
    }

    /// Registers `waker` for the end of `at`. Returns false if it has ended already; the waker is
    /// not kept then.
    pub(super) fn register(&self, at: At, waker: &Waker) -> bool {
        let is_ours = self.parking.leave(at.slot, waker);
        let marked = self.mark(at);
        // A waker that another future of the task has left stays for that one.
        if !marked && is_ours {
            self.parking.remove_waker(at.slot, waker);
        }
        marked
    }
}

#[inline(always)]
fn unchanged(bucket: &Bucket, sequence: u32) -> bool {
    // This fence keeps the reads of the chain before it.
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

/// Returns a hash of a key, every bit of which depends on all of the key (the finisher of
/// SplitMix64).
#[inline(always)]
pub(super) fn hash(file: u64, index: u64) -> u64 {
    let mut bits =
        (file ^ index.rotate_left(32)).wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
