//! An eventfd: the soft and VFIO form of an interrupt vector.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use meantime_process::descriptor::shelter;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, write};
use rustix::time::Timespec;

use super::{HwError, Result};

/// A counter in the kernel that one side adds to and the other takes from. A signal that comes before the wait is kept.
#[derive(Debug, Clone)]
pub struct EventFd(Arc<OwnedFd>);

impl EventFd {
    /// A new eventfd with counter 0.
    pub fn new() -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags).and_then(shelter).map_err(|errno| HwError::Os {
            what: "cannot create an eventfd (is `ulimit -n` too low?)",
            source: errno.into(),
        })?;
        Ok(Self(Arc::new(fd)))
    }

    /// The descriptor, to hand to the side that signals.
    pub fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.0)
    }

    /// Adds one to the counter.
    pub fn signal(&self) {
        // EAGAIN means that the counter is at its maximum: signalled all the same.
        let _ = write(self.0.as_fd(), &1u64.to_ne_bytes());
    }

    /// Takes the counter if it is not zero, without waiting.
    pub fn take(&self) -> bool {
        let mut counter = [0; 8];
        matches!(read(self.0.as_fd(), &mut counter), Ok(8))
    }

    /// Waits until the counter is not zero, and takes it. False after `timeout_ns` without a signal.
    pub fn wait(&self, timeout_ns: u64) -> bool {
        let timeout = Timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as i64,
            tv_nsec: (timeout_ns % 1_000_000_000) as i64,
        };
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            // A signal handler ran: the caller looks at its queue and at its deadline, and comes back.
            Ok(0) | Err(Errno::INTR) => false,
            _ => self.take(),
        }
    }
}

/// For event loops: readable while the counter is not zero.
impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_a_signal_until_it_is_taken() {
        let event = EventFd::new().unwrap();
        assert!(!event.wait(1_000_000));
        event.signal();
        event.signal();
        assert!(event.wait(0));
        assert!(!event.take());
    }
}
