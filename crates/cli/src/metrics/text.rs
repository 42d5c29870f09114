//! Metrics as text: Prometheus' format 0.0.4, or OpenMetrics 1.0.

use std::collections::HashSet;
use std::fmt::Write as _;

use meantime_block::control::metrics::{Kind, Metrics};

/// A format of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus' text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The better one of those that the value of a header `Accept` names.
    pub(super) fn accepted(accept: &str) -> Self {
        let takes = accept.split(',').any(|one| {
            one.split(';').next().is_some_and(|kind| kind.trim() == "application/openmetrics-text")
        });
        if takes { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The value of the header `Content-Type`.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The text of `metrics`. Of samples with the same name and labels, only the first counts.
    pub(super) fn text(self, metrics: &Metrics) -> String {
        let mut text = String::new();
        let mut seen = HashSet::new();
        for family in metrics.families() {
            // In Prometheus' format these lines have the name of the samples.
            let (kind, suffix) = match (self, family.kind) {
                (Self::Prometheus, Kind::Counter) => ("counter", "_total"),
                (Self::Prometheus, Kind::Info) => ("gauge", "_info"),
                (_, kind) => (kind.name(), ""),
            };
            let name = format!("{}{suffix}", family.name);
            let help = escaped(&family.help, self == Self::OpenMetrics);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}");
            let _ = writeln!(text, "# TYPE {name} {kind}");
            if self == Self::OpenMetrics
                && let Some(unit) = ["seconds", "bytes"]
                    .iter()
                    .find(|unit| family.name.ends_with(&format!("_{unit}")))
            {
                let _ = writeln!(text, "# UNIT {name} {unit}");
            }
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
        if self == Self::OpenMetrics {
            text += "# EOF\n";
        }
        text
    }
}

/// Escapes what would end a line or, in `quotes`, a value. Both formats escape so.
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

    /// By hand, from the two formats' specifications.
    #[test]
    fn both_formats_are_as_specified() {
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
        assert_eq!(Format::Prometheus.text(&metrics), expected);
        let expected = "\
            # HELP x_bytes Bytes\\\\ \\\"\\n\n\
            # TYPE x_bytes counter\n\
            # UNIT x_bytes bytes\n\
            x_bytes_total{device=\"a\\\"\\\\\\nb\"} 1099511627776\n\
            # HELP y Y\n# TYPE y gauge\ny 0.25\n\
            # HELP z Z\n# TYPE z info\nz_info{a=\"1\",b=\"\"} 1\n\
            # HELP t_seconds T\n# TYPE t_seconds histogram\n# UNIT t_seconds seconds\n\
            t_seconds_bucket{le=\"0.000001024\"} 1\nt_seconds_bucket{le=\"+Inf\"} 3\n\
            t_seconds_count 3\nt_seconds_sum 0.5\n# EOF\n";
        assert_eq!(Format::OpenMetrics.text(&metrics), expected);
    }

    #[test]
    fn the_format_is_the_clients_choice() {
        let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        for accept in ["", "*/*", "text/plain;version=0.0.4", "application/openmetrics-textile"] {
            assert_eq!(Format::accepted(accept), Format::Prometheus, "{accept}");
        }
    }
}
