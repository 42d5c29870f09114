//! The information about each descriptor.
//!
//! An entry is read without a lock, and changed by one thread at a time. An event that makes it
//! wrong (a close, a fork) only marks it, even while another thread is storing. That thread notices
//! the mark, and leaves the entry unknown. So *an existing entry is what was found out after the
//! last mark*. A descriptor may have been closed unseen, which the user of the entry has to check.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering, fence};

/// The mask of the kind in the first word. It is below the version, which changes with each change
/// of the entry.
const KIND: u64 = 0b11;
const UNKNOWN: u64 = 0;
const FOREIGN: u64 = 1;
const LONG: u64 = 2;
const KNOWN: u64 = 3;
/// This bit says that a thread is storing the other words.
const BUSY: u64 = 1 << 2;
/// This bit says that what that thread stores is already wrong.
const VOID: u64 = 1 << 3;
/// This bit says that the process has opened the descriptor itself, and no other process can have
/// it.
const OWN: u64 = 1 << 4;
const FLAGS_AT: u32 = 8;
/// This bit is in place of flags, with `LONG`.
const LEFT: u64 = 1;
const VERSION_AT: u32 = 16;

/// Flags of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags(pub(crate) u8);

impl Flags {
    pub(crate) const READ: u8 = 1 << 0;
    pub(crate) const WRITE: u8 = 1 << 1;
    pub(crate) const APPEND: u8 = 1 << 2;
    pub(crate) const DIRECT: u8 = 1 << 3;
    pub(crate) const DSYNC: u8 = 1 << 4;
    pub(crate) const SYNC: u8 = 1 << 5;

    #[inline]
    pub(crate) fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// A descriptor of a file that the owner knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) handle: u64,
    pub(crate) closings: u64,
    pub(crate) word: u32,
    /// The number of the connection to which the handle belongs.
    pub(crate) connection: u32,
    pub(crate) flags: Flags,
}

/// The content of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Nothing is known.
    Unknown,
    /// It is no file of the mount.
    Foreign,
    /// The owner refuses it.
    Long,
    /// The owner refuses it, because the kernel's cache answers sooner.
    Left,
    Known(Known),
    /// Another thread is storing it.
    Busy,
}

/// An entry's state, which is compared before the entry is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// Returns a number for `fd` that stays the same as long as nothing changes. Its value has no
    /// other meaning.
    #[inline]
    pub(crate) fn number(self, fd: i32) -> u64 {
        (self.0 >> VERSION_AT).rotate_right(16) ^ (fd as u64).rotate_right(32)
    }

    /// Returns whether the process has opened the descriptor itself, and no other process can have
    /// it.
    #[inline]
    pub(crate) fn is_own(self) -> bool {
        self.0 & OWN != 0
    }
}

/// An entry. All zeros is an unknown one.
struct Slot {
    state: AtomicU64,
    handle: AtomicU64,
    closings: AtomicU64,
    /// The word among the closings, with the connection above it.
    word: AtomicU64,
}

/// Entries of the descriptors below `N`.
pub(crate) struct Table<const N: usize> {
    slots: [Slot; N],
    /// The highest descriptor that may have an entry.
    highest: AtomicI32,
}

/// Returns the next version of `state`, unknown, with the bits `kept`.
fn unknown(state: u64, kept: u64) -> u64 {
    ((state >> VERSION_AT).wrapping_add(1) << VERSION_AT) | kept
}

/// Returns the content of `state`, if all calls take the FUSE path.
#[inline]
fn long(state: u64) -> Option<Entry> {
    match state & (KIND | BUSY) {
        FOREIGN => Some(Entry::Foreign),
        LONG if state >> FLAGS_AT & LEFT != 0 => Some(Entry::Left),
        LONG => Some(Entry::Long),
        _ => None,
    }
}

impl<const N: usize> Table<N> {
    pub(crate) const fn new() -> Self {
        let slots = [const {
            Slot {
                state: AtomicU64::new(0),
                handle: AtomicU64::new(0),
                closings: AtomicU64::new(0),
                word: AtomicU64::new(0),
            }
        }; N];
        Self { slots, highest: AtomicI32::new(-1) }
    }

    #[inline]
    fn slot(&self, fd: i32) -> Option<&Slot> {
        self.slots.get(usize::try_from(fd).ok()?)
    }

    /// Returns what is known of `fd`, or `None` if the table is too small.
    #[inline]
    pub(crate) fn load(&self, fd: i32) -> Option<(Entry, Ticket)> {
        let slot = self.slot(fd)?;
        // Acquire: the other words come with the state.
        let state = slot.state.load(Ordering::Acquire);
        let entry = match state & (KIND | BUSY) {
            KNOWN => {
                let word = slot.word.load(Ordering::Relaxed);
                let known = Known {
                    handle: slot.handle.load(Ordering::Relaxed),
                    closings: slot.closings.load(Ordering::Relaxed),
                    word: word as u32,
                    connection: (word >> 32) as u32,
                    flags: Flags((state >> FLAGS_AT) as u8),
                };
                // A word that was stored later comes with the state that was stored before it.
                fence(Ordering::Acquire);
                if slot.state.load(Ordering::Relaxed) == state {
                    Entry::Known(known)
                } else {
                    Entry::Busy
                }
            }
            UNKNOWN => Entry::Unknown,
            _ => long(state).unwrap_or(Entry::Busy),
        };
        Some((entry, Ticket(state)))
    }

    /// Returns what is known of `fd`, if all calls on it take the FUSE path. It loads one word.
    #[inline]
    pub(crate) fn load_long(&self, fd: i32) -> Option<Entry> {
        long(self.slot(fd)?.state.load(Ordering::Relaxed))
    }

    /// Stores `entry`, unless the entry was changed or marked since `ticket`. Returns whether it
    /// was stored.
    pub(crate) fn store(&self, fd: i32, ticket: Ticket, entry: Entry) -> bool {
        let Some(slot) = self.slot(fd) else { return false };
        let Ticket(before) = ticket;
        if before & BUSY != 0 {
            return false;
        }
        self.highest.fetch_max(fd, Ordering::Relaxed);
        let own = before & OWN;
        let swap = |from, to, order| {
            slot.state.compare_exchange(from, to, order, Ordering::Relaxed).is_ok()
        };
        let known = match entry {
            Entry::Known(known) => known,
            Entry::Foreign => {
                return swap(before, unknown(before, own) | FOREIGN, Ordering::AcqRel);
            }
            Entry::Long => return swap(before, unknown(before, own) | LONG, Ordering::AcqRel),
            Entry::Left => {
                let left = unknown(before, own) | LEFT << FLAGS_AT | LONG;
                return swap(before, left, Ordering::AcqRel);
            }
            Entry::Unknown => return swap(before, unknown(before, own), Ordering::AcqRel),
            Entry::Busy => return false,
        };
        let busy = unknown(before, own) | BUSY;
        if !swap(before, busy, Ordering::AcqRel) {
            return false;
        }
        // This Release precedes the stores below, so that a thread that loads one of them sees the
        // busy state.
        fence(Ordering::Release);
        slot.handle.store(known.handle, Ordering::Relaxed);
        slot.closings.store(known.closings, Ordering::Relaxed);
        let word = u64::from(known.connection) << 32 | u64::from(known.word);
        slot.word.store(word, Ordering::Relaxed);
        let flags = u64::from(known.flags.0) << FLAGS_AT;
        // Release: the words come with the state.
        if swap(busy, unknown(busy, own) | flags | KNOWN, Ordering::Release) {
            return true;
        }
        // Another thread has marked the entry. It changes nothing else of a busy entry.
        self.change(slot, |state| unknown(state, state & OWN));
        false
    }

    fn change(&self, slot: &Slot, to: impl Fn(u64) -> u64) {
        let _ =
            slot.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |state| Some(to(state)));
    }

    /// Notes that `fd` may refer to another file now. `is_own` says that this process has opened
    /// that file itself.
    #[inline]
    pub(crate) fn forget(&self, fd: i32, is_own: bool) {
        let Some(slot) = self.slot(fd) else { return };
        if is_own {
            self.highest.fetch_max(fd, Ordering::Relaxed);
        } else if fd > self.highest.load(Ordering::Relaxed) {
            return;
        }
        let own = if is_own { OWN } else { 0 };
        self.change(slot, |state| match state & BUSY {
            0 => unknown(state, own),
            _ => state & !OWN | own | VOID,
        });
    }

    /// Returns whether the process has opened `fd` itself, and no other process can have it.
    pub(crate) fn is_own(&self, fd: i32) -> bool {
        self.slot(fd).is_some_and(|slot| slot.state.load(Ordering::Relaxed) & OWN != 0)
    }

    fn used(&self) -> &[Slot] {
        let highest = usize::try_from(self.highest.load(Ordering::Relaxed));
        &self.slots[..highest.map_or(0, |highest| (highest + 1).min(N))]
    }

    /// Notes that descriptors from `first` to `last` may refer to other files now.
    pub(crate) fn forget_range(&self, first: u32, last: u32) {
        let end = (last as usize).saturating_add(1).min(self.used().len());
        for fd in first as usize..end {
            self.forget(fd as i32, false);
        }
    }

    /// Notes that flags of open files have changed, so that the information is found out again.
    pub(crate) fn forget_flags(&self) {
        for slot in self.used() {
            self.change(slot, |state| match state & BUSY {
                0 => unknown(state, state & OWN),
                _ => state | VOID,
            });
        }
    }

    /// Notes that other processes get the descriptors.
    pub(crate) fn share(&self) {
        for slot in self.used() {
            if slot.state.load(Ordering::Relaxed) & (OWN | BUSY) != 0 {
                self.change(slot, |state| match state & BUSY {
                    // The other words stay, and so does the version.
                    0 => state & !OWN,
                    _ => state & !OWN | VOID,
                });
            }
        }
    }

    /// Makes all entries unknown, in a child that has one thread.
    pub(crate) fn clear(&self) {
        for slot in self.used() {
            slot.state.store(0, Ordering::Relaxed);
        }
        self.highest.store(-1, Ordering::Relaxed);
    }
}
