//! Programs built with AddressSanitizer, which go without the shared-memory path.

use std::ffi::c_char;

/// AddressSanitizer asks for these: it does not start if another library is before its own, though
/// it works.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}

/// Whether AddressSanitizer is in this program. It checks the memory of each call on data, if the
/// call comes to it.
pub(crate) fn is_watched() -> bool {
    // SAFETY: a name that ends.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__asan_init".as_ptr()) }.is_null()
}
