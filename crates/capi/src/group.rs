//! Groups, and what wakes them.

use std::ffi::c_int;
use std::time::Duration;

use meantime_block::GroupWaker;

use crate::abi::{Entry, MT_FOREVER, Word};
use crate::calls::on_group;
use crate::channel_handle::MtChannel;
use crate::error::{Answer, misuse};
use crate::group_handle::GroupHandle;
use crate::guard::{close, guarded, not_open, out};
use crate::handle::Handle;

pub use crate::group_handle::{MtGroup, MtWaker};

// Any number of threads may use a waker at once.
const _: () = {
    const fn is_shared<T: Sync>() {}
    is_shared::<GroupWaker>();
};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_group_open(group: *mut *mut MtGroup) -> c_int {
    const CALL: &str = "mt_group_open";
    guarded(CALL, || -> Answer {
        let place = out(CALL, "group", group)?;
        // SAFETY: not NULL, and the header has it point to a pointer.
        unsafe { place.write(Handle::create(GroupHandle::default())) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_group_close(group: *mut MtGroup) -> c_int {
    const CALL: &str = "mt_group_close";
    if group.is_null() {
        return 0;
    }
    guarded(CALL, || -> Answer {
        // `group` may be any address, so it is not read.
        let handle = Handle::find(group);
        let handle = handle.ok_or_else(|| misuse(CALL, "this is no group, or it was closed"))?;
        let mut held = handle.hold().ok_or_else(|| not_open(CALL, group))?;
        // This happens while the group is held, so that each channel is either in the group or not.
        held.release_channels();
        drop(held.close());
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_group_add_channel(
    group: *mut MtGroup,
    channel: *mut MtChannel,
    key: u64,
) -> c_int {
    const CALL: &str = "mt_group_add_channel";
    // SAFETY: the header's promises, here and below: handles.
    unsafe {
        on_group(CALL, group, |held, group| {
            let channel = Handle::at(channel).ok_or_else(|| not_open(CALL, channel))?;
            held.add_channel(CALL, group, channel, key).map(|()| 0)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_group_remove_channel(
    group: *mut MtGroup,
    channel: *mut MtChannel,
) -> c_int {
    const CALL: &str = "mt_group_remove_channel";
    // SAFETY: the header's promises.
    unsafe {
        on_group(CALL, group, |held, _| {
            let channel = Handle::at(channel).ok_or_else(|| not_open(CALL, channel))?;
            held.remove_channel(CALL, channel).map(|()| 0)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_group_add_fd(group: *mut MtGroup, fd: c_int, key: u64) -> c_int {
    const CALL: &str = "mt_group_add_fd";
    // SAFETY: the header's promise.
    unsafe { on_group(CALL, group, |held, _| held.add_descriptor(CALL, fd, key).map(|()| 0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_group_remove_fd(group: *mut MtGroup, fd: c_int) -> c_int {
    const CALL: &str = "mt_group_remove_fd";
    // SAFETY: the header's promise.
    unsafe { on_group(CALL, group, |held, _| held.remove_descriptor(CALL, fd).map(|()| 0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_group_add_word(
    group: *mut MtGroup,
    word: *const Word,
    key: u64,
    event_fd: *mut c_int,
) -> c_int {
    const CALL: &str = "mt_group_add_word";
    // SAFETY: the header's promises: a handle, a structure, a place for the result.
    unsafe {
        on_group(CALL, group, |held, _| {
            let place = out(CALL, "event_fd", event_fd)?;
            let word = out(CALL, "word", word.cast_mut())?;
            place.write(held.add_word(CALL, &*word, key)?);
            Ok(0)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_group_remove_word(group: *mut MtGroup, value: *const u64) -> c_int {
    const CALL: &str = "mt_group_remove_word";
    // SAFETY: the header's promise.
    unsafe { on_group(CALL, group, |held, _| held.remove_word(CALL, value).map(|()| 0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_group_wait(
    group: *mut MtGroup,
    ready: *mut Entry,
    count: usize,
    timeout_ns: i64,
) -> c_int {
    const CALL: &str = "mt_group_wait";
    // SAFETY: the header's promises: a handle, and room for `count` entries.
    unsafe {
        on_group(CALL, group, |held, _| {
            let place = out(CALL, "ready", ready)?;
            if count == 0 {
                return Err(misuse(CALL, "count is 0: there is room for nothing"));
            }
            let timeout = match u64::try_from(timeout_ns) {
                Ok(_) if timeout_ns == MT_FOREVER => None,
                Ok(timeout_ns) => Some(Duration::from_nanos(timeout_ns)),
                Err(_) => {
                    let what = "timeout_ns is negative: 0 only looks, MT_FOREVER has no limit";
                    return Err(misuse(CALL, what));
                }
            };
            let max = count.min(c_int::MAX as usize);
            Ok(held.wait(timeout, max, |number, entry| place.add(number).write(entry)) as c_int)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_waker_open(group: *mut MtGroup, waker: *mut *mut MtWaker) -> c_int {
    const CALL: &str = "mt_waker_open";
    // SAFETY: the header's promises: a handle, a pointer to a pointer.
    unsafe {
        if !waker.is_null() {
            waker.write(std::ptr::null_mut());
        }
        on_group(CALL, group, |held, _| {
            let place = out(CALL, "waker", waker)?;
            place.write(Handle::create(held.waker()?));
            Ok(0)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_waker_close(waker: *mut MtWaker) -> c_int {
    close("mt_waker_close", waker, drop)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_wake(waker: *const MtWaker) -> c_int {
    const CALL: &str = "mt_wake";
    guarded(CALL, || -> Answer {
        // SAFETY: the header's promises: a handle, which no thread closes meanwhile.
        let opened = unsafe { Handle::at(waker).and_then(|handle| handle.value()) };
        opened.ok_or_else(|| not_open(CALL, waker))?.wake();
        Ok(0)
    })
}
