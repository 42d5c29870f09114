//! The structures of `meantime.h`, which cross the boundary by value, and the buffers in them.

use std::ffi::c_char;

use meantime_hw::DmaBuf;

use crate::error::Failed;
use crate::handle::{Handle, Kind, Registry};

/// `mt_buf`.
pub type Buf = Handle<DmaBuf>;

impl Kind for DmaBuf {
    const TAG: u32 = 0x6d74_6200;
    const NAME: &'static str = "buffer";
    type Beside = ();

    fn registry() -> &'static Registry<Self> {
        static BUFFERS: Registry<DmaBuf> = Registry::new();
        &BUFFERS
    }
}

/// `mt_info`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Info {
    pub blocks: u64,
    pub block_bytes: u32,
    pub max_transfer_bytes: u32,
    pub volatile_write_cache: u32,
    pub compare_write_blocks: u32,
    pub uri: *const c_char,
    pub medium: *const c_char,
}

/// `mt_channel_options`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub policy: *const c_char,
    pub depth: u32,
    pub interrupt: u32,
}

/// `mt_request`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub op: u32,
    pub flags: u32,
    pub lba: u64,
    pub blocks: u64,
    pub buf: *mut Buf,
    pub policy: u64,
    pub user_data: u64,
}

/// `mt_ticket`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub id: u64,
}

/// `mt_result`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    pub buf: *mut Buf,
    pub user_data: u64,
    pub error: i32,
    pub reserved: u32,
}

impl Outcome {
    /// The ticket of no request.
    pub(crate) const NONE: Self =
        Self { buf: std::ptr::null_mut(), user_data: 0, error: 0, reserved: 0 };

    /// The outcome of a call that waited for no request.
    #[cold]
    pub(crate) fn of_none(failed: Failed) -> Self {
        Self { error: failed.0, ..Self::NONE }
    }
}

/// `mt_word`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Word {
    pub value: *const u64,
    pub seen: *const u64,
    pub parked: *mut u32,
}

/// `mt_ready`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub key: u64,
    pub what: u32,
    pub reserved: u32,
    pub result: Outcome,
}

pub const MT_READ: u32 = 1;
pub const MT_WRITE: u32 = 2;
pub const MT_FLUSH: u32 = 3;
pub const MT_WRITE_ZEROES: u32 = 4;
pub const MT_DEALLOCATE: u32 = 5;
pub const MT_COMPARE_AND_WRITE: u32 = 6;

pub const MT_FUA: u32 = 1;

pub const MT_DONE: u32 = 1;
pub const MT_CHANGED: u32 = 2;
pub const MT_READABLE: u32 = 3;
pub const MT_WOKEN: u32 = 4;

pub const MT_FOREVER: i64 = i64::MAX;

const _: () =
    assert!(size_of::<Info>() == 40 && size_of::<Options>() == 16 && size_of::<Request>() == 48);
const _: () = assert!(size_of::<Ticket>() == 8 && size_of::<Outcome>() == 24);
const _: () = assert!(size_of::<Word>() == 24 && size_of::<Entry>() == 40);
