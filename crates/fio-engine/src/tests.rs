//! The hooks, called as fio calls them on structures of its shape.

#![expect(unsafe_code)]

use std::ffi::CStr;

use meantime_testkit::alloc::{Counting, allocations};

use super::*;
use crate::abi::{DDIR_WRITE, Fio3_33};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ABI: crate::abi::Abi = Fio3_33::ABI;
const BYTES: usize = 4096;

/// Zeroed memory for one of fio's structures.
struct Structure(Box<[u64]>);

impl Structure {
    fn new() -> Self {
        Self(vec![0; 25_000].into_boxed_slice())
    }

    fn ptr(&self) -> Ptr {
        self.0.as_ptr() as Ptr
    }
}

/// A job as fio sets one up, and the structures that it points to.
struct Fio {
    td: Structure,
    io_us: Vec<Structure>,
    _file: Structure,
    _files: Box<Ptr>,
    _options: Box<Options>,
}

impl Fio {
    fn new(device: &'static CStr, depth: usize) -> Self {
        let engine = ENGINE.load(Ordering::Acquire);
        let engine = if engine.is_null() { Structure::new().ptr() } else { engine };
        ENGINE.store(engine, Ordering::Release);
        let (td, file) = (Structure::new(), Structure::new());
        let files = Box::new(file.ptr());
        let options = Box::new(Options::with(device, c"poll"));
        // SAFETY: within structures that are large enough for any of fio's.
        unsafe {
            ABI.td_io_ops.set(td.ptr(), engine);
            ABI.td_eo.set(td.ptr(), &raw const *options as Ptr);
            ABI.td_files.set(td.ptr(), &raw const *files as Ptr);
            ABI.td_files_index.set(td.ptr(), 1);
            ABI.o_use_thread.set(td.ptr(), 1);
            ABI.o_td_ddir.set(td.ptr(), 3);
            ABI.o_iodepth.set(td.ptr(), depth as u32);
            ABI.o_iodepth_batch.set(td.ptr(), 1);
            ABI.o_min_bs.set(td.ptr(), [BYTES as u64; 3]);
            ABI.o_max_bs.set(td.ptr(), [BYTES as u64; 3]);
            ABI.file_name.set(file.ptr(), c"job.0.0".as_ptr() as Ptr);
        }
        let io_us = (0..depth).map(|_| Structure::new()).collect();
        Self { td, io_us, _file: file, _files: files, _options: options }
    }

    fn td(&self) -> Ptr {
        self.td.ptr()
    }

    /// What fio does before the first I/O.
    fn begin(&self) {
        let total = (self.io_us.len() + 1) * BYTES;
        // SAFETY: our structures, in one thread.
        unsafe {
            assert_eq!(setup::<Fio3_33>(self.td()), 0);
            assert_eq!(init::<Fio3_33>(self.td()), 0);
            assert_eq!(iomem_alloc::<Fio3_33>(self.td(), total), 0);
            let memory = ABI.td_orig_buffer.get(self.td());
            for (index, io_u) in self.io_us.iter().enumerate() {
                ABI.io_u_index.set(io_u.ptr(), index as u32);
                ABI.io_u_buf.set(io_u.ptr(), memory.byte_add(index * BYTES));
            }
        }
    }

    fn queue(&self, index: usize, ddir: i32, offset: u64) -> c_int {
        let io_u = self.io_us[index].ptr();
        // SAFETY: our structures, in one thread.
        unsafe {
            ABI.io_u_ddir.set(io_u, ddir);
            ABI.io_u_offset.set(io_u, offset);
            ABI.io_u_xfer_buf.set(io_u, ABI.io_u_buf.get(io_u));
            ABI.io_u_xfer_buflen.set(io_u, BYTES as u64);
            queue::<Fio3_33>(self.td(), io_u)
        }
    }

    /// The errors of what ended.
    fn reap(&self, min: u32) -> c_int {
        // SAFETY: our structures, in one thread.
        unsafe {
            let count = getevents::<Fio3_33>(self.td(), min, self.io_us.len() as u32, null_mut());
            for n in 0..count {
                let io_u = event::<Fio3_33>(self.td(), n);
                assert_eq!(ABI.io_u_error.get(io_u), 0);
            }
            count
        }
    }

    fn ios(&self, count: u64) {
        for n in 0..count {
            let ddir = if n % 3 == 0 { DDIR_WRITE } else { DDIR_READ };
            for index in 0..self.io_us.len() {
                let offset = (n + index as u64) % 256 * BYTES as u64;
                assert_eq!(self.queue(index, ddir, offset), FIO_Q_QUEUED);
            }
            let mut left = self.io_us.len() as c_int;
            while left > 0 {
                left -= self.reap(1);
            }
        }
    }

    fn end(&self) {
        // SAFETY: our structures, in one thread.
        unsafe {
            iomem_free::<Fio3_33>(self.td());
            cleanup::<Fio3_33>(self.td());
        }
    }
}

#[test]
fn an_io_allocates_nothing() {
    for depth in [1, 8] {
        let fio = Fio::new(c"mem:4M", depth);
        fio.begin();
        fio.ios(10);
        let before = allocations();
        fio.ios(1_000);
        assert_eq!(allocations() - before, 0, "at depth {depth}");
        fio.end();
    }
}

/// A panic ends the job, and nothing else: neither fio nor other jobs on the device.
#[test]
fn a_panic_ends_the_job() {
    let (fio, other) = (Fio::new(c"mem:8M", 2), Fio::new(c"mem:8M", 2));
    fio.begin();
    other.begin();
    assert_eq!(fio.queue(0, DDIR_READ, 0), FIO_Q_QUEUED);
    // SAFETY: our structures, in one thread.
    unsafe {
        on_job::<Fio3_33, ()>(fio.td(), (), |_| panic!("what would be"));
        assert_eq!(fio.queue(1, DDIR_READ, 0), FIO_Q_COMPLETED);
        assert_eq!(ABI.io_u_error.get(fio.io_us[1].ptr()), libc::EIO as u32);
        assert_eq!(fio.reap(1), -libc::EIO);
        assert_eq!(ABI.td_error.get(fio.td()), libc::EIO);
        assert!(event::<Fio3_33>(fio.td(), 0).is_null());
    }
    fio.end();
    other.ios(10);
    other.end();
}

#[test]
fn a_fio_of_another_shape_is_refused() {
    let fio = Fio::new(c"mem:4M", 1);
    // SAFETY: our structures, in one thread.
    unsafe {
        ABI.td_io_ops.set(fio.td(), null_mut());
        assert_eq!(setup::<Fio3_33>(fio.td()), 1);
        assert_eq!(init::<Fio3_33>(fio.td()), libc::EINVAL);
        fio.end();
    }
}

/// What fio does not lay out by pages is moved once, with what fio has written there.
#[test]
fn an_io_off_a_page_is_moved() {
    let fio = Fio::new(c"mem:4M", 2);
    // SAFETY: our structures, in one thread.
    unsafe {
        ABI.o_mem_align.set(fio.td(), 512);
        fio.begin();
        let io_u = fio.io_us[1].ptr();
        let there = ABI.io_u_buf.get(io_u);
        there.cast::<u8>().write_bytes(0x5a, BYTES);
        assert_eq!((fio.queue(1, DDIR_WRITE, 0), fio.reap(1)), (FIO_Q_QUEUED, 1));
        let moved = ABI.io_u_buf.get(io_u);
        assert_ne!(moved, there);
        assert_eq!((fio.queue(0, DDIR_READ, 0), fio.reap(1)), (FIO_Q_QUEUED, 1));
        let read = ABI.io_u_buf.get(fio.io_us[0].ptr()).cast::<[u8; BYTES]>();
        assert_eq!(*read, [0x5a; BYTES]);
        assert_eq!((fio.queue(1, DDIR_READ, 0), fio.reap(1)), (FIO_Q_QUEUED, 1));
        assert_eq!(ABI.io_u_buf.get(io_u), moved);
    }
    fio.end();
}

/// More bytes than fio has laid out, part of a block, an unknown kind: errors, not accidents.
#[test]
fn nonsense_is_an_error() {
    let fio = Fio::new(c"mem:4M", 1);
    fio.begin();
    let errno = |ddir, offset| {
        assert_eq!(fio.queue(0, ddir, offset), FIO_Q_COMPLETED);
        // SAFETY: our structures, in one thread.
        unsafe { ABI.io_u_error.get(fio.io_us[0].ptr()) as c_int }
    };
    assert_eq!(errno(DDIR_READ, 100), libc::EINVAL);
    assert_eq!(errno(DDIR_TRIM, 4 << 20), libc::EINVAL);
    assert_eq!(errno(17, 0), libc::EINVAL);
    // SAFETY: our structures, in one thread.
    unsafe {
        let io_u = fio.io_us[0].ptr();
        ABI.io_u_xfer_buflen.set(io_u, BYTES as u64 + 512);
        assert_eq!(queue::<Fio3_33>(fio.td(), io_u), FIO_Q_COMPLETED);
        ABI.io_u_index.set(io_u, 9);
        assert_eq!(queue::<Fio3_33>(fio.td(), io_u), FIO_Q_COMPLETED);
        ABI.io_u_index.set(io_u, 0);
    }
    fio.ios(10);
    fio.end();
}
