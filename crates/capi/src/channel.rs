//! Channels and their requests.

use std::ffi::{c_char, c_int};

use meantime_block::{BlockDevice, ChannelOptions};
use meantime_completion::Policy;

use crate::abi::{
    MT_COMPARE_AND_WRITE, MT_FLUSH, MT_READ, MT_WRITE, Options, Outcome, Request, Ticket,
};
use crate::buf::Buf;
use crate::device;
use crate::error::{Answer, Failed, channel_failed, misuse};
use crate::guard::{close, guarded, on_channel, out};
use crate::lane::Lane;
use crate::policy::named;
use crate::shell::Shell;

/// `mt_channel`.
pub type Handle = Shell<Lane>;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_channel_open(
    device: *mut device::Handle,
    options: *const Options,
    channel: *mut *mut Handle,
) -> c_int {
    const CALL: &str = "mt_channel_open";
    guarded(CALL, || -> Answer {
        let place = out(CALL, "channel", channel)?;
        // SAFETY: not NULL, and the header has it point to a pointer.
        unsafe { place.write(std::ptr::null_mut()) };
        // SAFETY: the header's promises: a handle; NULL or options.
        let (opened, options) = unsafe { (device::opened(CALL, device)?, options.as_ref()) };
        let options = match options {
            // SAFETY: the header's promise.
            Some(options) => unsafe { options_from(options) }?,
            None => ChannelOptions::default(),
        };
        let lane = opened.device.channel(&options).map_err(|error| channel_failed(&error))?;
        // SAFETY: as above.
        unsafe { place.write(Shell::create(Lane::new(lane, options.depth))) };
        Ok(0)
    })
}

/// # Safety
/// The policy is NULL or a text.
unsafe fn options_from(options: &Options) -> Result<ChannelOptions, Failed> {
    const CALL: &str = "mt_channel_open";
    let mut channel = ChannelOptions::default();
    if !options.policy.is_null() {
        // SAFETY: the caller's promise.
        channel.policy = unsafe { named(CALL, options.policy) }?;
    }
    if options.depth > 0 {
        let depth = options.depth;
        let too_deep =
            |_| misuse(CALL, format_args!("a depth of {depth} is not possible: from 1 to 1023 is"));
        channel.depth = u16::try_from(depth).map_err(too_deep)?;
    }
    channel.interrupt = match options.interrupt {
        0 => None,
        1 => Some(true),
        other => return Err(misuse(CALL, format_args!("interrupt is 0 or 1, not {other}"))),
    };
    Ok(channel)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_channel_close(channel: *mut Handle) -> c_int {
    close("mt_channel_close", channel, Lane::end)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_set_policy(channel: *mut Handle, policy: *const c_char) -> c_int {
    const CALL: &str = "mt_set_policy";
    // SAFETY: the header's promises.
    unsafe {
        on_channel(CALL, channel, |lane| {
            let policy: Policy = named(CALL, policy)?;
            lane.set_policy(CALL, policy).map(|()| 0)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_get_policy(
    channel: *const Handle,
    text: *mut c_char,
    bytes: usize,
) -> c_int {
    const CALL: &str = "mt_get_policy";
    // SAFETY: the header's promises.
    unsafe {
        on_channel(CALL, channel, |lane| {
            let name = lane.policy().to_string();
            if bytes > 0 {
                let place = out(CALL, "text", text)?;
                let length = name.len().min(bytes - 1);
                place.copy_from_nonoverlapping(name.as_ptr().cast(), length);
                place.add(length).write(0);
            }
            Ok(name.len() as c_int)
        })
    }
}

/// Does one request.
///
/// # Safety
/// The header's promises.
unsafe fn do_one(call: &str, channel: *mut Handle, op: u32, lba: u64, buf: *mut Buf) -> c_int {
    let request = Request { op, flags: 0, lba, blocks: 0, buf, policy: 0, user_data: 0 };
    // SAFETY: the caller's promise.
    unsafe {
        on_channel(call, channel, |lane| {
            let ticket = lane.submit(call, &request)?;
            Ok(lane.wait(call, ticket)?.error)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_read(channel: *mut Handle, lba: u64, buf: *mut Buf) -> c_int {
    // SAFETY: the header's promises.
    unsafe { do_one("mt_read", channel, MT_READ, lba, buf) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_write(channel: *mut Handle, lba: u64, buf: *mut Buf) -> c_int {
    // SAFETY: the header's promises.
    unsafe { do_one("mt_write", channel, MT_WRITE, lba, buf) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_flush(channel: *mut Handle) -> c_int {
    // SAFETY: the header's promises.
    unsafe { do_one("mt_flush", channel, MT_FLUSH, 0, std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_compare_and_write(
    channel: *mut Handle,
    lba: u64,
    buf: *mut Buf,
) -> c_int {
    // SAFETY: the header's promises.
    unsafe { do_one("mt_compare_and_write", channel, MT_COMPARE_AND_WRITE, lba, buf) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_submit(
    channel: *mut Handle,
    request: *const Request,
    ticket: *mut Ticket,
) -> c_int {
    const CALL: &str = "mt_submit";
    // SAFETY: the header's promises.
    unsafe {
        on_channel(CALL, channel, |lane| {
            let place = out(CALL, "ticket", ticket)?;
            let request = out(CALL, "request", request.cast_mut())?;
            place.write(lane.submit(CALL, &*request)?);
            Ok(0)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_enqueue(channel: *mut Handle, request: *const Request) -> c_int {
    const CALL: &str = "mt_enqueue";
    // SAFETY: the header's promises.
    unsafe {
        on_channel(CALL, channel, |lane| {
            let request = out(CALL, "request", request.cast_mut())?;
            lane.enqueue(CALL, &*request).map(|()| 0)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_wait(
    channel: *mut Handle,
    ticket: Ticket,
    result: *mut Outcome,
) -> c_int {
    const CALL: &str = "mt_wait";
    // SAFETY: the header's promises.
    unsafe {
        on_channel(CALL, channel, |lane| {
            let waited = lane.wait(CALL, ticket);
            if !result.is_null() {
                result.write(waited.unwrap_or_else(Outcome::of_none));
            }
            Ok(waited?.error)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_try_take(
    channel: *mut Handle,
    ticket: Ticket,
    result: *mut Outcome,
) -> c_int {
    const CALL: &str = "mt_try_take";
    // SAFETY: the header's promises.
    unsafe {
        on_channel(CALL, channel, |lane| {
            let Some(outcome) = lane.try_take(CALL, ticket)? else { return Ok(0) };
            if !result.is_null() {
                result.write(outcome);
            }
            Ok(1)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_detach(channel: *mut Handle, ticket: Ticket) -> c_int {
    const CALL: &str = "mt_detach";
    // SAFETY: the header's promises.
    unsafe { on_channel(CALL, channel, |lane| lane.detach(CALL, ticket).map(|()| 0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_wait_done(channel: *mut Handle, result: *mut Outcome) -> c_int {
    const CALL: &str = "mt_wait_done";
    // SAFETY: the header's promises.
    unsafe {
        on_channel(CALL, channel, |lane| {
            let place = out(CALL, "result", result)?;
            let Some(outcome) = lane.wait_done() else { return Ok(0) };
            place.write(outcome);
            Ok(1)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_next_done(channel: *mut Handle, result: *mut Outcome) -> c_int {
    const CALL: &str = "mt_next_done";
    // SAFETY: the header's promises.
    unsafe {
        on_channel(CALL, channel, |lane| {
            let place = out(CALL, "result", result)?;
            let Some(outcome) = lane.next_done() else { return Ok(0) };
            place.write(outcome);
            Ok(1)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_plug(channel: *mut Handle) -> c_int {
    // SAFETY: the header's promises.
    unsafe {
        on_channel("mt_plug", channel, |lane| {
            lane.plug();
            Ok(0)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_unplug(channel: *mut Handle) -> c_int {
    // SAFETY: the header's promises.
    unsafe {
        on_channel("mt_unplug", channel, |lane| {
            lane.unplug();
            Ok(0)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_poll(channel: *mut Handle) -> c_int {
    // SAFETY: the header's promises.
    unsafe { on_channel("mt_poll", channel, |lane| Ok(lane.poll() as c_int)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_in_flight(channel: *const Handle) -> c_int {
    // SAFETY: the header's promises.
    unsafe { on_channel("mt_in_flight", channel, |lane| Ok(lane.in_flight() as c_int)) }
}
