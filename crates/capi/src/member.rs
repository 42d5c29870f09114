//! A channel of a group, as the library's group sees it.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use meantime_block::{
    BlockChannel, BlockInfo, ChannelKey, Done, GroupChannel, Rejected, Request, SubmitError, Ticket,
};
use meantime_completion::waiter::Rest;
use meantime_completion::{OffQueue, Policy};
use meantime_hw::{DmaBuf, EventFd, HwError};

use crate::abi::Outcome;
use crate::channel_handle::{ChannelHandle, MtChannel};
use crate::error::Failed;
use crate::group_handle::MtGroup;
use crate::guard::not_open;
use crate::handle::State;

/// A channel that is in a group. It stays in its handle, by which C goes on using it; the handle
/// says that it is grouped from [`Member::join`] to [`Member::leave`].
pub(crate) struct Member {
    handle: &'static MtChannel,
    /// The key that C chose.
    pub(crate) key: u64,
}

impl Member {
    /// Takes the open channel of `handle` into `group`, which the caller holds.
    pub(crate) fn join(
        call: &str,
        handle: &'static MtChannel,
        group: &'static MtGroup,
        key: u64,
    ) -> Result<Self, Failed> {
        if !handle.turn(State::Open, State::Grouped) {
            return Err(not_open(call, handle));
        }
        // Release: a thread that reads the group here also sees the channel in it.
        handle.beside.store(std::ptr::from_ref(group).cast_mut(), Ordering::Release);
        Ok(Self { handle, key })
    }

    /// The handle of the channel.
    pub(crate) fn handle(&self) -> &'static MtChannel {
        self.handle
    }

    /// Notes the key of this member.
    pub(crate) fn set_member(&mut self, key: ChannelKey) {
        self.value_mut().member = Some(key);
    }

    /// Takes the channel out of its group, and opens it.
    pub(crate) fn leave(mut self) {
        self.value_mut().member = None;
        // This comes before the channel is open, so that no other group is overwritten.
        self.handle.beside.store(std::ptr::null_mut(), Ordering::Release);
        self.handle.turn(State::Grouped, State::Open);
    }

    /// C's result of a queued request of this channel.
    #[inline(always)]
    pub(crate) fn outcome(&mut self, done: Done) -> Outcome {
        self.value_mut().outcome_of_queued(done)
    }

    #[inline(always)]
    fn value(&self) -> &ChannelHandle {
        // SAFETY: only the thread that holds a group reaches its members, and a channel is in one
        // group, once: so what this and `value_mut` return is borrowed as the member is.
        // `on_channel`, which holds the group, too, uses no member while it uses the channel.
        unsafe { self.handle.grouped() }
    }

    #[inline(always)]
    fn value_mut(&mut self) -> &mut ChannelHandle {
        // SAFETY: as above.
        unsafe { self.handle.grouped_mut() }
    }
}

/// The call of the library's channel.
macro_rules! shared {
    ($this:ident.$($call:tt)+) => { $this.value().channel().$($call)+ };
}
macro_rules! unique {
    ($this:ident.$($call:tt)+) => { $this.value_mut().channel_mut().$($call)+ };
}

impl BlockChannel for Member {
    meantime_block::forward_channel!(shared, unique);
}

impl GroupChannel for Member {
    meantime_block::forward_channel!(group shared, unique);
}
