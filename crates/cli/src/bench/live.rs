//! Histograms of a run while it goes on: what has ended since the last one.

use std::time::{Duration, Instant};

use meantime_bench::run::Watch;
use meantime_report::figures::grouped;
use meantime_report::histogram::{self, BUCKETS};

use crate::top::process::shortened;

/// What the last histograms had.
pub(super) struct Live {
    since: Instant,
    /// The counts by cell.
    before: Vec<[u64; BUCKETS]>,
}

impl Live {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), before: Vec::new() }
    }

    /// Returns the time since the last histograms.
    pub(super) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns the histograms of the cells of which an I/O has ended since the last call, in at
    /// most this number of columns and lines. It is empty if there are none.
    pub(super) fn text(&mut self, watch: &Watch, columns: usize, lines_max: usize) -> String {
        let seconds = self.elapsed().as_secs_f64();
        self.since = Instant::now();
        let now = watch.histograms();
        let before = self.before.iter().copied().chain(std::iter::repeat([0; BUCKETS]));
        let blocks = now.iter().zip(before).filter_map(|((cell, now), before)| {
            let counts: Vec<u64> = now.iter().zip(before).map(|(now, then)| now - then).collect();
            block(&cell.name, &counts, seconds, columns)
        });
        let text = fitted(blocks.collect(), lines_max);
        self.before = now.into_iter().map(|(_, counts)| counts).collect();
        text
    }
}

/// Returns the lines about a cell, if an I/O has ended.
fn block(name: &str, counts: &[u64], seconds: f64, columns: usize) -> Option<Vec<String>> {
    let ios = Some(counts.iter().sum::<u64>()).filter(|ios| *ios > 0)?;
    let title = format!("{name}: {} I/Os in {seconds:.1} s", grouped(ios as f64));
    let lines = histogram::lines(0, counts, columns);
    Some(std::iter::once(shortened(&title, columns)).chain(lines).collect())
}

/// Returns as many whole blocks as there is room for, and how many there are more.
fn fitted(blocks: Vec<Vec<String>>, lines_max: usize) -> String {
    let (mut lines, mut left_out) = (Vec::new(), 0);
    for (at, block) in blocks.iter().enumerate() {
        // A line has the number of those left out.
        let needed = block.len() + usize::from(at + 1 < blocks.len());
        if left_out == 0 && (at == 0 || lines.len() + needed <= lines_max) {
            lines.extend_from_slice(block);
        } else {
            left_out += 1;
        }
    }
    if left_out > 0 {
        lines.truncate(lines_max.saturating_sub(1));
        lines.push(format!("… and {left_out} more"));
    }
    lines.truncate(lines_max);
    lines.into_iter().map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_said() {
        let block = |name: &str| vec![name.to_owned(), "1".to_owned(), "2".to_owned()];
        let blocks = || ["a", "b", "c"].map(block).to_vec();
        assert_eq!(fitted(blocks(), usize::MAX), "a\n1\n2\nb\n1\n2\nc\n1\n2\n");
        assert_eq!(fitted(blocks(), 9).lines().count(), 9);
        assert_eq!(fitted(blocks(), 8), "a\n1\n2\nb\n1\n2\n… and 1 more\n");
        assert_eq!(fitted(blocks(), 6), "a\n1\n2\n… and 2 more\n");
        assert_eq!(fitted(blocks(), 3), "a\n1\n… and 2 more\n");
        assert_eq!(fitted(vec![block("a")], 2), "a\n1\n");
        assert_eq!(fitted(Vec::new(), 5), "");
    }

    #[test]
    fn a_block_is_about_what_has_ended() {
        let mut counts = [0; BUCKETS];
        assert_eq!(block("job", &counts, 1.0, 80), None);
        counts[14] = 1_234;
        let lines = block("job, mem:1M, poll", &counts, 1.04, 80).unwrap();
        assert_eq!(lines[0], "job, mem:1M, poll: 1,234 I/Os in 1.0 s");
        assert!(lines[1].starts_with("8.19 µs to 16.4 µs  1,234  100.0 %  █"), "{lines:?}");
        assert_eq!(lines.len(), 2);
    }
}
