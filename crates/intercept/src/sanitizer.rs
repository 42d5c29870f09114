//! Handles programs built with AddressSanitizer, which do not use the shared-memory path.

use std::ffi::c_char;

/// Returns options to AddressSanitizer, which calls this. It does not start if another library is
/// before its own, though it works.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}

/// Returns whether AddressSanitizer is in this program. It checks the memory of each call on data,
/// if the call reaches it.
pub(crate) fn is_watched() -> bool {
    // SAFETY: a name that ends.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__asan_init".as_ptr()) }.is_null()
}
