//! A channel, and everything that is in flight on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::direct::Buffers;
use super::fill::FillMemory;
use super::flushes::Flushes;
use super::group_commit::GroupCommit;
use super::requests::{InFlight, RequestSet, log};
use crate::cache::PageCache;
use crate::error::Error;
use meantime_block::{
    BlockChannel, Channel, Done, Rejected, Request, RequestError, SubmitError, Ticket,
};
use meantime_completion::Policy;
use meantime_hw::user_memory::UserMemory;
use meantime_hw::{DmaBuf, DmaHeap};

/// How often a thread lets others have its CPU before it waits for its device without.
const YIELDS: u32 = 2_000;

/// A channel, everything that is in flight on it, and the memory that its requests use. One thread
/// has it at a time.
pub(crate) struct IoContext {
    channel: Channel,
    in_flight: InFlight,
    pub(crate) heap: DmaHeap,
    /// The device's block size, in bytes.
    pub(crate) block_bytes: u32,
    /// What requests for pages of the cache use.
    pub(crate) fills: FillMemory,
    /// Buffers that reads and writes past the cache use.
    pub(super) buffers: Buffers,
    /// What direct reads lend the device; `None`: its transport takes nothing, or a read has it.
    pub(super) user_memory: Option<UserMemory>,
    pub(crate) group: Arc<GroupCommit>,
    flushes: Arc<Flushes>,
    fenced: Arc<AtomicBool>,
}

/// What the contexts of a mount share.
#[derive(Clone, Default)]
pub(super) struct Shared {
    pub(super) group: Arc<GroupCommit>,
    pub(super) flushes: Arc<Flushes>,
    /// Whether nothing may be written any more.
    pub(super) fenced: Arc<AtomicBool>,
}

/// One of the sets of what is in flight.
pub(crate) trait Select<T>: Fn(&mut InFlight) -> &mut RequestSet<T> + Copy {}

impl<T, F: Fn(&mut InFlight) -> &mut RequestSet<T> + Copy> Select<T> for F {}

impl IoContext {
    /// With `channel`, whose memory is of `heap`.
    pub(super) fn new(
        channel: Channel,
        heap: &DmaHeap,
        pool_pages: usize,
        user_memory: Option<UserMemory>,
        shared: &Shared,
    ) -> Self {
        let block_bytes = channel.info().block_bytes;
        Self {
            block_bytes,
            channel,
            in_flight: InFlight::default(),
            heap: heap.clone(),
            fills: FillMemory::new(heap, block_bytes, pool_pages),
            buffers: Buffers::default(),
            user_memory,
            group: Arc::clone(&shared.group),
            flushes: Arc::clone(&shared.flushes),
            fenced: Arc::clone(&shared.fenced),
        }
    }

    /// What is in flight.
    #[inline]
    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Sends `request`, which belongs to `set` with `tag`. If the channel is full, it waits until
    /// one of its requests has ended, whoever's that is.
    ///
    /// # Errors
    /// [`Rejected`], with the request, and its tag.
    #[inline]
    #[allow(clippy::result_large_err)] // The buffer has to go back, and the path must not allocate.
    pub(crate) fn submit<T>(
        &mut self,
        set: impl Select<T>,
        request: Request,
        tag: T,
    ) -> Result<(), (Rejected, T)> {
        self.try_submit(set, request, tag)
            .or_else(|(rejected, tag)| self.submit_again(set, rejected, tag))
    }

    #[cold]
    #[inline(never)]
    #[allow(clippy::result_large_err)]
    fn submit_again<T>(
        &mut self,
        set: impl Select<T>,
        mut rejected: Rejected,
        mut tag: T,
    ) -> Result<(), (Rejected, T)> {
        while matches!(rejected.error, SubmitError::Full { .. })
            && self.in_flight.make_room(&mut self.channel)
        {
            match self.try_submit(set, rejected.request, tag) {
                Ok(()) => return Ok(()),
                Err(again) => (rejected, tag) = again,
            }
        }
        Err((rejected, tag))
    }

    /// The same for a request that is not worth waiting for: if the channel is full, it is
    /// rejected.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    #[inline]
    #[allow(clippy::result_large_err)]
    pub(super) fn try_submit<T>(
        &mut self,
        set: impl Select<T>,
        request: Request,
        tag: T,
    ) -> Result<(), (Rejected, T)> {
        match self.send(request) {
            Ok(ticket) => {
                set(&mut self.in_flight).push(ticket, tag);
                Ok(())
            }
            Err(rejected) => Err((rejected, tag)),
        }
    }

    /// Waits for the oldest request of `set`; `None`: there is none.
    #[inline]
    pub(crate) fn next<T>(&mut self, set: impl Select<T>) -> Option<(Done, T)> {
        let Self { in_flight, channel, .. } = self;
        set(in_flight).take(0, |ticket| channel.wait(ticket))
    }

    /// The same for the request at `place`.
    pub(super) fn next_at<T>(&mut self, set: impl Select<T>, place: usize) -> Option<(Done, T)> {
        let Self { in_flight, channel, .. } = self;
        set(in_flight).take(place, |ticket| channel.wait(ticket))
    }

    /// As [`next`](Self::next); in a [group](GroupCommit), others have this CPU while it waits.
    pub(crate) fn next_in_group<T>(&mut self, set: impl Select<T>) -> Option<(Done, T)> {
        let Self { in_flight, channel, group, .. } = self;
        set(in_flight).take(0, |mut ticket| {
            let mut yields = 0;
            while group.is_busy() && yields < YIELDS && channel.policy() != Policy::Interrupt {
                channel.poll();
                match channel.try_take(ticket) {
                    Ok(done) => return done,
                    Err(back) => ticket = back,
                }
                std::thread::yield_now();
                yields += 1;
            }
            channel.wait(ticket)
        })
    }

    /// The oldest request of `set`, if it has ended. (Under the policy that sleeps for each request
    /// it is waited for.)
    pub(crate) fn next_ended<T>(&mut self, set: impl Select<T>) -> Option<(Done, T)> {
        if !self.may_look() {
            return self.next(set);
        }
        self.poll();
        self.ended_at(set, 0)
    }

    /// The request at `place` of `set`, if it has ended. The caller has [polled](Self::poll).
    pub(super) fn ended_at<T>(&mut self, set: impl Select<T>, place: usize) -> Option<(Done, T)> {
        let Self { in_flight, channel, .. } = self;
        set(in_flight).try_take(place, |ticket| channel.try_take(ticket))
    }

    /// Takes in what the device has done; how many requests that were.
    pub(crate) fn poll(&mut self) -> usize {
        self.channel.poll()
    }

    /// Whether the device has anything to do.
    pub(crate) fn is_device_busy(&self) -> bool {
        self.channel.in_flight() > 0
    }

    /// Whether who waits with it may use his CPU meanwhile: under the policy that sleeps for each
    /// request he may not.
    pub(crate) fn may_look(&self) -> bool {
        self.channel.policy() != Policy::Interrupt
    }

    /// Whether anything may be written still: asked before each request that does.
    ///
    /// # Errors
    /// [`Error::Aborted`] when the contexts have been [fenced](super::IoContexts::fence).
    #[inline]
    pub(crate) fn may_write(&self) -> Result<(), Error> {
        if self.fenced.load(Ordering::Acquire) { Err(Error::Aborted) } else { Ok(()) }
    }

    /// Reads `buf` from block `lba` of the device on, and waits for it.
    ///
    /// # Errors
    /// The device.
    pub(crate) fn read(&mut self, lba: u64, buf: DmaBuf) -> Result<DmaBuf, Error> {
        let sent = self.submit(log, Request::read(lba, buf), ());
        sent.map_err(|(rejected, ())| Error::from(RequestError::from(rejected.error)))?;
        let place = self.in_flight.log.len() - 1;
        let (done, ()) = self.next_at(log, place).ok_or(Error::Invalid("no read was sent"))?;
        done.result.map_err(Error::from_io)?;
        done.buf.ok_or_else(|| RequestError::Quarantined.into())
    }

    /// Has the device make everything durable that has completed, and waits for it.
    ///
    /// # Errors
    /// It did not; what was not durable before may be lost.
    pub(crate) fn flush(&mut self) -> Result<(), RequestError> {
        let number = self.flushes.begin();
        let result = self.channel.flush();
        self.flushes.end(number, result.is_ok());
        result
    }

    /// Memory for requests past the cache, of `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Resources`].
    pub(super) fn alloc(&self, bytes: usize) -> Result<DmaBuf, Error> {
        self.channel.alloc(bytes).map_err(|error| Error::Resources(error.to_string()))
    }

    /// The mount ends: what is still read ahead ends with the channel.
    pub(super) fn give_up_ahead(&mut self, cache: &PageCache) {
        let Self { in_flight, channel, .. } = self;
        for fill in in_flight.ahead.take_all(channel) {
            fill.abandon(cache);
        }
    }

    #[inline]
    #[allow(clippy::result_large_err)]
    fn send(&mut self, request: Request) -> Result<Ticket, Rejected> {
        match self.channel.submit(request) {
            Err(Rejected { error: SubmitError::CannotWait { policy, .. }, request }) => {
                self.send_another_way(policy, request)
            }
            sent => sent,
        }
    }

    /// The kernel's kind of polling is one of the channel's: it is changed.
    #[cold]
    #[inline(never)]
    #[allow(clippy::result_large_err)]
    fn send_another_way(&mut self, policy: Policy, request: Request) -> Result<Ticket, Rejected> {
        match self.channel.set_policy(policy) {
            Ok(()) => self.channel.submit(request),
            Err(error) => Err(Rejected { error, request }),
        }
    }
}
