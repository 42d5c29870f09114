//! Processor and operating-system services beyond `std`.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code))]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;

use crate::error::SsdError;

/// Prefetches the cache line at `address` for reading. This is a hint, which is harmless for any
/// address.
#[inline(always)]
pub(crate) fn prefetch_read(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults and changes no architectural state, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetches the cache line at `address` for writing. This is a hint, which is harmless for any
/// address.
#[inline(always)]
pub(crate) fn prefetch_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `prefetchw` never faults and changes no architectural state, whatever the address;
    // processors without it treat its encoding as a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// A thread that is stopped and joined on drop.
#[derive(Debug)]
pub(crate) struct StoppedThread {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl StoppedThread {
    /// Starts the closure that `body` returns. It has to end when the eventfd passed to `body` is
    /// signalled.
    pub(crate) fn spawn<F: FnOnce() + Send + 'static>(
        name: &str,
        body: impl FnOnce(Arc<OwnedFd>) -> F,
    ) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let thread = meantime_process::thread::spawn(name, body(Arc::clone(&stop)))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        signal(&self.stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Starts an SSD's thread, which runs `run` if it could be bound to `cpu`.
///
/// # Errors
/// Fails if it could not be started or bound.
pub(crate) fn spawn_ssd<T: Send + 'static>(
    cpu: Option<usize>,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<Option<T>>, SsdError> {
    let (pinned, is_pinned) = sync_channel(1);
    let thread = meantime_process::thread::spawn("meantime-ssd", move || {
        let result = cpu.map_or(Ok(()), pin_to_cpu);
        let go_on = result.is_ok();
        let _ = pinned.send(result);
        go_on.then(run)
    })
    .map_err(SsdError::Thread)?;
    match is_pinned.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => {
            let cpu = cpu.unwrap_or_default();
            let problem = format!(
                "binding the SSD's thread to CPU {cpu}: {error}; choose one of this machine's"
            );
            Err(SsdError::config("cpu", problem))
        }
        Err(_) => Err(SsdError::Thread(io::Error::other("the thread ended at once"))),
    }
}

/// Binds the calling thread to `cpu`.
pub(crate) fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::from(rustix::io::Errno::INVAL));
    }
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Returns whether a write to `event` would not block.
pub(crate) fn is_writable(event: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(event, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::OUT)
}

/// Adds one to an eventfd. A full counter, which was never read, is no error, because the event is
/// already pending.
pub(crate) fn signal(event: &OwnedFd) -> bool {
    loop {
        match rustix::io::write(event, &1u64.to_ne_bytes()) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
