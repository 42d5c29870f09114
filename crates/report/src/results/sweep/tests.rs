//! A page of a sweep shows the figures of its JSON.

use serde_json::{Value, json};

use super::super::model::Report;
use super::{Sweep, sweeps};
use crate::run::{LatencyStats, RunResult, Turn, report_json};

const SIZES: [(&str, u64); 3] = [("512", 512), ("64k", 65_536), ("4k", 4_096)];
const WAYS: [(&str, u64); 2] = [("poll", 7_000), ("adaptive", 7_600)];

/// Returns a result whose latency grows with size and depth, with turns that differ by 5 %.
fn result(name: &str, sweep: &[(&str, &str)], way: &str, ns: u64) -> RunResult {
    let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let mut result = RunResult {
        job_name: sweep
            .iter()
            .fold(name.to_owned(), |name, (key, value)| format!("{name} {key}={value}")),
        sweep: owned(sweep),
        options: owned(&[&[("rw", "randread")], sweep].concat()),
        device: "mem:1G?model=optane".to_owned(),
        completion: way.to_owned(),
        usr_cpu_percent: 99.0,
        ..RunResult::default()
    };
    for at in 0..1_000 {
        result.read.lat.record(ns + at % 97 * ns / 500);
        result.read.clat.record(ns);
        result.read.ios += 1;
        result.runtime_ns += ns;
    }
    for percent in [95, 100, 105] {
        let mut latency = LatencyStats::default();
        latency.record(ns * percent / 100);
        result.turns.push(Turn::new(&latency, ns, ns / 2));
    }
    result
}

/// Returns a sweep of three sizes and three depths.
fn grid(name: &str) -> Vec<RunResult> {
    let depths = [("1", 1), ("8", 8), ("32", 32)];
    itertools::iproduct!(SIZES, depths, WAYS)
        .map(|((bs, bytes), (iodepth, depth), (way, ns))| {
            let ns = ns + bytes / 3 + depth * (500 + bytes / 20);
            result(name, &[("bs", bs), ("iodepth", iodepth)], way, ns)
        })
        .collect()
}

fn json_of(results: &[RunResult]) -> Value {
    report_json(results, &[], serde_json::Map::new(), std::time::SystemTime::UNIX_EPOCH)
}

fn report_of(results: &[RunResult]) -> Report {
    Report::new(&[(None, json_of(results))]).unwrap()
}

/// Returns all texts of a class.
fn shown<'a>(page: &'a str, class: &str) -> Vec<&'a str> {
    let element = format!("<text class=\"{class}\"");
    let parts: Vec<&str> = page.split(&element).skip(1).collect();
    let parts = parts.into_iter();
    parts.filter_map(|part| part.split_once('>')?.1.split_once('<')).map(|(text, _)| text).collect()
}

#[test]
fn the_json_has_the_swept_values() {
    let json = json_of(&grid("randread"));
    assert_eq!(json["jobs"][0]["sweep"], json!({"bs": "512", "iodepth": "1"}));
    assert_eq!(json["jobs"][0]["jobname"], "randread bs=512 iodepth=1");
    let plain = json_of(&[result("randread", &[], "poll", 8_000)]);
    assert!(plain["jobs"][0].get("sweep").is_none());
    assert!(sweeps(&report_of(&[result("randread", &[], "poll", 8_000)])).is_empty());
}

#[test]
fn a_sweep_is_a_grid_in_the_order_of_its_values() {
    let report = report_of(&[grid("a"), grid("b")].concat());
    let sweeps = sweeps(&report);
    let names: Vec<&str> = sweeps.iter().map(|sweep| sweep.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let Sweep { axes, cells, .. } = &sweeps[0];
    assert_eq!((&axes[..], cells.len()), (&["bs", "iodepth"][..], 9));
    assert_eq!(sweeps[0].values(0), ["512", "4k", "64k"]);
    assert_eq!(sweeps[0].values(1), ["1", "8", "32"]);
    assert_eq!(sweeps[0].setting(), "3 values of bs × 3 values of iodepth");
    assert_eq!(sweeps[0].finding(), "poll has the lowest mean in 9 of 9 cells.");
}

#[test]
fn what_is_no_axis_divides_sweeps() {
    let of = |numjobs| [("bs", "4k"), ("iodepth", "1"), ("numjobs", numjobs)];
    let results = ["1", "2"].map(|numjobs| result("x", &of(numjobs), "poll", 8_000));
    let report = report_of(&results);
    let names: Vec<String> = sweeps(&report).into_iter().map(|sweep| sweep.name).collect();
    assert_eq!(names, ["x numjobs=1", "x numjobs=2"]);
}

#[test]
fn the_maps_show_the_figures_of_the_json() {
    let results = grid("randread");
    let page = report_of(&results).page("meantime");
    let json = json_of(&results);
    let jobs = json["jobs"].as_array().unwrap();
    let mut figures = [Vec::new(), Vec::new()];
    for (way, _) in WAYS {
        for (iodepth, bs) in itertools::iproduct!(["1", "8", "32"], ["512", "4k", "64k"]) {
            let is = |job: &&Value| {
                job["sweep"] == json!({"bs": bs, "iodepth": iodepth})
                    && job["job options"]["completion"] == way
            };
            let job = jobs.iter().find(is).unwrap();
            let latency = &job["read"]["lat_ns"];
            figures[0].push(crate::figures::us(latency["mean"].as_f64().unwrap()));
            let bins = latency["bins"].as_object().unwrap();
            let mut bins: Vec<(u64, u64)> =
                bins.iter().map(|(ns, n)| (ns.parse().unwrap(), n.as_u64().unwrap())).collect();
            bins.sort_unstable();
            let mut until = 0;
            let p99 = bins
                .iter()
                .find(|(_, n)| {
                    until += n;
                    until >= 990
                })
                .unwrap()
                .0;
            figures[1].push(crate::figures::us((p99 as f64).min(latency["max"].as_f64().unwrap())));
        }
    }
    let mut told = shown(&page, "figure best");
    told.extend(shown(&page, "figure"));
    told.sort_unstable();
    let mut figures: Vec<String> = figures.concat();
    figures.sort_unstable();
    assert_eq!(told, figures);
    // The best of two ways in each of nine cells, for two figures.
    assert_eq!(shown(&page, "figure best").len(), 18);
}

#[test]
fn the_curves_have_the_spread_of_turns() {
    let page = report_of(&grid("randread")).page("meantime");
    // 5 % down and up have a standard deviation of 5 %.
    assert!(page.contains("Mean latency 8.42 ± 5.0 %"), "{:?}", page.find("± 5.0 %"));
    let panels = 3 + 3;
    // Latency and I/Os per second, over two axes; a line, and two caps, for each marker.
    let marks = 2 * panels * 3 * WAYS.len();
    assert_eq!(page.matches("<path class=\"whisker").count() - cpu_whiskers(&page), 3 * marks);
    for words in ["iodepth=32", "bs=64k", "Mean latency over bs", "I/Os per second over iodepth"] {
        assert!(page.contains(words), "{words}");
    }
    let mut one = grid("randread");
    one.retain(|of| of.sweep[1].1 == "8");
    one.iter_mut().for_each(|of| drop(of.sweep.pop()));
    let page = report_of(&one).page("meantime");
    assert!(page.contains("Mean latency over bs") && !page.contains("heat h"));
}

/// The whiskers of other plots have tooltips.
fn cpu_whiskers(page: &str) -> usize {
    let whiskers = page.split("<path class=\"whisker").skip(1);
    whiskers.filter(|part| part.split_once('>').is_some_and(|(tag, _)| !tag.ends_with('/'))).count()
}
