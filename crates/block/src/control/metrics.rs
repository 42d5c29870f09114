//! What this process has counted, as families of samples with labels (OpenMetrics' model): its
//! queues and devices, and what a program adds.
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

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The most samples of a process, and of several together: what exceeds them is left out.
const SAMPLES_MAX: usize = 10_000;
const SAMPLES_OF_ALL_MAX: usize = 200_000;

/// What a family's samples are.
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
    /// What follows the family's name: `_total` of a counter, `_bucket`, `_count` and `_sum` of a
    /// histogram, `_info`.
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
    /// One sentence.
    pub help: String,
    /// The samples.
    pub samples: Vec<Sample>,
}

/// Families in the order in which they were added.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    families: Vec<Family>,
    samples: usize,
}

type Source = dyn Fn(&mut Metrics) + Send + Sync;

static SOURCES: Mutex<Vec<Weak<Source>>> = Mutex::new(Vec::new());

/// Keeps a source of metrics; dropping it ends that.
#[must_use = "dropping it ends the publication"]
pub struct Published(
    #[expect(dead_code, reason = "held so that the list's handle lives")] Arc<Source>,
);

/// Has `source` asked each time that this process's metrics are taken, by the thread that takes
/// them: it must not block.
pub fn publish(source: impl Fn(&mut Metrics) + Send + Sync + 'static) -> Published {
    let source: Arc<Source> = Arc::new(source);
    let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    sources.retain(|source| source.strong_count() > 0);
    sources.push(Arc::downgrade(&source));
    Published(source)
}

impl Metrics {
    /// Collects all of this process.
    pub fn take() -> Self {
        let mut metrics = Self::default();
        queues::add(&mut metrics);
        let sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sources.iter().filter_map(Weak::upgrade).for_each(|source| source(&mut metrics));
        metrics
    }

    /// The families.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// Adds the sample of a counter, gauge or info.
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
        self.push(name, kind, help, sample(suffix, labels, value.into().0));
    }

    /// Adds a histogram: `counts` of what was at most as long as each of `bounds_seconds`, but
    /// longer than the bound before, and one more count of what was longer than all.
    pub fn add_histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        bounds_seconds: &[f64],
        counts: &[u64],
        sum_seconds: f64,
    ) {
        let mut so_far = 0;
        let bounds = bounds_seconds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(counts) {
            so_far += count;
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.push(name, Kind::Histogram, help, sample("_bucket", &labels, so_far as f64));
        }
        self.push(name, Kind::Histogram, help, sample("_count", labels, so_far as f64));
        self.push(name, Kind::Histogram, help, sample("_sum", labels, sum_seconds));
    }

    fn push(&mut self, name: &str, kind: Kind, help: &str, sample: Sample) {
        if self.samples < SAMPLES_MAX {
            self.insert(name, kind, help, sample);
        }
    }

    fn insert(&mut self, name: &str, kind: Kind, help: &str, sample: Sample) {
        self.samples += 1;
        match self.families.iter_mut().find(|family| family.name == name) {
            Some(family) if family.kind == kind => family.samples.push(sample),
            // A name has one kind.
            Some(_) => {}
            None => self.families.push(Family {
                name: name.to_owned(),
                kind,
                help: help.to_owned(),
                samples: vec![sample],
            }),
        }
    }

    /// Adds all of `other`, each sample with `label` before its own; one of that name is replaced.
    pub fn merge(&mut self, other: Self, (name, value): (&str, &str)) {
        for family in other.families {
            let room = SAMPLES_OF_ALL_MAX.saturating_sub(self.samples);
            for mut sample in family.samples.into_iter().take(room) {
                sample.labels.retain(|(other, _)| other != name);
                sample.labels.insert(0, (name.to_owned(), value.to_owned()));
                self.insert(&family.name, family.kind, &family.help, sample);
            }
        }
    }
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
    }
}
