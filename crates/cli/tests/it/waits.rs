//! `meantime waits`, run for real on a cell or two.

use crate::common::{files, interrupted, json, run, succeed};
use serde_json::Value;

/// So short that figures mean nothing: only what is there is looked at.
const SHORT: [&str; 5] = ["waits", "--runtime", "20ms", "--policies", "interrupt,hybrid,adaptive"];

fn short<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], more].concat()
}

#[test]
fn a_cell_with_everything() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let more = ["--filter", "20us-mix", "--competitor", "--json", "a.json", "--html", "a.html"];
    let ran = succeed(dir, &short(&more));
    for text in [
        "20us-mix7030",
        "completion",
        "adaptive",
        "overslept",
        "rival",
        "poll twice differs",
        "All of 1 cell",
    ] {
        assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
    }
    assert_eq!(files(dir), ["a.html", "a.json"]);
    let report = json(&dir.join("a.json"));
    let cell = &report["cells"][0];
    assert_eq!(cell["device_time_ns"], 20_000);
    assert!(
        cell["poll"]["mean_spread"].is_number()
            && cell["model"].as_str().unwrap().contains("channels")
    );
    let names: Vec<&str> = cell["ways"]
        .as_array()
        .unwrap()
        .iter()
        .map(|way| way["completion"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["poll", "interrupt", "hybrid", "adaptive"],
        "poll is what the others are held against"
    );
    for way in cell["ways"].as_array().unwrap() {
        assert!(way["mean_ns"].as_f64().unwrap() >= 20_000.0, "{way}");
        assert!(way["ios"].as_u64().unwrap() > 0 && way["errors"] == 0, "{way}");
        assert!(
            way["competing"]["share_percent"].is_number() && way["mean_over_poll"].is_number(),
            "{way}"
        );
    }
    assert_eq!(report["summary"].as_array().map(Vec::len), Some(4));
    assert_eq!((&report["competitor"], &report["simulated"]), (&Value::from("tsc"), &Value::Null));

    let page = std::fs::read_to_string(dir.join("a.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("20us-mix7030"));
}

#[test]
fn the_json_alone_on_stdout() {
    let dir = tempfile::tempdir().unwrap();
    let ran = succeed(dir.path(), &short(&["--times", "5", "--shapes", "depth4", "--json", "-"]));
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["cells"][0]["name"], "5us-depth4");
    assert!(ran.stderr.contains("All of 1 cell"), "{}", ran.stderr);
    assert!(files(dir.path()).is_empty());
}

#[test]
fn a_simulation_is_the_same_every_time() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("7us-constant.trace"), "read 4096 7000\n".repeat(2_000)).unwrap();
    let args = ["waits", "--times", "7", "--shapes", "constant", "--policies", "interrupt,hybrid"];
    let simulated = |more: &[&str]| -> Value {
        let ran = succeed(dir, &[&args[..], more, &["--json", "-"]].concat());
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let (first, second) = (simulated(&["--simulate"]), simulated(&["--simulate=bare-metal"]));
    assert_eq!(first["cells"], second["cells"]);
    assert_eq!(first["simulated"], "bare-metal");
    let cell = &first["cells"][0];
    assert_eq!(cell["ways"][0]["ios"], 30_000);
    assert!(cell["references"]["informed"]["cpu_percent"].is_number(), "{cell}");
    let replayed = simulated(&["--simulate=this-machine", "--replay", "."]);
    assert_eq!(replayed["cells"][0]["ways"][0]["ios"], 2_000);
}

#[test]
fn what_was_measured_until_ctrl_c() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "waits",
        "--runtime",
        "100s",
        "--filter",
        "10us-constant",
        "--policies",
        "poll",
        "--json",
        "a.json",
    ];
    // (Without any result there is no report.)
    interrupted(dir.path(), &args, |_| {
        dir.path().join("a.json").metadata().is_ok_and(|file| file.len() > 0)
    });
    let report = json(&dir.path().join("a.json"));
    assert_eq!(report["meantime"]["interrupted"], true);
    assert!(report["cells"][0]["ways"][0]["ios"].as_u64().unwrap() > 0);
}

#[test]
fn bad_input_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    for (args, word) in [
        (&["--policies", "pol"][..], "adaptive"),
        (&["--times", "0.01"], "100ns"),
        (&["--shapes", "round"], "bimodal"),
        (&["--filter", "xyz"], "2us-constant"),
        (&["--runtime", "0"], "--runtime"),
        (&["--competitor", "x"], "tsc"),
        (&["--json", "-", "--html", "-"], "--html"),
        (&["--json", "no/such/dir/a.json"], "--json"),
        (&["--simulate=metal"], "bare-metal"),
        (&["--simulate", "--runtime", "1"], "--runtime"),
        (&["--simulate", "--replay", "nowhere"], "--filter"),
        (&["--replay", "."], "--simulate"),
    ] {
        let ran = run(dir.path(), &[&["waits"], args].concat());
        assert!(matches!(ran.code, Some(1 | 2)), "{args:?}: {ran:?}");
        assert!(
            ran.stderr.contains(word) && ran.stderr.lines().count() == 1,
            "{args:?}: {}",
            ran.stderr
        );
        assert!(ran.stdout.is_empty());
    }
    assert!(files(dir.path()).is_empty(), "{:?}", files(dir.path()));
}
