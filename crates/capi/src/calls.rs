//! Calls on a channel or on a group: a panic ends only what it may concern.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::channel_handle::{ChannelHandle, MtChannel};
use crate::error::{Answer, Failed};
use crate::group_handle::{Entered, GroupHandle, MtGroup};
use crate::guard::{not_open, panicked};
use crate::handle::Handle;

/// Runs `body`, the entire function `call`, on a channel. After a panic the channel's state is
/// unknown: it is neither used again nor dropped, since the device may still write to its buffers.
/// If the channel is in a group, the call holds the group, which goes on without the channel after
/// a panic.
///
/// # Safety
/// `channel` is NULL or the address of a handle. Unless it is in a group, no other thread uses it
/// meanwhile.
#[inline(always)]
pub(crate) unsafe fn on_channel(
    call: &str,
    channel: *const MtChannel,
    body: impl FnOnce(&mut ChannelHandle) -> Answer,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(handle) = (unsafe { Handle::at(channel) }) else { return not_open(call, channel).0 };
    // SAFETY: the caller's promise.
    let Some(channel) = (unsafe { handle.value_mut() }) else {
        return on_member(call, handle, body);
    };
    match catch_unwind(AssertUnwindSafe(|| body(channel))) {
        Ok(Ok(answer)) => answer,
        Ok(Err(Failed(error))) => error,
        Err(payload) => {
            handle.mark_broken();
            panicked(call, payload)
        }
    }
}

/// Runs `body` on a channel that is not open, perhaps because it is in a group. This is a function
/// of its own, so that other channels do not pay for groups.
#[inline(never)]
fn on_member(
    call: &str,
    handle: &'static MtChannel,
    body: impl FnOnce(&mut ChannelHandle) -> Answer,
) -> c_int {
    let mut entered = match Entered::new(call, handle) {
        Ok(entered) => entered,
        Err(Failed(error)) => return error,
    };
    match catch_unwind(AssertUnwindSafe(|| body(entered.channel()))) {
        Ok(Ok(answer)) => answer,
        Ok(Err(Failed(error))) => error,
        Err(payload) => {
            entered.expel();
            panicked(call, payload)
        }
    }
}

/// Runs `body`, the entire function `call`, on a group, which it holds meanwhile. After a panic the
/// group is not used again, nor are its channels: any of them may be in an unknown state.
///
/// # Safety
/// `group` is NULL or the address of a handle.
#[inline(always)]
pub(crate) unsafe fn on_group(
    call: &str,
    group: *const MtGroup,
    body: impl FnOnce(&mut GroupHandle, &'static MtGroup) -> Answer,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(handle) = (unsafe { Handle::at(group) }) else { return not_open(call, group).0 };
    let Some(mut held) = handle.hold() else { return not_open(call, group).0 };
    match catch_unwind(AssertUnwindSafe(|| body(&mut held, handle))) {
        Ok(Ok(answer)) => answer,
        Ok(Err(Failed(error))) => error,
        Err(payload) => {
            held.mark_broken();
            panicked(call, payload)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr::{null, null_mut};

    use super::*;
    use crate::abi::{Entry, MT_FOREVER, MT_READ, Outcome, Request};
    use crate::guard::guarded;
    use crate::{buf, channel, device, group, mt_last_error};

    fn last_error() -> String {
        // SAFETY: a text of this thread, which has no other error meanwhile.
        unsafe { CStr::from_ptr(mt_last_error()) }.to_string_lossy().into_owned()
    }

    /// A panic ends at the boundary, and with it the channel; the device and its other channels
    /// continue.
    #[test]
    fn a_panic_does_not_reach_c() {
        let (mut device, mut first, mut second, mut held) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        // SAFETY: a text that ends, places on the stack, and handles that are open.
        unsafe {
            assert_eq!(device::mt_open(c"mem:16M".as_ptr(), &mut device), 0);
            assert_eq!(channel::mt_channel_open(device, null(), &mut first), 0);
            assert_eq!(channel::mt_channel_open(device, null(), &mut second), 0);
            assert_eq!(buf::mt_alloc(device, 4096, &mut held), 0);
            assert_eq!(
                on_channel("mt_test", first, |_| panic!("what {} would be", "this")),
                -libc::EIO
            );
            assert!(last_error().starts_with("mt_test: a bug in Meantime"), "{}", last_error());
            assert!(last_error().ends_with("what this would be"), "{}", last_error());
            assert_eq!(channel::mt_read(first, 0, held), -libc::EIO);
            assert!(last_error().contains("give it up"), "{}", last_error());
            assert_eq!(channel::mt_channel_close(first), -libc::EIO);
            assert_eq!(channel::mt_read(second, 0, held), 0);
            assert_eq!((buf::mt_free(held), channel::mt_channel_close(second)), (0, 0));
            assert_eq!(device::mt_close(device), 0);
        }
        assert_eq!(guarded("mt_test", || panic!("again")), -libc::EIO);
        assert!(last_error().ends_with("again"), "{}", last_error());
    }

    /// A panic in a call on a channel ends that channel, not its group; one in a call on the group
    /// ends the group and what is in it.
    #[test]
    fn a_panic_ends_what_it_may_concern() {
        let (mut device, mut group, mut channels) = (null_mut(), null_mut(), [null_mut(); 3]);
        // SAFETY: a text that ends, places on the stack, and handles that are open.
        unsafe {
            assert_eq!(device::mt_open(c"mem:16M".as_ptr(), &mut device), 0);
            assert_eq!(group::mt_group_open(&mut group), 0);
            for channel in &mut channels {
                assert_eq!(channel::mt_channel_open(device, null(), channel), 0);
                assert_eq!(group::mt_group_add_channel(group, *channel, 5), 0);
            }
            let mut held = null_mut();
            assert_eq!(buf::mt_alloc(device, 4096, &mut held), 0);
            let request = Request {
                op: MT_READ,
                flags: 0,
                lba: 0,
                blocks: 0,
                buf: held,
                policy: 0,
                user_data: 0,
            };
            let wait = || {
                let mut ready = Entry { key: 0, what: 0, reserved: 0, result: Outcome::NONE };
                (group::mt_group_wait(group, &mut ready, 1, MT_FOREVER), ready.key)
            };

            assert_eq!(on_channel("mt_test", channels[0], |_| panic!("one")), -libc::EIO);
            assert_eq!(channel::mt_enqueue(channels[0], &request), -libc::EIO);
            assert_eq!(group::mt_group_remove_channel(group, channels[0]), -libc::EINVAL);
            assert_eq!((channel::mt_enqueue(channels[1], &request), wait()), (0, (1, 5)));

            assert_eq!(group::mt_group_remove_channel(group, channels[1]), 0);
            assert_eq!(on_group("mt_test", group, |_, _| panic!("all")), -libc::EIO);
            assert_eq!(wait().0, -libc::EIO);
            assert!(last_error().contains("the group met a bug"), "{}", last_error());
            assert_eq!(group::mt_group_close(group), -libc::EIO);
            assert_eq!(channel::mt_read(channels[2], 0, held), -libc::EIO);
            assert_eq!(channel::mt_channel_close(channels[2]), -libc::EBUSY);
            assert_eq!(channel::mt_read(channels[1], 0, held), 0);
            assert_eq!((buf::mt_free(held), channel::mt_channel_close(channels[1])), (0, 0));
            assert_eq!(device::mt_close(device), 0);
        }
    }
}
