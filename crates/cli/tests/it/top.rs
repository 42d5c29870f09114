//! `meantime top` and a run that it looks at.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::common::{Ran, files, meantime};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The command with a place of its own for sockets, so that no other process is seen.
fn run(dir: &Path, args: &[&str]) -> Ran {
    meantime(dir, args).env("XDG_RUNTIME_DIR", dir).output().unwrap().into()
}

/// A run that is ended when the test is over, however that ends.
struct Bench(Option<Child>);

impl Bench {
    fn start(dir: &Path) -> Self {
        let args = [
            "bench",
            "--rw",
            "randread",
            "--device",
            "mem:16M?model=optane",
            "--completion",
            "poll",
        ];
        let mut command = meantime(dir, &args);
        command.args(["--runtime", "120", "--time-based", "--name", "looked-at"]);
        Self(Some(command.env("XDG_RUNTIME_DIR", dir).spawn().unwrap()))
    }

    fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// As by `kill`.
    fn end(mut self) -> Ran {
        let child = self.0.take().unwrap();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        child.wait_with_output().unwrap().into()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The queue of the job, once `is_ready`.
fn job_queue(dir: &Path, pid: &str, is_ready: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let ran = run(dir, &["top", pid, "--once", "--json", "--interval", "0.2"]);
        let seen: Option<Value> = serde_json::from_str(&ran.stdout).ok();
        let queues = seen.as_ref().and_then(|seen| seen["queues"].as_array());
        let job = |queue: &&Value| queue["thread"] == "meantime-job0" && is_ready(queue);
        if let Some(queue) = queues.and_then(|queues| queues.iter().find(job)) {
            return queue.clone();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{ran:#?}");
    }
}

#[test]
fn a_run_is_seen_and_its_policy_changed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let bench = Bench::start(dir);
    let pid = bench.pid().to_string();
    // A sample of the polled ones has been timed.
    let queue = job_queue(dir, &pid, |queue| queue["mean_ns"].is_number());
    assert_eq!(
        (&queue["policy"], &queue["device"]),
        (&"poll".into(), &"mem:16M?model=optane".into()),
        "{queue}"
    );
    assert!(queue["mean_ns"].as_f64() > Some(5_000.0) && queue["sleeps"] == 0, "{queue}");
    let number = queue["queue"].to_string();

    let set = run(dir, &["top", "--set", &format!("{number}=hybrid-min")]);
    assert_eq!(
        (set.code, set.stdout),
        (Some(0), format!("queue {number}: hybrid-min\n")),
        "{}",
        set.stderr
    );
    let slept = job_queue(dir, &pid, |queue| queue["sleeps"].as_u64() > Some(0));
    assert_eq!(slept["policy"], "hybrid-min");

    let refused = run(dir, &["top", &pid, "--set", &format!("{number}=interrupt")]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("no interrupt vector"), "{}", refused.stderr);
    let wrong = run(dir, &["top", &pid, "--set", &format!("{number}=hybird")]);
    assert!(
        wrong.code == Some(1) && wrong.stderr.contains("is no completion policy"),
        "{}",
        wrong.stderr
    );
    let missing = run(dir, &["top", &pid, "--set", "999=poll"]);
    assert!(
        missing.code == Some(1) && missing.stderr.contains("there is no queue 999; there are"),
        "{missing:?}"
    );
    let table = run(dir, &["top", &pid, "--once"]);
    assert!(
        table.stdout.starts_with(&format!("process {pid}: meantime bench")),
        "{}",
        table.stdout
    );
    assert!(table.stdout.contains("hybrid-min"), "{}", table.stdout);
    let drawn = run(dir, &["top", &pid, "--once", "--histogram"]);
    let (table, histogram) = drawn.stdout.split_once("\n\n").unwrap();
    assert!(table.contains("hybrid-min"), "{}", drawn.stdout);
    assert!(histogram.starts_with("mem:16M?model=optane, read: "), "{}", drawn.stdout);
    assert!(histogram.contains(" I/Os timed\n") && histogram.contains('█'), "{}", drawn.stdout);
    // A table each interval, for as long as the run lasts.
    let mut watching = meantime(dir, &["top", &pid, "--interval", "0.2"])
        .env("XDG_RUNTIME_DIR", dir)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    let head = format!("process {pid}: meantime bench");
    assert_eq!(lines.by_ref().filter(|line| line.starts_with(&head)).take(2).count(), 2);
    // Two of them: one has to be named.
    let other = Bench::start(dir);
    job_queue(dir, &other.pid().to_string(), |_| true);
    let several = run(dir, &["top", "--once"]);
    assert!(several.code == Some(2) && several.stderr.contains("name one"), "{several:?}");
    drop(other);

    let ended = bench.end();
    assert_eq!(ended.code, Some(143), "{}", ended.stderr);
    assert!(
        ended.stdout.contains(&format!("queue {number}: poll → hybrid-min")),
        "a result that says poll and was not: {}",
        ended.stdout
    );
    let rest: Vec<String> = lines.collect();
    assert!(rest.last().unwrap().contains("has ended") && !rest.concat().contains('\x1b'));
    assert!(watching.wait().unwrap().success());
    // What the killed one has left goes when somebody looks.
    let none = run(dir, &["top", "--once"]);
    assert!(
        none.code == Some(1) && none.stderr.contains("no process of this user serves"),
        "{none:?}"
    );
    assert!(files(&dir.join("meantime")).is_empty());
}

#[test]
fn without_a_process_it_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (args, code, word) in [
        (&["top"][..], 1, "meantime bench"),
        (&["top", "4194303"], 1, "there is no process 4194303"),
        (&["top", "1", "--once"], 1, "process 1 serves no control socket"),
        (&["top", "0"], 2, "PID"),
        (&["top", "--json"], 2, "--once"),
        (&["top", "--set", "poll"], 2, "QUEUE=POLICY"),
        (&["top", "--once", "--interval", "0"], 2, "0.1 to 3600"),
    ] {
        let ran = run(dir, args);
        assert!(ran.code == Some(code) && ran.stderr.contains(word), "{args:?}: {ran:#?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {ran:#?}");
    }
}

#[test]
fn a_run_without_a_socket_is_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "bench",
        "--rw",
        "randread",
        "--device",
        "mem:1M",
        "--completion",
        "poll",
        "--number-ios",
        "10",
    ];
    let ran = run(dir.path(), &[&args[..], &["--no-control"]].concat());
    assert_eq!((ran.code, files(dir.path()).len()), (Some(0), 0), "{ran:#?}");
    // Where others could get at it, there is none, and the run says so.
    let place = dir.path().join("meantime");
    std::fs::create_dir(&place).unwrap();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ran = run(dir.path(), &args);
    assert!(ran.code == Some(0) && ran.stderr.contains("chmod 700"), "{ran:#?}");
    assert!(files(&place).is_empty());
}
