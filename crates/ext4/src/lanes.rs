//! The ways of a mount to its device: a few channels, each with pages, of which a thread takes its
//! own.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};

use super::cache::PageCache;
use super::crowd::Crowd;
use super::error::Error;
use super::flushes::Flushes;

use super::options::Overlap;
use super::read::request::{InFlight, Scratch};
use meantime_block::{
    BlockChannel, BlockDevice, BlockInfo, Channel, ChannelError, ChannelOptions, Device, Done,
    Rejected, Request, RequestError, SubmitError, Ticket,
};
use meantime_completion::Policy;
use meantime_hw::user_memory::{Undo, UserMemory};
use meantime_hw::{DmaBuf, DmaHeap};
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// Pages of a lane's pool: 256 KiB.
const POOL_PAGES: usize = 64;

/// Requests that a lane can have under way, read-ahead included.
const DEPTH: u16 = 64;

/// So often a thread lets others have its CPU before it waits for its device without.
const YIELDS: u32 = 2_000;

/// The most lanes of a mount.
pub(super) const LANES_MAX: usize = 64;

/// A number of the calling thread: small, and no other living thread's as long as there are few.
#[inline]
pub(super) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    NUMBER.with(|number| match number.get() {
        0 => {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
            number.get()
        }
        known => known,
    })
}

/// A channel, and what a read needs beside it. Who reads has it to himself.
pub(super) struct Lane {
    pub(super) channel: Channel,
    pub(super) heap: DmaHeap,
    /// The device's block size, in bytes.
    pub(super) block_bytes: u32,
    /// Mapped pages that the device may write to, the one that was given back last used first; and
    /// how many there are to be.
    pub(super) pages: Vec<DmaBuf>,
    pub(super) pool_pages: usize,
    /// What reads use and leave empty, so that they need not allocate.
    pub(super) scratch: Scratch,
    /// What direct reads lend the device; `None`: its transport takes nothing, or a read has it.
    pub(super) user_memory: Option<UserMemory>,
    /// What was read ahead and is still under way.
    pub(super) ahead: InFlight,
    /// Those who make things durable.
    pub(super) crowd: Arc<Crowd>,
    flushes: Arc<Flushes>,
    fenced: Arc<AtomicBool>,
}

/// The lanes of a mount. They are made when a thread first finds all others taken.
pub(super) struct Lanes {
    slots: Box<[Slot]>,
    /// One more, of a mount for writing: [`Lanes::take_leaf`].
    spare: OnceLock<Slot>,
    /// How many there can be: fewer than was asked for once the device has no more queues.
    limit: AtomicUsize,
    options: ChannelOptions,
    info: BlockInfo,
    cache: PageCache,
    pool_pages: usize,
    /// How direct reads take back what they lent.
    undo: Undo,
    crowd: Arc<Crowd>,
    flushes: Arc<Flushes>,
    /// Whether nothing may be written any more.
    fenced: Arc<AtomicBool>,
    device: Device,
}

/// A place for a lane.
#[repr(align(128))]
#[derive(Default)]
struct Slot {
    lane: OnceLock<Mutex<Lane>>,
    /// Requests that were left under way by whoever had the lane last. Written with the lane taken.
    left: AtomicUsize,
    /// Only one thread makes it. (The others do not wait.)
    making: std::sync::Mutex<()>,
}

/// A lane that the calling thread has to itself.
pub(super) struct Taken<'a> {
    lane: MutexGuard<'a, Lane>,
    left: &'a AtomicUsize,
    spare: bool,
}

impl Taken<'_> {
    /// Whether it is the [spare](Lanes::take_leaf) one.
    pub(super) fn is_spare(&self) -> bool {
        self.spare
    }
}

impl std::ops::Deref for Taken<'_> {
    type Target = Lane;

    #[inline(always)]
    fn deref(&self) -> &Lane {
        &self.lane
    }
}

impl std::ops::DerefMut for Taken<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Lane {
        &mut self.lane
    }
}

impl Drop for Taken<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Before the lane is given up: who finds it free knows whether there is something to be
        // taken in.
        let left = self.lane.ahead.len();
        if self.left.load(Ordering::Relaxed) != left {
            self.left.store(left, Ordering::Release);
        }
    }
}

impl Lane {
    /// Sends `request`.
    ///
    /// # Errors
    /// [`Rejected`], with the request.
    #[inline]
    #[allow(clippy::result_large_err)] // The buffer has to go back, and the path must not allocate.
    pub(super) fn submit(&mut self, request: Request) -> Result<Ticket, Rejected> {
        match self.channel.submit(request) {
            Err(Rejected { error: SubmitError::CannotWait { policy, .. }, request }) => {
                self.submit_another_way(policy, request)
            }
            sent => sent,
        }
    }

    /// Whether anything may be written still: asked before each request that does.
    ///
    /// # Errors
    /// [`Error::Aborted`] when the lanes have been [fenced](Lanes::fence).
    #[inline]
    pub(super) fn may_write(&self) -> Result<(), Error> {
        if self.fenced.load(Ordering::Acquire) { Err(Error::Aborted) } else { Ok(()) }
    }

    /// Waits for a request; in a [crowd](Crowd), with others on this CPU in between.
    pub(super) fn wait(&mut self, mut ticket: Ticket) -> Done {
        let mut yields = 0;
        while self.crowd.is_busy() && yields < YIELDS && self.may_look() {
            self.channel.poll();
            match self.channel.try_take(ticket) {
                Ok(done) => return done,
                Err(back) => ticket = back,
            }
            std::thread::yield_now();
            yields += 1;
        }
        self.channel.wait(ticket)
    }

    /// Whether who waits with it may use his CPU meanwhile: under the policy that sleeps for each
    /// request he may not.
    pub(super) fn may_look(&self) -> bool {
        self.channel.policy() != Policy::Interrupt
    }

    /// What came of a request, if it has ended; or its ticket, if it has not.
    pub(super) fn try_take(&mut self, ticket: Ticket) -> Result<Done, Ticket> {
        if !self.may_look() {
            return Ok(self.channel.wait(ticket));
        }
        self.channel.poll();
        self.channel.try_take(ticket)
    }

    /// Has the device make everything durable that has completed, and waits for it.
    ///
    /// # Errors
    /// It did not; what was not durable before may be lost.
    pub(super) fn flush(&mut self) -> Result<(), RequestError> {
        let number = self.flushes.begin();
        let result = self.channel.flush();
        self.flushes.end(number, result.is_ok());
        result
    }

    /// The kernel's kind of polling is one of the channel's: it is changed.
    #[cold]
    #[inline(never)]
    #[allow(clippy::result_large_err)]
    fn submit_another_way(&mut self, policy: Policy, request: Request) -> Result<Ticket, Rejected> {
        match self.channel.set_policy(policy) {
            Ok(()) => self.channel.submit(request),
            Err(error) => Err(Rejected { error, request }),
        }
    }
}

impl Lanes {
    /// Up to `count` lanes to `device`, one of which is made at once, and a page cache of
    /// `cache_bytes`. Of `overlap`, `pool` (lanes have pages in stock) and `lazy_unmap` count.
    ///
    /// # Errors
    /// No queue or memory, or the device cannot wait by `policy`.
    pub(super) fn new(
        device: Device,
        count: usize,
        policy: Option<Policy>,
        cache_bytes: usize,
        overlap: Overlap,
    ) -> Result<Self, ChannelError> {
        let policy = policy.unwrap_or_else(|| device.usual_policy());
        device.can_wait(policy)?;
        let info = device.info().clone();
        let slots = (0..count.clamp(1, LANES_MAX)).map(|_| Slot::default()).collect::<Box<[_]>>();
        let options = ChannelOptions { depth: DEPTH, policy, ..ChannelOptions::default() };
        let limit = AtomicUsize::new(slots.len());
        let cache = PageCache::new(device.heap(), cache_bytes)?;
        // In a small cache, the stocks of all lanes are a part of it only.
        let pool_pages = if overlap.pool {
            POOL_PAGES.min(cache.capacity_pages() / (4 * slots.len()))
        } else {
            0
        };
        let undo = if overlap.lazy_unmap { Undo::Lazy } else { Undo::Strict };
        let (spare, crowd, flushes, fenced) =
            (OnceLock::new(), Arc::default(), Arc::default(), Arc::default());
        let lanes = Self {
            slots,
            spare,
            limit,
            options,
            info,
            cache,
            pool_pages,
            undo,
            crowd,
            flushes,
            fenced,
            device,
        };
        let lane = lanes.make()?;
        let _ = lanes.slots[0].lane.set(Mutex::new(Rank::Lane, lane));
        Ok(lanes)
    }

    fn make(&self) -> Result<Lane, ChannelError> {
        // With an interrupt, if there is a vector left: a read may ask to be waited for so.
        let any_way = ChannelOptions { interrupt: Some(true), ..self.options };
        let channel = match self.device.channel(&any_way) {
            // A controller with short queues still does.
            Err(ChannelError::Depth { limit, .. }) => {
                self.device.channel(&ChannelOptions { depth: limit.max(1), ..self.options })
            }
            Err(_) => self.device.channel(&self.options),
            made => made,
        }?;
        // When it is told of what the device loses; before it sends anything.
        self.flushes.channel_made();
        let mut lane = Lane {
            channel,
            heap: self.device.heap().clone(),
            block_bytes: self.info.block_bytes,
            pages: Vec::with_capacity(POOL_PAGES),
            pool_pages: self.pool_pages,
            scratch: Scratch::default(),
            user_memory: UserMemory::new(self.device.heap(), self.undo),
            ahead: InFlight::default(),
            crowd: Arc::clone(&self.crowd),
            flushes: Arc::clone(&self.flushes),
            fenced: Arc::clone(&self.fenced),
        };
        lane.refill(&self.cache);
        Ok(lane)
    }

    /// Those who make things durable.
    pub(super) fn crowd(&self) -> &Crowd {
        &self.crowd
    }

    /// What was flushed.
    pub(super) fn flushes(&self) -> &Flushes {
        &self.flushes
    }

    /// Nothing is written from now on, but for what is under way: the device is somebody else's.
    pub(super) fn fence(&self) {
        self.fenced.store(true, Ordering::Release);
    }

    /// The device.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The page cache.
    #[inline(always)]
    pub(super) fn cache(&self) -> &PageCache {
        &self.cache
    }

    /// What the device is.
    pub(super) fn info(&self) -> &BlockInfo {
        &self.info
    }

    /// A lane for the calling thread: its own, or one that is free, or a new one; else it waits for
    /// its own.
    ///
    /// # Errors
    /// [`Error::Resources`]: a panic has spoilt every lane.
    #[inline]
    pub(super) fn take(&self) -> Result<Taken<'_>, Error> {
        let limit = self.limit.load(Ordering::Relaxed);
        let slot = &self.slots[thread_number() % limit];
        if let Some(Ok(lane)) = slot.lane.get().map(Mutex::try_lock) {
            return Ok(Taken { lane, left: &slot.left, spare: false });
        }
        self.take_other()
    }

    #[cold]
    #[inline(never)]
    fn take_other(&self) -> Result<Taken<'_>, Error> {
        let own = thread_number();
        let limit = self.limit.load(Ordering::Relaxed);
        let around = || (0..limit).map(|n| &self.slots[(own + n) % limit]);
        for slot in around() {
            match slot.lane.get().map(Mutex::try_lock) {
                Some(Ok(lane)) => return Ok(Taken { lane, left: &slot.left, spare: false }),
                Some(Err(_)) => {}
                None => {
                    if let Some(lane) = self.make_in(slot) {
                        return Ok(Taken { lane, left: &slot.left, spare: false });
                    }
                }
            }
        }
        for slot in around() {
            if let Some(Ok(lane)) = slot.lane.get().map(Mutex::lock) {
                return Ok(Taken { lane, left: &slot.left, spare: false });
            }
        }
        Err(Error::Resources("every channel was spoilt by a panic: mount again".to_owned()))
    }

    /// A lane for the calling thread, if one is free.
    pub(super) fn try_take(&self) -> Option<Taken<'_>> {
        let own = thread_number();
        let limit = self.limit.load(Ordering::Relaxed);
        (0..limit).map(|n| &self.slots[(own + n) % limit]).find_map(|slot| {
            match slot.lane.get().map(Mutex::try_lock) {
                Some(Ok(lane)) => Some(Taken { lane, left: &slot.left, spare: false }),
                Some(Err(_)) => None,
                None => {
                    self.make_in(slot).map(|lane| Taken { lane, left: &slot.left, spare: false })
                }
            }
        })
    }

    /// Makes one more lane, for those who have to have one whatever others wait for:
    /// [`Lanes::take_leaf`]. Once.
    ///
    /// # Errors
    /// No queue, or memory.
    pub(super) fn make_spare(&self) -> Result<(), ChannelError> {
        let slot = Slot::default();
        let _ = slot.lane.set(Mutex::new(Rank::SpareLane, self.make()?));
        let _ = self.spare.set(slot);
        Ok(())
    }

    /// A lane for the calling thread, which has something that others wait for while they have
    /// lanes: a change of metadata under way, data that a transaction waits for. If all are taken
    /// it is the spare one, and so there is no circle: who has a lane from here waits for nothing
    /// but the device until it is given back, and takes no second one.
    ///
    /// # Errors
    /// [`Error::Resources`]: a panic has spoilt every lane.
    pub(super) fn take_leaf(&self) -> Result<Taken<'_>, Error> {
        let Some(spare) = self.spare.get() else { return self.take() };
        if let Some(taken) = self.try_take() {
            return Ok(taken);
        }
        match spare.lane.get().map(Mutex::lock) {
            Some(Ok(lane)) => Ok(Taken { lane, left: &spare.left, spare: true }),
            _ => Err(Error::Resources(
                "the spare channel was spoilt by a panic: mount again".to_owned(),
            )),
        }
    }

    /// Makes the lane of `slot`, unless another thread does, or the device has no more queues.
    fn make_in<'a>(&self, slot: &'a Slot) -> Option<MutexGuard<'a, Lane>> {
        let _making = slot.making.try_lock().ok()?;
        if slot.lane.get().is_none() {
            match self.make() {
                Ok(lane) => drop(slot.lane.set(Mutex::new(Rank::Lane, lane))),
                Err(error) => {
                    let there =
                        self.slots.iter().take_while(|slot| slot.lane.get().is_some()).count();
                    tracing::info!(%error, lanes = there, "no more channels: threads share those there are");
                    self.limit.fetch_min(there.max(1), Ordering::Relaxed);
                    return None;
                }
            }
        }
        slot.lane.get()?.try_lock().ok()
    }

    /// Calls `reap` with each lane that nobody has, and that was left with requests under way.
    pub(super) fn each_left(&self, mut reap: impl FnMut(&mut Lane)) {
        for slot in self.slots.iter().chain(self.spare.get()) {
            // Acquire: pairs with the store of whoever left it.
            if slot.left.load(Ordering::Acquire) == 0 {
                continue;
            }
            match slot.lane.get().map(Mutex::try_lock) {
                Some(Ok(lane)) => reap(&mut Taken { lane, left: &slot.left, spare: false }),
                // Whoever has it takes it in himself.
                Some(Err(TryLockError::WouldBlock | TryLockError::Poisoned(_))) | None => {}
            }
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for slot in self.slots.iter_mut().chain(self.spare.get_mut()) {
            // One that a panic has spoilt too: its channel waits for what is under way.
            if let Some(lane) = slot.lane.get_mut() {
                lane.get_mut().unwrap_or_else(PoisonError::into_inner).give_up_ahead(&self.cache);
            }
        }
    }
}
