//! What `meantime bench` prints while a run goes on.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Ran, await_handler, json, meantime, succeed};

const ON: [&str; 5] = ["bench", "--device", "mem:4M?inline=1", "--completion", "poll"];

/// The number that stands before `words`.
fn number_before(text: &str, words: &str) -> usize {
    let found = text.lines().rev().find_map(|line| line.split_once(words));
    let (before, _) = found.unwrap_or_else(|| panic!("no {words:?} in {text}"));
    let number = before.rsplit(' ').next().unwrap();
    number.replace(',', "").parse().unwrap_or_else(|_| panic!("{number} {words}"))
}

/// The number of I/Os in a line such as `8.19 µs to 16.4 µs  1,234  100.0 %  ███`.
fn number_of_bucket(line: &str) -> Option<usize> {
    let (before, _) = line.split_once('%')?;
    let words: Vec<&str> = before.split_whitespace().collect();
    words.iter().nth_back(1)?.replace(',', "").parse().ok()
}

#[test]
fn each_io_has_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--rw", "write", "--number-ios", "20", "--rate-iops", "500", "--fsync", "5"];
    let args = [&ON[..], &args, &["--each"]].concat();
    let is_of_each = |line: &&str| line.starts_with("write, mem:4M?inline=1, poll: ");
    let check = |text: &str| {
        let lines: Vec<&str> = text.lines().filter(is_of_each).collect();
        let (writes, flushes): (Vec<&str>, Vec<&str>) =
            lines.iter().partition(|line| line.contains(": write 4 KiB at "));
        assert_eq!(writes.len(), 20, "{text}");
        for (at, line) in writes.iter().enumerate() {
            let [_, latency] = line.split(&format!(" at {}, ", at * 4096)).collect::<Vec<_>>()[..]
            else {
                panic!("{line}");
            };
            assert!(latency.ends_with("µs") || latency.ends_with("ms") || latency.ends_with("ns"));
        }
        assert!(!flushes.is_empty() && flushes.iter().all(|line| line.contains(": flush, ")));
        assert!(!text.contains("left out"), "{text}");
    };
    let ran = succeed(dir.path(), &args);
    check(&ran.stdout);
    // The results come below.
    let mut rest = ran.stdout.lines().skip_while(is_of_each);
    assert!(rest.next().unwrap().starts_with("write: (groupid=0"), "{}", ran.stdout);
    assert_eq!(rest.find(is_of_each), None);
    // Standard output is for a program.
    let ran = succeed(dir.path(), &[&args[..], &["--json", "-"]].concat());
    check(&ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["jobs"][0]["write"]["total_ios"], 20);
    let refused = meantime(dir.path(), &[&args[..], &["--against", "x"]].concat()).status();
    assert_eq!(refused.unwrap().code(), Some(2));
}

/// A ring takes 2,048 I/Os in 100 ms: far fewer than there are.
#[test]
fn what_is_too_fast_is_left_out_and_counted() {
    const IOS: usize = 300_000;
    let dir = tempfile::tempdir().unwrap();
    let args = ["--rw", "randread", "--bs", "512", "--number-ios", "300000"];
    let args = [&args[..], &["--loops", "100", "--each"]].concat();
    let ran = succeed(dir.path(), &[&ON[..], &args].concat());
    let shown = ran.stdout.lines().filter(|line| line.contains(": read 512 bytes at ")).count();
    let left_out = number_before(&ran.stdout, " are left out");
    assert!(left_out > 0 && shown > 0, "{shown} {left_out}");
    assert_eq!(number_before(&ran.stdout, " of 300,000 I/Os are shown, "), shown);
    assert_eq!(shown + left_out, IOS);
    assert!(ran.stdout.contains(" more I/Os are left out: they come too fast"));
}

/// Each I/O is in one of the histograms, as there is neither a warm-up nor a repeated turn in them.
#[test]
fn histograms_have_all_ios() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "--device", "mem:4M?inline=1", "--completion", "poll,interrupt"];
    let args = [&args[..], &["--rw", "randrw", "--number-ios", "40000", "--loops", "100"]].concat();
    let more = ["--live", "--status-interval", "100ms", "--json", "out.json"];
    let ran = succeed(dir.path(), &[&args[..], &more].concat());
    let report = json(&dir.path().join("out.json"));
    for (job, policy) in ["poll", "interrupt"].iter().enumerate() {
        let title = format!("randrw, mem:4M?inline=1, {policy}: ");
        let mut lines = ran.stderr.lines();
        let (mut ios, mut counted) = (0, 0);
        while let Some(line) = lines.find(|line| line.starts_with(&title)) {
            ios += number_before(line, " I/Os in ");
            counted += lines.clone().map_while(number_of_bucket).sum::<usize>();
        }
        let total = |of: &str| report["jobs"][job][of]["total_ios"].as_u64().unwrap() as usize;
        assert_eq!(ios, total("read") + total("write"), "{}", ran.stderr);
        assert_eq!(counted, ios, "{}", ran.stderr);
    }
    assert!(ran.stdout.contains("clat percentiles") && !ran.stdout.contains('█'));
    let refused = meantime(dir.path(), &[&args[..], &["--live", "--quiet"]].concat()).status();
    assert_eq!(refused.unwrap().code(), Some(2));
}

/// As fio and dd have it. Without it, SIGUSR1 would kill.
#[test]
fn sigusr1_asks_for_the_figures_so_far() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--rw", "randread", "--runtime", "4", "--rounds", "40"];
    let mut child = meantime(dir.path(), &[&ON[..], &args].concat()).spawn().unwrap();
    await_handler(&mut child);
    std::thread::sleep(Duration::from_secs(1));
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines = ran.stderr.lines();
    let asked = lines.filter(|line| line.contains(" % done, randread (1 of 1)"));
    assert_eq!(asked.count(), 1, "{ran:?}");
    assert!(ran.stderr.contains("\n  randread, mem:4M?inline=1, poll: "), "{ran:?}");
}
