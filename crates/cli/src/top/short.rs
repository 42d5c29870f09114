//! What programs send a mount's process past the kernel (docs/short-way.md), from its metrics.

use meantime_block::control::metrics::Metrics;
use serde_json::Value;

use super::row::iops;

/// The kinds of calls, with the keys of their rates in JSON.
const KINDS: [(&str, &str); 4] = [
    ("read", "reads_per_s"),
    ("write", "writes_per_s"),
    ("sync", "syncs_per_s"),
    ("other", "others_per_s"),
];

/// Calls by [`KINDS`], bytes, and calls sent back to the kernel: counts of all mounts, or their
/// rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Short([f64; KINDS.len() + 2]);

impl Short {
    /// Returns the counts; `None` without a mount.
    pub(super) fn of(metrics: &Metrics) -> Option<Self> {
        let sum = |name: &str, kind: Option<&str>| {
            let family = metrics.families().iter().find(|family| family.name == name)?;
            let is_kind =
                |(name, value): &(String, String)| name == "kind" && Some(&**value) == kind;
            let counted = family.samples.iter();
            let counted =
                counted.filter(|sample| kind.is_none() || sample.labels.iter().any(is_kind));
            Some(counted.map(|sample| sample.value).sum::<f64>())
        };
        let [reads, writes, syncs, others] =
            KINDS.map(|(kind, _)| sum("meantime_mount_short_calls", Some(kind)));
        let bytes = sum("meantime_mount_short_bytes", None).unwrap_or(0.0);
        let refused = sum("meantime_mount_short_refused", None).unwrap_or(0.0);
        Some(Self([reads?, writes?, syncs?, others?, bytes, refused]))
    }

    /// Returns the rates per second since `before`.
    pub(super) fn rates(&self, before: &Self, interval_ns: u64) -> Self {
        let seconds = interval_ns.max(1) as f64 / 1e9;
        Self(std::array::from_fn(|at| (self.0[at] - before.0[at]).max(0.0) / seconds))
    }

    /// Returns rates in words.
    pub(super) fn text(&self) -> String {
        let [kinds @ .., bytes, refused] = &self.0;
        let some = KINDS.iter().zip(kinds).filter(|(_, rate)| **rate > 0.0);
        let calls: Vec<String> =
            some.map(|((kind, _), rate)| format!("{} {kind}s", iops(*rate))).collect();
        let mut text = match calls.is_empty() {
            true => "past the kernel: no calls".to_owned(),
            false => {
                format!("past the kernel, per s: {}; {:.1} MB", calls.join(", "), bytes / 1e6)
            }
        };
        if *refused > 0.0 {
            text += &format!("; {} sent back", iops(*refused));
        }
        text
    }

    /// Returns rates as JSON.
    pub(super) fn json(&self) -> Value {
        let keys = KINDS.iter().map(|(_, key)| *key).chain(["bytes_per_s", "refused_per_s"]);
        keys.zip(self.0).map(|(key, rate)| (key.to_owned(), Value::from(rate))).collect()
    }
}

#[cfg(test)]
mod tests {
    use meantime_block::control::metrics::Kind;

    use super::*;

    fn metrics(reads: u64, refused: u64) -> Metrics {
        let mut metrics = Metrics::default();
        for mount in ["/a", "/b"] {
            let labels = [("mount", mount), ("kind", "read")];
            metrics.add("meantime_mount_short_calls", Kind::Counter, "", &labels, reads);
            let labels = &labels[..1];
            metrics.add("meantime_mount_short_bytes", Kind::Counter, "", labels, reads * 4096);
            metrics.add("meantime_mount_short_refused", Kind::Counter, "", labels, refused);
        }
        metrics
    }

    #[test]
    fn rates_are_of_all_mounts() {
        assert_eq!(Short::of(&Metrics::default()), None);
        let before = Short::of(&metrics(100, 0)).unwrap();
        let now = Short::of(&metrics(30_100, 2)).unwrap();
        assert_eq!(before.rates(&before, 1).text(), "past the kernel: no calls");
        let rates = now.rates(&before, 500_000_000);
        let text = "past the kernel, per s: 120k reads; 491.5 MB; 8.0 sent back";
        assert_eq!(rates.text(), text);
        assert_eq!(rates.json()["reads_per_s"], 120_000.0);
    }
}
