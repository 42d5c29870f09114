//! The sleeps of a thread that waits on several channels.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use meantime_completion::alert::Alert;
use meantime_completion::waiter::Rest;
use meantime_completion::{OffQueue, Wake, Why};
use meantime_hw::clock::thread_cpu_ns;
use meantime_hw::sleep::sleep_until_ready;
use meantime_hw::{Clock, EventFd, HwError};
use rustix::event::{PollFd, PollFlags};

use super::watch::{GroupWaker, WakeEvent};

/// The CPU time of a sleep is measured this often, in ns.
const CPU_SAMPLE_NS: u64 = 3_000_000;
/// The longest sleep, in ns, if something that should end it has no descriptor, because there are
/// too many.
const LONGEST_BLIND_NS: u64 = 1_000_000;

/// The clock, the wakers, and the sleep that is being planned.
pub(crate) struct GroupSleep {
    clock: Clock,
    /// What the thread did since its last look, if not looking.
    off_queue: Option<OffQueue>,
    /// When the CPU time of a sleep was last measured, in ns.
    cpu_taken_ns: u64,
    now_ns: u64,
    /// Until when all may rest.
    until_ns: u64,
    /// Whether some channel waits for a request.
    waits: bool,
    /// The channels whose event may end the sleep earlier.
    interrupts: Vec<usize>,
    /// Shared with the group's wakers.
    wake_event: Option<Arc<WakeEvent>>,
}

impl Default for GroupSleep {
    fn default() -> Self {
        Self {
            clock: Clock::real(),
            off_queue: None,
            cpu_taken_ns: 0,
            now_ns: 0,
            until_ns: 0,
            waits: false,
            interrupts: Vec::new(),
            wake_event: None,
        }
    }
}

impl GroupSleep {
    /// A waker for this group.
    pub(super) fn waker(&mut self) -> Result<GroupWaker, HwError> {
        if let Some(event) = &self.wake_event {
            return Ok(GroupWaker(Arc::clone(event)));
        }
        let event = Arc::new(WakeEvent { alert: Alert::default(), event: EventFd::new()? });
        self.wake_event = Some(Arc::clone(&event));
        Ok(GroupWaker(event))
    }

    #[inline(always)]
    pub(super) fn is_woken(&self) -> bool {
        self.wake_event.as_ref().is_some_and(|event| event.alert.is_raised())
    }

    /// Whether a [`GroupWaker`] was used.
    pub(super) fn take_woken(&self) -> bool {
        self.wake_event.as_ref().is_some_and(|event| event.alert.take())
    }

    /// Whether something other than a channel, a watch or a descriptor may end a wait.
    pub(super) fn has_waker(&self) -> bool {
        self.wake_event.as_ref().is_some_and(|event| Arc::strong_count(event) > 1)
    }

    /// What the thread did just before the coming look, if not looking.
    #[inline(always)]
    pub(crate) fn take_off_queue(&mut self) -> Option<OffQueue> {
        self.off_queue.take()
    }

    /// Begins to plan a sleep that ends at `until_ns` at the latest. Returns the time.
    pub(crate) fn begin(&mut self, until_ns: u64) -> u64 {
        self.now_ns = self.clock.now_ns();
        (self.until_ns, self.waits) = (until_ns, false);
        self.interrupts.clear();
        self.now_ns
    }

    /// Limits the sleep by the rest of the channel `at`.
    pub(crate) fn add(&mut self, at: usize, rest: Rest) {
        self.until_ns = self.until_ns.min(rest.until_ns);
        self.waits |= rest.waits;
        if rest.interrupt {
            self.interrupts.push(at);
        }
    }

    /// Limits the sleep: something cannot end it that should.
    pub(crate) fn limit(&mut self) {
        self.until_ns = self.until_ns.min(self.now_ns + LONGEST_BLIND_NS);
    }

    /// Whether some channel waits for a request.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Whether every channel may sleep.
    pub(crate) fn may_sleep(&self) -> bool {
        self.until_ns > self.now_ns
    }

    /// Sleeps as planned, or until something is ready. Appends the descriptors that are to
    /// `readable`.
    pub(crate) fn sleep<'a>(
        &mut self,
        events: impl Iterator<Item = &'a EventFd>,
        channel: impl Fn(usize) -> Option<BorrowedFd<'a>>,
        descriptors: &[(usize, &OwnedFd)],
        readable: &mut VecDeque<usize>,
    ) {
        let channels: Vec<_> = self.interrupts.iter().filter_map(|at| channel(*at)).collect();
        if channels.len() < self.interrupts.len() {
            self.limit();
        }
        let wake_event = self.wake_event.clone();
        let own = wake_event.iter().map(|event| &event.event);
        let events: Vec<&EventFd> = own.chain(events.map(|event| event as &EventFd)).collect();
        let all = events
            .iter()
            .map(|event| event.as_fd())
            .chain(descriptors.iter().map(|(_, fd)| fd.as_fd()))
            .chain(channels);
        let mut fds: Vec<PollFd<'_>> =
            all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        if fds.is_empty() && self.until_ns == u64::MAX {
            self.limit();
        }
        let takes_cpu = self.now_ns.saturating_sub(self.cpu_taken_ns) >= CPU_SAMPLE_NS;
        if takes_cpu {
            self.cpu_taken_ns = self.now_ns;
        }
        let used_ns = if takes_cpu { thread_cpu_ns() } else { 0 };
        let planned_ns = self.until_ns.saturating_sub(self.clock.now_ns());
        if planned_ns == 0 {
            return;
        }
        let mut ready = 0;
        let mut sleep = || match self.until_ns {
            u64::MAX => ready = sleep_until_ready(&mut fds, None),
            _ if fds.is_empty() => self.clock.sleep_ns(planned_ns),
            _ => ready = sleep_until_ready(&mut fds, Some(planned_ns)),
        };
        match &wake_event {
            Some(event) => event.alert.sleep(sleep),
            None => sleep(),
        }
        let back_ns = self.clock.now_ns();
        // A signal handler also wakes it early.
        let why = match back_ns.checked_sub(self.until_ns) {
            Some(late_ns) if ready == 0 => {
                let cpu_ns = if takes_cpu { thread_cpu_ns() - used_ns } else { 0 };
                Why::Slept(Wake { slept_ns: planned_ns, late_ns, cpu_ns })
            }
            _ => Why::Woken,
        };
        self.off_queue = Some(OffQueue { back_ns, why });
        if ready == 0 {
            return;
        }
        let mut results = fds.iter().map(|fd| !fd.revents().is_empty());
        for (event, ready) in events.iter().zip(&mut results) {
            if ready {
                event.take();
            }
        }
        let ready = descriptors.iter().zip(results).filter(|(_, ready)| *ready);
        readable.extend(ready.map(|((at, _), _)| *at));
    }
}

/// Appends the descriptors that are readable now.
pub(super) fn poll_now(descriptors: &[(usize, &OwnedFd)], readable: &mut VecDeque<usize>) {
    if descriptors.is_empty() {
        return;
    }
    let mut fds: Vec<_> =
        descriptors.iter().map(|(_, fd)| PollFd::new(*fd, PollFlags::IN)).collect();
    if sleep_until_ready(&mut fds, Some(0)) > 0 {
        let ready = descriptors.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        readable.extend(ready.map(|((at, _), _)| *at));
    }
}
