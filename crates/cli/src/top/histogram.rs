//! Histograms of what a process's I/Os took between two looks, from its metrics.

use meantime_block::control::metrics::{Metrics, Sample};
use meantime_completion::telemetry::Latencies;
use meantime_report::figures::grouped;
use meantime_report::histogram;

use super::process::{plain, shortened};

/// The family of metrics, and the labels that are shown.
const FAMILY: &str = "meantime_device_io_time_seconds";
const LABELS: [&str; 2] = ["device", "operation"];

/// Numbers of I/Os by bucket, of which there is one more than bounds.
type Counts = [u64; Latencies::BOUNDS_NS.len() + 1];

/// Returns the device and operation of each histogram, with its counts.
fn counts(metrics: &Metrics) -> Vec<([String; 2], Counts)> {
    let mut all: Vec<([String; 2], Counts)> = Vec::new();
    let families = metrics.families().iter().filter(|family| family.name == FAMILY);
    let samples = families.flat_map(|family| &family.samples);
    for sample in samples.filter(|sample| sample.suffix == "_bucket") {
        let name = LABELS.map(|name| label(sample, name).to_owned());
        let bound_ns = label(sample, "le").parse().map(|seconds: f64| (seconds * 1e9) as u64);
        // +Inf is longer than all bounds.
        let Ok(bound_ns) = bound_ns else { continue };
        let bucket = Latencies::BOUNDS_NS.iter().take_while(|ns| **ns < bound_ns).count();
        if all.last().is_none_or(|(last, _)| *last != name) {
            all.push((name, Counts::default()));
        }
        if let Some((_, counts)) = all.last_mut() {
            // Samples have the numbers up to their bound.
            counts[bucket] = (sample.value as u64).saturating_sub(counts[..bucket].iter().sum());
        }
    }
    all
}

fn label<'a>(sample: &'a Sample, name: &str) -> &'a str {
    let label = sample.labels.iter().find(|(label, _)| label == name);
    label.map_or("", |(_, value)| value)
}

/// Returns a histogram for each device and operation of which an I/O was timed between two looks.
pub(super) fn text(before: &Metrics, after: &Metrics, columns: usize) -> String {
    let before = counts(before);
    let mut text = String::new();
    for (name, mut counts) in counts(after) {
        if let Some((_, then)) = before.iter().find(|(other, _)| *other == name) {
            counts.iter_mut().zip(then).for_each(|(now, then)| *now = now.saturating_sub(*then));
        }
        let ios: u64 = counts.iter().sum();
        if ios > 0 {
            let [device, operation] = name.map(|text| plain(&text));
            let title = format!("{device}, {operation}: {} I/Os timed", grouped(ios as f64));
            text += &format!("\n{}\n", shortened(&title, columns));
            let first_bits = Latencies::BOUNDS_NS[0].ilog2() as usize;
            for line in histogram::lines(first_bits, &counts, columns) {
                text += &format!("{line}\n");
            }
        }
    }
    if text.is_empty() { "\nNo I/O was timed.\n".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metrics of reads with these numbers in the first buckets, and one longer than all bounds.
    fn metrics(first: &[u64]) -> Metrics {
        let mut metrics = Metrics::default();
        let mut counts = Counts::default();
        counts[..first.len()].copy_from_slice(first);
        counts[Latencies::BOUNDS_NS.len()] = 1;
        let bounds_seconds = Latencies::BOUNDS_NS.map(|ns| ns as f64 / 1e9);
        for operation in ["read", "write"] {
            let labels = [("device", "mem:1M"), ("operation", operation)];
            metrics.add_histogram(FAMILY, "X", &labels, &bounds_seconds, &counts, 1.0);
            counts = Counts::default();
        }
        metrics
    }

    #[test]
    fn counts_are_those_that_were_added() {
        let all = counts(&metrics(&[1, 2, 0, 3]));
        let [(name, reads), (_, writes)] = &all[..] else { panic!() };
        assert_eq!(*name, ["mem:1M", "read"]);
        let mut want = Counts::default();
        (want[0], want[1], want[3], want[21]) = (1, 2, 3, 1);
        assert_eq!((*reads, *writes), (want, Counts::default()));
    }

    #[test]
    fn a_histogram_is_of_what_came_between() {
        let lines = text(&metrics(&[1, 2, 0, 3]), &metrics(&[1, 2, 1_500, 5]), 80);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[..2], ["", "mem:1M, read: 1,502 I/Os timed"]);
        assert!(lines[2].starts_with("2.05 µs to 4.10 µs  1,500  99.9 %  ███"), "{lines:?}");
        assert!(lines[3].starts_with("4.10 µs to 8.19 µs      2   0.1 %  ▏"), "{lines:?}");
        assert_eq!(lines.len(), 4);
        // Of a device that was not there before, all I/Os are new.
        let first = text(&Metrics::default(), &metrics(&[7]), 80);
        assert!(first.contains("up to 1.02 µs  7  87.5 %") && first.contains("over 1.07 s  1"));
        assert!(text(&metrics(&[7]), &metrics(&[7]), 80).contains("No I/O was timed"));
    }
}
