//! The engine's own options, in fio's format.

#![expect(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;

use crate::abi::{Ptr, Version};

/// The values that fio fills in for each job. fio treats offset 0 as no option.
#[repr(C)]
pub(crate) struct Options {
    pad: *mut c_void,
    device: *const c_char,
    completion: *const c_char,
}

const OPTIONS: [(&CStr, usize, &CStr); 2] = [
    (
        c"device",
        offset_of!(Options, device),
        c"URI of the device: mem:1G, file:disk.img, vfio:0000:01:00.0, nvme+tcp://192.0.2.7/NQN",
    ),
    (
        c"completion",
        offset_of!(Options, completion),
        c"How to wait: poll, interrupt, adaptive, hybrid=2us or another policy (default: adaptive)",
    ),
];

/// The table of these options for fio, which is never freed.
pub(crate) fn table<V: Version>() -> Ptr {
    let abi = V::ABI;
    // The table consists of words, for the alignment. The last option is zero, which ends the
    // table.
    let words = (OPTIONS.len() + 1) * abi.option_bytes.div_ceil(8);
    let table: Ptr = Box::leak(vec![0u64; words].into_boxed_slice()).as_mut_ptr().cast();
    for (index, (name, offset, help)) in OPTIONS.into_iter().enumerate() {
        // SAFETY: a `fio_option` within the table, which only we know.
        unsafe {
            let option = table.byte_add(index * abi.option_bytes);
            abi.option_name.set(option, name.as_ptr() as Ptr);
            abi.option_lname.set(option, name.as_ptr() as Ptr);
            abi.option_type.set(option, abi.opt_str_store);
            abi.option_off1.set(option, offset as u32);
            abi.option_help.set(option, help.as_ptr() as Ptr);
            abi.option_category.set(option, abi.opt_c_engine);
            abi.option_group.set(option, abi.opt_g_invalid);
        }
    }
    table
}

impl Options {
    /// Options with these values.
    #[cfg(test)]
    pub(crate) fn with(device: &'static CStr, completion: &'static CStr) -> Self {
        let (device, completion) = (device.as_ptr(), completion.as_ptr());
        Self { pad: std::ptr::null_mut(), device, completion }
    }

    /// The value of `device=`.
    pub(crate) fn device(&self) -> Option<String> {
        text(self.device)
    }

    /// The value of `completion=`.
    pub(crate) fn completion(&self) -> Option<String> {
        text(self.completion)
    }
}

fn text(value: *const c_char) -> Option<String> {
    if value.is_null() {
        return None;
    }
    // SAFETY: a text that fio stored for an option, and keeps with the job.
    let text = unsafe { CStr::from_ptr(value) };
    Some(text.to_string_lossy().into_owned())
}
