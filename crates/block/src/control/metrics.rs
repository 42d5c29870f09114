//! The counts of this process as families of samples with labels (OpenMetrics' model): its queues
//! and devices, and what a program adds.
//!
//! [`Metrics::take`] collects them; the control socket answers `{"get":"metrics"}` with them.
//!
//! ```
//! use meantime::block::control::metrics::{self, Kind};
//!
//! // As long as the result lives, it is asked at each scrape.
//! let _published = metrics::publish(|metrics| {
//!     metrics.add("myapp_orders", Kind::Counter, "Orders taken", &[("shop", "1")], 7);
//! });
//! assert!(metrics::Metrics::take().families().iter().any(|one| one.name == "myapp_orders"));
//! ```

mod json;
mod queues;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The most samples of a process, and of several processes together. Further samples are left out.
const SAMPLES_MAX: usize = 10_000;
const SAMPLES_OF_ALL_MAX: usize = 200_000;

/// The kind of a family's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Counts, which only increase. Their names end with `_total` in the text, not here.
    Counter,
    /// Values that go up and down.
    Gauge,
    /// Counts by upper bounds, a count and a sum.
    Histogram,
    /// Texts, in labels; the value is 1.
    Info,
}

/// A value with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The part after the family's name: `_total` of a counter, `_bucket`, `_count` and `_sum` of a
    /// histogram, or `_info`.
    pub suffix: &'static str,
    /// Names and values, in order.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: f64,
}

/// The samples of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// The name, without a sample's suffix, with the unit at its end.
    pub name: String,
    /// What the samples are.
    pub kind: Kind,
    /// The description, in one sentence.
    pub help: String,
    /// The samples.
    pub samples: Vec<Sample>,
}

/// Families in the order in which they were added.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    families: Vec<Family>,
    /// The places of the families by name.
    places: HashMap<String, usize>,
    samples: usize,
    left_out: usize,
}

type Source = dyn Fn(&mut Metrics) + Send + Sync;

static SOURCES: Mutex<Vec<Weak<Source>>> = Mutex::new(Vec::new());

/// Keeps a source of metrics until it is dropped.
#[must_use = "dropping it ends the publication"]
pub struct Published(
    #[expect(dead_code, reason = "held so that the list's handle lives")] Arc<Source>,
);

/// Has `source` called each time that this process's metrics are taken. The thread that takes them
/// calls it, so it must not block.
pub fn publish(source: impl Fn(&mut Metrics) + Send + Sync + 'static) -> Published {
    let source: Arc<Source> = Arc::new(source);
    let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    sources.retain(|source| source.strong_count() > 0);
    sources.push(Arc::downgrade(&source));
    Published(source)
}

impl Metrics {
    /// Collects all metrics of this process.
    pub fn take() -> Self {
        let mut metrics = Self::default();
        queues::add(&mut metrics);
        let sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sources.iter().filter_map(Weak::upgrade).for_each(|source| source(&mut metrics));
        metrics.add_left_out();
        metrics
    }

    /// The families.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// Adds the sample of a counter, gauge or info.
    ///
    /// Names that begin with `meantime_` are Meantime's own. A sample of such a name is left out if
    /// its kind is not the family's own.
    ///
    /// # Panics
    /// Debug builds panic instead of leaving it out.
    pub fn add(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        labels: &[(&str, &str)],
        value: impl Into<Value>,
    ) {
        let suffix = match kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        let sample = sample(suffix, labels, value.into().0);
        assert_kind(name, kind);
        self.push(name, kind, help, vec![sample], SAMPLES_MAX);
    }

    /// Adds the number of samples that are left out here because there are too many.
    pub fn add_left_out(&mut self) {
        let left_out = sample("", &[], self.left_out as f64);
        let help = "Samples that are left out because there are too many";
        self.push("meantime_samples_left_out", Kind::Gauge, help, vec![left_out], usize::MAX);
    }

    /// Adds a histogram. `counts` has the number of values at most as long as each of
    /// `bounds_seconds`, but longer than the bound before, and one more number for values longer
    /// than all bounds. It is left out if the name is Meantime's own and the family is not a
    /// histogram.
    ///
    /// # Panics
    /// Debug builds panic instead of leaving it out.
    pub fn add_histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        bounds_seconds: &[f64],
        counts: &[u64],
        sum_seconds: f64,
    ) {
        let (mut so_far, mut samples) = (0, Vec::new());
        let bounds = bounds_seconds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(counts) {
            so_far += count;
            let labels = [labels, &[("le", bound.as_str())]].concat();
            samples.push(sample("_bucket", &labels, so_far as f64));
        }
        samples.push(sample("_count", labels, so_far as f64));
        samples.push(sample("_sum", labels, sum_seconds));
        assert_kind(name, Kind::Histogram);
        self.push(name, Kind::Histogram, help, samples, SAMPLES_MAX);
    }

    /// Adds samples of a family while there are at most `most` in all. A histogram is added whole
    /// or not at all.
    fn push(&mut self, name: &str, kind: Kind, help: &str, samples: Vec<Sample>, most: usize) {
        // A name has one kind, and programs may not take Meantime's names.
        if kind_of_ours(name).is_some_and(|ours| ours != kind) {
            return;
        }
        let mut kept = Vec::new();
        for group in samples.chunk_by(|a, b| kind == Kind::Histogram && are_of_one(a, b)) {
            if self.samples + group.len() <= most {
                self.samples += group.len();
                kept.extend_from_slice(group);
            } else {
                self.left_out += group.len();
            }
        }
        if kept.is_empty() {
            return;
        }
        let place = *self.places.entry(name.to_owned()).or_insert_with(|| {
            let (name, help) = (name.to_owned(), help.to_owned());
            self.families.push(Family { name, kind, help, samples: Vec::new() });
            self.families.len() - 1
        });
        let family = &mut self.families[place];
        if family.kind == kind {
            family.samples.append(&mut kept);
        }
    }

    /// Adds all of `other`, each sample with `label` before its own labels, replacing one of that
    /// name.
    pub fn merge(&mut self, other: Self, (name, value): (&str, &str)) {
        for mut family in other.families {
            for sample in &mut family.samples {
                sample.labels.retain(|(other, _)| other != name);
                sample.labels.insert(0, (name.to_owned(), value.to_owned()));
            }
            let Family { name, kind, help, samples } = family;
            self.push(&name, kind, &help, samples, SAMPLES_OF_ALL_MAX);
        }
    }
}

/// The kind of a family of Meantime itself: a counter, with these exceptions.
fn kind_of_ours(name: &str) -> Option<Kind> {
    Some(match name.strip_prefix("meantime_")? {
        "build" | "process" | "queue" => Kind::Info,
        "device_io_time_seconds" => Kind::Histogram,
        "process_up" | "queue_expected_seconds" | "queue_in_flight" | "samples_left_out" => {
            Kind::Gauge
        }
        "mount_cache_capacity_pages"
        | "mount_cache_dirty_pages"
        | "mount_cache_free_pages"
        | "mount_cache_pages" => Kind::Gauge,
        _ => Kind::Counter,
    })
}

/// Finds Meantime's families that [`kind_of_ours`] lacks: [`Metrics::push`] would drop them without
/// a word. Only called for what this process adds itself: the answer of another process is no
/// reason to panic.
fn assert_kind(name: &str, kind: Kind) {
    debug_assert!(
        kind_of_ours(name).is_none_or(|ours| ours == kind),
        "{name} is no {}: a new family of Meantime's belongs into kind_of_ours, a program's needs \
         another name",
        kind.name(),
    );
}

/// Whether two samples are of the same histogram: their labels but `le` are the same.
fn are_of_one(one: &Sample, other: &Sample) -> bool {
    fn labels(sample: &Sample) -> impl Iterator<Item = &(String, String)> {
        sample.labels.iter().filter(|(name, _)| name != "le")
    }
    labels(one).eq(labels(other))
}

fn sample(suffix: &'static str, labels: &[(&str, &str)], value: f64) -> Sample {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Sample { suffix, labels: labels.collect(), value }
}

/// A sample's value, from an integer or a float.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Value(f64);

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self(value as f64)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self(value as f64)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_cumulative() {
        let mut metrics = Metrics::default();
        metrics.add_histogram("x_seconds", "X", &[("op", "read")], &[1e-6, 0.5], &[2, 3, 4], 1.5);
        let [family] = metrics.families() else { panic!() };
        let seen: Vec<_> = family
            .samples
            .iter()
            .map(|sample| (sample.suffix, sample.labels.last().unwrap().1.as_str(), sample.value))
            .collect();
        assert_eq!(
            seen,
            [
                ("_bucket", "0.000001", 2.0),
                ("_bucket", "0.5", 5.0),
                ("_bucket", "+Inf", 9.0),
                ("_count", "read", 9.0),
                ("_sum", "read", 1.5),
            ]
        );
    }

    #[test]
    fn a_source_is_asked_while_it_is_published() {
        let has = || Metrics::take().families().iter().any(|family| family.name == "test_source");
        let published =
            publish(|metrics| metrics.add("test_source", Kind::Gauge, "A test", &[], 1));
        assert!(has());
        drop(published);
        assert!(!has());
    }

    #[test]
    fn merging_keeps_kinds_apart_and_labels_unique() {
        let mut one = Metrics::default();
        one.add("x", Kind::Gauge, "X", &[("pid", "999"), ("a", "b")], 1);
        let mut other = Metrics::default();
        other.add("x", Kind::Counter, "X", &[], 1);
        let mut all = Metrics::default();
        all.merge(one, ("pid", "1"));
        all.merge(other, ("pid", "2"));
        let [family] = all.families() else { panic!() };
        let labels = [("pid", "1"), ("a", "b")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(family.samples, [Sample { suffix: "", labels: labels.to_vec(), value: 1.0 }]);
    }

    #[test]
    fn there_are_not_more_than_the_most() {
        let mut metrics = Metrics::default();
        for at in 0..SAMPLES_MAX + 10 {
            metrics.add("x", Kind::Gauge, "X", &[("at", &at.to_string())], 1);
        }
        assert_eq!(metrics.families()[0].samples.len(), SAMPLES_MAX);
        metrics.add_left_out();
        assert_eq!(metrics.families()[1].samples[0].value, 10.0);
    }

    #[test]
    fn a_histogram_is_there_whole_or_not_at_all() {
        let mut metrics = Metrics::default();
        for at in 0..SAMPLES_MAX {
            let labels = [("at", at.to_string())];
            let labels = labels.each_ref().map(|(name, value)| (*name, value.as_str()));
            metrics.add_histogram("x", "X", &labels, &[0.5, 1.0], &[1, 1, 1], 1.5);
            metrics.add("y", Kind::Gauge, "Y", &labels, 1);
            metrics.add("y", Kind::Gauge, "Y", &labels, 2);
        }
        // Each histogram has 5 samples, and others are between them.
        let [x, y] = metrics.families() else { panic!() };
        assert_eq!((x.samples.len(), x.samples.last().unwrap().suffix), (7_140, "_sum"));
        assert_eq!(x.samples.len() + y.samples.len(), SAMPLES_MAX);
        let (kept, sum) = (metrics.samples, SAMPLES_MAX * 7);
        assert_eq!(kept + metrics.left_out, sum);
        // The answer of another process is cut in the same places.
        assert_eq!(Metrics::of_json(&metrics.to_json()).unwrap().families, metrics.families);
    }

    #[test]
    fn our_names_keep_their_kinds() {
        let said = |name: &str, kind: &str, suffix: &str| {
            serde_json::json!({
                "name": name, "kind": kind, "help": "X", "samples": [[suffix, {}, 1]],
            })
        };
        let wrong = [
            said("meantime_device_commands", "gauge", ""),
            said("meantime_queue_in_flight", "counter", "_total"),
        ];
        let right = [
            said("meantime_device_commands", "counter", "_total"),
            said("meantime_queue_in_flight", "gauge", ""),
        ];
        // The answer of another process is no reason to panic.
        let of = |said: &[serde_json::Value]| Metrics::of_json(&said.into()).unwrap();
        assert_eq!(of(&wrong).families(), []);
        let mut all = Metrics::default();
        all.merge(of(&[&wrong[..], &right[..]].concat()), ("pid", "1"));
        assert_eq!(all.families().len(), 2);
    }

    #[test]
    #[should_panic(expected = "meantime_new_pages is no gauge")]
    fn a_family_of_ours_without_its_kind_is_noticed() {
        Metrics::default().add("meantime_new_pages", Kind::Gauge, "X", &[], 1);
    }

    #[test]
    #[should_panic(expected = "meantime_new_seconds is no histogram")]
    fn a_histogram_of_ours_without_its_kind_is_noticed() {
        Metrics::default().add_histogram("meantime_new_seconds", "X", &[], &[0.5], &[1, 2], 0.5);
    }
}
