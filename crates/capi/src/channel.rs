//! Channels and their requests.

use std::ffi::{c_char, c_int};

use meantime_block::{BlockDevice, ChannelOptions};
use meantime_completion::Policy;

use crate::abi::{
    Buf, MT_COMPARE_AND_WRITE, MT_FLUSH, MT_READ, MT_WRITE, Options, Outcome, Request, Ticket,
};
use crate::calls::on_channel;
use crate::channel_handle::ChannelHandle;
use crate::device;
use crate::error::{Answer, Failed, channel_failed, misuse};
use crate::guard::{close, guarded, out};
use crate::handle::Handle;
use crate::policy::named;

pub use crate::channel_handle::MtChannel;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_channel_open(
    device: *mut device::MtDevice,
    options: *const Options,
    channel: *mut *mut MtChannel,
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
        let device = &opened.device;
        let channel = device.channel(&options).map_err(|error| channel_failed(&error))?;
        let read_only = device.read_only().map(str::to_owned);
        // SAFETY: as above.
        unsafe {
            place.write(Handle::create(ChannelHandle::new(channel, read_only, options.depth)))
        };
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
        channel.policy = Some(unsafe { named(CALL, options.policy) }?);
    }
    if options.depth > 0 {
        let depth = options.depth;
        let too_deep = |_| misuse(CALL, format_args!("depth {depth}: 1 to 1023 are allowed"));
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
pub unsafe extern "C" fn mt_channel_close(channel: *mut MtChannel) -> c_int {
    close("mt_channel_close", channel, ChannelHandle::end)
}

/// Functions of a channel; `call` is the function's name.
macro_rules! calls {
    ($(
        fn $name:ident($channel:ty $(, $argument:ident: $type:ty)*)
        |$call:ident, $on:ident| $body:expr;
    )*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(channel: $channel $(, $argument: $type)*) -> c_int {
            let $call = stringify!($name);
            // SAFETY: the header's promises.
            unsafe { on_channel($call, channel, |$on| $body) }
        }
    )*};
}

calls! {
    fn mt_set_policy(*mut MtChannel, policy: *const c_char) |call, channel| {
        let policy: Policy = named(call, policy)?;
        channel.set_policy(call, policy).map(|()| 0)
    };

    fn mt_get_policy(*const MtChannel, text: *mut c_char, bytes: usize) |call, channel| {
        let name = channel.policy().to_string();
        if bytes > 0 {
            let place = out(call, "text", text)?;
            let length = name.len().min(bytes - 1);
            place.copy_from_nonoverlapping(name.as_ptr().cast(), length);
            place.add(length).write(0);
        }
        Ok(name.len() as c_int)
    };

    fn mt_read(*mut MtChannel, lba: u64, buf: *mut Buf) |call, channel|
        do_one(call, channel, MT_READ, lba, buf);

    fn mt_write(*mut MtChannel, lba: u64, buf: *mut Buf) |call, channel|
        do_one(call, channel, MT_WRITE, lba, buf);

    fn mt_flush(*mut MtChannel) |call, channel|
        do_one(call, channel, MT_FLUSH, 0, std::ptr::null_mut());

    fn mt_compare_and_write(*mut MtChannel, lba: u64, buf: *mut Buf) |call, channel|
        do_one(call, channel, MT_COMPARE_AND_WRITE, lba, buf);

    fn mt_submit(*mut MtChannel, request: *const Request, ticket: *mut Ticket) |call, channel| {
        let place = out(call, "ticket", ticket)?;
        let request = out(call, "request", request.cast_mut())?;
        place.write(channel.submit(call, &*request)?);
        Ok(0)
    };

    fn mt_enqueue(*mut MtChannel, request: *const Request) |call, channel| {
        let request = out(call, "request", request.cast_mut())?;
        channel.enqueue(call, &*request).map(|()| 0)
    };

    fn mt_wait(*mut MtChannel, ticket: Ticket, result: *mut Outcome) |call, channel| {
        let waited = channel.wait(call, ticket);
        if !result.is_null() {
            result.write(waited.unwrap_or_else(Outcome::of_none));
        }
        Ok(waited?.error)
    };

    fn mt_try_take(*mut MtChannel, ticket: Ticket, result: *mut Outcome) |call, channel| {
        let Some(outcome) = channel.try_take(call, ticket)? else { return Ok(0) };
        if !result.is_null() {
            result.write(outcome);
        }
        Ok(1)
    };

    fn mt_detach(*mut MtChannel, ticket: Ticket) |call, channel|
        channel.detach(call, ticket).map(|()| 0);

    fn mt_wait_done(*mut MtChannel, result: *mut Outcome) |call, channel| {
        let place = out(call, "result", result)?;
        let Some(outcome) = channel.wait_done() else { return Ok(0) };
        place.write(outcome);
        Ok(1)
    };

    fn mt_next_done(*mut MtChannel, result: *mut Outcome) |call, channel| {
        let place = out(call, "result", result)?;
        let Some(outcome) = channel.next_done() else { return Ok(0) };
        place.write(outcome);
        Ok(1)
    };

    fn mt_plug(*mut MtChannel) |call, channel| {
        channel.plug();
        Ok(0)
    };

    fn mt_unplug(*mut MtChannel) |call, channel| {
        channel.unplug();
        Ok(0)
    };

    fn mt_poll(*mut MtChannel) |call, channel| Ok(channel.poll() as c_int);

    fn mt_in_flight(*const MtChannel) |call, channel| Ok(channel.in_flight() as c_int);
}

/// Executes one request, and waits for it.
///
/// # Safety
/// The header's promises.
unsafe fn do_one(
    call: &str,
    channel: &mut ChannelHandle,
    op: u32,
    lba: u64,
    buf: *mut Buf,
) -> Answer {
    let request = Request { op, flags: 0, lba, blocks: 0, buf, policy: 0, user_data: 0 };
    // SAFETY: the caller's promise.
    let ticket = unsafe { channel.submit(call, &request) }?;
    Ok(channel.wait(call, ticket)?.error)
}
