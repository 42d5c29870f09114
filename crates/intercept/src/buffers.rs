//! The caller's memory: the buffers of a call, and a position in them.

use std::ffi::c_int;

use libc::iovec;
use meantime_shm_rpc::client::Caller;

use crate::report::Reason;

/// The maximum number of bytes of one call, as in Linux.
const BYTES_MAX: usize = 0x7fff_f000;

/// A position in buffers.
pub(crate) struct Buffers<'a> {
    all: &'a [iovec],
    index: usize,
    /// The number of bytes of the buffer that were used.
    used: usize,
}

/// Returns the buffers of a call, and how many bytes they have. A call that is an error, or has no
/// bytes, is left to the kernel.
///
/// # Safety
/// The caller keeps the contract of readv(2).
#[inline]
pub(crate) unsafe fn of<'a>(
    iov: *const iovec,
    count: c_int,
) -> Result<(Buffers<'a>, usize), Reason> {
    if iov.is_null() || !(1..=libc::UIO_MAXIOV).contains(&count) {
        return Err(Reason::Arguments);
    }
    // SAFETY: the caller's promise.
    let all = unsafe { std::slice::from_raw_parts(iov, count as usize) };
    let mut total = 0_usize;
    for one in all {
        if one.iov_base.is_null() && one.iov_len > 0 {
            return Err(Reason::Arguments);
        }
        total = total.saturating_add(one.iov_len);
    }
    if total == 0 || total > BYTES_MAX {
        return Err(Reason::Arguments);
    }
    Ok((Buffers { all, index: 0, used: 0 }, total))
}

impl Buffers<'_> {
    /// Calls `copy` with each part of the next `bytes` bytes: its place in the line, its place in
    /// the caller's memory, and its length.
    #[inline]
    fn each(&mut self, bytes: usize, mut copy: impl FnMut(usize, *mut u8, usize)) {
        let mut at = 0;
        while at < bytes {
            let Some(one) = self.all.get(self.index) else { return };
            let len = (one.iov_len - self.used).min(bytes - at);
            if len > 0 {
                copy(at, one.iov_base.cast::<u8>().wrapping_add(self.used), len);
            }
            at += len;
            self.used += len;
            if self.used >= one.iov_len {
                self.index += 1;
                self.used = 0;
            }
        }
    }

    /// Copies the next `bytes` bytes to the line.
    ///
    /// # Safety
    /// The buffers can be read.
    #[inline]
    pub(crate) unsafe fn put(&mut self, caller: &mut Caller, bytes: usize) {
        // SAFETY: the caller's promise.
        self.each(bytes, |at, from, len| unsafe { caller.put(at, from, len) });
    }

    /// Copies `bytes` bytes of the reply to the buffers.
    ///
    /// # Safety
    /// The buffers can be written.
    #[inline]
    pub(crate) unsafe fn get(&mut self, caller: &Caller, bytes: usize) {
        // SAFETY: the caller's promise.
        self.each(bytes, |at, to, len| unsafe { caller.get(at, to, len) });
    }
}
