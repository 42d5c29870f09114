//! Where fio has what the engine uses, for each version of fio.
//!
//! fio has no stable interface for engines, and distributions ship no headers. So no structure of
//! fio's is declared here: the tables say at which offset a member is. scripts/fio-offsets.sh
//! measures them against fio's headers.

#![expect(unsafe_code)]

mod v3_33;
mod v3_41;

use std::ffi::c_void;
use std::marker::PhantomData;

/// A pointer of fio's: `thread_data`, `io_u`, `fio_file` and what they point to.
pub(crate) type Ptr = *mut c_void;

/// A member of one of fio's structures.
pub(crate) struct Field<T> {
    offset: usize,
    kind: PhantomData<fn() -> T>,
}

// Not derived, which would ask the same of `T`.
impl<T> Clone for Field<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Field<T> {}

impl<T: Copy> Field<T> {
    /// The member at that offset.
    const fn at(offset: usize) -> Self {
        assert!(offset.is_multiple_of(align_of::<T>()));
        Self { offset, kind: PhantomData }
    }

    /// Its offset in bytes.
    pub(crate) const fn offset(self) -> usize {
        self.offset
    }

    /// Reads it.
    ///
    /// # Safety
    /// `of` is one of fio's structures with this member, and nobody writes the member meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn get(self, of: Ptr) -> T {
        // SAFETY: the caller's promise.
        unsafe { of.byte_add(self.offset).cast::<T>().read() }
    }

    /// Writes it.
    ///
    /// # Safety
    /// As [`get`](Self::get), and nobody reads the member meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn set(self, of: Ptr, value: T) {
        // SAFETY: the caller's promise.
        unsafe { of.byte_add(self.offset).cast::<T>().write(value) };
    }
}

/// What a version of fio has where. `ops_` is of `struct ioengine_ops`, `option_` of `fio_option`,
/// `td_` of `thread_data`, `o_` of its `thread_options`, though counted from `thread_data`, too;
/// `file_` of `fio_file`.
#[allow(missing_docs)]
pub(crate) struct Abi {
    pub(crate) version: &'static str,
    pub(crate) ioops_version: i32,
    pub(crate) flags: i32,
    pub(crate) errdetails_has_td: bool,

    pub(crate) ops_bytes: usize,
    pub(crate) ops_name: Field<Ptr>,
    pub(crate) ops_version: Field<i32>,
    pub(crate) ops_flags: Field<i32>,
    pub(crate) ops_setup: Field<Ptr>,
    pub(crate) ops_init: Field<Ptr>,
    pub(crate) ops_queue: Field<Ptr>,
    pub(crate) ops_getevents: Field<Ptr>,
    pub(crate) ops_event: Field<Ptr>,
    pub(crate) ops_errdetails: Field<Ptr>,
    pub(crate) ops_cleanup: Field<Ptr>,
    pub(crate) ops_open_file: Field<Ptr>,
    pub(crate) ops_close_file: Field<Ptr>,
    pub(crate) ops_invalidate: Field<Ptr>,
    pub(crate) ops_unlink_file: Field<Ptr>,
    pub(crate) ops_get_file_size: Field<Ptr>,
    pub(crate) ops_iomem_alloc: Field<Ptr>,
    pub(crate) ops_iomem_free: Field<Ptr>,
    pub(crate) ops_get_zoned_model: Field<Ptr>,
    pub(crate) ops_option_struct_size: Field<i32>,
    pub(crate) ops_options: Field<Ptr>,

    pub(crate) option_bytes: usize,
    pub(crate) option_name: Field<Ptr>,
    pub(crate) option_lname: Field<Ptr>,
    pub(crate) option_type: Field<i32>,
    pub(crate) option_off1: Field<u32>,
    pub(crate) option_help: Field<Ptr>,
    pub(crate) option_category: Field<u64>,
    pub(crate) option_group: Field<u64>,
    pub(crate) opt_str_store: i32,
    pub(crate) opt_c_engine: u64,
    pub(crate) opt_g_invalid: u64,

    pub(crate) td_options: usize,
    pub(crate) td_eo: Field<Ptr>,
    pub(crate) td_files: Field<Ptr>,
    pub(crate) td_files_index: Field<u32>,
    pub(crate) td_error: Field<i32>,
    pub(crate) td_orig_buffer: Field<Ptr>,
    pub(crate) td_io_ops: Field<Ptr>,
    pub(crate) td_io_ops_data: Field<Ptr>,
    pub(crate) o_td_ddir: Field<i32>,
    pub(crate) o_iodepth: Field<u32>,
    pub(crate) o_iodepth_batch: Field<u32>,
    pub(crate) o_sync_io: Field<u32>,
    pub(crate) o_min_bs: Field<[u64; 3]>,
    pub(crate) o_max_bs: Field<[u64; 3]>,
    pub(crate) o_mem_align: Field<u32>,
    pub(crate) o_use_thread: Field<u32>,

    pub(crate) file_filetype: Field<i32>,
    pub(crate) file_name: Field<Ptr>,
    pub(crate) file_real_size: Field<u64>,
    pub(crate) file_flags: Field<i32>,
    pub(crate) file_size_known: i32,
    pub(crate) type_block: i32,

    pub(crate) io_u_ddir: Field<i32>,
    pub(crate) io_u_offset: Field<u64>,
    pub(crate) io_u_buf: Field<Ptr>,
    pub(crate) io_u_xfer_buf: Field<Ptr>,
    pub(crate) io_u_xfer_buflen: Field<u64>,
    pub(crate) io_u_error: Field<u32>,
    pub(crate) io_u_index: Field<u32>,
}

/// A version of fio as a type: each has hooks of its own, in which offsets are constants.
pub(crate) trait Version: 'static {
    /// Its table.
    const ABI: Abi;

    /// Whether it does not look at errors of flushes that end later.
    const IGNORES_FLUSHES: bool;
}

/// fio 3.33, of Debian 12.
pub(crate) enum Fio3_33 {}

impl Version for Fio3_33 {
    const ABI: Abi = v3_33::ABI;
    const IGNORES_FLUSHES: bool = true;
}

/// fio 3.41.
pub(crate) enum Fio3_41 {}

impl Version for Fio3_41 {
    const ABI: Abi = v3_41::ABI;
    const IGNORES_FLUSHES: bool = false;
}

pub(crate) const DDIR_READ: i32 = 0;
pub(crate) const DDIR_WRITE: i32 = 1;
pub(crate) const DDIR_TRIM: i32 = 2;
pub(crate) const DDIR_SYNC: i32 = 3;
pub(crate) const DDIR_DATASYNC: i32 = 4;
pub(crate) const DDIR_SYNC_FILE_RANGE: i32 = 5;

/// Bits of `td_ddir`: the job reads, writes, trims.
pub(crate) const TD_DDIR: [(i32, usize); 3] = [(1, 0), (2, 1), (8, 2)];

pub(crate) const FIO_Q_COMPLETED: i32 = 0;
pub(crate) const FIO_Q_QUEUED: i32 = 1;
pub(crate) const FIO_Q_BUSY: i32 = 2;

pub(crate) const ZBD_NONE: i32 = 1;
