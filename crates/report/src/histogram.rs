//! Histograms of times in powers of two, drawn as lines of text.

use crate::figures::{grouped, time};

/// The number of buckets of [`bucket`].
pub const BUCKETS: usize = 40;

/// The shortest and the longest full bar, in columns.
const BAR_MIN: usize = 10;
const BAR_MAX: usize = 50;

/// Parts of a column of a bar, in eighths.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// Returns the bucket of a time. Bucket `i` has the times up to 2^i ns that are longer than those
/// of the bucket before, and the last one has all longer times.
#[inline]
pub fn bucket(ns: u64) -> usize {
    let bits = (u64::BITS - ns.saturating_sub(1).leading_zeros()) as usize;
    bits.min(BUCKETS - 1)
}

/// Returns a line for each bucket from the first to the last that is not empty: its limits, its
/// number of times, their share of all, and a bar.
///
/// `counts[i]` is the number of times up to 2^(`first_bits` + i) ns that are not in the buckets
/// before. The last bucket has all longer times. Lines have at most `columns` columns where that
/// leaves room for a bar.
pub fn lines(first_bits: usize, counts: &[u64], columns: usize) -> Vec<String> {
    let is_used = |count: &u64| *count > 0;
    let ends = counts.iter().position(is_used).zip(counts.iter().rposition(is_used));
    let Some((first, last)) = ends else { return Vec::new() };
    let all: u64 = counts.iter().sum();
    let most = counts.iter().copied().fold(0, u64::max);
    let row = |at: usize| {
        let up_to = |at: usize| time((1u64 << (first_bits + at)) as f64);
        let limits = match at {
            0 => format!("up to {}", up_to(0)),
            _ if at == counts.len() - 1 => format!("over {}", up_to(at - 1)),
            _ => format!("{} to {}", up_to(at - 1), up_to(at)),
        };
        let percent = counts[at] as f64 * 100.0 / all as f64;
        [limits, grouped(counts[at] as f64), format!("{percent:.1} %")]
    };
    let rows: Vec<[String; 3]> = (first..=last).map(row).collect();
    let widths = [0, 1, 2]
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let room = columns.saturating_sub(widths.iter().sum::<usize>() + 6).clamp(BAR_MIN, BAR_MAX);
    let line = |(row, count): (&[String; 3], &u64)| {
        let [limits, number, percent] = row;
        let [first, second, third] = widths;
        let bar = bar(*count as f64 / most as f64 * room as f64);
        let line = format!("{limits:>first$}  {number:>second$}  {percent:>third$}  {bar}");
        line.trim_end().to_owned()
    };
    rows.iter().zip(&counts[first..]).map(line).collect()
}

/// Returns a bar of so many columns. One that is not empty can be seen.
fn bar(columns: f64) -> String {
    let eighths = (columns * 8.0).ceil() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let of = [0, 1, 2, 3, 4, 5, 1_024, 1_025, 1 << 38, (1 << 38) + 1, u64::MAX].map(bucket);
        assert_eq!(of, [0, 0, 1, 2, 2, 3, 10, 11, 38, 39, 39]);
    }

    #[test]
    fn bars_are_in_proportion() {
        let mut counts = [0; BUCKETS];
        (counts[13], counts[14], counts[16]) = (1_500, 3_000, 1);
        assert_eq!(
            lines(0, &counts, 50),
            [
                "4.10 µs to 8.19 µs  1,500  33.3 %  ███████▌",
                "8.19 µs to 16.4 µs  3,000  66.7 %  ███████████████",
                "16.4 µs to 32.8 µs      0   0.0 %",
                "32.8 µs to 65.5 µs      1   0.0 %  ▏",
            ]
        );
        let widest = |columns| {
            let lines = lines(0, &counts, columns);
            lines.iter().map(|line| line.chars().count()).max().unwrap()
        };
        assert_eq!((widest(50), widest(60), widest(200), widest(10)), (50, 60, 85, 45));
    }

    #[test]
    fn the_ends_have_one_limit() {
        assert_eq!(lines(0, &[0; BUCKETS], 80), [""; 0]);
        let lines = lines(10, &[1, 0, 1], 80);
        assert!(lines[0].trim_start().starts_with("up to 1.02 µs  1  50.0 %"), "{lines:?}");
        assert!(lines[1].trim_start().starts_with("1.02 µs to 2.05 µs  0"), "{lines:?}");
        assert!(lines[2].trim_start().starts_with("over 2.05 µs  1"), "{lines:?}");
    }
}
