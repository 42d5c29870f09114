//! Devices.

use std::ffi::{CString, c_char, c_int};

use meantime_block::{BlockDevice, Device, OpenOptions};

use crate::abi::Info;
use crate::error::{Answer, Failed, channel_failed, open_failed};
use crate::guard::{close, guarded, not_open, out, text};
use crate::handle::{Handle, Kind, Registry};
use crate::policy::{named, published};

/// The value of an `mt_device`.
pub struct Opened {
    pub device: Device,
    uri: CString,
    medium: CString,
}

/// `mt_device`.
pub type MtDevice = Handle<Opened>;

impl Kind for Opened {
    const TAG: u32 = 0x6d74_6400;
    const NAME: &'static str = "device";
    type Beside = ();

    fn registry() -> &'static Registry<Self> {
        static DEVICES: Registry<Opened> = Registry::new();
        &DEVICES
    }
}

// Any number of threads may use a device at once.
const _: () = {
    const fn is_shared<T: Sync>() {}
    is_shared::<Opened>();
};

/// The device of a handle.
///
/// # Safety
/// `device` is NULL or the address of a handle, and no thread closes it while it is used.
pub unsafe fn opened(call: &str, device: *const MtDevice) -> Result<&'static Opened, Failed> {
    // SAFETY: the caller's promise.
    let opened = unsafe { Handle::at(device).and_then(|handle| handle.value()) };
    opened.ok_or_else(|| not_open(call, device))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_open(uri: *const c_char, device: *mut *mut MtDevice) -> c_int {
    const CALL: &str = "mt_open";
    guarded(CALL, || -> Answer {
        let place = out(CALL, "device", device)?;
        // SAFETY: not NULL, and the header has it point to a pointer.
        unsafe { place.write(std::ptr::null_mut()) };
        // SAFETY: the header's promise.
        let uri = unsafe { text(CALL, "uri", uri) }?;
        // The program may request these policies while the device is in use.
        published()?;
        let options = OpenOptions { protect: true, ..OpenOptions::default() };
        let device = meantime_block::open(uri, &options).map_err(|error| open_failed(&error))?;
        let info = device.info();
        let uri = CString::new(uri).unwrap_or_default();
        let medium = CString::new(info.medium.as_str()).unwrap_or_default();
        // SAFETY: as above.
        unsafe { place.write(Handle::create(Opened { device, uri, medium })) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_close(device: *mut MtDevice) -> c_int {
    close("mt_close", device, drop)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_device_info(device: *const MtDevice, info: *mut Info) -> c_int {
    const CALL: &str = "mt_device_info";
    guarded(CALL, || -> Answer {
        let place = out(CALL, "info", info)?;
        // SAFETY: the header's promise.
        let opened = unsafe { opened(CALL, device) }?;
        let info = opened.device.info();
        let info = Info {
            blocks: info.blocks,
            block_bytes: info.block_bytes,
            max_transfer_bytes: info.max_transfer_bytes,
            volatile_write_cache: info.volatile_write_cache.into(),
            compare_write_blocks: info.compare_write_blocks,
            uri: opened.uri.as_ptr(),
            medium: opened.medium.as_ptr(),
        };
        // SAFETY: not NULL, and the header has it point to an `mt_info`.
        unsafe { place.write(info) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_can_wait(device: *const MtDevice, policy: *const c_char) -> c_int {
    const CALL: &str = "mt_can_wait";
    guarded(CALL, || -> Answer {
        // SAFETY: the header's promises.
        let (opened, policy) = unsafe { (opened(CALL, device)?, named(CALL, policy)?) };
        opened.device.can_wait(policy).map_err(|error| channel_failed(&error))?;
        Ok(0)
    })
}
