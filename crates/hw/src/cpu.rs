//! CPU affinity of a thread.

use meantime_process::cpu::Times;
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
/// Fails if none of them exists, or this process may not use any.
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

/// How long the calling thread was runnable but did not run since its start, in ns
/// ([`Times::waited_ns`]); `None` if the kernel does not report it. This takes a few µs and
/// allocates nothing.
pub fn thread_waited_ns() -> Option<u64> {
    Times::of_this_thread().map(|times| times.waited_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn threads_on_one_cpu_wait_for_each_other() {
        if thread_waited_ns().is_none() {
            return;
        }
        let (cpu, waited) = (allowed()[0], AtomicBool::new(false));
        let spin = || {
            bind(&[cpu]).unwrap();
            let before_ns = thread_waited_ns().unwrap();
            let start = Instant::now();
            while !waited.load(Ordering::Relaxed) {
                if thread_waited_ns().unwrap() > before_ns + 10_000_000 {
                    waited.store(true, Ordering::Relaxed);
                }
                assert!(start.elapsed() < Duration::from_secs(60), "none has waited");
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(spin);
            scope.spawn(spin);
        });
    }
}
