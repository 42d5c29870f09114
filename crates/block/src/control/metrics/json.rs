//! Metrics on the control socket. The answer of another process is checked: a family or sample with
//! an invalid name or kind is left out.

use serde_json::{Map, Value, json};

use super::{Family, Kind, Metrics, SAMPLES_MAX, Sample};

const KINDS: [(Kind, &str, &[&str]); 4] = [
    (Kind::Counter, "counter", &["_total"]),
    (Kind::Gauge, "gauge", &[""]),
    (Kind::Histogram, "histogram", &["_bucket", "_count", "_sum"]),
    (Kind::Info, "info", &["_info"]),
];

impl Kind {
    /// Its name in OpenMetrics.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, _)| name)
    }
}

impl Metrics {
    /// Converts to JSON: `[{"name","kind","help","samples":[[SUFFIX,{LABEL:VALUE},VALUE]]}]`.
    pub(in super::super) fn to_json(&self) -> Value {
        let sample = |sample: &Sample| {
            let labels = sample.labels.iter().map(|(name, value)| (name.clone(), json!(value)));
            json!([sample.suffix, labels.collect::<Map<_, _>>(), sample.value])
        };
        let family = |family: &Family| {
            let samples: Vec<Value> = family.samples.iter().map(sample).collect();
            json!({
                "name": family.name,
                "kind": family.kind.name(),
                "help": family.help,
                "samples": samples,
            })
        };
        self.families.iter().map(family).collect()
    }

    /// Parses the output of [`Metrics::to_json`].
    pub(in super::super) fn of_json(value: &Value) -> Option<Self> {
        let mut metrics = Self::default();
        for family in value.as_array()? {
            let text = |key: &str| family.get(key)?.as_str();
            let kind = KINDS.iter().find(|(_, name, _)| text("kind") == Some(*name));
            let (Some(name), Some((kind, _, suffixes))) = (text("name"), kind) else { continue };
            let help = text("help").unwrap_or_default();
            let samples = family.get("samples").and_then(Value::as_array);
            let samples = samples.into_iter().flatten().filter(|_| is_name(name));
            let samples = samples.filter_map(|sample| sample_of_json(sample, suffixes)).collect();
            // One sample more is allowed: the number of those left out.
            metrics.push(name, *kind, help, samples, SAMPLES_MAX + 1);
        }
        Some(metrics)
    }
}

fn sample_of_json(value: &Value, suffixes: &[&'static str]) -> Option<Sample> {
    let [suffix, labels, value] = value.as_array()?.as_slice() else { return None };
    let suffix = suffixes.iter().find(|known| suffix.as_str() == Some(**known))?;
    let label = |(name, value): (&String, &Value)| {
        is_name(name).then_some((name.clone(), value.as_str()?.to_owned()))
    };
    let labels = labels.as_object()?.iter().map(label).collect::<Option<_>>()?;
    Some(Sample { suffix, labels, value: value.as_f64()? })
}

/// Whether `text` can be a metric's or a label's name; programs may not use names with colons.
fn is_name(text: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.len() <= 128
        && text.starts_with(is_first)
        && text.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_round_trip() {
        let mut metrics = Metrics::default();
        metrics.add("a", Kind::Counter, "A \"b\"\n", &[("device", "mem:1M?\\")], 7);
        metrics.add("b", Kind::Gauge, "B", &[], 0.25);
        metrics.add("c", Kind::Info, "C", &[("x", "y")], 1);
        metrics.add_histogram("d_seconds", "D", &[], &[0.5], &[1, 2], 3.5);
        assert_eq!(Metrics::of_json(&metrics.to_json()), Some(metrics));
    }

    #[test]
    fn what_is_no_metric_is_left_out() {
        let of = |value: Value| Metrics::of_json(&value).map(|metrics| metrics.families.len());
        assert_eq!(of(json!({})), None);
        let family = |name: &str, kind: &str, samples: Value| json!([{ "name": name, "kind": kind, "help": "H", "samples": samples }]);
        assert_eq!(of(family("a", "gauge", json!([["", {}, 1]]))), Some(1));
        for (name, kind, samples) in [
            ("a b", "gauge", json!([["", {}, 1]])),
            ("", "gauge", json!([["", {}, 1]])),
            ("1a", "gauge", json!([["", {}, 1]])),
            ("a\n", "gauge", json!([["", {}, 1]])),
            ("a", "summary", json!([["", {}, 1]])),
            ("a", "gauge", json!([["_total", {}, 1]])),
            ("a", "gauge", json!([["", {"a-b": "c"}, 1]])),
            ("a", "gauge", json!([["", {"a": 1}, 1]])),
            ("a", "gauge", json!([["", {}, "NaN"]])),
            ("a", "gauge", json!([[]])),
            ("a", "gauge", json!(5)),
        ] {
            assert_eq!(of(family(name, kind, samples.clone())), Some(0), "{name} {kind} {samples}");
        }
    }
}
