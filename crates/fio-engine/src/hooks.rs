//! The functions that fio calls, for each version of fio.

#![expect(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use meantime_block::{BlockDevice, Device, Errno};
use meantime_completion::Policy;

use crate::abi::{
    DDIR_DATASYNC, DDIR_READ, DDIR_SYNC, DDIR_SYNC_FILE_RANGE, DDIR_TRIM, DDIR_WRITE,
    FIO_Q_COMPLETED, FIO_Q_QUEUED, Ptr, TD_DDIR, Version, ZBD_NONE,
};
use crate::host::{check_options, say};
use crate::job::{Asks, Io, Job, Kind};
use crate::options::{self, Options};
use crate::slab::Slab;
use crate::{devices, host};

/// The engine that fio was given, of which the process has one.
static ENGINE: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(null_mut());

thread_local! {
    /// The job of this thread: fio 3.33 asks for details of an error without saying of which job.
    static JOB: Cell<*mut Job> = const { Cell::new(null_mut()) };
}

/// `struct ioengine_ops` of version `V`, which is never freed.
pub(crate) fn engine<V: Version>() -> Result<Ptr, String> {
    let made = ENGINE.load(Ordering::Acquire);
    if !made.is_null() {
        return Ok(made);
    }
    check_options::<V>()?;
    let abi = V::ABI;
    let words = abi.ops_bytes.div_ceil(8);
    let ops: Ptr = Box::leak(vec![0u64; words].into_boxed_slice()).as_mut_ptr().cast();
    type Td = unsafe extern "C" fn(Ptr) -> c_int;
    type TdEnd = unsafe extern "C" fn(Ptr);
    type TdOne = unsafe extern "C" fn(Ptr, Ptr) -> c_int;
    let details = if abi.errdetails_has_td {
        errdetails::<V> as unsafe extern "C" fn(Ptr, Ptr) -> *mut c_char as Ptr
    } else {
        errdetails_of_thread as unsafe extern "C" fn(Ptr) -> *mut c_char as Ptr
    };
    // There is no `commit`, because with one fio leaves submission times to the engine. SAFETY: all
    // offsets are within `ops`, which only we know; each member has the type of this version.
    unsafe {
        abi.ops_name.set(ops, c"meantime".as_ptr() as Ptr);
        abi.ops_version.set(ops, abi.ioops_version);
        abi.ops_flags.set(ops, abi.flags);
        abi.ops_setup.set(ops, setup::<V> as Td as Ptr);
        abi.ops_init.set(ops, init::<V> as Td as Ptr);
        abi.ops_queue.set(ops, queue::<V> as TdOne as Ptr);
        let getevents: unsafe extern "C" fn(Ptr, c_uint, c_uint, Ptr) -> c_int = getevents::<V>;
        abi.ops_getevents.set(ops, getevents as Ptr);
        let event: unsafe extern "C" fn(Ptr, c_int) -> Ptr = event::<V>;
        abi.ops_event.set(ops, event as Ptr);
        abi.ops_errdetails.set(ops, details);
        abi.ops_cleanup.set(ops, cleanup::<V> as TdEnd as Ptr);
        abi.ops_open_file.set(ops, nothing as TdOne as Ptr);
        abi.ops_close_file.set(ops, nothing as TdOne as Ptr);
        abi.ops_invalidate.set(ops, nothing as TdOne as Ptr);
        abi.ops_unlink_file.set(ops, nothing as TdOne as Ptr);
        abi.ops_get_file_size.set(ops, get_file_size::<V> as TdOne as Ptr);
        let iomem_alloc: unsafe extern "C" fn(Ptr, usize) -> c_int = iomem_alloc::<V>;
        abi.ops_iomem_alloc.set(ops, iomem_alloc as Ptr);
        abi.ops_iomem_free.set(ops, iomem_free::<V> as TdEnd as Ptr);
        let zoned: unsafe extern "C" fn(Ptr, Ptr, *mut c_int) -> c_int = get_zoned_model;
        abi.ops_get_zoned_model.set(ops, zoned as Ptr);
        abi.ops_option_struct_size.set(ops, size_of::<Options>() as i32);
        abi.ops_options.set(ops, options::table::<V>());
    }
    ENGINE.store(ops, Ordering::Release);
    Ok(ops)
}

/// Runs `body`, a hook. If it panics, the panic ends here, and the result is `otherwise`.
fn guarded<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        panicked(payload);
        otherwise
    })
}

/// Runs `body`, a hook, on the job of `td`. A panic ends here, and with it the job. The state of
/// its channel is then unknown, so it is neither used nor dropped: the device may still write to
/// its buffers.
#[inline(always)]
unsafe fn on_job<V: Version, R>(td: Ptr, none: R, body: impl FnOnce(&mut Job) -> R) -> R {
    // SAFETY: fio's thread of this job calls, and the job lives from `init` to `cleanup`.
    let Some(job) = (unsafe { V::ABI.td_io_ops_data.get(td).cast::<Job>().as_mut() }) else {
        return none;
    };
    match catch_unwind(AssertUnwindSafe(|| body(job))) {
        Ok(result) => result,
        Err(payload) => {
            // SAFETY: as above. The former value is leaked.
            unsafe { V::ABI.td_io_ops_data.set(td, null_mut()) };
            JOB.set(null_mut());
            panicked(payload);
            none
        }
    }
}

#[cold]
#[inline(never)]
fn panicked(payload: Box<dyn Any + Send>) {
    let what = payload.downcast_ref::<&str>().copied();
    let what =
        what.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
    say(format_args!("a bug in Meantime, please report it: {what}"));
    // Dropping it might panic again.
    std::mem::forget(payload);
}

/// Calls [`devices::close_all`] at the end of this process.
pub(crate) fn at_exit() {
    static OWNER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    extern "C" fn close() {
        // A child of fio's has none of the engine's threads and devices.
        if std::process::id() == OWNER.load(Ordering::Relaxed) {
            guarded((), devices::close_all);
        }
    }
    OWNER.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: the library is never unloaded (build.rs).
    unsafe { libc::atexit(close) };
}

/// The settings of a job.
struct Asked {
    uri: String,
    policy: Option<Policy>,
    file: Ptr,
}

impl Asked {
    /// Reads the settings of the job of `td`.
    ///
    /// # Safety
    /// `td` is a `thread_data` of version `V`.
    unsafe fn of<V: Version>(td: Ptr) -> Result<Self, String> {
        let abi = V::ABI;
        // SAFETY: the caller's promise.
        let (engine, thread, options, count, files) = unsafe {
            (
                abi.td_io_ops.get(td),
                abi.o_use_thread.get(td),
                abi.td_eo.get(td).cast::<Options>(),
                abi.td_files_index.get(td),
                abi.td_files.get(td).cast::<Ptr>(),
            )
        };
        if engine != ENGINE.load(Ordering::Acquire) {
            let version = abi.version;
            return Err(format!(
                "the structures of this {version} are not where this engine looks for them, so it \
                 was changed: take Debian's, or build it from fio's own sources"
            ));
        }
        if thread == 0 {
            return Err("say thread=1: fio's processes would share a device that belongs to one \
                        of them"
                .to_owned());
        }
        // SAFETY: fio has filled it by our table.
        let options = unsafe { options.as_ref() }.ok_or("fio has made no options for the job")?;
        if count != 1 {
            return Err(format!(
                "a job has one device, and here are {count} files: say device=URI, or write ':' \
                 as '\\:' in filename="
            ));
        }
        // SAFETY: `files` has `count` pointers to files, each with a name.
        let (file, name) = unsafe {
            let file = files.read();
            (file, CStr::from_ptr(abi.file_name.get(file).cast()).to_string_lossy().into_owned())
        };
        let uri = match options.device() {
            Some(uri) => uri,
            // The name that fio makes up for a job without a file has no colon.
            None if !name.contains(':') => {
                return Err(format!(
                    "{name} is no device: say device=URI, e.g. --device=mem:1G or \
                     --device=vfio:0000:01:00.0"
                ));
            }
            None => name,
        };
        let policy = options.completion().map(|name| {
            // The names of the published rules are known from then on.
            let _ = meantime_baselines::register();
            name.parse::<Policy>().map_err(|error| format!("completion={name}: {error}"))
        });
        Ok(Self { uri, policy: policy.transpose()?, file })
    }

    /// Returns the device, which is open until [`devices::release`], and the policy.
    unsafe fn device<V: Version>(&self, td: Ptr) -> Result<(Arc<Device>, Policy), String> {
        let device = devices::hold(td as usize, &self.uri).map_err(|error| error.to_string())?;
        // SAFETY: the caller's promise.
        let checked = unsafe { self.check::<V>(td, &device) };
        match checked {
            Ok(policy) => Ok((device, policy)),
            Err(why) => {
                drop(device);
                devices::release(td as usize);
                Err(why)
            }
        }
    }

    unsafe fn check<V: Version>(&self, td: Ptr, device: &Device) -> Result<Policy, String> {
        let (abi, info) = (V::ABI, device.info());
        // SAFETY: `td` is a `thread_data` of this version.
        let (ddir, min_bs) = unsafe { (abi.o_td_ddir.get(td), abi.o_min_bs.get(td)) };
        for (bit, index) in TD_DDIR.into_iter().filter(|(bit, _)| ddir & bit != 0) {
            if !min_bs[index].is_multiple_of(info.block_bytes.into()) {
                return Err(format!(
                    "bs={}: the blocks of {} have {} bytes",
                    min_bs[index], self.uri, info.block_bytes
                ));
            }
            if bit != TD_DDIR[0].0
                && let Some(why) = device.read_only()
            {
                return Err(format!("{} cannot be written: {why}", self.uri));
            }
        }
        if let Some(policy) = self.policy {
            device.can_wait(policy).map_err(|error| error.to_string())?;
        }
        Ok(self.policy.unwrap_or_default())
    }
}

/// Sets the size of the device, before anything runs, mostly in fio's main thread.
unsafe extern "C" fn setup<V: Version>(td: Ptr) -> c_int {
    guarded(1, || {
        // SAFETY: fio's `thread_data`.
        // SAFETY: fio's `thread_data`.
        let set_up = unsafe {
            Asked::of::<V>(td).and_then(|asked| {
                let (device, _) = asked.device::<V>(td)?;
                set_size::<V>(asked.file, &device);
                Ok(())
            })
        };
        set_up.inspect_err(|why| say(why)).is_err().into()
    })
}

/// Tells fio how large `file` is.
///
/// # Safety
/// `file` is a `fio_file` of version `V` that no other thread uses.
unsafe fn set_size<V: Version>(file: Ptr, device: &Device) {
    let abi = V::ABI;
    // SAFETY: the caller's promise.
    unsafe {
        abi.file_real_size.set(file, device.info().bytes());
        abi.file_filetype.set(file, abi.type_block);
        abi.file_flags.set(file, abi.file_flags.get(file) | abi.file_size_known);
    }
}

unsafe extern "C" fn get_file_size<V: Version>(td: Ptr, file: Ptr) -> c_int {
    // SAFETY: fio's `thread_data` and `fio_file`.
    let sized = unsafe {
        on_job::<V, _>(td, false, |job| {
            set_size::<V>(file, job.device());
            true
        })
    };
    // SAFETY: as above.
    if sized { 0 } else { unsafe { setup::<V>(td) } }
}

/// Opens the job's channel, in the job's thread, before its I/O.
unsafe extern "C" fn init<V: Version>(td: Ptr) -> c_int {
    guarded(libc::EIO, || {
        let abi = V::ABI;
        // SAFETY: fio's `thread_data`.
        let asked = unsafe {
            Asks {
                depth: abi.o_iodepth.get(td) as usize,
                batch: abi.o_iodepth_batch.get(td),
                // O_SYNC or O_DSYNC.
                writes_are_durable: abi.o_sync_io.get(td) != 0,
                minds_flushes: V::IGNORES_FLUSHES,
            }
        };
        // SAFETY: the same.
        let found = unsafe { Asked::of::<V>(td).and_then(|asked| asked.device::<V>(td)) };
        let Ok((device, policy)) = found.inspect_err(|why| say(why)) else {
            return libc::EINVAL;
        };
        match Job::new(device, policy, asked) {
            Ok(job) => {
                let job = Box::into_raw(Box::new(job));
                JOB.set(job);
                // SAFETY: the same.
                unsafe { abi.td_io_ops_data.set(td, job.cast()) };
                0
            }
            Err(error) => {
                devices::release(td as usize);
                say(&error);
                Errno::from(&error).0
            }
        }
    })
}

unsafe extern "C" fn cleanup<V: Version>(td: Ptr) {
    guarded((), || {
        // SAFETY: fio's `thread_data`.
        let job = unsafe { V::ABI.td_io_ops_data.get(td).cast::<Job>() };
        // SAFETY: as above.
        unsafe { V::ABI.td_io_ops_data.set(td, null_mut()) };
        JOB.set(null_mut());
        if !job.is_null() {
            // SAFETY: the pointer is from `init`, and no other owner has it any more.
            drop(unsafe { Box::from_raw(job) });
        }
        devices::release(td as usize);
    });
}

unsafe extern "C" fn iomem_alloc<V: Version>(td: Ptr, total: usize) -> c_int {
    let abi = V::ABI;
    // SAFETY: fio's `thread_data`, in the job's thread.
    unsafe {
        on_job::<V, _>(td, libc::EIO, |job| {
            let most = abi.o_max_bs.get(td).into_iter().max().unwrap_or(0) as usize;
            let (count, shifted) = (abi.o_iodepth.get(td) as usize, abi.o_mem_align.get(td) != 0);
            match Slab::new(job.device(), count, most, total, shifted) {
                Ok(slab) => {
                    job.slab = slab;
                    abi.td_orig_buffer.set(td, job.slab.start());
                    0
                }
                Err(error) => {
                    say(format_args!("no memory for {count} I/Os of {most} bytes: {error}"));
                    libc::ENOMEM
                }
            }
        })
    }
}

unsafe extern "C" fn iomem_free<V: Version>(td: Ptr) {
    // What is with the device is the channel's.
    // SAFETY: fio's `thread_data`, in the job's thread.
    unsafe { on_job::<V, _>(td, (), |job| job.slab = Slab::default()) };
}

unsafe extern "C" fn queue<V: Version>(td: Ptr, io_u: Ptr) -> c_int {
    // SAFETY: fio's `thread_data` and an `io_u` that is ours until it has ended.
    unsafe {
        let (answer, errno) =
            on_job::<V, _>(td, (FIO_Q_COMPLETED, libc::EIO), |job| start::<V>(job, io_u));
        if answer != FIO_Q_QUEUED {
            V::ABI.io_u_error.set(io_u, errno as u32);
        }
        answer
    }
}

#[inline(always)]
unsafe fn start<V: Version>(job: &mut Job, io_u: Ptr) -> (c_int, c_int) {
    let abi = V::ABI;
    // SAFETY: the caller's `io_u`.
    let (ddir, io) = unsafe {
        let io = Io {
            id: io_u as usize,
            kind: Kind::Read,
            offset: abi.io_u_offset.get(io_u),
            bytes: abi.io_u_xfer_buflen.get(io_u),
            index: abi.io_u_index.get(io_u) as usize,
        };
        (abi.io_u_ddir.get(io_u), io)
    };
    let kind = match ddir {
        DDIR_READ => Kind::Read,
        DDIR_WRITE => Kind::Write,
        DDIR_TRIM => return job.start(Io { kind: Kind::Trim, ..io }),
        DDIR_SYNC | DDIR_DATASYNC | DDIR_SYNC_FILE_RANGE => {
            return job.start(Io { kind: Kind::Flush, offset: 0, ..io });
        }
        _ => return (FIO_Q_COMPLETED, libc::EINVAL),
    };
    // SAFETY: the caller's `io_u`.
    unsafe {
        let data = abi.io_u_xfer_buf.get(io_u);
        if data != job.slab.address(io.index) {
            move_in::<V>(job, io_u, io.index, data);
        }
    }
    job.start(Io { kind, ..io })
}

/// Makes the engine's buffer for this I/O fio's buffer, too, from now on.
#[cold]
#[inline(never)]
unsafe fn move_in<V: Version>(job: &mut Job, io_u: Ptr, index: usize, data: Ptr) {
    let abi = V::ABI;
    // SAFETY: the caller's `io_u`, whose memory has room for the job's largest I/O.
    unsafe {
        // A part of an I/O cannot remain: the channel does all of it, or nothing.
        if data == abi.io_u_buf.get(io_u)
            && let Some(buf) = job.slab.adopt(index, data)
        {
            abi.io_u_buf.set(io_u, buf);
            abi.io_u_xfer_buf.set(io_u, buf);
        }
    }
}

/// Takes completed I/Os. fio's time-out is none, or zero with a `min` of 0.
unsafe extern "C" fn getevents<V: Version>(
    td: Ptr,
    min: c_uint,
    max: c_uint,
    _timeout: Ptr,
) -> c_int {
    // SAFETY: fio's `thread_data`, in the job's thread; and its `io_u`s, while they are in flight.
    let (answer, errno) = unsafe {
        let index = |id: usize| V::ABI.io_u_index.get(id as Ptr) as usize;
        on_job::<V, _>(td, (-libc::EIO, 0), |job| {
            let answer = job.reap(min as usize, max as usize, index);
            (answer, job.flush_failed())
        })
    };
    if answer < 0 || errno != 0 {
        // fio 3.33 would take a negative answer for the errno.
        // SAFETY: as above.
        unsafe { fail::<V>(td, errno.max(-answer)) };
    }
    answer
}

/// Sets the error that ends the job, unless it has one.
#[cold]
unsafe fn fail<V: Version>(td: Ptr, errno: c_int) {
    // SAFETY: the caller's `thread_data`, in the job's thread.
    unsafe {
        if V::ABI.td_error.get(td) == 0 {
            V::ABI.td_error.set(td, errno);
        }
    }
}

unsafe extern "C" fn event<V: Version>(td: Ptr, n: c_int) -> Ptr {
    // SAFETY: fio's `thread_data`, in the job's thread.
    let ended = unsafe { on_job::<V, _>(td, None, |job| job.ended(n as usize)) };
    let Some(ended) = ended else { return null_mut() };
    // SAFETY: this `io_u` was in flight until `getevents`.
    unsafe { V::ABI.io_u_error.set(ended.id as Ptr, ended.errno as u32) };
    ended.id as Ptr
}

/// Returns the text of an I/O's error, which fio frees.
unsafe extern "C" fn errdetails<V: Version>(td: Ptr, io_u: Ptr) -> *mut c_char {
    // SAFETY: fio's `thread_data`, in the job's thread.
    details(unsafe { on_job::<V, _>(td, None, |job| job.details(io_u as usize)) })
}

unsafe extern "C" fn errdetails_of_thread(io_u: Ptr) -> *mut c_char {
    details(guarded(None, || {
        // SAFETY: the job of this thread, from `init` to `cleanup`.
        unsafe { JOB.get().as_mut() }.and_then(|job| job.details(io_u as usize))
    }))
}

fn details(what: Option<String>) -> *mut c_char {
    let what = CString::new(what.unwrap_or_else(|| "no details".to_owned())).unwrap_or_default();
    // SAFETY: a text that ends.
    unsafe { libc::strdup(what.as_ptr()) }
}

/// Does nothing: a device is neither opened nor removed file by file, and there is no page cache.
unsafe extern "C" fn nothing(_td: Ptr, _file: Ptr) -> c_int {
    0
}

unsafe extern "C" fn get_zoned_model(_td: Ptr, _file: Ptr, model: *mut c_int) -> c_int {
    // SAFETY: fio's `enum zbd_zoned_model`.
    unsafe { model.write(ZBD_NONE) };
    0
}

/// Gives the engine to fio, for `get_ioengine`.
pub(crate) unsafe fn hand_out(place: *mut Ptr) {
    let refuse = |why: String| {
        say(format_args!(
            "{why}. This engine knows {}",
            crate::VERSIONS.map(|(name, _)| name).join(", ")
        ));
    };
    let Some(running) = host::version() else {
        return refuse("this program is not fio".to_owned());
    };
    let Some((_, engine)) = crate::VERSIONS.iter().find(|(name, _)| *name == running) else {
        return refuse(format!("this is {running}, whose structures the engine does not know"));
    };
    match engine() {
        // SAFETY: fio's place for the engine.
        Ok(engine) => unsafe { place.write(engine) },
        Err(why) => refuse(format!(
            "this {running} was changed ({why}): take Debian's, or build it from fio's own sources"
        )),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
