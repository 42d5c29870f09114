//! A reader of Prometheus' text format 0.0.4, from its specification. It takes nothing that is
//! wrong.

use std::collections::{BTreeMap, BTreeSet};

/// The samples of a scrape, by name and labels as written.
#[derive(Debug, Default)]
pub(super) struct Scrape {
    pub(super) samples: BTreeMap<String, f64>,
    /// By family.
    pub(super) kinds: BTreeMap<String, String>,
}

impl Scrape {
    /// Reads `text`, which has to obey the format, and Prometheus' conventions.
    pub(super) fn read(text: &str) -> Self {
        let mut scrape = Self::default();
        assert!(text.ends_with('\n'), "the last line is one");
        let mut family: Option<(String, String)> = None;
        let mut helped = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(!help.trim().is_empty(), "{line}");
                name.clone_into(&mut helped);
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, helped, "HELP and TYPE are of one metric");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(is_name(name) && name.starts_with("meantime_"), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                let before = scrape.kinds.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{name} is one group of lines");
                family = Some((name.to_owned(), kind.to_owned()));
                continue;
            }
            let (family, kind) = family.as_ref().expect("a type before the first sample");
            let (name, labels, value) = sample(line);
            let suffix = name.strip_prefix(family.as_str()).unwrap_or_else(|| {
                panic!("{line}: among the samples of {family}");
            });
            let is_histogram = kind == "histogram";
            let suffixes: &[&str] =
                if is_histogram { &["_bucket", "_count", "_sum"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{line}");
            assert_eq!(suffix == "_bucket", labels.contains_key("le"), "{line}");
            assert!(kind == "gauge" || value >= 0.0, "{line}");
            let series = line.rsplit_once(' ').unwrap().0.to_owned();
            assert_eq!(scrape.samples.insert(series, value), None, "twice: {line}");
        }
        scrape.check_histograms();
        scrape
    }

    fn check_histograms(&self) {
        let buckets = self.samples.keys().filter(|series| series.contains("_bucket{"));
        let mut histograms = BTreeMap::<_, Vec<(f64, f64)>>::new();
        for series in buckets {
            let (name, mut labels, _) = sample(&format!("{series} 0"));
            let bound = labels.remove("le").unwrap().replace("+Inf", "inf").parse().unwrap();
            let name = name.strip_suffix("_bucket").unwrap().to_owned();
            histograms.entry((name, labels)).or_default().push((bound, self.samples[series]));
        }
        for ((name, labels), mut buckets) in histograms {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{name} {labels:?} is cumulative");
            let last = buckets.last().unwrap();
            let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{v}\"")).collect();
            let whole = |what: &str| self.sum(&format!("{name}{what}"), &labels);
            assert_eq!((last.0, last.1), (f64::INFINITY, whole("_count")), "{name} {labels:?}");
            assert!(whole("_count") > 0.0 && whole("_sum") > 0.0, "{name} {labels:?}");
        }
    }

    /// The sum of the samples of `name` that have all of `labels`, each as `name="value"`.
    pub(super) fn sum(&self, name: &str, labels: &[impl AsRef<str>]) -> f64 {
        let is_one = |series: &&String| {
            series.split('{').next() == Some(name)
                && labels.iter().all(|label| series.contains(label.as_ref()))
        };
        self.samples.keys().filter(is_one).map(|series| self.samples[series]).sum()
    }

    /// The names of the samples.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let name = |series: &String| series.split('{').next().unwrap().to_owned();
        self.samples.keys().map(name).collect()
    }
}

fn is_name(text: &str) -> bool {
    let is_first = |c: char| c.is_ascii_lowercase() || c == '_';
    text.starts_with(is_first) && text.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

/// Name, labels and value of a line.
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
    let (name, rest) = series.split_once('{').unwrap_or((series, "}"));
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    let mut rest = rest.strip_suffix('}').unwrap();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").unwrap();
        assert!(is_name(label), "{line}");
        // Up to the next quote that no backslash is before.
        let (mut escaped, mut end) = (false, None);
        for (at, c) in after.char_indices() {
            match (escaped, c) {
                (true, c) => {
                    assert!(['\\', 'n', '"'].contains(&c), "{line}");
                    escaped = false;
                }
                (false, '\\') => escaped = true,
                (false, '"') => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        let end = end.unwrap();
        assert_eq!(labels.insert(label.to_owned(), after[..end].to_owned()), None, "{line}");
        rest = &after[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    (name.to_owned(), labels, value)
}

#[test]
fn the_reader_refuses_what_is_wrong() {
    let head = "# HELP meantime_a_total A\n# TYPE meantime_a_total counter\n";
    let read = |rest: &str| std::panic::catch_unwind(|| Scrape::read(&format!("{head}{rest}")));
    let scrape = read("meantime_a_total{x=\"a,\\\"}\"} 3\nmeantime_a_total{x=\"b\"} 4\n").unwrap();
    assert_eq!(scrape.sum("meantime_a_total", &["x=\"b\""]), 4.0);
    assert_eq!(scrape.sum("meantime_a_total", &[""]), 7.0);
    for wrong in [
        "meantime_a_total 3",
        "meantime_a 3\n",
        "meantime_a_total x\n",
        "meantime_a_total -1\n",
        "meantime_a_total 1\nmeantime_a_total 1\n",
        "meantime_a_total{x=\"\\t\"} 1\n",
        "meantime_a_total{x=\"} 1\n",
        "meantime_b_total 1\n",
        "# TYPE meantime_b gauge\n",
        "# HELP meantime_b B\n# TYPE meantime_b counter\n",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
