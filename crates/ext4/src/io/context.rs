//! A channel, and everything that is in flight on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::buffers::{self, Buffers};
use super::fill_memory::FillMemory;
use super::flushes::Flushes;
use super::group_commit::GroupCommit;
use super::requests::{InFlight, RequestSet, log_set};
use crate::cache::PageCache;
use crate::error::{Error, Result};
use meantime_block::{
    BlockChannel, Channel, Done, IoError, Rejected, Request, RequestError, SubmitError, Ticket,
};
use meantime_completion::Policy;
use meantime_hw::user_memory::UserMemory;
use meantime_hw::{DmaBuf, DmaHeap};
use meantime_nvme::{CommandError, Op};

/// Yields of a thread before it waits for its device without them.
const YIELDS: u32 = 2_000;

/// Returns the error of a FLUSH after which writes may be lost.
pub(crate) fn cache_lost() -> IoError {
    IoError { op: Op::Flush, lba: 0, kind: CommandError::CacheLost.into() }
}

/// A channel, everything that is in flight on it, and the memory that its requests use. Exclusively
/// owned by one thread at a time.
pub(crate) struct IoContext {
    channel: Channel,
    in_flight: InFlight,
    pub(crate) heap: DmaHeap,
    /// The device's block size, in bytes.
    pub(crate) block_bytes: u32,
    /// Whether the device has a volatile cache.
    pub(crate) is_volatile: bool,
    /// Memory of requests for pages of the cache.
    pub(crate) fills: FillMemory,
    /// Buffers of requests past the cache, and of writeback.
    pub(super) buffers: Buffers,
    /// Memory of callers lent for direct reads; `None`: the transport accepts none, or a read is
    /// using it.
    pub(super) user_memory: Option<UserMemory>,
    pub(crate) group: Arc<GroupCommit>,
    flushes: Arc<Flushes>,
    fenced: Arc<AtomicBool>,
}

/// State that the contexts of a mount share.
#[derive(Clone, Default)]
pub(super) struct Shared {
    pub(super) group: Arc<GroupCommit>,
    pub(super) flushes: Arc<Flushes>,
    /// Whether writes are forbidden.
    pub(super) fenced: Arc<AtomicBool>,
}

/// Selects one of the sets of requests in flight.
pub(crate) trait Select<T>: Fn(&mut InFlight) -> &mut RequestSet<T> + Copy {}

impl<T, F: Fn(&mut InFlight) -> &mut RequestSet<T> + Copy> Select<T> for F {}

impl IoContext {
    /// Returns a context of `channel`, with memory of `heap`.
    pub(super) fn new(
        channel: Channel,
        heap: &DmaHeap,
        stock_pages: usize,
        user_memory: Option<UserMemory>,
        shared: &Shared,
    ) -> Self {
        let block_bytes = channel.info().block_bytes;
        Self {
            block_bytes,
            is_volatile: channel.info().volatile_write_cache,
            channel,
            in_flight: InFlight::default(),
            heap: heap.clone(),
            fills: FillMemory::new(heap, block_bytes, stock_pages),
            buffers: Buffers::default(),
            user_memory,
            group: Arc::clone(&shared.group),
            flushes: Arc::clone(&shared.flushes),
            fenced: Arc::clone(&shared.fenced),
        }
    }

    /// Returns what is in flight.
    #[inline]
    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Sends `request` as a part of `set`, with `tag`. If the channel is full, it first waits until
    /// one of its requests, of any set, has completed.
    ///
    /// # Errors
    /// Returns [`Rejected`], with the request, and its tag.
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

    /// Sends a request that is not worth waiting for: if the channel is full, it is rejected.
    ///
    /// # Errors
    /// Fails as [`submit`](Self::submit) does.
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

    /// Waits for the oldest request of `set`; returns `None` if there is none.
    #[inline]
    pub(crate) fn wait_oldest<T>(&mut self, set: impl Select<T>) -> Option<(Done, T)> {
        let Self { in_flight, channel, .. } = self;
        set(in_flight).take(0, |ticket| channel.wait(ticket))
    }

    /// Waits for the request at `position` of `set`.
    pub(super) fn wait_at<T>(&mut self, set: impl Select<T>, position: usize) -> Option<(Done, T)> {
        let Self { in_flight, channel, .. } = self;
        set(in_flight).take(position, |ticket| channel.wait(ticket))
    }

    /// Does the same as [`wait_oldest`](Self::wait_oldest), but yields the CPU while it waits in a
    /// [group](GroupCommit).
    pub(crate) fn wait_oldest_in_group<T>(&mut self, set: impl Select<T>) -> Option<(Done, T)> {
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

    /// Returns the oldest request of `set` if it has completed. Under the policy that sleeps for
    /// each request, it waits for it.
    pub(crate) fn next_ended<T>(&mut self, set: impl Select<T>) -> Option<(Done, T)> {
        if !self.may_look() {
            return self.wait_oldest(set);
        }
        self.poll();
        self.ended_at(set, 0)
    }

    /// Returns the request at `position` of `set` if it has completed. The caller has
    /// [polled](Self::poll).
    pub(super) fn ended_at<T>(
        &mut self,
        set: impl Select<T>,
        position: usize,
    ) -> Option<(Done, T)> {
        let Self { in_flight, channel, .. } = self;
        set(in_flight).try_take(position, |ticket| channel.try_take(ticket))
    }

    /// Processes completions; returns how many.
    pub(crate) fn poll(&mut self) -> usize {
        self.channel.poll()
    }

    /// Returns whether requests are in flight.
    pub(crate) fn is_device_busy(&self) -> bool {
        self.channel.in_flight() > 0
    }

    /// Returns whether a waiter may use the CPU: not under the policy that sleeps for each request.
    pub(crate) fn may_look(&self) -> bool {
        self.channel.policy() != Policy::Interrupt
    }

    /// Checks that writes are still allowed (rule 19); called before each write.
    ///
    /// # Errors
    /// Fails with [`Error::Aborted`] if the contexts have been [fenced](super::IoContexts::fence).
    #[inline]
    pub(crate) fn may_write(&self) -> Result<()> {
        if self.fenced.load(Ordering::Acquire) { Err(Error::Aborted) } else { Ok(()) }
    }

    /// Reads `bytes` bytes from byte `at` of the device on, and waits for them.
    ///
    /// # Errors
    /// Fails if the device fails, or there is no memory.
    pub(crate) fn read(&mut self, at: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut buf = buffers::alloc(&self.channel, bytes)?;
        buf.set_len(bytes);
        let lba = at / u64::from(self.block_bytes);
        let sent = self.submit(log_set, Request::read(lba, buf), ());
        sent.map_err(|(rejected, ())| Error::from(RequestError::from(rejected.error)))?;
        let position = self.in_flight.log.len() - 1;
        let (done, ()) =
            self.wait_at(log_set, position).ok_or(Error::Invalid("no read was sent"))?;
        Ok(done.into_buf()?.to_vec())
    }

    /// Sends a FLUSH, and waits for it.
    ///
    /// # Errors
    /// Fails if the FLUSH fails, or one of the mount has failed before, or the device has lost its
    /// cache since the mount: what was not durable before may be lost.
    pub(crate) fn flush(&mut self) -> Result<(), RequestError> {
        #[cfg(all(test, not(loom)))]
        crate::tests::busy::beside();
        let number = self.flushes.begin();
        let mut result = self.channel.flush();
        // Read-ahead may have filled a short queue.
        while matches!(result, Err(RequestError::Refused(SubmitError::Full { .. })))
            && self.in_flight.make_room(&mut self.channel)
        {
            result = self.channel.flush();
        }
        if result.is_ok() && !self.flushes.may_succeed(self.channel.cache_losses()) {
            result = Err(cache_lost().into());
        }
        self.flushes.end(number, result.is_ok());
        result
    }

    /// Returns a buffer for a request past the cache; `None`: all are in use, and a request has to
    /// complete first.
    #[inline]
    pub(crate) fn take_buffer(&mut self) -> Result<Option<DmaBuf>> {
        self.buffers.take(&self.channel)
    }

    /// Brings the memory that the next write is copied to into the CPU's cache, in a buffer that is
    /// not in flight. Runs while the device works.
    pub(crate) fn warm_buffer(&mut self) {
        self.buffers.warm(&self.channel);
    }

    /// Takes back a buffer that came from [`take_buffer`](Self::take_buffer); `None`: it is lost.
    #[inline]
    pub(crate) fn give_buffer(&mut self, buf: Option<DmaBuf>) {
        self.buffers.give(buf);
    }

    /// Gives up read-ahead at the end of the mount; its requests end with the channel.
    pub(super) fn give_up_ahead(&mut self, cache: &PageCache) {
        let Self { in_flight, channel, .. } = self;
        for fill in in_flight.ahead.take_all(channel) {
            fill.abandon(cache);
        }
    }

    /// Returns how requests that name no policy are waited for.
    #[cfg(test)]
    pub(super) fn policy(&self) -> Policy {
        self.channel.policy()
    }

    /// Changes how requests that name no policy are waited for, if the channel can.
    #[inline]
    pub(super) fn wait_by(&mut self, policy: Policy) {
        if self.channel.policy() != policy {
            // It may have no queue with an interrupt.
            let _ = self.channel.set_policy(policy);
        }
    }

    #[inline]
    #[allow(clippy::result_large_err)]
    fn send(&mut self, request: Request) -> Result<Ticket, Rejected> {
        #[cfg(all(test, not(loom)))]
        crate::tests::busy::beside();
        match self.channel.submit(request) {
            Err(Rejected { error: SubmitError::CannotWait { policy, .. }, request }) => {
                self.send_another_way(policy, request)
            }
            sent => sent,
        }
    }

    /// Changes the channel's policy: one kind of polling in the kernel is a property of the
    /// channel.
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
