//! Buffers.

use std::ffi::{c_int, c_void};

use meantime_hw::DmaBuf;

use crate::device;
use crate::error::{Answer, hw_failed, misuse};
use crate::guard::{close, guarded, not_open, out};
use crate::handle::Handle;

pub use crate::abi::Buf;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_alloc(
    device: *mut device::MtDevice,
    bytes: usize,
    buf: *mut *mut Buf,
) -> c_int {
    const CALL: &str = "mt_alloc";
    guarded(CALL, || -> Answer {
        let place = out(CALL, "buf", buf)?;
        // SAFETY: not NULL, and the header has it point to a pointer.
        unsafe { place.write(std::ptr::null_mut()) };
        // SAFETY: the header's promise.
        let opened = unsafe { device::opened(CALL, device) }?;
        let buf = opened.device.heap().alloc(bytes).map_err(|error| hw_failed(&error))?;
        // SAFETY: as above.
        unsafe { place.write(Handle::create(buf)) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_free(buf: *mut Buf) -> c_int {
    close("mt_free", buf, drop)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_buf_data(buf: *const Buf) -> *mut c_void {
    // SAFETY: the header's promises: a handle, used by one thread at a time.
    let bytes = unsafe { Handle::at(buf).and_then(|handle| handle.value_mut()) };
    bytes.map_or(std::ptr::null_mut(), |bytes| bytes.as_mut_ptr().cast())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_buf_len(buf: *const Buf) -> usize {
    // SAFETY: as for `mt_buf_data`.
    unsafe { Handle::at(buf).and_then(|handle| handle.value()) }.map_or(0, |bytes| bytes.len())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_buf_capacity(buf: *const Buf) -> usize {
    // SAFETY: as for `mt_buf_data`.
    unsafe { Handle::at(buf).and_then(|handle| handle.value()) }.map_or(0, DmaBuf::capacity)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_buf_set_len(buf: *mut Buf, bytes: usize) -> c_int {
    const CALL: &str = "mt_buf_set_len";
    guarded(CALL, || -> Answer {
        // SAFETY: as for `mt_buf_data`.
        let held = unsafe { Handle::at(buf).and_then(|handle| handle.value_mut()) };
        let held = held.ok_or_else(|| not_open(CALL, buf))?;
        let capacity = held.capacity();
        if bytes == 0 || bytes > capacity {
            let what = format_args!("{bytes} bytes are not possible: from 1 to {capacity} are")
                .to_string();
            return Err(misuse(CALL, what));
        }
        held.set_len(bytes);
        Ok(0)
    })
}
