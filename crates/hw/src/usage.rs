//! A thread's use of its CPU.

#![expect(unsafe_code)]

use std::ops::{AddAssign, Sub};

/// The figures of getrusage(2) for one thread.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ThreadUsage {
    /// User time.
    pub user_ns: u64,
    /// System time.
    pub system_ns: u64,
    /// Voluntary and involuntary context switches.
    pub switches: u64,
    /// Page faults that required I/O.
    pub major_faults: u64,
    /// Page faults that required no I/O.
    pub minor_faults: u64,
}

/// The kernel's figures for the calling thread; all zeroes if the call fails.
pub(crate) fn of_thread() -> libc::rusage {
    // SAFETY: all zeroes is a valid `rusage`, which consists of integers; getrusage writes to
    // nothing else.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    }
}

impl ThreadUsage {
    /// The figures of the calling thread, since its start.
    pub fn of_thread() -> Self {
        let usage = of_thread();
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        Self {
            user_ns: ns(usage.ru_utime),
            system_ns: ns(usage.ru_stime),
            switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
            major_faults: usage.ru_majflt as u64,
            minor_faults: usage.ru_minflt as u64,
        }
    }
}

impl Sub for ThreadUsage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            // The kernel splits the exact total by sampling, and may move a part from one to the
            // other.
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            system_ns: self.system_ns.saturating_sub(before.system_ns),
            switches: self.switches - before.switches,
            major_faults: self.major_faults - before.major_faults,
            minor_faults: self.minor_faults - before.minor_faults,
        }
    }
}

impl AddAssign for ThreadUsage {
    fn add_assign(&mut self, other: Self) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.switches += other.switches;
        self.major_faults += other.major_faults;
        self.minor_faults += other.minor_faults;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_is_charged() {
        let before = ThreadUsage::of_thread();
        let cpu_ns = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            time.tv_sec * 1_000_000_000 + time.tv_nsec
        };
        let start_ns = cpu_ns();
        while cpu_ns() - start_ns < 50_000_000 {
            std::hint::spin_loop();
        }
        let used = ThreadUsage::of_thread() - before;
        // The time charged is measured separately, in coarser steps.
        assert!(used.user_ns + used.system_ns > 5_000_000, "{used:?}");
    }
}
