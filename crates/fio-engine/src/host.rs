//! The symbols that the running fio exports: its version, its options, its log.

#![expect(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Display;
use std::sync::OnceLock;

use crate::abi::{Ptr, Version};

/// The address of this name in the program.
fn symbol(name: &CStr) -> Option<Ptr> {
    // SAFETY: a name that ends.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// The version of the running fio: `fio-3.33`.
pub(crate) fn version() -> Option<String> {
    let address = symbol(c"fio_version_string")?;
    // SAFETY: fio's `const char fio_version_string[]`.
    let text = unsafe { CStr::from_ptr(address.cast::<c_char>()) };
    Some(text.to_string_lossy().into_owned())
}

/// Writes a line into fio's log, or the client's log if fio is a server.
pub(crate) fn say(what: impl Display) {
    type LogErr = unsafe extern "C" fn(*const c_char, ...) -> c_int;
    static LOG: OnceLock<Option<LogErr>> = OnceLock::new();

    let mut text = format!("meantime: {what}\n");
    text.retain(|c| c != '\0');
    let log = LOG.get_or_init(|| {
        let address = symbol(c"log_err")?;
        // SAFETY: fio's `log_err(const char *format, ...)`. What it returns, a length, is ignored.
        Some(unsafe { std::mem::transmute::<Ptr, LogErr>(address) })
    });
    match (log, CString::new(text)) {
        // SAFETY: a format with one text, which ends.
        (Some(log), Ok(text)) => drop(unsafe { log(c"%s".as_ptr(), text.as_ptr()) }),
        (_, text) => eprint!("{}", text.unwrap_or_default().to_string_lossy()),
    }
}

/// Compares the table of `V` with the offsets that fio has in its own table of options.
pub(crate) fn check_options<V: Version>() -> Result<(), String> {
    let abi = V::ABI;
    let checked = [
        ("rw", abi.o_td_ddir.offset()),
        ("iodepth", abi.o_iodepth.offset()),
        ("iodepth_batch", abi.o_iodepth_batch.offset()),
        ("sync", abi.o_sync_io.offset()),
        ("iomem_align", abi.o_mem_align.offset()),
        ("thread", abi.o_use_thread.offset()),
    ];
    let table = symbol(c"fio_options").ok_or("it exports no table of its options")?;
    for (name, offset) in checked {
        match offset_in(table, &abi, name) {
            Some(found) if found + abi.td_options == offset => {}
            found => {
                let found = found.map_or("nowhere".to_owned(), |found| format!("at {found}"));
                return Err(format!("its option {name} is {found}"));
            }
        }
    }
    Ok(())
}

/// The offset in `thread_options` that fio's table of options has for `name`.
fn offset_in(table: Ptr, abi: &crate::abi::Abi, name: &str) -> Option<usize> {
    let mut option = table;
    loop {
        // SAFETY: fio's options are of this size in this version, and one without a name ends them.
        let (there, offset) = unsafe { (abi.option_name.get(option), abi.option_off1.get(option)) };
        if there.is_null() {
            return None;
        }
        // SAFETY: a name of an option.
        if unsafe { CStr::from_ptr(there.cast()) }.to_bytes() == name.as_bytes() {
            return usize::try_from(offset).ok();
        }
        // SAFETY: as above; this was not the last.
        option = unsafe { option.byte_add(abi.option_bytes) };
    }
}
