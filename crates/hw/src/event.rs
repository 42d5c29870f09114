//! The event that an interrupt vector signals: an eventfd, or a memory word if the device is in
//! this process.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};

use meantime_nvme_spec::soft_port::{Interrupt, Signal};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, write};

use super::futex::Futex;
use super::kernel_time::timespec;
use super::{HwError, Result};

/// A counter that one side increments and the other takes. A signal that precedes the wait is kept.
///
/// A device in another process or in the kernel signals an eventfd. A device in this process needs
/// none: the descriptor would take a number that the program may want, and a wait would make two
/// system calls instead of one. An event gets a descriptor when an event loop asks for it.
#[derive(Debug, Clone)]
pub struct EventFd(Arc<Event>);

#[derive(Debug)]
struct Event {
    /// Where signals go without a descriptor; `None` if every signal uses the descriptor.
    local: Option<Futex>,
    fd: OnceLock<Arc<OwnedFd>>,
    /// The descriptor is level-triggered: it shows by itself when it is readable, and nothing is
    /// read.
    is_level: bool,
}

impl EventFd {
    /// A new eventfd with counter 0.
    pub fn new() -> Result<Self> {
        Ok(Self(Arc::new(Event {
            local: None,
            fd: OnceLock::from(Arc::new(open()?)),
            is_level: false,
        })))
    }

    /// An event that `fd` signals, such as an epoll instance: signalled as long as `fd` is
    /// readable.
    pub fn level(fd: Arc<OwnedFd>) -> Self {
        Self(Arc::new(Event { local: None, fd: OnceLock::from(fd), is_level: true }))
    }

    /// An event for a device in this process, without a descriptor.
    pub fn local() -> Self {
        let local = Some(Futex::default());
        Self(Arc::new(Event { local, fd: OnceLock::new(), is_level: false }))
    }

    /// The interrupt to give to a device in this process, or to one that takes a descriptor.
    pub fn interrupt(&self) -> Interrupt {
        match (&self.0.local, self.0.fd.get()) {
            (None, Some(fd)) => Interrupt::EventFd(Arc::clone(fd)),
            _ => Interrupt::Local(Arc::clone(&self.0) as Arc<dyn Signal>),
        }
    }

    /// Creates the descriptor for event loops, unless it exists already.
    pub fn with_descriptor(&self) -> Result<&Self> {
        if self.0.fd.get().is_none() {
            // If another thread has made one meanwhile, that one is used.
            let _ = self.0.fd.set(Arc::new(open()?));
            // Each side writes, then reads: either the signal finds the descriptor, or this finds
            // the signal.
            fence(Ordering::SeqCst);
            if self.0.local.as_ref().is_some_and(|local| local.get() != 0) {
                self.0.ring();
            }
        }
        Ok(self)
    }

    /// The descriptor for the signalling side; `None` if there is none.
    pub fn fd(&self) -> Option<Arc<OwnedFd>> {
        self.0.fd.get().cloned()
    }

    /// Increments the counter.
    pub fn signal(&self) {
        self.0.signal();
    }

    /// Takes the counter if it is not zero, without blocking.
    pub fn take(&self) -> bool {
        if self.0.is_level {
            return false;
        }
        let local = self.0.local.as_ref().is_some_and(|local| local.take() != 0);
        let mut counter = [0; 8];
        let rung = self.0.fd.get().is_some_and(|fd| matches!(read(fd, &mut counter), Ok(8)));
        local || rung
    }

    /// Waits until the counter is not zero, and takes it. Returns false if `timeout_ns` passes, or
    /// a signal handler runs, before it is signalled.
    pub fn wait(&self, timeout_ns: u64) -> bool {
        if let Some(local) = &self.0.local {
            // Sleeps if there was no signal since the check; otherwise, or after a signal handler,
            // returns at once.
            local.wait(0, timeout_ns);
            return self.take();
        }
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(timeout_ns))) {
            // A signal handler ran: the caller checks its queue and its deadline, and waits again.
            Ok(0) | Err(Errno::INTR) => false,
            _ => self.0.is_level || self.take(),
        }
    }
}

fn open() -> Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    eventfd(0, flags).map_err(|errno| HwError::Os {
        what: "cannot create an eventfd (is `ulimit -n` too low?)",
        source: errno.into(),
    })
}

impl Event {
    /// Signals the descriptor, if there is one.
    fn ring(&self) {
        if let Some(fd) = self.fd.get() {
            // EAGAIN means that the counter is at its maximum, which counts as signalled.
            let _ = write(fd, &1u64.to_ne_bytes());
        }
    }
}

impl Signal for Event {
    fn signal(&self) {
        if let Some(local) = &self.local {
            local.advance();
            // As in `with_descriptor`.
            fence(Ordering::SeqCst);
        }
        self.ring();
    }
}

/// Lets an event loop wait for the event: readable while the counter is not zero.
impl AsFd for EventFd {
    /// # Panics
    /// Panics if the event has no descriptor and none can be created. This does not happen after
    /// [`with_descriptor`](Self::with_descriptor).
    fn as_fd(&self) -> BorrowedFd<'_> {
        if let Err(error) = self.with_descriptor() {
            panic!("{error}");
        }
        self.0.fd.get().expect("just made").as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> [EventFd; 2] {
        [EventFd::new().unwrap(), EventFd::local()]
    }

    #[test]
    fn keeps_a_signal_until_it_is_taken() {
        for event in both() {
            assert!(!event.wait(1_000_000));
            event.signal();
            event.signal();
            assert!(event.wait(0));
            assert!(!event.take());
        }
    }

    #[test]
    fn a_sleeper_is_woken() {
        for event in both() {
            for _ in 0..200 {
                let other = event.clone();
                let signaller = std::thread::spawn(move || other.signal());
                // This would be an hour; a wait may end early.
                while !event.wait(3_600_000_000_000) {}
                signaller.join().unwrap();
            }
        }
    }

    #[test]
    fn a_descriptor_made_later_tells_what_came_before_and_after() {
        let is_readable = |event: &EventFd| {
            let mut fds = [PollFd::new(event, PollFlags::IN)];
            poll(&mut fds, Some(&timespec(0))) == Ok(1)
        };
        let event = EventFd::local();
        assert!(event.fd().is_none() && matches!(event.interrupt(), Interrupt::Local(_)));
        event.signal();
        event.with_descriptor().unwrap();
        assert!(is_readable(&event) && event.take() && !is_readable(&event) && !event.take());
        event.signal();
        assert!(is_readable(&event) && event.wait(0) && !is_readable(&event));
        // No signal is missed, however late the descriptor is made.
        for _ in 0..200 {
            let event = EventFd::local();
            let other = event.clone();
            let signaller = std::thread::spawn(move || other.signal());
            event.with_descriptor().unwrap();
            signaller.join().unwrap();
            assert!(is_readable(&event) && event.take());
        }
    }
}
