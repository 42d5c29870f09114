//! Reports of every kind: real ones, odd ones, and nearly empty ones.

use serde_json::{Value, json};

use super::model::Report;
use super::{differences, headline};
use crate::run::{LatencyStats, RunResult, Turn, report_json};

/// Returns a result of `n` reads around `ns`.
fn result(job: &str, device: &str, completion: &str, ns: u64, n: u64) -> RunResult {
    let mut result = RunResult {
        job_name: job.to_owned(),
        device: device.to_owned(),
        completion: completion.to_owned(),
        options: [("rw", "randread"), ("bs", "4k")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec(),
        iodepth: 1,
        usr_cpu_percent: 99.0,
        ..RunResult::default()
    };
    for at in 0..n {
        let clat_ns =
            ns.saturating_add(at % 97).saturating_mul(if at % 500 == 499 { 20 } else { 1 });
        result.read.slat.record(50);
        result.read.clat.record(clat_ns);
        result.read.lat.record(clat_ns.saturating_add(50));
        result.read.ios += 1;
        result.read.bytes += 4096;
        result.runtime_ns += 20_000;
    }
    result
}

fn json_of(results: &[RunResult]) -> Value {
    let facts = json!({
        "cpu": "A", "cpus": 2, "kernel": "6.1", "revision": "abc", "virtual_machine": false
    });
    report_json(results, &[], facts.as_object().unwrap().clone(), std::time::SystemTime::UNIX_EPOCH)
}

fn report_of(files: &[(&str, Value)]) -> Report {
    let files: Vec<_> =
        files.iter().map(|(path, json)| (Some((*path).to_owned()), json.clone())).collect();
    Report::new(&files).unwrap()
}

/// Returns the page, after checks that hold for every page.
fn page_of(report: &Report) -> String {
    let page = report.page("meantime");
    assert!(page.starts_with("<!doctype html>\n<html lang=\"en\">") && page.ends_with("</html>\n"));
    for word in ["NaN", "inf ", "inf\"", "inf,", "http://", "https://", "<script", "src=", "url("] {
        assert!(
            !page.contains(word),
            "{word:?} in {:?}",
            page.find(word).map(|at| &page[at.saturating_sub(80)..at + 20])
        );
    }
    for tag in [
        "div", "table", "tr", "td", "th", "svg", "g", "figure", "section", "ul", "li", "p", "span",
        "text",
    ] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "<{tag}>");
    }
    page
}

#[test]
fn a_run_has_tables_plots_and_findings() {
    let ways = [("interrupt", 21_500), ("poll", 7_600), ("hybrid", 9_000)];
    let results: Vec<RunResult> = ways
        .iter()
        .map(|(way, ns)| result("rr4k", "mem:1G?model=optane", way, *ns, 12_000))
        .collect();
    let report = Report::new(&[(None, json_of(&results))]).unwrap();
    let found = headline::findings(&report);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "4 KiB random reads on optane");
    assert!(found[0].1.starts_with("poll 7."), "{}", found[0].1);
    assert!(found[0].1.contains("interrupt 22.") && found[0].1.contains("(−6"), "{}", found[0].1);
    assert!(found[0].1.contains("at the same CPU"), "{}", found[0].1);
    assert!(differences::warnings(&report).is_empty());
    let page = page_of(&report);
    for words in [
        "p99.99",
        "1 in 6,000",
        "IOPS",
        "CPU-%",
        "99.9",
        "1 in 100",
        "vs interrupt",
        "Content-Security-Policy",
    ] {
        assert!(page.contains(words), "{words}");
    }
    // Three figures, each with one panel (no series here), a curve for each way in two of them.
    assert_eq!(page.matches("<figure").count(), 3);
    // The colours of `interrupt` and `poll` do not depend on the other policies.
    for colour in ["c5", "c1"] {
        let curves = page.matches(&format!("<path class=\"curve {colour}\"")).count();
        assert_eq!(curves, 2 + 2 + 1, "curves, their legends, table");
    }
    assert!(page.contains("no time series"));
    assert!(!page.contains("another device"));
}

#[test]
fn the_table_looks_like_this() {
    let way = |name: &str, ns: u64| result("rr4k", "mem:1G?model=optane", name, ns, 12_000);
    let mut other = result("rr4k", "kernel:x", "poll", 9_000, 650);
    other.medium = "virtio disk vda".to_owned();
    let results = [way("interrupt", 21_500), way("poll", 7_600), other];
    let report = Report::new(&[(None, json_of(&results))]).unwrap();
    let want = "\
way to wait   mean    p50    p99  p99.9  1 in 6,000  p99.99    max   IOPS   CPU  IOPS /      mean
                µs     µs     µs     µs          µs      µs     µs            %   CPU-%  vs first
═════════════════════════════════════════════════════════════════════════════════════════════════
rr4k, 4 KiB random reads: optane · mem:1G?model=optane · software SSD
interrupt    22.42  21.60  21.65  431.1       431.9   431.9  431.9  50.0k  99.0     505         –
poll          7.99   7.70   7.75  153.0       153.8   153.8  153.8  50.0k  99.0     505     −64 %

rr4k, 4 KiB random reads: kernel:x · virtio disk vda · another device
poll          9.36   9.10   9.15      –           –       –  180.3  50.0k  99.0     505         –
";
    assert_eq!(report.table(120), want, "\n{}", report.table(120));
    // Columns that do not fit are in a second part below.
    let narrow = report.table(60);
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    assert_eq!(narrow.matches("way to wait").count(), 2, "{narrow}");
    for word in ["1 in 6,000", "CPU-%", "vs first"] {
        assert_eq!(narrow.matches(word).count(), 1, "{word}: {narrow}");
    }
}

#[test]
fn names_are_text() {
    let evil = "<img src=x onerror=alert(1)>\"'&";
    let mut json = json_of(&[
        result(evil, evil, evil, 5_000, 100),
        result(evil, "mem:1M", "poll", 5_000, 100),
    ]);
    json["meantime"][evil] = json!(evil);
    json["meantime"]["command"] = json!(["meantime", "bench", evil]);
    json["meantime"]["left_out"] = json!([{"device": evil, "completion": evil, "why": evil}]);
    json["time"] = json!(evil);
    json["fio version"] = json!(evil);
    let page = page_of_json(&json, "a<b>.json");
    assert!(page.contains("&lt;img") && !page.contains("<img") && !page.contains("<b>.json"));
    assert!(!page.contains("\"'&<"), "attributes too");
}

fn page_of_json(json: &Value, path: &str) -> String {
    // `src=` is allowed as text here.
    let report = report_of(&[(path, json.clone())]);
    report.page("meantime")
}

#[test]
fn next_to_nothing() {
    // One I/O; none; all equal; the slowest that a clock can measure.
    for results in [
        vec![result("one", "mem:1M", "poll", 5_000, 1)],
        vec![result("none", "mem:1M", "poll", 0, 0)],
        vec![RunResult::default()],
        vec![
            result("none", "mem:1M", "poll", 0, 0),
            result("none", "mem:1M", "interrupt", 5_000, 20_000),
        ],
        vec![result("zero", "mem:1M", "poll", 0, 3)],
        vec![result("huge", "mem:1M", "poll", u64::MAX / 32, 3)],
    ] {
        let report = Report::new(&[(None, json_of(&results))]).unwrap();
        let _ = page_of(&report);
        assert!(!report.text(120).is_empty());
        assert_eq!(headline::findings(&report).len(), 1);
    }
    // Figures that are missing or null.
    let mut json = json_of(&[result("odd", "mem:1M", "poll", 5_000, 100)]);
    let job = &mut json["jobs"][0];
    job["usr_cpu"] = Value::Null;
    job.as_object_mut().unwrap().remove("sys_cpu");
    job["read"]["iops"] = Value::Null;
    job["floor_ns"] = json!(0);
    job["series"] = json!([]);
    let page = page_of(&report_of(&[("odd.json", json)]));
    assert!(!page.contains("CPU against latency"));
}

#[test]
fn many_results_keep_apart() {
    let results: Vec<RunResult> = (0..60)
        .map(|at| {
            result("rr", "mem:1G?model=null", &format!("hybrid={at}us"), 1_000 * (at + 1), 200)
        })
        .collect();
    let report = Report::new(&[(None, json_of(&results))]).unwrap();
    let page = page_of(&report);
    assert!(page.contains("(1 of 8)") && page.contains("(8 of 8)"));
    assert!(page.len() < 3_000_000, "{}", page.len());
    // The same policy again is another row.
    let twice =
        [result("rr", "mem:1M", "poll", 1_000, 10), result("rr", "mem:1M", "poll", 1_000, 10)];
    let report = Report::new(&[(None, json_of(&twice))]).unwrap();
    assert_eq!(report.jobs[0].blocks[0].runs[1].label, "poll #2");
}

#[test]
fn devices_of_another_kind_are_marked() {
    let results = [
        result("rr", "mem:1G?model=optane", "poll", 7_000, 100),
        result("rr", "kernel:/dev/nvme0n1", "poll", 9_000, 100),
    ];
    let report = Report::new(&[(None, json_of(&results))]).unwrap();
    let page = page_of(&report);
    assert_eq!(page.matches("† another device").count(), 1);
    assert!(page.contains("not a like-for-like comparison"));
    assert!(
        differences::warnings(&report).iter().any(|(what, _)| what.contains("kinds of devices"))
    );
}

#[test]
fn what_is_at_the_bottom_of_a_device_decides() {
    let results = [
        result("rr", "mem:1M", "poll", 7_000, 100),
        result("rr", "file:x", "poll", 9_000, 100),
        result("rr", "kernel:x", "poll", 9_000, 100),
    ];
    let mut json = json_of(&results);
    let marks = |json: &Value| {
        page_of(&report_of(&[("a.json", json.clone())])).matches("† another device").count()
    };
    assert_eq!(marks(&json), 1, "by its scheme");
    for (at, medium) in
        ["software SSD", "software SSD on <tmpfs>", "virtio disk vda"].iter().enumerate()
    {
        json["jobs"][at]["medium"] = json!(medium);
    }
    assert_eq!(marks(&json), 2, "by what the file tells");
}

#[test]
fn jobs_that_ran_at_the_same_time_are_told() {
    let mut other = result("writer", "mem:1M", "poll", 8_000, 100);
    other.options[0].1 = "randwrite".to_owned();
    other.group_id = 1;
    let mut json = json_of(&[result("reader", "mem:1M", "poll", 8_000, 100), other]);
    let told = |json: &Value| {
        page_of(&report_of(&[("a.json", json.clone())])).contains("same time as writer")
    };
    assert!(!told(&json));
    json["jobs"][1]["groupid"] = json!(0);
    assert!(told(&json));
}

#[test]
fn files_are_compared_unless_their_machines_differ() {
    let before = json_of(&[result("rr4k", "mem:1M", "poll", 8_000, 100)]);
    let mut after = json_of(&[result("renamed", "mem:1M", "poll", 7_000, 100)]);
    after["meantime"]["revision"] = json!("def");
    let report = report_of(&[("x/before.json", before.clone()), ("y/after.json", after.clone())]);
    assert_eq!((report.jobs.len(), report.jobs[0].blocks.len()), (1, 1));
    assert_eq!(report.jobs[0].name, "rr4k / renamed");
    let labels: Vec<&str> =
        report.jobs[0].blocks[0].runs.iter().map(|run| run.label.as_str()).collect();
    assert_eq!(labels, ["poll · before", "poll · after"]);
    let found = &headline::findings(&report)[0].1;
    assert!(found.contains("In after: poll 7.") && found.contains("(−12 %)"), "{found}");
    let warnings = differences::warnings(&report);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].0.contains("before: abc; after: def"));
    assert!(page_of(&report).contains("vs file"));

    after["meantime"]["cpu"] = json!("B");
    let report = report_of(&[("a/r.json", before), ("b/r.json", after)]);
    assert_eq!(report.jobs[0].blocks.len(), 2, "another machine's results are kept apart");
    assert!(
        differences::warnings(&report)[0]
            .0
            .starts_with("Different machines (a/r.json: A; b/r.json: B)")
    );
    assert!(page_of(&report).contains("on the machine of b/r.json"));
}

#[test]
fn jobs_of_one_file_that_only_seem_alike_stay_apart() {
    let json = json_of(&[
        result("low", "mem:1M", "poll", 8_000, 10),
        result("high", "mem:1M", "poll", 8_000, 10),
    ]);
    assert_eq!(report_of(&[("a.json", json)]).jobs.len(), 2);
}

#[test]
fn the_spread_of_turns_stands_beside_each_figure() {
    let turn = |mean_ns, ios| {
        let mut latency = LatencyStats::default();
        (0..ios).for_each(|_| latency.record(mean_ns));
        Turn::new(&latency, 1_000_000, 500_000)
    };
    let of = |turns: Vec<Turn>| {
        let run = RunResult { turns, ..result("rr", "mem:1M", "poll", 8_000, 100) };
        let json = json_of(&[run]);
        (json["jobs"][0]["turns"].clone(), report_of(&[("a.json", json)]).table(120))
    };
    // A turn without I/O has no latency.
    let (turns, text) = of(vec![turn(7_900, 10), turn(0, 0), turn(8_100, 10)]);
    let first =
        json!({"mean_ns": 7900.0, "p50_ns": 7900, "p99_ns": 7900, "iops": 1e4, "cpu": 50.0});
    assert_eq!(turns[0], first);
    assert_eq!((turns.as_array().unwrap().len(), turns[1]["iops"].as_f64()), (3, Some(0.0)));
    // Mean, median and p99 differ from turn to turn; I/Os per second and CPU do not.
    let found = ["µs ± %", " ±2", " ±0"].map(|words| text.matches(words).count());
    assert_eq!(found, [3, 3, 2], "{text}");
    let (_, text) = of(vec![turn(7_900, 10)]);
    assert!(!text.contains('±'), "{text}");
}

#[test]
fn what_others_measured_is_shown_if_it_is_there() {
    let mut json = json_of(&[result("rr", "mem:1M", "poll", 8_000, 100)]);
    let job = &mut json["jobs"][0];
    job["competitor_percent"] = json!(41.5);
    job["floor_ns"] = json!(700);
    job["floor_ratio"] = json!(1.25);
    job["errors"] = json!(3);
    job["series"] = json!([
        {"at_ms": 100, "ios": 5, "mean_ns": 8_000.0, "p99_ns": 9_000, "max_ns": 10_000},
        {"at_ms": 200, "ios": 0, "mean_ns": 0.0, "p99_ns": 0, "max_ns": 0},
        {"at_ms": 300, "ios": 5, "mean_ns": 8_100.0, "p99_ns": 9_100, "max_ns": 10_000},
    ]);
    json["meantime"]["left_out"] =
        json!([{"device": "kernel:x", "completion": "poll", "why": "no polled queues"}]);
    json["meantime"]["command"] = json!(["meantime", "bench", "--device", "mem:1M?model=null"]);
    let report = report_of(&[("a.json", json)]);
    assert_eq!(report.jobs[0].blocks[0].runs[0].series.len(), 2);
    let page = page_of(&report);
    for words in [
        "% kept",
        "floor ratio",
        "1.25",
        "errors",
        "Latency over time",
        "What could not be measured",
        "no polled queues",
        "meantime bench --device &#39;mem:1M?model=null&#39;",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(page.contains(">42<"), "a share in whole percents");
}

#[test]
fn mixed_jobs_show_both_directions() {
    let mut mixed = result("mix", "mem:1M", "poll", 8_000, 7_000);
    let writes = result("mix", "mem:1M", "poll", 12_000, 7_000).read;
    (mixed.write, mixed.options[0].1) = (writes, "randrw".to_owned());
    let want = mixed.latency();
    let report = Report::new(&[(None, json_of(&[mixed]))]).unwrap();
    let run = &report.jobs[0].blocks[0].runs[0];
    assert_eq!(run.latency.n, 14_000);
    for at in [50.0, 99.0, 99.9] {
        assert_eq!(run.latency.percentile_ns(at), Some(want.percentile_ns(at) as f64));
    }
    assert_eq!(run.slowest_ns, want.slowest_1_in(6000).map(|ns| ns as f64));
    let page = page_of(&report);
    assert!(
        page.contains("reads of these")
            && page.contains("writes of these")
            && page.contains("(50 % reads)")
    );
}

#[test]
fn a_polling_thread_that_lost_its_cpu_is_told() {
    let mut disturbed = result("rr", "mem:1M", "poll", 8_000, 100);
    disturbed.usr_cpu_percent = 40.0;
    disturbed.runtime_ns = 1_000_000_000;
    let mut json = json_of(&[disturbed]);
    let warned = |json: &Value| {
        let report = report_of(&[("a.json", json.clone())]);
        differences::warnings(&report).iter().any(|(what, _)| what.contains("did not get its CPU"))
    };
    assert!(warned(&json));
    // Three of four threads had theirs.
    json["jobs"][0]["job options"]["numjobs"] = json!("4");
    json["jobs"][0]["usr_cpu"] = json!(320.0);
    assert!(warned(&json));
    json["jobs"][0]["usr_cpu"] = json!(392.0);
    assert!(!warned(&json));
    json["jobs"][0]["job options"]["numjobs"] = json!("1");
    json["jobs"][0]["usr_cpu"] = json!(40.0);
    json["jobs"][0]["competitor_percent"] = json!(50.0);
    assert!(!warned(&json), "it was meant to compete");
    json["jobs"][0].as_object_mut().unwrap().remove("competitor_percent");
    assert!(warned(&json));
    json["jobs"][0]["job options"]["rate_iops"] = json!("100");
    assert!(!warned(&json), "it was meant to sleep");
}

#[test]
fn damage_is_told_with_its_place() {
    let good = json_of(&[result("rr", "mem:1M", "poll", 8_000, 100)]);
    let refused = |damage: &dyn Fn(&mut Value), words: &[&str]| {
        let mut json = good.clone();
        damage(&mut json);
        let error = Report::new(&[(Some("x.json".to_owned()), json)]).unwrap_err();
        assert!(error.starts_with("x.json: "), "{error}");
        for word in words {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
    };
    refused(&|json| *json = json!([1, 2]), &["expected an object", "a list of 2"]);
    refused(
        &|json| *json = json!({}),
        &["jobs", "fio --output-format=json", "an object without keys"],
    );
    refused(&|json| *json = json!({"cacheline_rtt_ns": 4}), &["meantime calibrate"]);
    refused(&|json| *json = json!({"fio version": "fio-3.33", "client_stats": []}), &["--client"]);
    refused(&|json| json["jobs"] = json!({}), &["jobs", "a sequence"]);
    refused(&|json| json["jobs"] = json!([]), &["nothing to report"]);
    refused(
        &|json| json["jobs"][0] = json!("x"),
        &["jobs[0]", "string \"x\"", "expected an object"],
    );
    refused(&|json| json["jobs"][0]["read"] = Value::Null, &["jobs[0].read", "null"]);
    refused(&|json| json["jobs"][0]["usr_cpu"] = json!("much"), &["jobs[0].usr_cpu", "much"]);
    refused(
        &|json| json["jobs"][0]["read"]["lat_ns"]["mean"] = json!(-1),
        &["jobs[0].read.lat_ns.mean", "-1"],
    );
    refused(
        &|json| json["jobs"][0]["read"]["lat_ns"]["bins"]["x"] = json!(1),
        &["jobs[0].read.lat_ns.bins", "x"],
    );
    refused(
        &|json| json["jobs"][0]["read"]["clat_ns"] = json!({}),
        &["jobs[0].read.clat_ns", "missing field `N`"],
    );
    refused(
        &|json| json["jobs"][0]["series"] = json!([{}]),
        &["jobs[0].series[0]", "missing field `at_ms`"],
    );
    refused(&|json| json["meantime"]["left_out"] = json!(1), &["meantime.left_out"]);
    refused(
        &|json| {
            json.as_object_mut().unwrap().remove("fio version");
        },
        &["\"fio version\""],
    );
}

#[test]
fn csv_has_the_figures_of_the_json() {
    let evil = "a, \"b\"";
    let mut swept = result(evil, "mem:1M", "poll", 8_000, 100);
    swept.sweep = vec![("bs".to_owned(), "4k".to_owned())];
    let json = json_of(&[swept, result("plain", "mem:1M", "interrupt", 9_000, 10)]);
    let report = report_of(&[("dir/r.json", json.clone())]);
    let csv = report.csv();
    let lines: Vec<&str> = csv.split_terminator("\r\n").collect();
    assert_eq!(lines.len(), 3, "{csv}");
    let names: Vec<&str> = lines[0].split(',').collect();
    assert_eq!(names[..7], ["file", "job", "device", "completion", "bs", "ios", "mean_ns"]);
    assert!(lines[1].starts_with("r,\"a, \"\"b\"\"\",mem:1M,poll,4k,100,"), "{csv}");
    let plain: Vec<&str> = lines[2].split(',').collect();
    assert_eq!(plain.len(), names.len());
    let figure = |name: &str| plain[names.iter().position(|of| *of == name).unwrap()];
    let read = &json["jobs"][1]["read"];
    for (name, value) in
        [("ios", &read["total_ios"]), ("mean_ns", &read["lat_ns"]["mean"]), ("iops", &read["iops"])]
    {
        assert_eq!(figure(name).parse::<f64>().unwrap(), value.as_f64().unwrap(), "{name}");
    }
    // Ten I/Os have no 99th percentile, and no sweep.
    assert_eq!((figure("p99_ns"), figure("bs")), ("", ""));
}

#[test]
fn markdown_has_a_table_for_each_job() {
    let json = json_of(&[
        result("a|b", "mem:1M", "poll", 8_000, 100),
        result("a|b", "mem:1M", "interrupt", 9_000, 100),
    ]);
    let text = report_of(&[("r.json", json)]).markdown();
    assert!(text.contains("| way to wait | mean µs | p50 µs |"), "{text}");
    assert!(text.contains("| mean vs poll |") && text.contains("\n| interrupt | "), "{text}");
}
