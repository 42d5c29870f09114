//! The method with known figures and by simulation, and comparisons of whole files.

use serde_json::{Value, json};

use super::method::{Change, Test, holm, paired, separate};
use super::{Comparison, Condition, Files};

fn near(got: f64, want: f64) -> bool {
    (got - want).abs() < 1e-4 * want.abs().max(1e-2)
}

fn logs(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value.exp()).collect()
}

/// Checks the difference of logarithms, its interval and its probability.
fn assert_is(change: Change, [difference, low, high, p]: [f64; 4]) {
    let test = change.test.unwrap();
    let got = [change.ratio.ln(), test.low.ln(), test.high.ln(), test.p];
    let is_near = got.iter().zip([difference, low, high, p]).all(|(got, want)| near(*got, want));
    assert!(is_near, "{got:?}");
}

/// The example data of R's `sleep`: `t.test(extra ~ group, data = sleep)`, with the groups in the
/// other order, and the same with `paired = TRUE`.
#[test]
fn both_intervals_are_those_of_r() {
    let before = logs(&[0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]);
    let after = logs(&[1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]);
    assert_is(separate(&before, &after, 0.0), [1.58, -0.205_483_2, 3.365_483_2, 0.079_394_14]);
    assert_is(paired(&before, &after, 0.0), [1.58, 0.700_114_2, 2.459_885_8, 0.002_832_89]);
}

#[test]
fn few_values_and_equal_ones_have_no_interval() {
    let two = separate(&[100.0, 101.0], &[110.0, 111.0, 112.0], 0.0);
    assert!(two.test.is_none() && near(two.ratio, 1.104_46), "{two:?}");
    assert!(separate(&[100.0], &[110.0], 0.0).test.is_none());
    assert!(paired(&[100.0, 100.0], &[110.0, 111.0], 0.0).test.is_none());
    assert!(separate(&[100.0; 3], &[110.0; 3], 0.0).test.is_none());
    // Values of a histogram have the scatter that its steps hide: one step is nothing.
    let p = |after| separate(&[500.0; 3], &[after; 3], 1.0 / 500.0).test.unwrap().p;
    assert!(p(500.0) > 0.99 && p(501.0) > 0.01 && p(520.0) < 1e-4);
}

#[test]
fn tests_are_corrected_together() {
    let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
    let wanted = [0.03, 0.06, 0.06, 0.02];
    assert!(corrected.iter().zip(wanted).all(|(got, want)| near(*got, want)), "{corrected:?}");
    assert_eq!((holm(&[0.6, 0.7]), holm(&[])), (vec![1.0, 1.0], vec![]));
}

/// Noise of a normal distribution, from a seed.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn values(&mut self, mean: f64, deviation: f64, n: usize) -> Vec<f64> {
        let mut normal = || (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
        (0..n).map(|_| mean * (deviation * normal()).exp()).collect()
    }
}

type Method = fn(&[f64], &[f64], f64) -> Change;

/// Returns the share of 1,000 comparisons of `cells` cells in which `judged` holds for the
/// corrected probabilities. Both sides scatter by 1 %, and `shift` is what has changed in the first
/// cell.
fn share(method: Method, n: usize, cells: usize, shift: f64, judged: fn(&[f64]) -> bool) -> f64 {
    const TIMES: usize = 1_000;
    let mut noise = Noise(7);
    let mut p = |shift| {
        let (before, after) = (noise.values(1e4, 0.01, n), noise.values(1e4 * shift, 0.01, n));
        method(&before, &after, 0.0).test.unwrap().p
    };
    let mut all =
        || -> Vec<f64> { (0..cells).map(|cell| p(if cell == 0 { shift } else { 1.0 })).collect() };
    let holds = (0..TIMES).filter(|_| judged(&holm(&all())));
    holds.count() as f64 / TIMES as f64
}

#[test]
fn nothing_is_found_where_nothing_has_changed() {
    for (method, n) in [(separate as Method, 3), (separate, 10), (paired, 3), (paired, 10)] {
        for cells in [1, 20] {
            // 5 %, and twice the standard error of 1,000 comparisons.
            let wrong = share(method, n, cells, 1.0, |ps| ps.iter().any(|p| *p <= 0.05));
            assert!(wrong < 0.065, "{n} values, {cells} cells: {wrong}");
        }
    }
}

#[test]
fn a_shift_of_three_deviations_is_found() {
    for (method, n, cells, least) in [
        (separate as Method, 10, 1, 0.99),
        (separate, 10, 20, 0.95),
        (paired, 10, 1, 0.99),
        (paired, 10, 20, 0.85),
        (separate, 5, 1, 0.95),
        (separate, 3, 1, 0.6),
    ] {
        let found = share(method, n, cells, 1.03, |ps| ps[0] <= 0.05);
        assert!(found > least, "{n} values, {cells} cells: {found}");
    }
}

/// A file of ours: a job with the ways to wait, each with its latency in ns.
fn ours(kernel: &str, ways: &[(&str, u64)]) -> Value {
    let job = |(way, ns): &(&str, u64)| {
        let none = json!({"min": 0, "max": 0, "mean": 0.0, "N": 0});
        let bins = json!({ns.to_string(): 9_000, (ns + ns / 4).to_string(): 1_000});
        let lat = json!({"min": ns, "max": 2 * ns, "mean": ns, "N": 10_000, "bins": bins});
        json!({
            "jobname": "rr",
            "job options": {"rw": "randread", "device": "mem:1M", "completion": way},
            "read": {"iops": 1e9 / *ns as f64, "lat_ns": lat, "clat_ns": none},
            "write": {"lat_ns": none, "clat_ns": none},
            "usr_cpu": 0.0, "sys_cpu": 0.0,
        })
    };
    json!({
        "fio version": "meantime-0.1.0",
        "jobs": ways.iter().map(job).collect::<Vec<_>>(),
        "meantime": {"cpu": "A", "kernel": kernel, "cacheline_rtt_ns": 100.0},
    })
}

fn files(of: impl Fn(u64) -> Value, n: u64) -> Vec<(Option<String>, Value)> {
    (0..n).map(|at| (Some(format!("{at}.json")), of(at))).collect()
}

fn compared(before: &Files, after: &Files, are_pairs: bool) -> Comparison {
    Comparison::new(before, after, are_pairs).unwrap()
}

#[test]
fn cells_are_compared_by_job_device_and_policy() {
    let before = files(|at| ours("6.1", &[("poll", 8_000 + 10 * at), ("hybrid", 9_000)]), 3);
    let mut after = files(|at| ours("6.2", &[("ehp", 9_000), ("poll", 8_400 + 10 * at)]), 3);
    after[1].1["meantime"]["cacheline_rtt_ns"] = json!(150.0);
    after[2].1["meantime"]["cacheline_rtt_ns"] = json!(150.0);
    let comparison = compared(&before, &after, false);
    let text = comparison.text(120);
    for words in [
        "Different kernels (before: 6.1; after: 6.2).",
        "Different cache-line times (before: 100 ns; after: 150 ns).",
        "Only before: rr, 4 KiB random reads, queue depth 1, mem:1M, hybrid.",
        "Only after: rr, 4 KiB random reads, queue depth 1, mem:1M, ehp.",
        "mem:1M, poll · slower: mean, p50, p99, IOPS; no verdict: CPU",
        "no verdict  fewer than 3 values a side, 6 missing or 0",
        "all 4 tests together",
    ] {
        assert!(text.contains(words), "{words:?} in {text}");
    }
    let is_slower = |line: &&str| line.contains("    slower");
    let rows: Vec<&str> = text.lines().filter(is_slower).collect();
    assert!(rows.len() == 4 && rows[0].contains("8.01 µs  8.41 µs  +5.0 %"), "{text}");
    assert!(rows[3].contains("−4.8 %"), "{text}");
    let markdown = comparison.markdown();
    assert!(
        markdown.contains("| mean | 8.01 µs | 8.41 µs | +5.0 % | +4.7 % to +5.3 % | slower | – |"),
        "{markdown}"
    );
    let json = comparison.json();
    let cell = &json["cells"][0];
    assert_eq!((json["cells"].as_array().unwrap().len(), &cell["completion"]), (1, &json!("poll")));
    assert_eq!(cell["figures"]["mean_ns"]["verdict"], "slower");
    assert_eq!(cell["figures"]["cpu_percent"]["change_percent"], Value::Null);
    let judged = |text: &str| {
        let judged = comparison.judge(&[text.parse().unwrap()]);
        (judged.met.len(), judged.unclear.len(), judged.unknown.len())
    };
    assert_eq!(judged("p99>+4%"), (1, 0, 0));
    assert_eq!(judged("mean > +4.9 %"), (0, 1, 0), "a part of the interval is below");
    assert_eq!(judged("mean > +6 %"), (0, 0, 0));
    assert_eq!(judged("IOPS<-4%"), (1, 0, 0));
    assert_eq!(judged("p50<+2%"), (0, 0, 0));
    assert_eq!(judged("cpu>+5%"), (0, 0, 1));
}

#[test]
fn pairs_are_compared_with_each_other() {
    // What drifts is ten times what has changed.
    let before = files(|at| ours("6.1", &[("poll", 8_000 + 800 * at)]), 5);
    let after = files(|at| ours("6.1", &[("poll", (8_080 + 808 * at) + at % 2)]), 5);
    let verdict = |are_pairs| {
        let json = compared(&before, &after, are_pairs).json();
        json["cells"][0]["figures"]["mean_ns"]["verdict"].clone()
    };
    assert_eq!((verdict(true), verdict(false)), (json!("slower"), json!("not clear")));
    // A pair with a half is none.
    let mut half = after.clone();
    half[0].1["jobs"][0]["read"]["iops"] = json!(0.0);
    let json = compared(&before, &half, true).json();
    assert_eq!(json["cells"][0]["figures"]["iops"]["values"], json!([4, 4]));
}

#[test]
fn few_files_have_differences_and_no_verdict() {
    let (one, other) = (ours("6.1", &[("poll", 8_000)]), ours("6.1", &[("poll", 8_800)]));
    let comparison = compared(&[(None, one)], &[(None, other)], false);
    let text = comparison.text(120);
    assert!(text.contains("+10.0 %") && text.contains("no verdict  fewer than 3 values a side"));
    assert!(!text.contains("slower") && !text.contains("Different"), "{text}");
    assert!(text.ends_with("these are too few to tell by how much.\n"), "{text}");
    let judged = comparison.judge(&["p99>+5%".parse().unwrap()]);
    assert!(judged.met.is_empty() && judged.unknown[0].contains("p99>+5%: rr"), "{judged:?}");
}

#[test]
fn conditions_are_read_whole() {
    for wrong in
        ["", "p99", "p99>5%", "p98>+5%", "p99>+5", "p99>+x%", "p99>-100%", ">+5%", "p99>+inf%"]
    {
        assert!(wrong.parse::<Condition>().is_err(), "{wrong}");
    }
    let test = Test { low: 0.90, high: 0.94, p: 0.0 };
    for (text, holds) in
        [("mean<-5%", true), ("mean<-7%", false), ("mean>-11%", true), ("mean>+0%", false)]
    {
        assert_eq!(text.parse::<Condition>().unwrap().holds(&test), holds, "{text}");
    }
}
