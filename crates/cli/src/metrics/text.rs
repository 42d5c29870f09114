//! Metrics as text: Prometheus' format 0.0.4, which every scraper reads.

use std::collections::HashSet;
use std::fmt::Write as _;

use meantime_block::control::metrics::{Kind, Metrics};

/// The value of the header `Content-Type`.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text of `metrics`. Of samples with the same name and labels, only the first counts.
pub(super) fn text(metrics: &Metrics) -> String {
    let mut text = String::new();
    let mut seen = HashSet::new();
    for family in metrics.families() {
        // In Prometheus' format these lines use the name of the samples.
        let (kind, suffix) = match family.kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Info => ("gauge", "_info"),
            kind => (kind.name(), ""),
        };
        let name = format!("{}{suffix}", family.name);
        let help = escaped(&family.help, false);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}");
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for sample in &family.samples {
            let mut series = format!("{}{}", family.name, sample.suffix);
            let labels: Vec<String> = sample
                .labels
                .iter()
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true)))
                .collect();
            if !labels.is_empty() {
                let _ = write!(series, "{{{}}}", labels.join(","));
            }
            if !seen.contains(&series) {
                let _ = writeln!(text, "{series} {}", sample.value);
                seen.insert(series);
            }
        }
    }
    text
}

/// Escapes what would end a line or, in `quotes`, a value.
fn escaped(text: &str, quotes: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped += "\\\\",
            '\n' => escaped += "\\n",
            '"' if quotes => escaped += "\\\"",
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by hand, from the format's specification.
    #[test]
    fn the_format_is_as_specified() {
        let mut metrics = Metrics::default();
        metrics.add(
            "x_bytes",
            Kind::Counter,
            "Bytes\\ \"\n",
            &[("device", "a\"\\\nb")],
            1u64 << 40,
        );
        metrics.add("y", Kind::Gauge, "Y", &[], 0.25);
        metrics.add("y", Kind::Gauge, "Y", &[], 7);
        metrics.add("z", Kind::Info, "Z", &[("a", "1"), ("b", "")], 1);
        metrics.add_histogram("t_seconds", "T", &[], &[1.024e-6], &[1, 2], 0.5);
        let expected = "\
            # HELP x_bytes_total Bytes\\\\ \"\\n\n\
            # TYPE x_bytes_total counter\n\
            x_bytes_total{device=\"a\\\"\\\\\\nb\"} 1099511627776\n\
            # HELP y Y\n# TYPE y gauge\ny 0.25\n\
            # HELP z_info Z\n# TYPE z_info gauge\nz_info{a=\"1\",b=\"\"} 1\n\
            # HELP t_seconds T\n# TYPE t_seconds histogram\n\
            t_seconds_bucket{le=\"0.000001024\"} 1\nt_seconds_bucket{le=\"+Inf\"} 3\n\
            t_seconds_count 3\nt_seconds_sum 0.5\n";
        assert_eq!(text(&metrics), expected);
    }
}
