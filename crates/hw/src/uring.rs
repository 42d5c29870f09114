//! The kernel in the role of a device: memory that it accesses by I/O virtual address, and io_uring
//! to request I/O on it.
//!
//! The ring is to the kernel what a queue pair is to a controller: an I/O names memory by its
//! [`Iova`], and the caller does not access the memory until the completion (ARCHITECTURE.md §3).

#![expect(unsafe_code)]

mod command;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use io_uring::types::{Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Parameters, Submitter, cqueue, opcode, squeue};
use meantime_nvme_spec::sqe::Sqe;

use self::command::{Data, IO, IO_VEC};
pub use self::command::{admin_read, identify, namespace_id};
use super::dma::Iova;
use super::pages::Pages;
use super::scatter::Vectors;
use super::transport::{DmaLimits, DmaMap};
use super::{HwError, Result};

/// `IORING_SETUP_IOPOLL`: completions are polled for.
const SETUP_IOPOLL: u32 = 1 << 0;
/// `IORING_SETUP_CQSIZE`: a completion ring of the given size.
const SETUP_CQSIZE: u32 = 1 << 3;
/// `IORING_SETUP_CLAMP`: reduces the entries to the kernel's limit.
const SETUP_CLAMP: u32 = 1 << 4;
/// `IORING_SETUP_SUBMIT_ALL` (Linux 5.18): a failing entry does not stop later ones.
const SETUP_SUBMIT_ALL: u32 = 1 << 7;
/// `IORING_SETUP_COOP_TASKRUN` (Linux 5.19): completions do not interrupt this thread.
const SETUP_COOP_TASKRUN: u32 = 1 << 8;
/// `IORING_SETUP_TASKRUN_FLAG` (Linux 5.19): a flag of the ring shows that completions wait to be
/// posted.
const SETUP_TASKRUN_FLAG: u32 = 1 << 9;
/// `IORING_SETUP_HYBRID_IOPOLL` (Linux 6.13): sleep before polling.
const SETUP_HYBRID_IOPOLL: u32 = 1 << 17;

/// The most memory chunks registered with a ring; others are used unregistered.
const FIXED_BUFFERS: u32 = 64;

/// How a ring's completions arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingPoll {
    /// The device's interrupt.
    Interrupt,
    /// The kernel polls the device.
    Poll,
    /// The kernel sleeps for half the shortest time so far, then polls the device (Linux 6.13).
    HybridMin,
}

/// Memory on which the kernel may do I/O; there is one for each open file.
#[derive(Debug, Default)]
pub struct KernelMemory {
    regions: Mutex<Vec<Region>>,
}

/// A chunk of a heap.
#[derive(Debug, Clone)]
struct Region {
    iova: u64,
    pages: Arc<Pages>,
    /// Its number among the ring's registered buffers.
    fixed: Option<u16>,
}

/// Whether memory is registered with the kernel, which saves a lookup for each I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Register {
    /// No.
    No,
    /// As far as the kernel permits.
    Try,
    /// Yes; a failure to register is an error.
    Must,
}

impl KernelMemory {
    fn lock(&self) -> MutexGuard<'_, Vec<Region>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: the kernel reaches memory by the operations that are submitted, each of which holds its
// buffer until it has ended; a region that a ring has registered is held by that ring.
unsafe impl DmaMap for KernelMemory {
    fn map_dma(&self, iova: u64, pages: &Arc<Pages>) -> Result<()> {
        let mut regions = self.lock();
        let end = |iova: u64, pages: &Pages| iova.saturating_add(pages.len() as u64);
        let overlaps = |region: &Region| {
            iova < end(region.iova, &region.pages) && region.iova < end(iova, pages)
        };
        if regions.iter().any(overlaps) {
            let what = "it overlaps memory that is mapped already".to_owned();
            return Err(HwError::DmaMap { iova, bytes: pages.len(), what });
        }
        regions.push(Region { iova, pages: Arc::clone(pages), fixed: None });
        Ok(())
    }

    unsafe fn unmap_dma(&self, iova: u64) -> Result<()> {
        // Rings that use the region keep it mapped by their own reference.
        self.lock().retain(|region| region.iova != iova);
        Ok(())
    }

    fn limits(&self) -> DmaLimits {
        // Not locked: the kernel pins memory while it does I/O on it.
        DmaLimits::default()
    }
}

/// The operation of an I/O on the ring's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UringOp {
    /// Reads into memory.
    Read,
    /// Writes from memory.
    Write {
        /// Whether it is durable when complete.
        dsync: bool,
    },
    /// Makes data durable.
    #[default]
    Fdatasync,
    /// Applies `fallocate` with this mode to a range of the file.
    Fallocate {
        /// Its flags.
        mode: i32,
    },
}

/// An I/O to stage.
#[derive(Debug, Clone, Copy, Default)]
pub struct UringIo {
    /// The operation.
    pub op: UringOp,
    /// Returned with the completion.
    pub tag: u64,
    /// Offset in the file.
    pub offset_bytes: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Memory address, for a read or write.
    pub data: Iova,
    /// Its I/O priority; 0 selects the thread's.
    pub ioprio: u16,
    /// The memory if it is scattered over pages; then `data` is unused.
    pub vectors: Option<Vectors>,
}

/// The kernel's ring, by the size of its entries.
enum Ring {
    /// Entries of 64 and 16 bytes, which files and block devices take.
    Plain(IoUring),
    /// Entries of 128 and 32 bytes, which hold NVMe commands.
    Commands(IoUring<squeue::Entry128, cqueue::Entry32>),
}

/// Runs the same expression on either kind of ring.
macro_rules! either {
    ($this:expr, $ring:ident => $action:expr) => {
        match $this {
            Ring::Plain($ring) => $action,
            Ring::Commands($ring) => $action,
        }
    };
}

impl Ring {
    fn submitter(&self) -> Submitter<'_> {
        either!(self, ring => ring.submitter())
    }

    fn params(&self) -> &Parameters {
        either!(self, ring => ring.params())
    }

    /// Whether nothing is staged.
    fn is_empty(&mut self) -> bool {
        either!(self, ring => ring.submission().is_empty())
    }

    /// Whether completions wait for this thread to enter the kernel.
    fn has_task_work(&mut self) -> bool {
        either!(self, ring => ring.submission().taskrun())
    }

    /// Stages `entry`; false if there is no room.
    ///
    /// # Safety
    /// The requirements of [`squeue::SubmissionQueue::push`] hold: what the entry points to is
    /// valid for as long as the kernel uses it.
    unsafe fn push(&mut self, entry: squeue::Entry) -> bool {
        match self {
            // SAFETY: the caller's promise.
            Self::Plain(ring) => unsafe { ring.submission().push(&entry) }.is_ok(),
            // SAFETY: the caller's promise.
            Self::Commands(ring) => unsafe { ring.submission().push(&entry.into()) }.is_ok(),
        }
    }
}

/// An io_uring on one file. It belongs to one thread at a time.
pub struct Uring {
    ring: Ring,
    /// Kept open as long as the ring.
    _file: Arc<OwnedFd>,
    memory: Arc<KernelMemory>,
    /// The regions used so far.
    regions: Vec<Region>,
    register: Register,
    /// Number of registered regions.
    registered: u16,
    poll: RingPoll,
    in_flight: usize,
    /// One time-out shared by all waits: one per wait would cost as much as a fast I/O.
    tick: Box<Timespec>,
    ticks: bool,
}

/// The tag of the time-out; no I/O has it.
const TICK: u64 = u64::MAX;

/// Shorter waits have their own time-out.
const TICK_MIN: Duration = Duration::from_millis(10);

impl Uring {
    /// A ring for up to `entries` concurrent I/Os on `file`, with the memory of `memory`.
    ///
    /// # Errors
    /// Returns the kernel's error if it has no io_uring, does not support this kind, or may not
    /// register that much memory (RLIMIT_MEMLOCK).
    pub fn new(
        file: &Arc<OwnedFd>,
        memory: &Arc<KernelMemory>,
        entries: u32,
        poll: RingPoll,
        register: Register,
    ) -> io::Result<Self> {
        let ring = match poll {
            RingPoll::Interrupt => interrupt_ring(entries)?,
            RingPoll::Poll => raw_ring(entries, SETUP_IOPOLL)?,
            RingPoll::HybridMin => raw_ring(entries, SETUP_IOPOLL | SETUP_HYBRID_IOPOLL)?,
        };
        Self::with(Ring::Plain(ring), file, memory, poll, register)
    }

    /// A ring for up to `entries` concurrent NVMe commands on `file`, a namespace's character
    /// device.
    ///
    /// # Errors
    /// Returns the kernel's error: EINVAL before Linux 5.19, and for [`RingPoll::HybridMin`];
    /// EOPNOTSUPP if memory must be registered, before Linux 6.12.
    pub fn for_commands(
        file: &Arc<OwnedFd>,
        memory: &Arc<KernelMemory>,
        entries: u32,
        poll: RingPoll,
        register: Register,
    ) -> io::Result<Self> {
        let ring = command_ring(entries.next_power_of_two(), poll)?;
        // Before Linux 6.12, which brought this feature too, the kernel refuses a command whose
        // data is a part of a large registered buffer (`blk_rq_map_user_bvec`).
        let register = match register {
            _ if ring.params().is_feature_min_timeout() => register,
            Register::Must => return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            _ => Register::No,
        };
        Self::with(Ring::Commands(ring), file, memory, poll, register)
    }

    fn with(
        ring: Ring,
        file: &Arc<OwnedFd>,
        memory: &Arc<KernelMemory>,
        poll: RingPoll,
        register: Register,
    ) -> io::Result<Self> {
        // Waits with a deadline require Linux 5.11.
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        if register != Register::No {
            ring.submitter().register_buffers_sparse(FIXED_BUFFERS)?;
        }
        let (file, memory) = (Arc::clone(file), Arc::clone(memory));
        Ok(Self {
            ring,
            _file: file,
            memory,
            regions: Vec::new(),
            register,
            registered: 0,
            poll,
            in_flight: 0,
            tick: Box::default(),
            ticks: false,
        })
    }

    /// How its completions arrive.
    pub fn poll_kind(&self) -> RingPoll {
        self.poll
    }

    /// Number of I/Os staged or submitted whose completion has not been reaped.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Stages `io`; the next [`Uring::submit`] or [`Uring::wait`] submits it.
    ///
    /// # Errors
    /// Fails if the memory is not of this ring's heap, if it cannot be registered, or if the ring
    /// is full. The kernel has then not seen `io`.
    ///
    /// # Safety
    /// The memory of a read or write (`data`, or `vectors` and all that they lead to) is one live
    /// buffer's. Until [`Uring::reap`] has given the completion of `io`, that buffer is not freed,
    /// and nothing else writes to it, or reads it if the kernel writes to it.
    pub unsafe fn stage(&mut self, io: &UringIo) -> Result<()> {
        let file = Fixed(0);
        let entry = match io.op {
            UringOp::Read | UringOp::Write { .. } => self.transfer(io)?,
            UringOp::Fdatasync => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
            UringOp::Fallocate { mode } => {
                opcode::Fallocate::new(file, io.bytes).offset(io.offset_bytes).mode(mode).build()
            }
        };
        let entry = entry.user_data(io.tag);
        // SAFETY: the memory that `entry` names, if any, is inside a region whose pages this ring
        // keeps mapped (see `transfer`), or, with the vectors that name it, of a scattered buffer.
        // Our caller promises that it stays, and that nothing else touches it, until the
        // completion.
        let pushed = unsafe { self.ring.push(entry) };
        self.staged(pushed)
    }

    /// Stages the NVMe command `sqe` with the data of `io`, on a ring
    /// [for commands](Self::for_commands). The completion's result is the command's status, or a
    /// negative errno.
    ///
    /// # Errors
    /// Fails if the memory is not of this ring's heap, if it cannot be registered, or if the ring
    /// is full or not [for commands](Self::for_commands). The kernel has then not seen `sqe`.
    ///
    /// # Safety
    /// The requirements of [`Uring::stage`] hold. The controller transfers exactly `io.bytes` for
    /// `sqe`, which vectors lead to, in the direction of `io.op`, or nothing if that is neither
    /// read nor write.
    pub unsafe fn stage_command(&mut self, sqe: &Sqe, io: &UringIo) -> Result<()> {
        let data = match (io.op, io.vectors) {
            (UringOp::Read | UringOp::Write { .. }, Some(Vectors { first, count })) => Data {
                how: IO_VEC,
                addr: first.expose_provenance() as u64,
                len: count,
                fixed: None,
            },
            (UringOp::Read | UringOp::Write { .. }, None) => {
                let (fixed, ptr) = self.locate(io)?;
                let addr = ptr.expose_provenance() as u64;
                Data { how: IO, addr, len: io.bytes as u32, fixed }
            }
            _ => Data { how: IO, addr: 0, len: 0, fixed: None },
        };
        let entry = command::entry(sqe, data).user_data(io.tag);
        let pushed = match &mut self.ring {
            Ring::Plain(_) => false,
            // SAFETY: as in `stage`; the driver has the controller access the memory that `data`
            // names, and no more: our caller promises that the command transfers as much.
            Ring::Commands(ring) => unsafe { ring.submission().push(&entry) }.is_ok(),
        };
        self.staged(pushed)
    }

    /// Counts an entry as staged; an error if the ring had no room for it.
    fn staged(&mut self, pushed: bool) -> Result<()> {
        if !pushed {
            return Err(HwError::Os {
                what: "the kernel takes no more I/O from this ring",
                source: io::ErrorKind::OutOfMemory.into(),
            });
        }
        self.in_flight += 1;
        Ok(())
    }

    /// The entry of a read or write.
    fn transfer(&mut self, io: &UringIo) -> Result<squeue::Entry> {
        if let Some(vectors) = io.vectors {
            return Ok(scattered(io, vectors));
        }
        let (fixed, ptr) = self.locate(io)?;
        let (file, bytes, offset) = (Fixed(0), io.bytes as u32, io.offset_bytes);
        let dsync = if io.op == (UringOp::Write { dsync: true }) { libc::RWF_DSYNC } else { 0 };
        Ok(match (io.op, fixed) {
            (UringOp::Read, Some(index)) => opcode::ReadFixed::new(file, ptr, bytes, index)
                .ioprio(io.ioprio)
                .offset(offset)
                .build(),
            (UringOp::Read, None) => {
                opcode::Read::new(file, ptr, bytes).ioprio(io.ioprio).offset(offset).build()
            }
            (_, Some(index)) => opcode::WriteFixed::new(file, ptr, bytes, index)
                .ioprio(io.ioprio)
                .offset(offset)
                .rw_flags(dsync)
                .build(),
            (_, None) => opcode::Write::new(file, ptr, bytes)
                .ioprio(io.ioprio)
                .offset(offset)
                .rw_flags(dsync)
                .build(),
        })
    }

    /// Does what [`Self::find`] does for the data of `io`, whose region may be new.
    fn locate(&mut self, io: &UringIo) -> Result<(Option<u16>, *mut u8)> {
        if let Some(found) = self.find(io.data, io.bytes) {
            return Ok(found);
        }
        self.learn(io.data)?;
        self.find(io.data, io.bytes).ok_or_else(|| HwError::DmaMap {
            iova: io.data.0,
            bytes: io.bytes as usize,
            what: "no memory of this file's heap".into(),
        })
    }

    /// The number of the registered buffer that contains the `bytes` at `data`, if any, and their
    /// address in this process.
    #[inline]
    fn find(&self, data: Iova, bytes: u64) -> Option<(Option<u16>, *mut u8)> {
        self.regions.iter().find_map(|region| {
            let offset = data.0.checked_sub(region.iova)?;
            let end = offset.checked_add(bytes)?;
            let inside = end <= region.pages.len() as u64 && bytes <= u64::from(u32::MAX);
            inside.then(|| {
                (region.fixed, region.pages.as_ptr().as_ptr().wrapping_add(offset as usize))
            })
        })
    }

    /// Adds the region of `data`, and registers it with the kernel.
    #[cold]
    fn learn(&mut self, data: Iova) -> Result<()> {
        let region = {
            let regions = self.memory.lock();
            let holds = |region: &&Region| {
                (region.iova..region.iova + region.pages.len() as u64).contains(&data.0)
            };
            regions.iter().find(holds).cloned()
        };
        let Some(mut region) = region else { return Ok(()) };
        match (self.register, self.register_region(&region)) {
            (Register::No, _) | (Register::Try, Err(_)) => {}
            (Register::Must, Err(source)) => {
                let what = "cannot register memory with io_uring (see `ulimit -l`, or open the \
                    device with fixed=0)";
                return Err(HwError::Os { what, source });
            }
            (_, Ok(index)) => region.fixed = index,
        }
        self.regions.push(region);
        Ok(())
    }

    /// Registers a region. Returns its number.
    fn register_region(&mut self, region: &Region) -> io::Result<Option<u16>> {
        if self.register == Register::No {
            return Ok(None);
        }
        if u32::from(self.registered) >= FIXED_BUFFERS {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let iov = libc::iovec {
            iov_base: region.pages.as_ptr().as_ptr().cast(),
            iov_len: region.pages.len(),
        };
        let submitter = self.ring.submitter();
        // SAFETY: the mapping is kept by `regions` until the ring is dropped, and nothing but I/O
        // staged here uses the registration.
        unsafe { submitter.register_buffers_update(u32::from(self.registered), &[iov], None) }?;
        self.registered += 1;
        Ok(Some(self.registered - 1))
    }

    /// Submits everything staged to the kernel.
    ///
    /// # Errors
    /// Returns the kernel's error, unless it is transient.
    pub fn submit(&mut self) -> io::Result<()> {
        if self.ring.is_empty() {
            return Ok(());
        }
        self.transient(|ring| ring.submit())
    }

    /// Reaps completions: tag and result (bytes, or a negative errno). Returns their number.
    pub fn reap(&mut self, mut ended: impl FnMut(u64, i32)) -> usize {
        let mut count = 0;
        let mut take = |tag, result| {
            if tag == TICK {
                self.ticks = false;
                return;
            }
            ended(tag, result);
            count += 1;
        };
        either!(&mut self.ring, ring => {
            ring.completion().for_each(|cqe| take(cqe.user_data(), cqe.result()));
        });
        self.in_flight -= count;
        count
    }

    /// Polls the device of a polled ring once. For another ring, lets the kernel post completions
    /// that wait for this thread to enter it.
    ///
    /// # Errors
    /// Returns the kernel's error, unless it is transient.
    pub fn get_events(&mut self) -> io::Result<()> {
        let needed = self.poll != RingPoll::Interrupt || self.ring.has_task_work();
        if needed || !self.ring.is_empty() {
            return self.transient(|ring| ring.submit());
        }
        Ok(())
    }

    /// The former name of [`get_events`](Self::get_events).
    ///
    /// # Errors
    /// Returns the kernel's error, unless it is transient.
    #[deprecated(note = "use `get_events`")]
    pub fn look(&mut self) -> io::Result<()> {
        self.get_events()
    }

    /// Submits staged I/Os, and waits for a completion, for `timeout` at most on a ring with
    /// interrupts. On a polled ring, the kernel ends polling by the driver's own time-out.
    ///
    /// # Errors
    /// Returns the kernel's error, unless it is transient.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if self.poll != RingPoll::Interrupt {
            return self.transient(|ring| ring.submit_and_wait(1));
        }
        if timeout >= TICK_MIN && self.ticks(timeout) {
            return self.transient(|ring| ring.submit_and_wait(1));
        }
        let time = Timespec::from(timeout);
        let args = SubmitArgs::new().timespec(&time);
        self.transient(|ring| ring.submit_with_args(1, &args))
    }

    /// Ensures that a completion arrives within `timeout`; false if no time-out could be staged.
    fn ticks(&mut self, timeout: Duration) -> bool {
        if !self.ticks {
            *self.tick = Timespec::from(timeout);
            let entry = opcode::Timeout::new(&raw const *self.tick).build().user_data(TICK);
            // SAFETY: the kernel reads the time when the entry is submitted; it is boxed and as
            // long-lived as the ring.
            self.ticks = unsafe { self.ring.push(entry) };
        }
        self.ticks
    }

    /// Maps a transient error of a system call to success: the caller calls again anyway.
    fn transient(
        &mut self,
        call: impl FnOnce(Submitter<'_>) -> io::Result<usize>,
    ) -> io::Result<()> {
        match call(self.ring.submitter()) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME) => Ok(()),
                _ => Err(error),
            },
        }
    }
}

/// The entry of a read or write of scattered pages, by `readv` and `writev`: registered memory does
/// not support these.
fn scattered(io: &UringIo, Vectors { first, count }: Vectors) -> squeue::Entry {
    let (file, offset) = (Fixed(0), io.offset_bytes);
    let dsync = if io.op == (UringOp::Write { dsync: true }) { libc::RWF_DSYNC } else { 0 };
    match io.op {
        UringOp::Read => {
            opcode::Readv::new(file, first, count).ioprio(io.ioprio).offset(offset).build()
        }
        _ => opcode::Writev::new(file, first, count)
            .ioprio(io.ioprio)
            .offset(offset)
            .rw_flags(dsync)
            .build(),
    }
}

/// A ring whose completions come by interrupt. They are posted when this thread enters the kernel,
/// without an interrupt to it (Linux 5.19).
fn interrupt_ring(entries: u32) -> io::Result<IoUring> {
    let lazy = SETUP_CLAMP | SETUP_SUBMIT_ALL | SETUP_COOP_TASKRUN | SETUP_TASKRUN_FLAG;
    match raw_ring(entries, lazy) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => raw_ring(entries, SETUP_CLAMP),
        built => built,
    }
}

/// Creates a ring for NVMe commands by the crate's builder, which has no HYBRID_IOPOLL.
fn command_ring(
    entries: u32,
    poll: RingPoll,
) -> io::Result<IoUring<squeue::Entry128, cqueue::Entry32>> {
    let mut builder = IoUring::builder();
    builder.setup_clamp().setup_cqsize(2 * entries).setup_submit_all();
    match poll {
        RingPoll::Interrupt => builder.setup_coop_taskrun().setup_taskrun_flag(),
        RingPoll::Poll => builder.setup_iopoll(),
        RingPoll::HybridMin => return Err(io::ErrorKind::InvalidInput.into()),
    };
    builder.build(entries)
}

/// Creates a ring without the crate's builder, which does not know all flags.
fn raw_ring(entries: u32, flags: u32) -> io::Result<IoUring> {
    /// `struct io_uring_params` (include/uapi/linux/io_uring.h).
    #[repr(C)]
    #[derive(Default)]
    struct Params {
        sq_entries: u32,
        cq_entries: u32,
        flags: u32,
        rest: [u32; 7],
        offsets: [u64; 10],
    }
    const _: () =
        assert!(size_of::<Params>() == size_of::<Parameters>() && size_of::<Params>() == 120);

    let entries = entries.next_power_of_two();
    let mut params =
        Params { cq_entries: 2 * entries, flags: flags | SETUP_CQSIZE, ..Params::default() };
    // SAFETY: `params` is a valid, writable `struct io_uring_params` for the duration of the call.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, &raw mut params) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `Parameters` is documented as a transparent wrapper of the kernel's structure, made
    // from its memory; sizes are asserted equal, and any bits are a valid value of either.
    let params = unsafe { std::mem::transmute::<Params, Parameters>(params) };
    // SAFETY: `fd` is a new ring of our own, and `params` is what the kernel filled in for it.
    unsafe { IoUring::from_fd(fd as i32, params) }
}

/// The ring's descriptor, which becomes readable when a completion is there.
impl std::os::fd::AsFd for Uring {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor and outlives the borrow.
        unsafe {
            std::os::fd::BorrowedFd::borrow_raw(either!(&self.ring, ring => ring.as_raw_fd()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dma::DmaHeap;
    use super::*;

    /// On a file, which is no namespace: the ring is the kernel's, and each command is answered.
    #[test]
    fn a_file_takes_no_commands() {
        let memory = Arc::new(KernelMemory::default());
        let heap = DmaHeap::new(Arc::clone(&memory) as Arc<dyn DmaMap>);
        let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let made = Uring::for_commands(&file, &memory, 4, RingPoll::Interrupt, Register::Try);
        let mut ring = match made {
            Ok(ring) => ring,
            Err(error) => {
                let expected = [libc::EINVAL, libc::ENOSYS, libc::EPERM].map(Some);
                assert!(expected.contains(&error.raw_os_error()), "{error}");
                eprintln!("no command rings in this kernel ({error}): nothing to test");
                return;
            }
        };
        let buf = heap.alloc(4096).unwrap();
        let io = UringIo { op: UringOp::Read, bytes: 4096, data: buf.iova(), ..UringIo::default() };
        let sqe = Sqe::read(0, 1, 0, 8, 0, 0);
        // SAFETY: the buffer is not touched before the completion of its read, for which the loop
        // below waits, nor freed.
        unsafe { ring.stage_command(&sqe, &UringIo { tag: 7, ..io }) }.unwrap();
        // SAFETY: a flush has no data.
        unsafe { ring.stage_command(&Sqe::flush(0, 1), &UringIo { tag: 8, ..Default::default() }) }
            .unwrap();
        let mut answers = Vec::new();
        while ring.in_flight() > 0 {
            ring.wait(Duration::from_secs(1)).unwrap();
            ring.reap(|tag, result| answers.push((tag, result)));
        }
        answers.sort_unstable();
        assert_eq!(answers, [(7, -libc::EOPNOTSUPP), (8, -libc::EOPNOTSUPP)]);
    }

    #[test]
    fn a_ring_of_files_takes_no_commands() {
        let memory = Arc::new(KernelMemory::default());
        let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let made = Uring::new(&file, &memory, 1, RingPoll::Interrupt, Register::No);
        let Ok(mut ring) = made else {
            eprintln!("no io_uring here: nothing to test");
            return;
        };
        // SAFETY: a flush has no data.
        let staged = unsafe { ring.stage_command(&Sqe::flush(0, 1), &UringIo::default()) };
        assert!(staged.is_err() && ring.in_flight() == 0);
    }

    #[test]
    fn no_two_regions_have_the_same_addresses() {
        let memory = KernelMemory::default();
        let pages = Arc::new(Pages::map(2 << 20, &DmaLimits::default()).unwrap());
        memory.map_dma(1 << 32, &pages).unwrap();
        for iova in [1 << 32, (1 << 32) + 4096, (1 << 32) - 4096] {
            assert!(
                matches!(memory.map_dma(iova, &pages), Err(HwError::DmaMap { .. })),
                "{iova:#x}"
            );
        }
        memory.map_dma((1 << 32) + (2 << 20), &pages).unwrap();
        memory.map_dma((1 << 32) - (2 << 20), &pages).unwrap();
    }
}
