//! `meantime ssd`: the real command, with a client written by hand.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use crate::common::{Ran, meantime, run};
use meantime_testkit::by_hand::{self, Client, DATA, GET_INFO, Host, IO_QUEUES, IOVA, PATIENCE};
use meantime_testkit::wire;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running `meantime ssd`, killed when the test fails.
struct Served {
    child: Child,
    stdout: BufReader<ChildStdout>,
    ready: String,
    socket: PathBuf,
}

impl Served {
    fn start(dir: &Path, args: &[&str]) -> Self {
        let all = [&["ssd", "--socket", "ssd.sock"], args].concat();
        let mut child = meantime(dir, &all).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        if ready.is_empty() {
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            panic!("{all:?} does not begin: {stderr}");
        }
        Self { child, stdout, ready, socket: dir.join("ssd.sock") }
    }

    fn host(&self) -> Host {
        let mut host = Host::new(Client::new(&self.socket, "{}"));
        host.enable();
        host.create_queues(None);
        host
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it, and what it said after it was ready.
    fn end(mut self) -> Ran {
        self.signal(Signal::TERM);
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Ran { code: self.child.wait().unwrap().code(), stdout, stderr }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write(host: &mut Host, lba: u64, byte: u8) {
    host.memory.put(DATA, &[byte; 512]);
    let sqe = host.transfer(1, lba, IOVA + DATA as u64);
    assert_eq!(host.run(1, sqe), 0);
}

fn read(host: &mut Host, lba: u64) -> Vec<u8> {
    let sqe = host.transfer(2, lba, IOVA + DATA as u64);
    assert_eq!(host.run(1, sqe), 0);
    host.memory.get(DATA, 512)
}

#[test]
fn it_serves_until_it_is_told_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let served =
        Served::start(dir.path(), &["--json", "--serial", "S123", "--mode", "660", "mem:1M"]);
    let ready: Value = serde_json::from_str(&served.ready).unwrap();
    assert_eq!((&ready["ready"], &ready["device"]), (&true.into(), &"mem:1M".into()));
    assert_eq!(ready["pid"], served.child.id());
    let meta = std::fs::metadata(&served.socket).unwrap();
    assert!(meta.file_type().is_socket() && meta.mode() & 0o777 == 0o660);
    let mut host = served.host();
    assert!(host.identify()[4..24].starts_with(b"S123 "));
    write(&mut host, 3, 0x33);
    // Beyond the namespace: refused, with the reason.
    let sqe = host.transfer(2, 1 << 40, IOVA + DATA as u64);
    assert_eq!(host.run(1, sqe), 0x80);
    assert_ne!(host.client.ask(99, &[], &[]).error, 0);
    let socket = served.socket.clone();
    let ran = served.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!socket.exists());
    let counters: Value = serde_json::from_str(&ran.stdout).unwrap();
    let counters = &counters["counters"];
    assert_eq!((&counters["writes"], &counters["refused"]), (&1.into(), &1.into()));
    for word in [
        "a driver has connected",
        "queue 1, command",
        "LBA Out of Range",
        "command 99",
        "client disconnected: the server ends",
    ] {
        assert!(ran.stderr.contains(word), "no {word:?} in {}", ran.stderr);
    }
    // Its client sees that it is gone.
    assert!(host.client.try_receive().is_none());
}

#[test]
fn a_host_that_goes_away_as_others_do_is_no_news() {
    let dir = tempfile::tempdir().unwrap();
    let log = |uri: &str| {
        let served = Served::start(dir.path(), &[uri]);
        let mut host = Host::with_regions(Client::new(&served.socket, "{}"));
        host.enable();
        // An event request, whose identifier is used for the deletion of the submission queue.
        let request = host.command(0x0c, 0, 0);
        host.put(0, &request);
        host.create_queues(None);
        write(&mut host, 0, 1);
        let mut delete = host.command(0x00, 0, 0);
        delete[2..4].copy_from_slice(&request[2..4]);
        delete[40] = 1;
        host.run(0, delete);
        // The memory of the completion queue, which is not deleted; the admin queue's after a
        // shutdown.
        assert_eq!(host.client.unmap(IO_QUEUES.0, IO_QUEUES.1).error, 0);
        host.client.write(0, 0x14, &0x0046_4001u32.to_le_bytes());
        let start = Instant::now();
        while host.csts() >> 2 & 3 != 2 {
            assert!(start.elapsed() < PATIENCE);
        }
        host.client.unmap(IOVA, IO_QUEUES.0 - IOVA);
        drop(host);
        // The next one gets it when the first is done with.
        let _next = Client::new(&served.socket, "{}");
        served.end().stderr
    };
    // (A busy machine may keep the SSD's thread from running, which is said.)
    let lines = |text: &str| {
        text.lines().filter(|line| !line.contains("cpu=")).map(str::to_owned).collect::<Vec<_>>()
    };
    let tidy = lines(&log("mem:1M"));
    let said: Vec<_> =
        tidy.iter().filter(|line| !line.contains("a driver has connected")).collect();
    assert_eq!(
        said,
        ["meantime: client disconnected", "meantime: client disconnected: the server ends"]
    );
    let strict = log("mem:1M?strict=1");
    for word in ["Command ID Conflict", "the memory of a queue in use was unmapped"] {
        assert!(strict.contains(word), "no {word:?} in {strict}");
    }
}

#[test]
fn a_socket_outlives_neither_death_nor_rivals() {
    let dir = tempfile::tempdir().unwrap();
    let device = "file:disk.img?create=1M";
    let mut first = Served::start(dir.path(), &[device]);
    let mut host = first.host();
    write(&mut host, 9, 0x99);
    // A second one on the same socket; it leaves neither the socket nor a file behind.
    let ran = run(dir.path(), &["ssd", "--socket", "ssd.sock", "file:other.img?create=1M"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr.contains("serves there already") && ran.stderr.lines().count() == 1,
        "{ran:?}"
    );
    assert!(!dir.path().join("other.img").exists());
    // And on the same file.
    let ran = run(dir.path(), &["ssd", "--socket", "other.sock", device]);
    assert!(ran.code == Some(1) && ran.stderr.contains("in use"), "{ran:?}");
    assert!(!dir.path().join("other.sock").exists());
    // kill -9 leaves the socket; the next takes its place, and has the data.
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    assert!(first.socket.exists() && host.client.try_receive().is_none());
    drop(first);
    let second = Served::start(dir.path(), &["file:disk.img"]);
    assert_eq!(read(&mut second.host(), 9), [0x99; 512]);
    let ran = second.end();
    assert!(ran.code == Some(0) && ran.stdout.contains("1 reads"), "{ran:?}");
    assert_eq!(std::fs::read(dir.path().join("disk.img")).unwrap()[9 * 512..10 * 512], [0x99; 512]);
}

#[test]
fn a_driver_that_takes_its_memory_away_hurts_itself_only() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), &["mem:1M"]);
    let mut host = served.host();
    write(&mut host, 1, 0x11);
    let sqe = host.transfer(1, 1, IOVA + DATA as u64);
    host.put(1, &sqe);
    // Its data, but not its queues, is gone when the command is fetched.
    rustix::fs::ftruncate(&host.memory.file, DATA as u64).unwrap();
    host.ring(1);
    let start = Instant::now();
    while host.client.try_receive().is_some() {
        assert!(start.elapsed() < PATIENCE);
    }
    // Everything gone at once, the queues too.
    let mut host = served.host();
    rustix::fs::ftruncate(&host.memory.file, 0).unwrap();
    let tail = wire![5u32];
    host.client.send(by_hand::REGION_WRITE, &[wire![0x1000u64, 0u32, 4u32], tail].concat(), &[]);
    while host.client.try_receive().is_some() {
        assert!(start.elapsed() < PATIENCE);
    }
    let mut host = served.host();
    write(&mut host, 2, 0x22);
    assert_eq!(read(&mut host, 2), [0x22; 512]);
    host.client.ok(GET_INFO, &wire![16u32, 0u32, 0u32, 0u32], &[]);
    let ran = served.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stderr.matches("taken away").count(), 2, "{ran:?}");
}

#[test]
fn what_cannot_be_served_is_said() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("notes"), "").unwrap();
    let long = "x".repeat(200);
    for (args, code, word) in [
        (&["--socket", "s", "kernel:/dev/null"][..], 2, "only a software SSD"),
        (&["--socket", "s", "vfio-user:other"], 2, "only a software SSD"),
        (&["--socket", "s", "mem:1M?lock=1"], 2, "lock"),
        (&["--socket", "s", "mem:1M?coalesce=4/100us"], 2, "coalesce"),
        (&["--socket", "s", "mem:1M?namespaces=2&nsid=2"], 2, "nsid"),
        (&["--socket", "s", "mem"], 2, "no scheme"),
        (&["--socket", "s", "mem:1M?model=none"], 1, "none"),
        (&["--socket", "s", "file:nowhere.img"], 1, "nowhere.img"),
        (&["--socket", "s", "--serial", "far more than twenty characters", "mem:1M"], 1, "serial"),
        (&["--socket", "s", "--mode", "9", "mem:1M"], 2, "octal"),
        (&["--socket", "s", "--owner", "no such user", "mem:1M"], 2, "no such user"),
        (&["--socket", "s", "--log", "all", "mem:1M"], 2, "none"),
        (&["--socket", "notes", "mem:1M"], 1, "no socket"),
        (&["--socket", "no/such/s", "mem:1M"], 1, "no/such/s"),
        (&["--socket", &long, "mem:1M"], 1, "too long"),
        (&["mem:1M"], 2, "--socket"),
        (&["--socket", "s"], 2, "URI"),
    ] {
        let ran = run(dir.path(), &[&["ssd"], args].concat());
        assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(word) && ran.stderr.lines().count() == 1, "{args:?}: {ran:?}");
        assert_eq!(crate::common::files(dir.path()), ["notes"], "{args:?}");
    }
}

#[test]
fn a_target_over_tcp_that_never_parks_does_not_sleep() {
    for (option, never) in [(&["--never-park"][..], true), (&[], false)] {
        let dir = tempfile::tempdir().unwrap();
        let args = [&["ssd", "--json", "--tcp", "127.0.0.1:0"], option, &["mem:1M"]].concat();
        let mut child = meantime(dir.path(), &args).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line()["ready"], true);
        // More than the 2 ms after which it would sleep. (Its first thing to do is to look for work.)
        std::thread::sleep(Duration::from_millis(50));
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let counters = std::iter::repeat_with(line).nth(1).unwrap();
        assert_eq!(counters["tcp_counters"]["sleeps"] == 0, never, "{counters}");
        assert!(child.wait().unwrap().success());
    }
}
