//! Several competitors on one CPU, taken together.

use std::time::Duration;

use meantime_bench::competitor::Competitors;

use super::{Competitor, Kind, Sample, UNTIL_STOPPED};

/// Programs that compete for one CPU, and with each other. Their samples are added up, so that
/// their share of the CPU is at most 100 % for any number of them.
#[derive(Debug)]
pub(crate) struct CompetitorGroup(Vec<Competitor>);

impl CompetitorGroup {
    /// Returns the first one.
    pub(crate) fn first(&self) -> Option<&Competitor> {
        self.0.first()
    }
}

impl Competitors for CompetitorGroup {
    fn start(cpu: usize, kind: Kind, count: u32) -> Result<Self, String> {
        (0..count).map(|_| Competitor::start(cpu, kind)).collect::<Result<_, _>>().map(Self)
    }

    fn sample(&self) -> Sample {
        together(self.0.iter().map(Competitor::sample))
    }

    fn check(&mut self) -> Result<(), String> {
        self.0.iter_mut().try_for_each(Competitor::check)
    }

    fn alone(&mut self, duration: Duration) -> Sample {
        self.resume();
        // Afterwards caches are warm again, and the CPU's frequency is up.
        std::thread::sleep(duration / 10);
        let before = self.sample();
        std::thread::sleep(duration);
        let done = self.sample() - before;
        self.pause();
        done
    }

    fn pause(&mut self) {
        let running = self.0.iter_mut().filter_map(|one| one.ask_to_pause().then_some(())).count();
        if running > 0 {
            std::thread::sleep(UNTIL_STOPPED);
        }
    }

    fn resume(&mut self) {
        self.0.iter_mut().for_each(Competitor::resume);
    }
}

/// Adds up samples that were all taken at the same time.
fn together(samples: impl Iterator<Item = Sample>) -> Sample {
    let mut sum = Sample::default();
    for one in samples {
        let at_ns = one.at_ns;
        sum += one;
        sum.at_ns = at_ns;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by hand: two that ran 300 and 500 of the same 1,000 ns used 80 % of the CPU.
    #[test]
    fn work_adds_up_and_time_does_not() {
        let ran = |ran_ns| Sample { at_ns: 1_000, ran_ns, work: ran_ns / 10, ..Sample::default() };
        let sum = together([ran(300), ran(500)].into_iter());
        assert_eq!((sum.at_ns, sum.ran_ns, sum.work), (1_000, 800, 80));
        assert!((sum.share_percent() - 80.0).abs() < 1e-9);
        assert_eq!(together(std::iter::empty()), Sample::default());
    }
}
