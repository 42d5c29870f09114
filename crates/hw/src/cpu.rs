//! CPU affinity of a thread.

use std::io::Read as _;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{HwError, Result};

/// The CPUs that the calling thread may run on, in order.
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Binds the calling thread to `cpus`.
///
/// # Errors
/// If none of them exists, or this process may not use any.
pub fn bind(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).map_err(|errno| HwError::Os {
        what: "cannot bind the thread to its CPUs (are they online, and in this process's cpuset?)",
        source: errno.into(),
    })
}

/// The CPU that a thread had since its start, and what it wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Time in which it ran, in ns.
    pub ran_ns: u64,
    /// Time in which it could have run and did not, in ns: others ran, or its control group had
    /// used up its quota. `None`: the kernel does not say.
    pub waited_ns: Option<u64>,
}

impl CpuTimes {
    /// The times of the calling thread. Takes a few µs.
    pub fn of_thread() -> Self {
        Self { ran_ns: super::clock::thread_cpu_ns(), waited_ns: waited_ns() }
    }
}

/// The second figure of the scheduler's statistics of this thread: "time on the run queue", in ns
/// (kernel documentation: `scheduler/sched-stats.rst`). Allocates nothing. The file is not kept
/// open: a program that this library is loaded into may close descriptors that are not its own.
fn waited_ns() -> Option<u64> {
    let mut text = [0; 96];
    let mut file = std::fs::File::open("/proc/thread-self/schedstat").ok()?;
    let count = file.read(&mut text).ok()?;
    std::str::from_utf8(&text[..count]).ok()?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_shares_a_cpu_waits_for_it() {
        let Some(before_ns) = CpuTimes::of_thread().waited_ns else { return };
        let cpu = allowed()[0];
        let spin = move || {
            bind(&[cpu]).unwrap();
            let start = std::time::Instant::now();
            while start.elapsed().as_millis() < 200 {
                std::hint::spin_loop();
            }
            CpuTimes::of_thread()
        };
        let other = std::thread::spawn(spin);
        let one = std::thread::spawn(spin).join().unwrap();
        let two = other.join().unwrap();
        let waited_ns = [one, two].map(|times| times.waited_ns.unwrap());
        // One of them had the CPU at most half of the time.
        assert!(waited_ns.iter().max() > Some(&50_000_000), "{one:?} {two:?}");
        assert!(one.ran_ns + two.ran_ns < 300_000_000, "{one:?} {two:?}");
        assert!(CpuTimes::of_thread().waited_ns.unwrap() >= before_ns);
    }
}
