//! The slots of an asynchronous channel: which future belongs to which request, and which waits for
//! room. This module has no threads. It neither wakes nor drops foreign wakers, but returns them to
//! the caller for that.

use std::collections::VecDeque;
use std::task::Waker;

use super::super::device::BlockChannel;
use super::super::error::IoError;
use super::super::request::{Done, Rejected, Request};
use meantime_hw::DmaBuf;

/// The state of a slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SlotStage {
    #[default]
    Free,
    /// Its request is in flight and has a future.
    Asked,
    /// Its request is in flight and the future was dropped: slot and buffer stay until the request
    /// has ended.
    Abandoned,
    /// Its request has ended; the future has not taken the result yet.
    Ended,
}

/// A cache line.
#[derive(Default)]
#[repr(align(64))]
struct Slot {
    stage: SlotStage,
    /// The next free slot, while this one is free.
    next_free: u16,
    /// The caller's own value; the request carries the slot's index instead.
    user_data: u64,
    /// The waker that is woken when the request ends.
    waker: Option<Waker>,
    /// The result of an ended request, in parts: the usual result, a buffer and no error, takes
    /// four words to move.
    buf: Option<DmaBuf>,
    /// Whether there is also an error, in [`ChannelState::errors`].
    failed: bool,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// A future that waits for room.
struct Waiter {
    id: u64,
    /// `None` if the future looks itself, or was woken already.
    waker: Option<Waker>,
}

const NO_SLOT: u16 = u16::MAX;

/// A channel, and the futures that use it.
pub(super) struct ChannelState<C> {
    pub(super) channel: C,
    slots: Box<[Slot]>,
    /// The errors of ended requests, by slot.
    errors: Box<[Option<IoError>]>,
    free: u16,
    free_count: usize,
    /// Futures that wait for room, by age, which is also the order of their identifiers.
    waiters: VecDeque<Waiter>,
    next_waiter: u64,
    /// Whether a driver looks at the queue, so that futures need not.
    pub(super) has_driver: bool,
}

/// The result of a request for room.
pub(super) enum Started {
    /// The request is in flight in this slot.
    InFlight(u16),
    /// It waits for room under this identifier.
    Waiting(u64),
    /// The channel refused it.
    Rejected(Box<Rejected>),
}

impl<C: BlockChannel> ChannelState<C> {
    pub(super) fn new(channel: C) -> Self {
        let depth = channel.depth().max(1);
        let slot = |index: u16| {
            let next_free = if index + 1 < depth { index + 1 } else { NO_SLOT };
            Slot { next_free, ..Slot::default() }
        };
        Self {
            channel,
            slots: (0..depth).map(slot).collect(),
            errors: (0..depth).map(|_| None).collect(),
            free: 0,
            free_count: usize::from(depth),
            waiters: VecDeque::new(),
            next_waiter: 0,
            has_driver: false,
        }
    }

    /// Number of free slots.
    pub(super) fn free_count(&self) -> usize {
        self.free_count
    }

    /// Futures that wait for room.
    pub(super) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Starts the request that `make` makes, if there is room that no other future waits for.
    #[inline(always)]
    pub(super) fn start(&mut self, make: impl FnOnce() -> Request) -> Started {
        if self.free_count <= self.waiters.len() {
            return self.queue_up();
        }
        self.start_in_free(make)
    }

    #[cold]
    #[inline(never)]
    fn queue_up(&mut self) -> Started {
        let id = self.next_waiter;
        self.next_waiter += 1;
        self.waiters.push_back(Waiter { id, waker: None });
        Started::Waiting(id)
    }

    #[inline(always)]
    fn start_in_free(&mut self, make: impl FnOnce() -> Request) -> Started {
        let index = self.free;
        let slot = &mut self.slots[usize::from(index)];
        debug_assert!(slot.stage == SlotStage::Free && slot.buf.is_none() && !slot.failed);
        let mut request = make();
        slot.user_data = std::mem::replace(&mut request.user_data, u64::from(index));
        if let Err(rejected) = self.channel.enqueue(request) {
            return Self::rejected(rejected, slot.user_data);
        }
        slot.stage = SlotStage::Asked;
        self.free = slot.next_free;
        self.free_count -= 1;
        Started::InFlight(index)
    }

    #[cold]
    #[inline(never)]
    fn rejected(mut rejected: Rejected, user_data: u64) -> Started {
        rejected.request.user_data = user_data;
        Started::Rejected(Box::new(rejected))
    }

    /// Starts the request of a future that has waited as `id`, if there is room for it. Also
    /// returns the waker of a future that has room now.
    pub(super) fn start_waiter(
        &mut self,
        id: u64,
        make: impl FnOnce() -> Request,
    ) -> (Started, Option<Waker>) {
        let place = self.place_of(id);
        if place >= self.free_count {
            return (Started::Waiting(id), None);
        }
        self.waiters.remove(place);
        let started = self.start_in_free(make);
        // After a rejection, the room goes to another future.
        let next = if let Started::Rejected(_) = started { self.next_with_room() } else { None };
        (started, next)
    }

    fn place_of(&self, id: u64) -> usize {
        self.waiters.binary_search_by_key(&id, |waiter| waiter.id).expect("it waits")
    }

    /// The last waiter for which there is room. Earlier ones were woken when their room became
    /// free.
    fn next_with_room(&mut self) -> Option<Waker> {
        let place = self.free_count.checked_sub(1)?;
        self.waiters.get_mut(place)?.waker.take()
    }

    /// Removes a waiter whose future was dropped. Returns the waker of the one that has room
    /// instead, and its own.
    pub(super) fn leave(&mut self, id: u64) -> [Option<Waker>; 2] {
        let place = self.place_of(id);
        let gone = self.waiters.remove(place).and_then(|waiter| waiter.waker);
        let next = if place < self.free_count { self.next_with_room() } else { None };
        [next, gone]
    }

    /// Sets `waker` to be woken when there is room for `id`. Returns the replaced one, to be
    /// dropped.
    pub(super) fn ask_for_room(&mut self, id: u64, waker: &Waker) -> Option<Waker> {
        let place = self.place_of(id);
        set(&mut self.waiters[place].waker, waker)
    }

    /// Sets `waker` to be woken at the end of `index`. Returns the replaced one, to be dropped.
    #[inline(always)]
    pub(super) fn ask(&mut self, index: u16, waker: &Waker) -> Option<Waker> {
        set(&mut self.slots[usize::from(index)].waker, waker)
    }

    /// Takes the result of `index`, if it has ended, and the waker of a future that then has room.
    #[inline(always)]
    pub(super) fn take(&mut self, index: u16) -> Option<(Done, Option<Waker>)> {
        let slot = &mut self.slots[usize::from(index)];
        if slot.stage != SlotStage::Ended {
            return None;
        }
        let mut done = Done { result: Ok(()), buf: slot.buf.take(), user_data: slot.user_data };
        if slot.failed {
            done.result = self.take_error(index);
        }
        self.set_free(index);
        Some((done, self.waker_of_room()))
    }

    #[cold]
    #[inline(never)]
    fn take_error(&mut self, index: u16) -> Result<(), IoError> {
        self.slots[usize::from(index)].failed = false;
        self.errors[usize::from(index)].take().map_or(Ok(()), Err)
    }

    #[inline(always)]
    fn waker_of_room(&mut self) -> Option<Waker> {
        if self.waiters.is_empty() { None } else { self.next_with_room() }
    }

    #[inline(always)]
    fn set_free(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        slot.stage = SlotStage::Free;
        slot.next_free = std::mem::replace(&mut self.free, index);
        self.free_count += 1;
    }

    /// Called when the future of `index` was dropped. The caller drops and wakes the returned
    /// values.
    pub(super) fn abandon(&mut self, index: u16) -> (Option<Done>, [Option<Waker>; 2]) {
        let slot = &mut self.slots[usize::from(index)];
        let waker = slot.waker.take();
        if slot.stage == SlotStage::Asked {
            slot.stage = SlotStage::Abandoned;
            return (None, [None, waker]);
        }
        let (done, room) = self.take(index).expect("it has ended");
        (Some(done), [room, waker])
    }

    /// Stores results for their futures, and counts them in `ended`, until a waker has to be woken.
    #[inline(always)]
    pub(super) fn deliver(&mut self, ended: &mut usize) -> Option<Waker> {
        while let Some(done) = self.channel.next_done() {
            *ended += 1;
            let index = done.user_data as u16;
            let slot = &mut self.slots[usize::from(index)];
            if slot.stage != SlotStage::Asked {
                let room = self.abandoned_ended(index, done);
                if room.is_some() {
                    return room;
                }
                continue;
            }
            slot.stage = SlotStage::Ended;
            // Nothing has to be dropped, and the fast path must not check for that.
            std::mem::forget(std::mem::replace(&mut slot.buf, done.buf));
            if let Err(error) = done.result {
                slot.failed = true;
                self.errors[usize::from(index)] = Some(error);
            }
            if slot.waker.is_some() {
                return slot.waker.take();
            }
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn abandoned_ended(&mut self, index: u16, done: Done) -> Option<Waker> {
        assert!(
            self.slots[usize::from(index)].stage == SlotStage::Abandoned,
            "a request ended that no future sent: the channel was used behind the futures' back"
        );
        // The device is done with the buffer (ARCHITECTURE.md §3), which returns to its heap.
        drop(done);
        self.set_free(index);
        self.waker_of_room()
    }

    /// The wakers of all futures.
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        let slots = self.slots.iter_mut().filter_map(|slot| slot.waker.take());
        slots.chain(self.waiters.iter_mut().filter_map(|waiter| waiter.waker.take())).collect()
    }
}

/// Stores `waker` in `place` unless the one there wakes the same task. Returns the replaced one.
#[inline(always)]
fn set(place: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match place {
        Some(there) if there.will_wake(waker) => None,
        _ => place.replace(waker.clone()),
    }
}
