//! The I/O contexts of a mount; each thread takes one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, TryLockError};

use super::context::{IoContext, Shared};
use super::flushes::Flushes;
use super::group_commit::GroupCommit;
use crate::cache::PageCache;
use crate::counters::thread_number;
use crate::error::{Error, Result};
use crate::options::MountOptions;
use meantime_block::{BlockDevice, BlockInfo, ChannelError, ChannelOptions, Device};
use meantime_completion::Policy;
use meantime_hw::user_memory::{Undo, UserMemory};
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// Pages in a context's stock: 256 KiB.
const STOCK_PAGES: usize = 64;

/// The most requests in flight of a context, read-ahead included.
const DEPTH: u16 = 64;

/// The most contexts of a mount.
pub(crate) const CONTEXTS_MAX: usize = 64;

/// The contexts of a mount. One is made when a thread's own is missing, or all others are taken.
pub(crate) struct IoContexts {
    slots: Box<[Slot]>,
    /// An additional one for a mount for writing: [`IoContexts::take_or_spare`].
    spare: OnceLock<Slot>,
    /// The most contexts: fewer than configured after the device has run out of queues.
    limit: AtomicUsize,
    options: ChannelOptions,
    /// The most contexts whose threads may spin, if that is fewer than there are contexts.
    pollers: Option<usize>,
    calls: Calls,
    info: BlockInfo,
    cache: PageCache,
    stock_pages: usize,
    /// How direct reads unmap the memory that they lent.
    undo: Undo,
    shared: Shared,
    device: Device,
}

/// The callers that wait. In a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Calls(AtomicUsize);

/// A call of [`FileSystem::begin_call`](crate::FileSystem::begin_call), until it is dropped.
pub struct Call<'a>(Option<&'a AtomicUsize>);

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(calls) = self.0 {
            calls.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A place for a context.
#[repr(align(128))]
#[derive(Default)]
struct Slot {
    io: OnceLock<Mutex<IoContext>>,
    /// Requests that the last thread left in flight. Written while the context is taken.
    left: AtomicUsize,
    /// Whether a thread has it.
    is_taken: AtomicBool,
    /// Held by the thread that makes the context. Other threads do not wait.
    making: std::sync::Mutex<()>,
}

/// An I/O context that the calling thread exclusively owns.
pub(crate) struct OwnedContext<'a> {
    io: MutexGuard<'a, IoContext>,
    slot: &'a Slot,
    spare: bool,
}

impl<'a> OwnedContext<'a> {
    #[inline(always)]
    fn of(mut io: MutexGuard<'a, IoContext>, slot: &'a Slot, of: &IoContexts) -> Self {
        if let Some(pollers) = of.pollers {
            of.choose_policy(&mut io, pollers);
            slot.is_taken.store(true, Ordering::Relaxed);
        }
        Self { io, slot, spare: false }
    }

    /// Returns whether it is the [spare](IoContexts::take_or_spare) one.
    pub(crate) fn is_spare(&self) -> bool {
        self.spare
    }
}

impl std::ops::Deref for OwnedContext<'_> {
    type Target = IoContext;

    #[inline(always)]
    fn deref(&self) -> &IoContext {
        &self.io
    }
}

impl std::ops::DerefMut for OwnedContext<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut IoContext {
        &mut self.io
    }
}

impl Drop for OwnedContext<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Stored before the context is released: a thread that finds it free knows whether there
        // are requests to complete.
        debug_assert!(self.io.in_flight().is_idle() || std::thread::panicking());
        let left = self.io.in_flight().ahead.len();
        if self.slot.left.load(Ordering::Relaxed) != left {
            self.slot.left.store(left, Ordering::Release);
        }
        if self.slot.is_taken.load(Ordering::Relaxed) {
            self.slot.is_taken.store(false, Ordering::Relaxed);
        }
    }
}

impl IoContexts {
    /// Makes up to `channels` contexts for `device`, the first one at once, and a page cache of
    /// `cache_bytes`. Uses `pool` (a stock of pages for each context) and `lazy_unmap` of
    /// `overlap`.
    ///
    /// # Errors
    /// Fails if there is no queue or memory, or the device cannot wait by `policy`.
    pub(crate) fn new(device: Device, options: &MountOptions) -> Result<Self, ChannelError> {
        let MountOptions { channels, cache_bytes, overlap, .. } = *options;
        device.can_wait(options.policy.unwrap_or_default())?;
        let info = device.info().clone();
        let slots =
            (0..channels.clamp(1, CONTEXTS_MAX)).map(|_| Slot::default()).collect::<Box<[_]>>();
        let pollers = match options.pollers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            pollers => pollers,
        };
        let is_ours_to_choose = options.policy.is_none();
        let pollers = (is_ours_to_choose && pollers < slots.len()).then_some(pollers);
        let options =
            ChannelOptions { depth: DEPTH, policy: options.policy, ..ChannelOptions::default() };
        let limit = AtomicUsize::new(slots.len());
        let cache = PageCache::new(device.heap(), cache_bytes)?;
        // The stocks of all contexts are at most a quarter of a small cache.
        let stock_pages = if overlap.pool {
            STOCK_PAGES.min(cache.capacity_pages() / (4 * slots.len()))
        } else {
            0
        };
        let undo = if overlap.lazy_unmap { Undo::Lazy } else { Undo::Strict };
        let contexts = Self {
            slots,
            spare: OnceLock::new(),
            limit,
            options,
            pollers,
            calls: Calls::default(),
            info,
            cache,
            stock_pages,
            undo,
            shared: Shared::default(),
            device,
        };
        let io = contexts.make()?;
        let _ = contexts.slots[0].io.set(Mutex::new(Rank::IoContext, io));
        Ok(contexts)
    }

    /// Counts a caller that waits, until the result is dropped.
    #[inline]
    pub(crate) fn begin_call(&self) -> Call<'_> {
        let calls = self.pollers.map(|_| &self.calls.0);
        calls.inspect(|calls| {
            calls.fetch_add(1, Ordering::Relaxed);
        });
        Call(calls)
    }

    fn make(&self) -> Result<IoContext, ChannelError> {
        // With an interrupt, if a vector is left: a read may ask to be waited for by one.
        let any_way = ChannelOptions { interrupt: Some(true), ..self.options };
        let channel = match self.device.channel(&any_way) {
            // A controller with short queues gets a shorter one.
            Err(ChannelError::Depth { limit, .. }) => {
                self.device.channel(&ChannelOptions { depth: limit.max(1), ..self.options })
            }
            Err(_) => self.device.channel(&self.options),
            made => made,
        }?;
        self.shared.flushes.note_losses_at_mount(channel.cache_losses());
        let user_memory = UserMemory::new(self.device.heap(), self.undo);
        let heap = self.device.heap();
        let mut io = IoContext::new(channel, heap, self.stock_pages, user_memory, &self.shared);
        io.fills.refill(&self.cache);
        Ok(io)
    }

    /// Returns the state of group commit.
    pub(crate) fn group(&self) -> &GroupCommit {
        &self.shared.group
    }

    /// Returns the FLUSHes of the mount.
    pub(crate) fn flushes(&self) -> &Flushes {
        &self.shared.flushes
    }

    /// Forbids further writes, except those in flight: another host has the device (rule 19).
    pub(crate) fn fence(&self) {
        self.shared.fenced.store(true, Ordering::Release);
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the page cache.
    #[inline(always)]
    pub(crate) fn cache(&self) -> &PageCache {
        &self.cache
    }

    /// Returns the device's properties.
    pub(crate) fn info(&self) -> &BlockInfo {
        &self.info
    }

    /// Takes an I/O context for the calling thread: its own, a free one, or a new one; otherwise
    /// waits for its own.
    ///
    /// # Errors
    /// Fails with [`Error::Resources`] if a panic has poisoned every context.
    #[inline]
    pub(crate) fn take(&self) -> Result<OwnedContext<'_>> {
        let limit = self.limit.load(Ordering::Relaxed);
        let slot = &self.slots[thread_number() % limit];
        if let Some(Ok(io)) = slot.io.get().map(Mutex::try_lock) {
            return Ok(OwnedContext::of(io, slot, self));
        }
        self.take_other()
    }

    /// Sets the policy of `io`, which a thread takes: `adaptive`, or `interrupt` if `pollers` others
    /// have contexts, or more callers than that wait.
    #[inline]
    fn choose_policy(&self, io: &mut IoContext, pollers: usize) {
        // The others' words are in caches of their own, and change only with their I/O.
        let taken = self.slots.iter().filter(|slot| slot.is_taken.load(Ordering::Relaxed)).count();
        let has_room = taken < pollers && self.calls.0.load(Ordering::Relaxed) <= pollers;
        io.wait_by(if has_room { Policy::ADAPTIVE } else { Policy::Interrupt });
    }

    #[cold]
    #[inline(never)]
    fn take_other(&self) -> Result<OwnedContext<'_>> {
        if let Some(free) = self.try_take() {
            return Ok(free);
        }
        for slot in self.own_first() {
            if let Some(Ok(io)) = slot.io.get().map(Mutex::lock) {
                return Ok(OwnedContext::of(io, slot, self));
            }
        }
        Err(Error::Resources("every channel was poisoned by a panic: mount again".to_owned()))
    }

    /// Returns the slots, that of the calling thread's number first.
    fn own_first(&self) -> impl Iterator<Item = &Slot> {
        let own = thread_number();
        let limit = self.limit.load(Ordering::Relaxed);
        (0..limit).map(move |n| &self.slots[(own + n) % limit])
    }

    /// Takes an I/O context for the calling thread, if one is free or can be made.
    pub(crate) fn try_take(&self) -> Option<OwnedContext<'_>> {
        self.own_first().find_map(|slot| {
            let io = match slot.io.get().map(Mutex::try_lock) {
                Some(taken) => taken.ok(),
                None => self.make_in(slot),
            };
            io.map(|io| OwnedContext::of(io, slot, self))
        })
    }

    /// Makes the spare context, for threads that must not wait for another thread's:
    /// [`IoContexts::take_or_spare`]. Called once.
    ///
    /// # Errors
    /// Fails if there is no queue, or no memory.
    pub(crate) fn make_spare(&self) -> Result<(), ChannelError> {
        let slot = Slot::default();
        let _ = slot.io.set(Mutex::new(Rank::SpareIoContext, self.make()?));
        let _ = self.spare.set(slot);
        Ok(())
    }

    /// Takes an I/O context for a thread that other threads with contexts may be waiting for: it
    /// has a change of metadata in progress, or data that a transaction waits for. If all are
    /// taken, it takes the spare one, which excludes a circular wait: a thread with a context from
    /// here waits only for the device until it gives it back, and takes no second one.
    ///
    /// # Errors
    /// Fails with [`Error::Resources`] if a panic has poisoned every context.
    pub(crate) fn take_or_spare(&self) -> Result<OwnedContext<'_>> {
        let Some(spare) = self.spare.get() else { return self.take() };
        if let Some(taken) = self.try_take() {
            return Ok(taken);
        }
        match spare.io.get().map(Mutex::lock) {
            Some(Ok(io)) => Ok(OwnedContext { io, slot: spare, spare: true }),
            _ => Err(Error::Resources(
                "the spare channel was poisoned by a panic: mount again".to_owned(),
            )),
        }
    }

    /// Makes the context of `slot`, unless another thread does, or the device has no more queues.
    fn make_in<'a>(&self, slot: &'a Slot) -> Option<MutexGuard<'a, IoContext>> {
        let _making = slot.making.try_lock().ok()?;
        if slot.io.get().is_none() {
            match self.make() {
                Ok(io) => drop(slot.io.set(Mutex::new(Rank::IoContext, io))),
                Err(error) => {
                    let there =
                        self.slots.iter().take_while(|slot| slot.io.get().is_some()).count();
                    tracing::info!(%error, contexts = there, "no more channels: threads share those there are");
                    self.limit.fetch_min(there.max(1), Ordering::Relaxed);
                    return None;
                }
            }
        }
        slot.io.get()?.try_lock().ok()
    }

    /// Calls `reap` with each free context that was left with requests in flight.
    pub(crate) fn each_left(&self, mut reap: impl FnMut(&mut IoContext)) {
        for slot in self.slots.iter().chain(self.spare.get()) {
            // Acquire: pairs with the store of the thread that left them.
            if slot.left.load(Ordering::Acquire) == 0 {
                continue;
            }
            match slot.io.get().map(Mutex::try_lock) {
                Some(Ok(io)) => reap(&mut OwnedContext::of(io, slot, self)),
                // The thread that has it completes them.
                Some(Err(TryLockError::WouldBlock | TryLockError::Poisoned(_))) | None => {}
            }
        }
    }
}

impl Drop for IoContexts {
    fn drop(&mut self) {
        for slot in self.slots.iter_mut().chain(self.spare.get_mut()) {
            // Includes poisoned ones: their channels wait for what is in flight.
            if let Some(io) = slot.io.get_mut() {
                io.get_mut().unwrap_or_else(PoisonError::into_inner).give_up_ahead(&self.cache);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_threads_spin() {
        let policies = |policy, pollers, callers| {
            let device = meantime_block::open("mem:16M?model=null", &Default::default()).unwrap();
            let options = MountOptions { policy, pollers, channels: 3, ..MountOptions::default() };
            let contexts = IoContexts::new(device, &options).unwrap();
            let calls: Vec<_> = (0..callers).map(|_| contexts.begin_call()).collect();
            let taken: Vec<_> = (0..3).map(|_| contexts.try_take().unwrap()).collect();
            let policies: Vec<_> = taken.iter().map(|io| io.policy()).collect();
            drop((taken, calls));
            let again = contexts.take().unwrap().policy();
            (policies, again)
        };
        use Policy::{Interrupt, Poll};
        const OURS: Policy = Policy::ADAPTIVE;
        assert_eq!(policies(None, 2, 0), (vec![OURS, OURS, Interrupt], OURS));
        assert_eq!(policies(None, 2, 2), (vec![OURS, OURS, Interrupt], OURS));
        assert_eq!(
            policies(None, 2, 3),
            (vec![Interrupt; 3], OURS),
            "until they have what they want"
        );
        assert_eq!(policies(None, 3, 9), (vec![OURS; 3], OURS), "one each");
        assert_eq!(policies(Some(Poll), 1, 9), (vec![Poll; 3], Poll), "it was asked for");
    }
}
