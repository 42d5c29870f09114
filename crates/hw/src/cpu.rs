//! CPU affinity of a thread.

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

/// How often this thread was preempted by another.
pub fn involuntary_switches() -> u64 {
    super::usage::of_thread().ru_nivcsw as u64
}
