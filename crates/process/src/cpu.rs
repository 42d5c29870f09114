//! Measures whether other threads want the CPU of a thread that spins. The number of CPUs plays no
//! part in this.
//!
//! The kernel counts how long a thread was runnable but did not run (`schedstat`). For a thread
//! that spins, this says too little: the threads that it keeps from running only show once it
//! yields. So [`CpuContention`] seldom yields the CPU, between two readings of that count. If no
//! thread waits for the CPU, this takes less than a microsecond. The thread does not yield often:
//! since Linux 6.18 each yield gives up the rest of a time slice, and a thread that yielded again
//! and again was seen not to run for seconds.

use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::thread::sched_getcpu;

/// The CPU counts as short if the thread had to wait for it for more than this part of the time. A
/// kernel thread that runs once in a while does not reach this.
pub const SHORT: f32 = 0.1;

/// Time between two looks of a thread that no other disturbs, in ns: about a time slice.
const EVERY_NS: u64 = 4_000_000;
/// A thread that uses a yield for this long, in ns, spins. Kernel threads take less.
const LONG_NS: u64 = 500_000;
/// How long a CPU counts as contended: at least `FIRST_NS`, in ns, and `PATIENCE` times what the
/// yield has cost, since finding out that it still is contended costs another yield; twice as long
/// with each look in a row that finds it contended; at most `LONGEST_NS`.
const FIRST_NS: u64 = 20_000_000;
const PATIENCE: u64 = 64;
const LONGEST_NS: u64 = 2_000_000_000;

/// What the kernel has counted for a thread since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// How long the thread ran, in ns; the kernel is behind by up to a tick.
    pub ran_ns: u64,
    /// How long the thread was runnable but did not run, in ns: others ran, or its control group
    /// had used up its quota.
    pub waited_ns: u64,
}

impl Times {
    /// The times of the calling thread; `None` if the kernel does not report them. Takes a few µs,
    /// and allocates nothing.
    pub fn of_this_thread() -> Option<Self> {
        Self::read(Path::new("/proc/thread-self/schedstat"))
    }

    /// The times of the thread with this folder in `/proc`.
    pub fn of_task(folder: &Path) -> Option<Self> {
        Self::read(&folder.join("schedstat"))
    }

    /// The first two figures (kernel documentation: `scheduler/sched-stats.rst`).
    fn read(path: &Path) -> Option<Self> {
        // The file is not kept open: a program into which this library is loaded may close
        // descriptors that are not its own.
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = [0; 96];
        let count = rustix::io::read(file, &mut text).ok()?;
        let text = std::str::from_utf8(&text[..count]).ok()?;
        let mut figures = text.split_ascii_whitespace().map(str::parse);
        Some(Self { ran_ns: figures.next()?.ok()?, waited_ns: figures.next()?.ok()? })
    }
}

/// The time, a thread's CPU, and how long the thread had waited for a CPU, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The time of the reading, in ns.
    pub at_ns: u64,
    /// The CPU that the thread was on.
    pub cpu: usize,
    /// [`Times::waited_ns`].
    pub waited_ns: u64,
}

impl Reading {
    /// Takes a reading by these clocks; `None` if the kernel does not report how long the thread
    /// waited.
    pub fn take(now_ns: impl Fn() -> u64, waited_ns: fn() -> Option<u64>) -> Option<Self> {
        let waited_ns = waited_ns()?;
        Some(Self { at_ns: now_ns(), cpu: sched_getcpu(), waited_ns })
    }
}

/// Whether others want the CPU of a thread that would rather spin. A CPU counts as the thread's own
/// until a look finds otherwise; the first look is due at once.
#[derive(Debug, Clone, Default)]
pub struct CpuContention {
    /// The last look.
    last: Option<Reading>,
    /// When the next look is due, in ns.
    next_ns: u64,
    /// Whether another thread used the last yield, but not for long.
    brief: bool,
    /// When the CPU of the last look ceases to count as contended, in ns; and for how long it
    /// counted so.
    until_ns: u64,
    patience_ns: u64,
}

impl CpuContention {
    /// Whether others want this CPU, so that spinning keeps it from them.
    #[inline]
    pub fn is_contended(&self, now_ns: u64, cpu: impl FnOnce() -> usize) -> bool {
        now_ns < self.until_ns && self.last.is_some_and(|last| last.cpu == cpu())
    }

    /// Whether a thread that has nothing to do should look, unless its CPU is contended.
    #[inline]
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// Makes the next look due: something kept the thread from running, perhaps another thread.
    pub fn look_soon(&mut self) {
        self.next_ns = 0;
    }

    /// Looks: yields the CPU to the threads that wait for it, between two readings. Returns false
    /// if `reading` returns `None`.
    pub fn yield_cpu(&mut self, reading: impl Fn() -> Option<Reading>) -> bool {
        let Some(before) = reading() else { return false };
        std::thread::yield_now();
        let Some(after) = reading() else { return false };
        self.judge(before, after);
        true
    }

    /// The former name of [`yield_cpu`](Self::yield_cpu).
    #[deprecated(note = "use `yield_cpu`")]
    pub fn give_way(&mut self, reading: impl Fn() -> Option<Reading>) -> bool {
        self.yield_cpu(reading)
    }

    /// Concludes whether the CPU is contended from the readings before and after a yield.
    fn judge(&mut self, before: Reading, after: Reading) {
        let last = self.last.replace(after).filter(|last| last.cpu == after.cpu);
        if last.is_none() {
            // The thread is on another CPU, which has other threads.
            (self.brief, self.until_ns, self.patience_ns) = (false, 0, 0);
        }
        // If the scheduler moved the thread, its wait says nothing about the new CPU.
        let has_stayed = before.cpu == after.cpu;
        let used_ns = after.waited_ns.saturating_sub(before.waited_ns) * u64::from(has_stayed);
        let has_lost = last.is_some_and(|last| {
            let waited_ns = before.waited_ns.saturating_sub(last.waited_ns) as f32;
            // If it slept instead of spinning, it waited for the CPU after its wake-ups.
            last.at_ns >= self.until_ns
                && waited_ns > SHORT * before.at_ns.saturating_sub(last.at_ns) as f32
        });
        let is_brief = used_ns > 0;
        self.next_ns = after.at_ns + if is_brief { 0 } else { EVERY_NS };
        // A single brief use of the yield may be by a thread that happened to be there.
        if has_lost || used_ns >= LONG_NS || is_brief && self.brief {
            let least_ns = FIRST_NS.max(PATIENCE.saturating_mul(used_ns));
            self.patience_ns = least_ns.max(2 * self.patience_ns).min(LONGEST_NS);
            self.until_ns = after.at_ns + self.patience_ns;
        } else if !is_brief {
            self.patience_ns = 0;
        }
        self.brief = is_brief;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    /// A thread on a CPU, and what it knows.
    #[derive(Default)]
    struct Thread {
        contention: CpuContention,
        now_ns: u64,
        cpu: usize,
        waited_ns: u64,
    }

    impl Thread {
        /// The thread spins and waits for its CPU for these times, then yields to another for
        /// `used_ns`.
        fn pass(&mut self, spun_ns: u64, waited_ns: u64, used_ns: u64) -> bool {
            self.now_ns += spun_ns + waited_ns;
            self.waited_ns += waited_ns;
            let before = self.reading();
            self.now_ns += used_ns + 1;
            self.waited_ns += used_ns;
            self.contention.judge(before, self.reading());
            self.is_contended()
        }

        fn reading(&self) -> Reading {
            Reading { at_ns: self.now_ns, cpu: self.cpu, waited_ns: self.waited_ns }
        }

        fn is_contended(&self) -> bool {
            self.contention.is_contended(self.now_ns, || self.cpu)
        }

        /// The thread sleeps between its turns until its CPU counts as its own. Returns for how
        /// long.
        fn nap(&mut self) -> u64 {
            let begun_ns = self.now_ns;
            while self.is_contended() {
                self.now_ns += MS / 10;
                // A wake-up takes its time on a CPU of its own, too.
                self.waited_ns += MS / 20;
            }
            self.now_ns - begun_ns
        }
    }

    #[test]
    fn who_is_alone_looks_seldom_and_is_not_contended() {
        let mut thread = Thread::default();
        assert!(!thread.is_contended() && thread.contention.is_due(0));
        for turn in 0..1_000 {
            // A kernel thread runs every now and then: before a look, or just during it.
            let (waited_ns, used_ns) = ((turn % 3) * 100 * US, (turn % 2) * 60 * US);
            assert!(!thread.pass(4 * MS, waited_ns, used_ns), "{turn}");
            let soon = thread.contention.is_due(thread.now_ns);
            assert_eq!(soon, used_ns > 0, "{turn}: a second look tells it from a neighbour");
            if soon {
                assert!(!thread.pass(US, 0, 0), "{turn}");
            }
            assert!(!thread.contention.is_due(thread.now_ns + MS) && !thread.is_contended());
        }
    }

    #[test]
    fn who_spins_on_the_same_cpu_is_seen_at_the_first_look() {
        let mut thread = Thread { now_ns: 7_000 * MS, waited_ns: 3 * MS, ..Thread::default() };
        assert!(thread.pass(US, 0, MS));
    }

    #[test]
    fn who_runs_briefly_is_seen_at_the_second_look() {
        let mut thread = Thread::default();
        assert!(!thread.pass(US, 0, 30 * US));
        assert!(thread.contention.is_due(thread.now_ns) && thread.pass(10 * US, 0, 30 * US));
    }

    #[test]
    fn who_takes_more_than_a_tenth_is_seen_even_if_gone_at_the_look() {
        let mut thread = Thread::default();
        thread.pass(4 * MS, 0, 0);
        assert!(!thread.pass(4 * MS, 400 * US, 0));
        assert!(thread.pass(4 * MS, 600 * US, 0));
    }

    #[test]
    fn a_contended_cpu_is_asked_ever_more_seldom_and_a_free_one_is_used_again() {
        let mut thread = Thread::default();
        let (mut napped_ns, mut cost_ns) = (Vec::new(), 0);
        while napped_ns.iter().sum::<u64>() < 10_000 * MS {
            // The neighbour takes a time slice.
            assert!(thread.pass(US, 0, 4 * MS));
            cost_ns += 4 * MS;
            napped_ns.push(thread.nap());
        }
        assert!(napped_ns[0] >= 100 * MS, "in the first 100 ms one look is enough");
        assert!(napped_ns.windows(2).all(|pair| pair[1] >= pair[0]), "{napped_ns:?}");
        assert!(napped_ns.iter().all(|ns| *ns <= LONGEST_NS + MS));
        assert!(cost_ns < 40 * MS, "{cost_ns} ns of 10 s");
        // Waits while the thread slept do not count.
        assert!(!thread.pass(US, 0, 0));
        assert!(thread.pass(US, 0, MS) && thread.nap() < 100 * MS, "the past is forgotten");
    }

    #[test]
    fn another_cpu_has_other_threads() {
        let mut thread = Thread::default();
        assert!(thread.pass(US, 0, MS));
        thread.cpu = 1;
        assert!(!thread.is_contended() && thread.contention.is_due(thread.now_ns));
        // The thread was moved there after it had waited on the former CPU.
        assert!(!thread.pass(4 * MS, 3 * MS, 0));
        let before = thread.reading();
        thread.cpu = 0;
        (thread.now_ns, thread.waited_ns) = (thread.now_ns + MS, thread.waited_ns + MS);
        thread.contention.judge(before, thread.reading());
        assert!(!thread.is_contended());
    }

    #[test]
    fn without_figures_nothing_is_known() {
        let (mut contention, none) = (CpuContention::default(), || None);
        assert!(!contention.yield_cpu(none) && contention.is_due(0));
        let dir = std::env::temp_dir().join(format!("meantime-times-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(Times::of_task(&dir), None);
        for (text, times) in [
            ("12 34 5\n", Some(Times { ran_ns: 12, waited_ns: 34 })),
            ("12\n", None),
            ("", None),
            ("- -\n", None),
        ] {
            std::fs::write(dir.join("schedstat"), text).unwrap();
            assert_eq!(Times::of_task(&dir), times, "{text:?}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
