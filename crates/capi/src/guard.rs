//! The boundary: arguments are checked, and no panic unwinds into C.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::channel_handle::ChannelHandle;
use crate::error::{Answer, Failed, fail, misuse};
use crate::group::MtGroup;
use crate::group_handle::{Entered, GroupHandle};
use crate::handle::{Handle, Kind, State};

/// Runs `body`, the entire function `call`.
pub(crate) fn guarded(call: &str, body: impl FnOnce() -> Answer) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(Failed(error))) => error,
        Err(payload) => panicked(call, payload),
    }
}

/// Runs `body`, the entire function `call`, on a channel. After a panic the channel's state is
/// unknown: it is neither used again nor dropped, since the device may still write to its buffers.
/// A group that it is in is held meanwhile, and goes on without it after a panic.
///
/// # Safety
/// `channel` is NULL or the address of a handle. Unless it is in a group, no other thread uses it
/// meanwhile.
#[inline(always)]
pub(crate) unsafe fn on_channel(
    call: &str,
    channel: *const Handle<ChannelHandle>,
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

/// The same for a channel that is not open, maybe since it is in a group. A function of its own, so
/// that other channels do not pay for groups.
#[inline(never)]
fn on_member(
    call: &str,
    handle: &'static Handle<ChannelHandle>,
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

/// Runs `body`, the entire function `call`, on a group, which is held meanwhile. After a panic the
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

#[cold]
#[inline(never)]
fn panicked(call: &str, payload: Box<dyn Any + Send>) -> c_int {
    let what = payload.downcast_ref::<&str>().copied();
    let what =
        what.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
    let error =
        fail(libc::EIO, format_args!("{call}: a bug in Meantime, please report it: {what}"));
    // Dropping it might panic again.
    std::mem::forget(payload);
    error.0
}

/// Why the handle `ptr` of kind `T` cannot be used.
#[cold]
#[inline(never)]
pub(crate) fn not_open<T: Kind>(call: &str, ptr: *const Handle<T>) -> Failed {
    let name = T::NAME;
    if ptr.is_null() {
        return misuse(call, format_args!("the {name} is NULL"));
    }
    // SAFETY: the caller has checked it already; or `remove` has found it among the handles.
    match unsafe { Handle::at(ptr) }.map(Handle::state) {
        None | Some(State::Closed) => {
            misuse(call, format_args!("this is no {name}, or it was closed"))
        }
        Some(State::Away) => fail(
            libc::EBUSY,
            format_args!("{call}: the {name} is with the device: wait for its request"),
        ),
        Some(State::Empty) => misuse(
            call,
            format_args!(
                "the memory of the {name} was given up (detached, or the device is gone): free it"
            ),
        ),
        Some(State::Grouped) => fail(
            libc::EBUSY,
            format_args!("{call}: the {name} is in a group: remove it from there before"),
        ),
        // Or it has ceased to meanwhile.
        Some(State::Held | State::Open) => fail(
            libc::EBUSY,
            format_args!("{call}: another thread is using the {name} (mt_wake() ends a wait)"),
        ),
        Some(State::Broken) => fail(
            libc::EIO,
            format_args!("{call}: the {name} met a bug in Meantime before: give it up"),
        ),
    }
}

/// Closes a handle. NULL is allowed.
pub(crate) fn close<T: Kind>(call: &str, ptr: *const Handle<T>, end: impl FnOnce(T)) -> c_int {
    if ptr.is_null() {
        return 0;
    }
    guarded(call, || match Handle::remove(ptr) {
        Ok(value) => {
            if let Some(value) = value {
                end(value);
            }
            Ok(0)
        }
        // It may be any address, so it is not read.
        Err(State::Closed) => {
            Err(misuse(call, format_args!("this is no {}, or it was closed", T::NAME)))
        }
        Err(_) => Err(not_open(call, ptr)),
    })
}

/// A string from C.
///
/// # Safety
/// `text` is NULL or ends with a NUL, and stays as it is for `'a`.
pub(crate) unsafe fn text<'a>(
    call: &str,
    name: &str,
    text: *const c_char,
) -> Result<&'a str, Failed> {
    if text.is_null() {
        return Err(misuse(call, format_args!("{name} is NULL")));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| misuse(call, format_args!("{name} is not UTF-8")))
}

/// The address for a result, if C gave one.
pub(crate) fn out<T>(call: &str, name: &str, place: *mut T) -> Result<*mut T, Failed> {
    if place.is_null() { Err(misuse(call, format_args!("{name} is NULL"))) } else { Ok(place) }
}

#[cfg(test)]
mod tests {
    use std::ptr::{null, null_mut};

    use super::*;
    use crate::abi::{Entry, MT_FOREVER, MT_READ, Outcome, Request};
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
