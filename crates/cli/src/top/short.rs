//! What programs send a mount's process past the kernel (docs/short-way.md), from its metrics.

use meantime_block::control::metrics::Metrics;
use serde_json::{Value, json};

use super::row::iops;

/// Calls by kind, in the order of the metrics.
const KINDS: [&str; 4] = ["read", "write", "sync", "other"];

/// What was counted until a moment, of all mounts of the process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Counts {
    kinds: [f64; KINDS.len()],
    bytes: f64,
    refused: f64,
}

impl Counts {
    /// Returns the counts among `metrics`; `None` if the process has no mount.
    pub(super) fn of(metrics: &Metrics) -> Option<Self> {
        let family = |name: &str| metrics.families().iter().find(|family| family.name == name);
        let sum = |name: &str| {
            let samples = family(name).map(|family| &family.samples[..]).unwrap_or_default();
            samples.iter().map(|sample| sample.value).sum()
        };
        let calls = family("meantime_mount_short_calls")?;
        let kinds = KINDS.map(|kind| {
            let is_kind = |(name, value): &(String, String)| name == "kind" && value == kind;
            let of_kind = calls.samples.iter().filter(|sample| sample.labels.iter().any(is_kind));
            of_kind.map(|sample| sample.value).sum()
        });
        let (bytes, refused) =
            (sum("meantime_mount_short_bytes"), sum("meantime_mount_short_refused"));
        Some(Self { kinds, bytes, refused })
    }

    /// Returns what there was since `before`, for each second.
    pub(super) fn rates(&self, before: &Self, interval_ns: u64) -> Rates {
        let seconds = interval_ns.max(1) as f64 / 1e9;
        let rate = |now: f64, before: f64| (now - before).max(0.0) / seconds;
        Rates {
            kinds: std::array::from_fn(|at| rate(self.kinds[at], before.kinds[at])),
            bytes: rate(self.bytes, before.bytes),
            refused: rate(self.refused, before.refused),
        }
    }
}

/// Counts for each second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    kinds: [f64; KINDS.len()],
    bytes: f64,
    refused: f64,
}

impl Rates {
    /// Returns a line of text.
    pub(super) fn text(&self) -> String {
        let calls: Vec<String> = KINDS
            .iter()
            .zip(self.kinds)
            .filter(|(_, rate)| *rate > 0.0)
            .map(|(kind, rate)| match *kind {
                "other" => format!("{} others", iops(rate)),
                kind => format!("{} {kind}s", iops(rate)),
            })
            .collect();
        let mut text = match calls.is_empty() {
            true => "past the kernel: no calls".to_owned(),
            false => {
                let mb = self.bytes / 1e6;
                format!("past the kernel, per s: {}; {mb:.1} MB", calls.join(", "))
            }
        };
        if self.refused > 0.0 {
            text += &format!("; {} sent back", iops(self.refused));
        }
        text
    }

    /// Returns them as JSON.
    pub(super) fn json(&self) -> Value {
        let [reads, writes, syncs, others] = self.kinds;
        json!({
            "reads_per_s": reads,
            "writes_per_s": writes,
            "syncs_per_s": syncs,
            "others_per_s": others,
            "bytes_per_s": self.bytes,
            "refused_per_s": self.refused,
        })
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
        assert_eq!(Counts::of(&Metrics::default()), None);
        let before = Counts::of(&metrics(100, 0)).unwrap();
        let now = Counts::of(&metrics(30_100, 2)).unwrap();
        assert_eq!(before.rates(&before, 1).text(), "past the kernel: no calls");
        let rates = now.rates(&before, 500_000_000);
        let text = "past the kernel, per s: 120k reads; 491.5 MB; 8.0 sent back";
        assert_eq!(rates.text(), text);
        assert_eq!(rates.json()["reads_per_s"], json!(120_000.0));
    }
}
