//! The competitor's loop: works, and reads the clock continuously to find when it did not run.

use std::sync::atomic::Ordering::Relaxed;

use meantime_hw::Clock;
use meantime_random::Rng;

use super::Kind;
use super::shared::Counters;

/// The shortest gap between two readings of the clock that counts as a context switch. Two readings
/// are 10 or 20 ns apart; a switch to another program and back takes longer than this.
const TSC_GAP_NS: u64 = 500;

/// Cache lines visited between two readings. Even if each misses in every cache and in the TLB, the
/// time is well below the gap.
const STEPS: u64 = 4;
const WALK_GAP_NS: u64 = 3_000;

const LINE_BYTES: u64 = 64;

/// A line of the working set: the index of the next line, and a counter to write.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line {
    next: u64,
    visits: u64,
}

/// Works until `stop` is set.
pub(super) fn run(kind: Kind, counters: &Counters, clock: &Clock) {
    match kind {
        Kind::Tsc => {
            counters.ready.store(true, Relaxed);
            watch(counters, clock, TSC_GAP_NS, 1, || ());
        }
        Kind::Walk { bytes } => {
            let mut lines = working_set((bytes / LINE_BYTES).max(2) as usize);
            let mut at = 0;
            counters.ready.store(true, Relaxed);
            watch(counters, clock, WALK_GAP_NS, STEPS, || {
                for _ in 0..STEPS {
                    let line = &mut lines[at];
                    line.visits = line.visits.wrapping_add(1);
                    at = line.next as usize;
                }
            });
        }
    }
}

#[inline(always)]
fn watch(counters: &Counters, clock: &Clock, gap_ns: u64, each: u64, mut step: impl FnMut()) {
    let (mut work, mut ran_ns) = (0, 0);
    let mut pauses = counters.pauses.load(Relaxed);
    let mut last_ns = clock.now_ns();
    while !counters.stop.load(Relaxed) {
        step();
        let now_ns = clock.now_ns();
        let passed_ns = now_ns - last_ns;
        last_ns = now_ns;
        work += each;
        if passed_ns < gap_ns {
            ran_ns += passed_ns;
        } else {
            let before = std::mem::replace(&mut pauses, counters.pauses.load(Relaxed));
            if pauses == before {
                counters.gaps.store(counters.gaps.load(Relaxed) + 1, Relaxed);
                counters.gap_ns.store(counters.gap_ns.load(Relaxed) + passed_ns, Relaxed);
            }
        }
        counters.ran_ns.store(ran_ns, Relaxed);
        counters.work.store(work, Relaxed);
    }
}

/// Returns `len` lines in one random cycle. Every line is visited before any is visited again, and
/// no prefetcher can predict the next.
fn working_set(len: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = (0..len).map(|at| Line { next: at as u64, visits: 0 }).collect();
    let mut rng = Rng::new(0x6d65_616e_7469_6d65);
    // Sattolo's algorithm makes a permutation of one cycle.
    for at in (1..len).rev() {
        let other = rng.below(at as u64) as usize;
        let next = lines[at].next;
        lines[at].next = lines[other].next;
        lines[other].next = next;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_visits_every_line_before_any_again() {
        for len in [2, 3, 64, 1000] {
            let lines = working_set(len);
            let mut seen = vec![false; len];
            let mut at = 0;
            for _ in 0..len {
                assert!(!std::mem::replace(&mut seen[at], true));
                at = lines[at].next as usize;
            }
            assert_eq!(at, 0);
        }
    }

    #[test]
    fn time_is_either_run_or_a_gap() {
        for kind in [Kind::Tsc, Kind::Walk { bytes: 65536 }] {
            let counters = Counters::default();
            let clock = Clock::real();
            let start_ns = clock.now_ns();
            std::thread::scope(|scope| {
                scope.spawn(|| run(kind, &counters, &clock));
                // Runs for this long, and until it has run on the CPU.
                std::thread::sleep(std::time::Duration::from_millis(30));
                let idle =
                    || counters.work.load(Relaxed) == 0 || counters.ran_ns.load(Relaxed) == 0;
                while idle() && clock.now_ns() - start_ns < 20_000_000_000 {
                    std::thread::yield_now();
                }
                counters.stop.store(true, Relaxed);
            });
            let (ran_ns, gap_ns) = (counters.ran_ns.load(Relaxed), counters.gap_ns.load(Relaxed));
            assert!(counters.work.load(Relaxed) > 0 && ran_ns > 0, "{kind}");
            assert!(ran_ns + gap_ns <= clock.now_ns() - start_ns, "{kind}");
        }
    }
}
