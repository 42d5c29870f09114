//! A channel for C. It keeps the library's tickets and buffers, which can only be moved, and gives
//! numbers and handles to C.

use std::sync::atomic::AtomicPtr;

use meantime_block::{
    self as block, BlockChannel, Channel, ChannelKey, Done, Rejected, SubmitError,
};
use meantime_completion::Policy;
use meantime_nvme::Op;

use crate::abi::{
    Buf, MT_COMPARE_AND_WRITE, MT_DEALLOCATE, MT_FLUSH, MT_FUA, MT_READ, MT_WRITE, MT_WRITE_ZEROES,
    Outcome, Request, Ticket,
};
use crate::error::{Failed, fail, io_failed, misuse, submit_failed};
use crate::group_handle::MtGroup;
use crate::guard::not_open;
use crate::handle::{Handle, Kind, Registry};
use crate::policy;

/// A request whose result C has not taken, or a free entry.
struct InFlight {
    /// The number in its ticket: the index in the lower bits, above it a number that changes with
    /// each use.
    id: u64,
    /// The library's ticket, if the request has one.
    ticket: Option<block::Ticket>,
    /// The handle that its buffer returns to.
    buf: Option<&'static Buf>,
    user_data: u64,
    /// The next free entry, while this one is free.
    next_free: usize,
}

const INDEX_BITS: u32 = 16;

/// The value of an `mt_channel`.
pub struct ChannelHandle {
    channel: Channel,
    /// Why the device must not be written.
    read_only: Option<String>,
    /// An entry for each request that can be in flight.
    in_flight: Box<[InFlight]>,
    /// The first free entry; the length of `in_flight` if there is none.
    free: usize,
    /// The channel's key in its group, if it is in one.
    pub member: Option<ChannelKey>,
}

/// `mt_channel`.
pub type MtChannel = Handle<ChannelHandle>;

impl Kind for ChannelHandle {
    const TAG: u32 = 0x6d74_6300;
    const NAME: &'static str = "channel";
    /// The group of the channel, or NULL.
    type Beside = AtomicPtr<MtGroup>;

    fn registry() -> &'static Registry<Self> {
        static CHANNELS: Registry<ChannelHandle> = Registry::new();
        &CHANNELS
    }
}

/// A request that is ready for the library, and its buffer's handle.
struct Prepared {
    index: usize,
    request: block::Request,
    buf: Option<&'static Buf>,
    user_data: u64,
}

impl ChannelHandle {
    pub fn new(channel: Channel, read_only: Option<String>, depth: u16) -> Self {
        // Ids start at a different number in each channel, with the top bit set: no ticket is valid
        // for another channel, and none is 0.
        let first =
            std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), depth) | 1 << 63;
        let empty = |index: usize| InFlight {
            id: first >> INDEX_BITS << INDEX_BITS | index as u64,
            ticket: None,
            buf: None,
            user_data: 0,
            next_free: index + 1,
        };
        let in_flight = (0..usize::from(depth)).map(empty).collect();
        Self { channel, read_only, in_flight, free: 0, member: None }
    }

    /// The library's channel.
    #[inline(always)]
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The library's channel, to look at it and to wait.
    #[inline(always)]
    pub fn channel_mut(&mut self) -> &mut Channel {
        &mut self.channel
    }

    /// Converts C's request to the library's; its buffer is then lent to the request.
    ///
    /// # Safety
    /// `request.buf` is NULL or the address of a handle that no other thread uses meanwhile.
    #[inline(always)]
    unsafe fn prepare(&mut self, call: &str, request: &Request) -> Result<Prepared, Failed> {
        let op = match request.op {
            MT_READ => Op::Read,
            MT_WRITE => Op::Write,
            MT_FLUSH => Op::Flush,
            MT_WRITE_ZEROES => Op::WriteZeroes,
            MT_DEALLOCATE => Op::Deallocate,
            MT_COMPARE_AND_WRITE => Op::CompareAndWrite,
            op => {
                return Err(misuse(
                    call,
                    format_args!("there is no operation {op}: use MT_READ or another"),
                ));
            }
        };
        if let Some(why) = &self.read_only
            && !matches!(op, Op::Read | Op::Flush)
        {
            return Err(submit_failed(call, &SubmitError::ReadOnly(why.clone())));
        }
        if request.flags & !MT_FUA != 0 {
            return Err(misuse(call, "the request has unknown flags: use MT_FUA or 0"));
        }
        if op.has_data() && request.blocks != 0 {
            return Err(misuse(
                call,
                "blocks is not for reads and writes: leave it 0, and set the length of the buffer",
            ));
        }
        let policy = policy::decode(call, request.policy)?;
        let index = self.free;
        if index >= self.in_flight.len() {
            return Err(self.full(call));
        }
        let (handle, data) = match request.buf.is_null() {
            true => (None, None),
            false => {
                // SAFETY: the caller's promise.
                let handle = unsafe { Handle::at(request.buf) };
                // SAFETY: the caller's promise. Nothing fails from here to `launched`, or to
                // `rejected`, which brings it back.
                match unsafe { handle.and_then(|handle| handle.lend()) } {
                    Some(data) => (handle, Some(data)),
                    None => return Err(not_open(call, request.buf)),
                }
            }
        };
        let user_data = request.user_data;
        let request = block::Request {
            op,
            lba: request.lba,
            blocks: request.blocks,
            buf: data,
            fua: request.flags & MT_FUA != 0,
            policy,
            ioprio: 0,
            user_data: index as u64,
        };
        Ok(Prepared { index, request, buf: handle, user_data })
    }

    #[cold]
    #[inline(never)]
    fn full(&self, call: &str) -> Failed {
        fail(
            libc::EAGAIN,
            format_args!(
                "{call}: all {} requests of the channel are in flight, or their results were not \
                 taken: wait for one",
                self.in_flight.len()
            ),
        )
    }

    /// Records a submitted request.
    #[inline(always)]
    fn launched(
        &mut self,
        prepared: (usize, Option<&'static Buf>, u64),
        ticket: Option<block::Ticket>,
    ) -> Ticket {
        let (index, buf, user_data) = prepared;
        let flight = &mut self.in_flight[index];
        // Nothing has to be dropped, and the fast path must not check for that.
        std::mem::forget(std::mem::replace(&mut flight.ticket, ticket));
        flight.buf = buf;
        flight.user_data = user_data;
        self.free = flight.next_free;
        Ticket { id: flight.id }
    }

    #[cold]
    #[inline(never)]
    fn rejected(call: &str, rejected: Rejected, buf: Option<&'static Buf>) -> Failed {
        if let Some(handle) = buf {
            // SAFETY: `prepare` has lent it.
            unsafe { handle.restore(rejected.request.buf) };
        }
        submit_failed(call, &rejected.error)
    }

    /// # Safety
    /// `request.buf` is NULL or the address of a handle that no other thread uses meanwhile.
    #[inline(always)]
    pub unsafe fn submit(&mut self, call: &str, request: &Request) -> Result<Ticket, Failed> {
        // SAFETY: the caller's promise.
        let Prepared { index, request, buf, user_data } = unsafe { self.prepare(call, request) }?;
        match self.channel.submit(request) {
            Ok(ticket) => Ok(self.launched((index, buf, user_data), Some(ticket))),
            Err(rejected) => Err(Self::rejected(call, rejected, buf)),
        }
    }

    /// # Safety
    /// `request.buf` is NULL or the address of a handle that no other thread uses meanwhile.
    #[inline(always)]
    pub unsafe fn enqueue(&mut self, call: &str, request: &Request) -> Result<(), Failed> {
        // SAFETY: the caller's promise.
        let Prepared { index, request, buf, user_data } = unsafe { self.prepare(call, request) }?;
        match self.channel.enqueue(request) {
            Ok(()) => {
                self.launched((index, buf, user_data), None);
                Ok(())
            }
            Err(rejected) => Err(Self::rejected(call, rejected, buf)),
        }
    }

    /// Returns the library's ticket for C's, which becomes invalid.
    #[inline(always)]
    fn redeem(&mut self, call: &str, ticket: Ticket) -> Result<(usize, block::Ticket), Failed> {
        let index = (ticket.id & ((1 << INDEX_BITS) - 1)) as usize;
        match self.in_flight.get_mut(index) {
            Some(flight) if flight.id == ticket.id => match flight.ticket.take() {
                Some(ticket) => Ok((index, ticket)),
                None => Err(no_ticket(call)),
            },
            _ => Err(no_ticket(call)),
        }
    }

    /// Returns C's result of the request at `index`, which has ended, and returns its buffer to its
    /// handle.
    #[inline(always)]
    fn outcome(&mut self, index: usize, mut done: Done) -> Outcome {
        let flight = &mut self.in_flight[index];
        let buf = flight.buf.take();
        if let Some(handle) = buf {
            // SAFETY: `prepare` has lent it.
            unsafe { handle.restore(done.buf.take()) };
        }
        let user_data = flight.user_data;
        flight.id = flight.id.wrapping_add(1 << INDEX_BITS) | 1 << 63;
        flight.next_free = std::mem::replace(&mut self.free, index);
        let error = match &done.result {
            Ok(()) => 0,
            Err(error) => io_failed(error).0,
        };
        let buf = buf.map_or(std::ptr::null_mut(), |handle| std::ptr::from_ref(handle).cast_mut());
        Outcome { buf, user_data, error, reserved: 0 }
    }

    #[inline(always)]
    pub fn wait(&mut self, call: &str, ticket: Ticket) -> Result<Outcome, Failed> {
        let (index, ticket) = self.redeem(call, ticket)?;
        let done = self.channel.wait(ticket);
        Ok(self.outcome(index, done))
    }

    pub fn try_take(&mut self, call: &str, ticket: Ticket) -> Result<Option<Outcome>, Failed> {
        let (index, ticket) = self.redeem(call, ticket)?;
        match self.channel.try_take(ticket) {
            Ok(done) => Ok(Some(self.outcome(index, done))),
            Err(ticket) => {
                self.in_flight[index].ticket = Some(ticket);
                Ok(None)
            }
        }
    }

    pub fn detach(&mut self, call: &str, ticket: Ticket) -> Result<(), Failed> {
        let (index, ticket) = self.redeem(call, ticket)?;
        self.channel.detach(ticket);
        // The library frees the memory when the device is done with it; the handle stays empty.
        self.outcome(index, Done { result: Ok(()), buf: None, user_data: 0 });
        Ok(())
    }

    /// Returns C's result of a queued request.
    #[inline(always)]
    pub fn outcome_of_queued(&mut self, done: Done) -> Outcome {
        self.outcome(done.user_data as usize, done)
    }

    #[inline(always)]
    pub fn wait_done(&mut self) -> Option<Outcome> {
        let done = self.channel.wait_done()?;
        Some(self.outcome_of_queued(done))
    }

    #[inline(always)]
    pub fn next_done(&mut self) -> Option<Outcome> {
        let done = self.channel.next_done()?;
        Some(self.outcome_of_queued(done))
    }

    pub fn plug(&mut self) {
        self.channel.plug();
    }

    pub fn unplug(&mut self) {
        self.channel.unplug();
    }

    #[inline(always)]
    pub fn poll(&mut self) -> usize {
        self.channel.poll()
    }

    pub fn in_flight(&self) -> usize {
        self.channel.in_flight()
    }

    pub fn policy(&self) -> Policy {
        self.channel.policy()
    }

    pub fn set_policy(&mut self, call: &str, policy: Policy) -> Result<(), Failed> {
        self.channel.set_policy(policy).map_err(|error| submit_failed(call, &error))
    }

    /// Waits for all requests in flight, so that each buffer returns to its handle.
    pub fn end(mut self) {
        for index in 0..self.in_flight.len() {
            if let Some(ticket) = self.in_flight[index].ticket.take() {
                let done = self.channel.wait(ticket);
                self.outcome(index, done);
            }
        }
        while self.wait_done().is_some() {}
    }
}

#[cold]
#[inline(never)]
fn no_ticket(call: &str) -> Failed {
    misuse(call, "the ticket is not good: it was redeemed or detached, or is of another channel")
}
