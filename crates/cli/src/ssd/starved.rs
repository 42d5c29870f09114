//! Detects whether the SSD's thread gets to run. If it does not, all latencies suffer, and the
//! figures do not show the cause.

use std::fs::{read_dir, read_to_string};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use meantime_process::cpu::Times;

/// The name of the SSD's thread.
const THREAD: &str = "meantime-ssd";

/// Time between two looks.
const WINDOW: Duration = Duration::from_secs(1);

/// The thread is starved if it could not run for this share of the time, in percent.
const TOO_MUCH_PERCENT: u64 = 20;

/// A thread that runs for less than this share of the time, in percent, loses nothing to the
/// hypervisor.
const BUSY_PERCENT: u64 = 10;

/// The kernel's counters at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at_ns: u64,
    /// Time for which the thread ran.
    ran_ns: u64,
    /// Time for which it was ready but did not run.
    waited_ns: u64,
    /// Time for which the hypervisor took its CPU.
    stolen_ns: u64,
}

/// Watches the thread; reports once.
pub(super) struct Watch {
    begun: Instant,
    task: PathBuf,
    /// The CPU that the thread is bound to.
    cpu: Option<usize>,
    last: Sample,
}

impl Watch {
    /// Watches this process's SSD; `None` if the kernel does not count its threads' times.
    pub(super) fn new() -> Option<Self> {
        let task =
            read_dir("/proc/self/task").ok()?.flatten().map(|entry| entry.path()).find(|task| {
                read_to_string(task.join("comm")).is_ok_and(|name| name.trim_end() == THREAD)
            })?;
        let cpu = bound_to(&read_to_string(task.join("status")).ok()?);
        let mut watch = Self { begun: Instant::now(), task, cpu, last: Sample::default() };
        watch.last = watch.sample()?;
        Some(watch)
    }

    fn sample(&self) -> Option<Sample> {
        let Times { ran_ns, waited_ns } = Times::of_task(&self.task)?;
        let at_ns = self.begun.elapsed().as_nanos() as u64;
        let stolen_ns = self.cpu.and_then(stolen).unwrap_or(0);
        Some(Sample { at_ns, ran_ns, waited_ns, stolen_ns })
    }

    /// Returns the warning, if a window has passed since the last look and there is one.
    pub(super) fn look(&mut self) -> Option<String> {
        if self.begun.elapsed().as_nanos() as u64 - self.last.at_ns < WINDOW.as_nanos() as u64 {
            return None;
        }
        let now = self.sample()?;
        let before = std::mem::replace(&mut self.last, now);
        judge(&before, &now, self.cpu)
    }
}

/// Returns the warning about the time between two samples, if there is one.
fn judge(before: &Sample, now: &Sample, cpu: Option<usize>) -> Option<String> {
    let wall_ns = now.at_ns.saturating_sub(before.at_ns).max(1);
    let percent = |from: u64, to: u64| to.saturating_sub(from).saturating_mul(100) / wall_ns;
    let waited = percent(before.waited_ns, now.waited_ns);
    let stolen = percent(before.stolen_ns, now.stolen_ns);
    let which = cpu.map_or("the CPUs it may use".to_owned(), |cpu| format!("CPU {cpu}"));
    if waited >= TOO_MUCH_PERCENT {
        return Some(format!(
            "the SSD's thread could not run for {waited} % of the last second, since others run on \
             {which}: its latencies are theirs; \
             give it a CPU that is free by cpu= in the URI, or move the others"
        ));
    }
    if stolen >= TOO_MUCH_PERCENT && percent(before.ran_ns, now.ran_ns) >= BUSY_PERCENT {
        return Some(format!(
            "the hypervisor took {which} from the SSD's thread for {stolen} % of the last second: \
             its latencies are the hypervisor's; \
             choose another CPU by cpu= in the URI, or a machine that is not shared"
        ));
    }
    None
}

/// Returns the one CPU that a task may use, by its `status`.
fn bound_to(status: &str) -> Option<usize> {
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().parse().ok()
}

/// Returns how long the hypervisor ran other guests on `cpu`, in ns (proc(5), stat).
fn stolen(cpu: usize) -> Option<u64> {
    stolen_in(&read_to_string("/proc/stat").ok()?, cpu)
}

fn stolen_in(stat: &str, cpu: usize) -> Option<u64> {
    /// Index after the name: user, nice, system, idle, iowait, irq, softirq, steal.
    const STEAL_AT: usize = 8;
    let name = format!("cpu{cpu}");
    let line = stat.lines().find(|line| line.split_ascii_whitespace().next() == Some(&name))?;
    let ticks: u64 = line.split_ascii_whitespace().nth(STEAL_AT)?.parse().ok()?;
    Some(ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn said(ran_ns: u64, waited_ns: u64, stolen_ns: u64) -> Option<String> {
        let before = Sample { at_ns: 5 * SECOND, ran_ns: 7, waited_ns: 9, stolen_ns: 11 };
        let now = Sample {
            at_ns: 6 * SECOND,
            ran_ns: 7 + ran_ns,
            waited_ns: 9 + waited_ns,
            stolen_ns: 11 + stolen_ns,
        };
        judge(&before, &now, Some(3))
    }

    #[test]
    fn only_what_keeps_it_from_running_is_said() {
        // Alone on its CPU, or asleep.
        assert_eq!(said(SECOND, SECOND / 10, 0), None);
        assert_eq!(said(0, 0, 0), None);
        // Beside another program.
        let text = said(SECOND / 2, SECOND / 2, 0).unwrap();
        assert!(text.contains("50 %") && text.contains("CPU 3") && text.contains("cpu="), "{text}");
        // CPU that the hypervisor takes does not affect a thread that is mostly asleep.
        assert_eq!(said(SECOND / 20, 0, SECOND / 2), None);
        let text = said(SECOND / 2, 0, SECOND / 4).unwrap();
        assert!(
            text.contains("hypervisor") && text.contains("25 %") && text.contains("cpu="),
            "{text}"
        );
    }

    #[test]
    fn proc_is_read_as_it_is() {
        assert_eq!(bound_to("Name:\tx\nCpus_allowed_list:\t7\n"), Some(7));
        assert_eq!(bound_to("Cpus_allowed_list:\t0-3\n"), None);
        let stat =
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 3 4 5 6 7 8 9 10\ncpu10 1 2 3 4 5 6 7 80 9 10\n";
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        assert_eq!(
            (stolen_in(stat, 1), stolen_in(stat, 10)),
            (Some(8 * tick_ns), Some(80 * tick_ns))
        );
        assert_eq!(stolen_in(stat, 2), None);
    }
}
