//! The earliest likely completion of an I/O: a low quantile of the device time of its class.

use super::class::Class;

/// I/Os per estimate. The second shortest of them is about their 5th percentile.
const BLOCK: u8 = 32;
/// The number of I/Os for a first estimate.
const FIRST: u8 = 4;
/// After this many uninformative observations in a row an estimate is outdated.
const BLIND: u8 = 64;

/// What is known of an I/O's completion time, in ns since its submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Observation {
    /// The previous poll, just before, was empty.
    Exact(u64),
    /// There was no look just before, so it may have been complete for long.
    AtMost(u64),
}

#[derive(Debug, Clone, Copy, Default)]
struct Track {
    /// The two shortest of the current block.
    shortest_ns: u32,
    second_ns: u32,
    /// The second shortest of the last block.
    last_ns: u32,
    seen: u8,
    blind: u8,
    /// Whether there was a previous block.
    has_last: bool,
}

impl Track {
    fn insert(&mut self, ns: u32) {
        self.blind = 0;
        if self.seen == 0 {
            (self.shortest_ns, self.second_ns) = (u32::MAX, u32::MAX);
        }
        if ns < self.shortest_ns {
            self.second_ns = self.shortest_ns;
            self.shortest_ns = ns;
        } else {
            self.second_ns = self.second_ns.min(ns);
        }
        self.seen += 1;
        if self.seen == BLOCK {
            (self.last_ns, self.seen, self.has_last) = (self.second_ns, 0, true);
        }
    }

    fn estimate_ns(&self) -> Option<u32> {
        match (self.has_last, self.seen) {
            (false, seen) if seen < FIRST => None,
            (false, _) => Some(self.shortest_ns),
            (true, seen) if seen < 2 => Some(self.last_ns),
            // A shorter time counts at once, a longer one when a block is full.
            (true, _) => Some(self.last_ns.min(self.second_ns)),
        }
    }
}

/// For each class, its earliest likely completion.
#[derive(Debug)]
pub(crate) struct EarliestCompletion(Box<[Track; Class::COUNT]>);

impl Default for EarliestCompletion {
    fn default() -> Self {
        Self(Box::new([Track::default(); Class::COUNT]))
    }
}

impl EarliestCompletion {
    /// Records an I/O of `class`.
    ///
    /// An upper limit that is not clearly below the estimate is ignored: otherwise oversleeps would
    /// raise the estimate, and a caller who works until just before it would find each completion a
    /// little sooner, however much faster the device has become.
    #[inline]
    pub(crate) fn record(&mut self, class: Class, observation: Observation) {
        let track = &mut self.0[class.index() % Class::COUNT];
        let short = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
        match observation {
            Observation::Exact(ns) => track.insert(short(ns)),
            Observation::AtMost(ns) => match track.estimate_ns() {
                Some(estimate_ns) if short(ns) < estimate_ns - estimate_ns / 8 => {
                    track.insert(short(ns))
                }
                _ => {
                    track.blind += 1;
                    if track.blind >= BLIND {
                        *track = Track::default();
                    }
                }
            },
        }
    }

    /// The time in ns since submission before which about one in twenty I/Os of `class` is
    /// complete; `None` if it is not known.
    #[inline]
    pub(crate) fn estimate_ns(&self, class: Class) -> Option<u64> {
        self.0[class.index() % Class::COUNT].estimate_ns().map(u64::from)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::class::Kind;
    use super::*;

    fn class() -> Class {
        Class::new(Kind::Read, 4096, 1)
    }

    fn feed(
        earliest: &mut EarliestCompletion,
        observations: impl IntoIterator<Item = Observation>,
    ) {
        observations.into_iter().for_each(|observation| earliest.record(class(), observation));
    }

    /// By hand: the shortest of the first four; then the second shortest of 32. Shorter times count
    /// at once, longer ones after a block.
    #[test]
    fn a_low_quantile() {
        let mut earliest = EarliestCompletion::default();
        feed(&mut earliest, [9_000, 8_000, 7_000].map(Observation::Exact));
        assert_eq!(earliest.estimate_ns(class()), None);
        feed(&mut earliest, (0..29).map(|n| Observation::Exact(10_000 + n)));
        assert_eq!(earliest.estimate_ns(class()), Some(8_000));
        assert_eq!(earliest.estimate_ns(Class::new(Kind::Write, 4096, 1)), None);
        feed(&mut earliest, [2_000, 3_000].map(Observation::Exact));
        assert_eq!(earliest.estimate_ns(class()), Some(3_000));
        feed(&mut earliest, [60_000; 30].map(Observation::Exact));
        assert_eq!(earliest.estimate_ns(class()), Some(3_000));
        feed(&mut earliest, [60_000; 32].map(Observation::Exact));
        assert_eq!(earliest.estimate_ns(class()), Some(60_000));
    }

    #[test]
    fn oversleeps_never_make_it_longer() {
        let mut earliest = EarliestCompletion::default();
        feed(&mut earliest, [10_000; 32].map(Observation::Exact));
        feed(&mut earliest, [44_000; 63].map(Observation::AtMost));
        assert_eq!(earliest.estimate_ns(class()), Some(10_000));
        // But an early one lowers it.
        feed(&mut earliest, [4_000, 4_100].map(Observation::AtMost));
        assert_eq!(earliest.estimate_ns(class()), Some(4_100));
        // When there is nothing else, the estimate becomes unknown.
        feed(&mut earliest, [44_000; 64].map(Observation::AtMost));
        assert_eq!(earliest.estimate_ns(class()), None);
    }

    #[test]
    fn what_says_nothing_counts_in_a_row() {
        let mut earliest = EarliestCompletion::default();
        feed(&mut earliest, [10_000; 32].map(Observation::Exact));
        for _ in 0..4 {
            feed(&mut earliest, [44_000; 63].map(Observation::AtMost));
            feed(&mut earliest, [Observation::Exact(10_000)]);
            assert_eq!(earliest.estimate_ns(class()), Some(10_000));
        }
    }
}
