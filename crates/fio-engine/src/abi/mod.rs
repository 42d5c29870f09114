//! The offsets of the members of fio's structures that the engine uses, for each version of fio.
//!
//! fio has no stable interface for engines, and distributions ship no headers. So no structure of
//! fio's is declared here: a table has the offset of each member. scripts/fio-offsets.sh measures
//! it against fio's headers.

#![expect(unsafe_code)]

mod table;

use std::ffi::c_void;
use std::marker::PhantomData;

pub(crate) use table::Abi;

/// A pointer of fio's: `thread_data`, `io_u`, `fio_file` and what they point to.
pub(crate) type Ptr = *mut c_void;

/// A member of one of fio's structures.
pub(crate) struct Field<T> {
    offset: usize,
    kind: PhantomData<fn() -> T>,
}

// This is not derived, which would require the same of `T`.
impl<T> Clone for Field<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Field<T> {}

impl<T: Copy> Field<T> {
    /// The member at `offset`.
    const fn at(offset: usize) -> Self {
        assert!(offset.is_multiple_of(align_of::<T>()));
        Self { offset, kind: PhantomData }
    }

    /// Its offset in bytes.
    pub(crate) const fn offset(self) -> usize {
        self.offset
    }

    /// Reads the member.
    ///
    /// # Safety
    /// `of` is one of fio's structures with this member, and no thread writes the member meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn get(self, of: Ptr) -> T {
        // SAFETY: the caller's promise.
        unsafe { of.byte_add(self.offset).cast::<T>().read() }
    }

    /// Writes the member.
    ///
    /// # Safety
    /// `of` is one of fio's structures with this member, and no thread reads or writes the member
    /// meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn set(self, of: Ptr, value: T) {
        // SAFETY: the caller's promise.
        unsafe { of.byte_add(self.offset).cast::<T>().write(value) };
    }
}

/// Declares [`Abi`]: each row has a name, a type, and the values in all versions of fio.
macro_rules! abi {
    ($($name:ident: $kind:ty = $values:expr,)*) => {
        /// The offsets in a version of fio. `ops_` stands for `struct ioengine_ops`, `option_` for
        /// `fio_option`, `td_` for `thread_data`, `o_` for its `thread_options`, though counted
        /// from `thread_data`, too, and `file_` for `fio_file`.
        pub(crate) struct Abi {
            $(pub(crate) $name: $kind,)*
        }

        impl Abi {
            /// The version in that column.
            pub(super) const fn of(column: usize) -> Self {
                Self { $($name: $values[column],)* }
            }
        }
    };
}
use abi;

/// A version of fio as a type: each has hooks of its own, in which offsets are constants.
pub(crate) trait Version: 'static {
    /// Its column of the table.
    const ABI: Abi;

    /// Whether this version ignores errors of flushes that end later.
    const IGNORES_FLUSHES: bool;
}

/// fio 3.33, of Debian 12.
pub(crate) enum Fio3_33 {}

impl Version for Fio3_33 {
    const ABI: Abi = Abi::of(0);
    const IGNORES_FLUSHES: bool = true;
}

/// fio 3.41.
pub(crate) enum Fio3_41 {}

impl Version for Fio3_41 {
    const ABI: Abi = Abi::of(1);
    const IGNORES_FLUSHES: bool = false;
}

pub(crate) const DDIR_READ: i32 = 0;
pub(crate) const DDIR_WRITE: i32 = 1;
pub(crate) const DDIR_TRIM: i32 = 2;
pub(crate) const DDIR_SYNC: i32 = 3;
pub(crate) const DDIR_DATASYNC: i32 = 4;
pub(crate) const DDIR_SYNC_FILE_RANGE: i32 = 5;

/// Bits of `td_ddir` that say whether the job reads, writes or trims.
pub(crate) const TD_DDIR: [(i32, usize); 3] = [(1, 0), (2, 1), (8, 2)];

pub(crate) const FIO_Q_COMPLETED: i32 = 0;
pub(crate) const FIO_Q_QUEUED: i32 = 1;
pub(crate) const FIO_Q_BUSY: i32 = 2;

pub(crate) const ZBD_NONE: i32 = 1;
