//! The search for the greatest depth that keeps a latency (`latency_target`), as in fio: double
//! until it fails, then bisect; judge the latencies of a window each time.

use crate::job::LatencyTarget;

/// The result of judging the latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No change.
    GoOn,
    /// Change the depth, once nothing is in flight.
    Changed,
    /// The depth is found: measurements from now on count.
    Found,
    /// The depth has been measured.
    Done,
    /// Even depth 1 does not keep the latency; the worst one in ns.
    Hopeless(u64),
}

/// The search for the greatest depth that keeps a latency.
#[derive(Debug, Clone, Default)]
pub(super) struct Search {
    target_ns: u64,
    window_ns: u64,
    /// In millionths of a percent.
    percentile_ppm: u64,
    goes_on: bool,
    depth_max: usize,
    /// The depth being tried.
    pub depth: usize,
    low: usize,
    high: usize,
    /// Successes in a row just below `high`.
    stable: u32,
    is_final: bool,
    began_ns: u64,
    /// Length of the window in earlier turns.
    before_ns: u64,
    ios: u64,
    late: u64,
    worst_ns: u64,
}

/// After this number of successes just below a depth that failed, that depth is tried again.
const STABLE: u32 = 3;

impl Search {
    /// Creates the search that `keys` request, with up to `depth_max` I/Os; `None` without a
    /// target.
    pub(super) fn new(keys: &LatencyTarget, depth_max: usize) -> Option<Self> {
        Some(Self {
            target_ns: keys.target?.as_nanos() as u64,
            window_ns: keys.window.as_nanos() as u64,
            percentile_ppm: keys.percentile_ppm,
            goes_on: keys.run,
            depth_max,
            depth: 1,
            low: 1,
            high: depth_max,
            ..Self::default()
        })
    }

    /// Counts an I/O.
    #[inline]
    pub(super) fn took(&mut self, latency_ns: u64) {
        self.ios += 1;
        self.late += u64::from(latency_ns > self.target_ns);
        self.worst_ns = self.worst_ns.max(latency_ns);
    }

    /// Begins a turn.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.began_ns = now_ns;
    }

    /// Ends a turn.
    pub(super) fn rest(&mut self, now_ns: u64) {
        self.before_ns += now_ns - self.began_ns;
    }

    /// Returns whether to change the depth.
    pub(super) fn judge(&mut self, now_ns: u64) -> Verdict {
        // If all I/Os must keep the latency, a single late one decides.
        let all = self.percentile_ppm == 100_000_000;
        if all && self.late > 0 {
            return self.failed(now_ns);
        }
        if self.ios == 0 || self.before_ns + (now_ns - self.began_ns) < self.window_ns {
            return Verdict::GoOn;
        }
        let kept = u128::from(self.ios - self.late) * 100_000_000;
        if kept >= u128::from(self.ios) * u128::from(self.percentile_ppm) {
            self.succeeded(now_ns)
        } else {
            self.failed(now_ns)
        }
    }

    fn next_window(&mut self, now_ns: u64) {
        (self.began_ns, self.before_ns) = (now_ns, 0);
        (self.ios, self.late, self.worst_ns) = (0, 0, 0);
    }

    fn failed(&mut self, now_ns: u64) -> Verdict {
        if self.depth == 1 {
            return Verdict::Hopeless(self.worst_ns);
        }
        self.high = self.depth;
        if self.depth == self.low {
            self.low -= 1;
        }
        self.depth = ((self.depth + self.low) / 2).max(1);
        (self.stable, self.is_final) = (0, false);
        self.next_window(now_ns);
        Verdict::Changed
    }

    fn succeeded(&mut self, now_ns: u64) -> Verdict {
        let before = self.depth;
        self.low = self.depth;
        if self.depth + 1 == self.high {
            self.stable += 1;
            if self.stable >= STABLE {
                (self.high, self.stable) = ((self.high + 1).min(self.depth_max), 0);
            }
        }
        // While nothing has failed: double.
        let next =
            if self.high == self.depth_max { self.depth * 2 } else { (self.depth + self.high) / 2 };
        self.depth = next.min(self.depth_max);
        self.next_window(now_ns);
        match (self.depth == before, self.goes_on, self.is_final) {
            (false, ..) => Verdict::Changed,
            (true, true, _) => Verdict::GoOn,
            (true, false, true) => Verdict::Done,
            (true, false, false) => {
                self.is_final = true;
                Verdict::Found
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::testing::job;

    /// Simulates a device that keeps 100 µs up to a depth of `good`.
    fn find(good: usize, depth_max: usize, percentile: &str) -> (Vec<usize>, Verdict) {
        let job = job(&[
            ("latency_target", "100"),
            ("latency_window", "1ms"),
            ("latency_percentile", percentile),
        ]);
        let mut search = Search::new(&job.latency_target, depth_max).unwrap();
        let (mut now_ns, mut tried) = (0, vec![1]);
        search.begin(0);
        for _ in 0..100 {
            for at in 0..100 {
                search.took(if at == 7 && search.depth > good { 150_000 } else { 90_000 });
            }
            now_ns += 1_000_000;
            match search.judge(now_ns) {
                Verdict::GoOn => {}
                Verdict::Changed | Verdict::Found => tried.push(search.depth),
                end => return (tried, end),
            }
        }
        panic!("no end: {tried:?}")
    }

    #[test]
    fn the_depth_is_found() {
        assert_eq!(find(11, 64, "100"), (vec![1, 2, 4, 8, 16, 12, 10, 11, 11], Verdict::Done));
        assert_eq!(find(100, 16, "100"), (vec![1, 2, 4, 8, 16, 16], Verdict::Done));
        assert_eq!(find(0, 16, "100"), (vec![1], Verdict::Hopeless(150_000)));
        // One in a hundred is late, which is allowed.
        assert_eq!(find(4, 16, "99").1, Verdict::Done);
        assert_eq!(find(4, 16, "99").0.last(), Some(&16));
        assert_eq!(find(4, 16, "99.5").0.last(), Some(&4));
    }
}
