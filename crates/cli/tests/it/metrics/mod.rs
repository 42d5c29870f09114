//! `--metrics` and `meantime top --prometheus`: what is served, and how.

mod text;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use meantime_testkit::e2fs;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Ran, json, meantime, run};
use text::Scrape;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is killed when the test is over, however that ends.
struct Running(Option<Child>);

impl Running {
    /// Starts the command with a place of its own for sockets.
    fn start(dir: &Path, args: &[&str]) -> Self {
        Self(Some(meantime(dir, args).env("XDG_RUNTIME_DIR", dir).spawn().unwrap()))
    }

    /// The same; waits for its first line.
    fn ready(dir: &Path, args: &[&str]) -> (Self, String) {
        let mut running = Self::start(dir, args);
        let child = running.0.as_mut().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "{args:?} does not begin: {:?}", running.end());
        (running, line)
    }

    fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid() as i32).unwrap(), signal).unwrap();
    }

    fn end(mut self) -> Ran {
        self.signal(Signal::TERM);
        self.0.take().unwrap().wait_with_output().unwrap().into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Connects as soon as the socket is there.
fn connect(path: &Path) -> UnixStream {
    let begun = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{}: {error}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends `request`; head and body of the answer.
fn ask(path: &Path, request: &str) -> (String, String) {
    let mut stream = connect(path);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn scrape(path: &Path) -> Scrape {
    let (head, body) = ask(path, GET);
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    Scrape::read(&body)
}

/// The same, of now: a page is shared for a second.
fn scrape_anew(path: &Path) -> Scrape {
    std::thread::sleep(Duration::from_millis(1_100));
    scrape(path)
}

/// Scrapes until `is_it`.
fn scrape_until(path: &Path, is_it: impl Fn(&Scrape) -> bool) -> Scrape {
    let begun = Instant::now();
    loop {
        let scrape = scrape(path);
        if is_it(&scrape) {
            return scrape;
        }
        assert!(begun.elapsed() < PATIENCE, "{scrape:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

const BENCH: [&str; 10] = [
    "bench",
    "--rw",
    "randrw",
    "--device",
    "mem:16M?model=optane",
    "--completion",
    "adaptive",
    "--time-based",
    "--runtime",
    "120",
];

const OPTANE: &str = "device=\"mem:16M?model=optane\"";

#[test]
fn an_exporter_has_all_programs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let bench = Running::start(dir, &BENCH);
    let (exporter, line) =
        Running::ready(dir, &["top", "--prometheus", "--listen", "unix:all.sock"]);
    assert!(line.starts_with("metrics are served at unix:all.sock"), "{line}");
    let socket = dir.join("all.sock");
    let pid = format!("pid=\"{}\"", bench.pid());
    let of_bench = [pid.as_str(), OPTANE];
    let commands = |scrape: &Scrape| scrape.sum("meantime_device_commands_total", &of_bench);
    let first = scrape_until(&socket, |scrape| commands(scrape) > 1_000.0);
    let later = scrape_until(&socket, |scrape| commands(scrape) > commands(&first));
    for (series, value) in &first.samples {
        let name = series.split('{').next().unwrap();
        let counts = ["_total", "_bucket", "_count", "_sum"].iter().any(|s| name.ends_with(s));
        if counts && series.contains(&pid) && later.samples.contains_key(series) {
            assert!(later.samples[series] >= *value, "{series}");
        }
    }
    // With this policy every I/O is timed.
    for operation in ["read", "write"] {
        let operation = format!("operation=\"{operation}\"");
        let labels = [&of_bench[..], &[&operation]].concat();
        let count = later.sum("meantime_device_io_time_seconds_count", &labels);
        let mean = later.sum("meantime_device_io_time_seconds_sum", &labels) / count;
        assert!(count > 100.0 && mean > 5e-6 && mean < 0.1, "{operation}: {count} of {mean} s");
    }
    assert!(later.sum("meantime_thread_cpu_seconds_total", &[&pid]) > 0.0);
    assert_eq!(later.sum("meantime_process_up", &[&pid]), 1.0);
    let info = [pid.as_str(), "policy=\"adaptive\"", "thread=\"meantime-job0\""];
    assert_eq!(later.sum("meantime_queue_info", &info), 1.0, "{later:#?}");

    read_by_others(&ask(&socket, GET).1);

    // Once, on standard output; and of one process.
    for args in [&["top", "--prometheus"][..], &["top", "--prometheus", &bench.pid().to_string()]] {
        let ran: Ran = meantime(dir, args).env("XDG_RUNTIME_DIR", dir).output().unwrap().into();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(commands(&Scrape::read(&ran.stdout)) >= commands(&later));
    }
    // One that is stopped does not hold up the others for long.
    bench.signal(Signal::STOP);
    let begun = Instant::now();
    assert_eq!(scrape_anew(&socket).sum("meantime_process_up", &[&pid]), 0.0);
    assert!(begun.elapsed() < Duration::from_secs(9));
    bench.signal(Signal::CONT);
    let ended = exporter.end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(!socket.exists());
}

/// Has Prometheus' own readers take the text, where they are.
fn read_by_others(text: &str) {
    let feed = |command: &mut Command, text: &str| {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let Ok(mut child) = command.spawn() else { return false };
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        true
    };
    let python = |script: &str| {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", script]);
        command
    };
    if python("import prometheus_client").output().is_ok_and(|output| output.status.success()) {
        let script = "import sys; from prometheus_client.parser import *\n\
                      families = list(text_string_to_metric_families(sys.stdin.read()))\n\
                      assert len(families) > 10 and all(f.samples for f in families), families";
        assert!(feed(&mut python(script), text));
    } else {
        println!("skipped: no python3-prometheus-client");
    }
    if !feed(Command::new("promtool").args(["check", "metrics"]), text) {
        println!("skipped: no promtool");
    }
}

#[test]
fn an_ssd_counts_what_bench_has_done() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let args = ["ssd", "--socket", "ssd.sock", "--metrics", "unix:m.sock", "--json", "mem:16M"];
    let (ssd, _) = Running::ready(dir, &args);
    let device = "device=\"mem:16M\"";
    let reads = |scrape: &Scrape| {
        let of_reads = [device, "operation=\"read\""];
        let commands = scrape.sum("meantime_ssd_commands_total", &of_reads);
        (commands, scrape.sum("meantime_ssd_bytes_total", &of_reads))
    };
    let before = reads(&scrape(&dir.join("m.sock")));
    let bench = [
        "bench",
        "--device",
        "vfio-user:ssd.sock",
        "--rw",
        "randread",
        "--bs",
        "4k",
        "--completion",
        "poll",
        "--number-ios",
        "3000",
        "--json",
        "out.json",
    ];
    let ran = run(dir, &bench);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let total = json(&dir.join("out.json"))["jobs"][0]["read"]["total_ios"].as_f64().unwrap();
    assert!(total >= 3_000.0, "{total}");
    let last = scrape_anew(&dir.join("m.sock"));
    let (commands, bytes) = reads(&last);
    // Bench does a few before those that it measures, and repeats turns that were disturbed.
    let more = commands - before.0 - total;
    assert!(more >= 0.0, "{commands} reads, of which bench measured {total}");
    assert_eq!(bytes - before.1, (total + more) * 4096.0);
    assert!(last.sum("meantime_ssd_drivers_total", &[device]) >= 1.0);
    // The exporter has it too.
    let all: Ran = meantime(dir, &["top", "--prometheus"])
        .env("XDG_RUNTIME_DIR", dir)
        .output()
        .unwrap()
        .into();
    let pid = format!("pid=\"{}\"", ssd.pid());
    let all = Scrape::read(&all.stdout);
    let of_reads = [pid.as_str(), device, "operation=\"read\""];
    assert_eq!(all.sum("meantime_ssd_commands_total", &of_reads), commands);
    let ended = ssd.end();
    assert!(!dir.join("m.sock").exists(), "{ended:?}");
    let counters: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(counters["counters"]["reads"].as_f64(), Some(commands));
}

/// The names in the dashboard's expressions.
fn dashboard() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grafana.json");
    let board = json(&path);
    let panels = board["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut names = BTreeSet::new();
    for target in targets {
        let expr = target["expr"].as_str().unwrap();
        let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        names.extend(words.filter(|word| word.starts_with("meantime_")).map(str::to_owned));
    }
    assert!(names.len() > 20, "{names:?}");
    names
}

/// The names in the guide's list, as samples have them.
fn guide() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.split("\n## Metrics\n").nth(1).unwrap();
    let list = section.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let words = list.unwrap().split_whitespace().filter(|word| word.starts_with("meantime_"));
    let names: BTreeSet<String> = words
        .map(|name| match name {
            "meantime_device_io_time_seconds" => format!("{name}_bucket"),
            name => name.to_owned(),
        })
        .collect();
    assert!(names.len() > 40, "{names:?}");
    names
}

#[test]
fn the_dashboard_shows_what_is_exported() {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || std::fs::File::open("/dev/fuse").is_err() || !e2fs::tools() {
        return println!("skipped: not root, or no /dev/fuse");
    }
    let dir = meantime_testkit::image::scratch();
    let dir = dir.path();
    e2fs::mkfs(dir, "disk.img", "64M", &[]);
    std::fs::create_dir(dir.join("at")).unwrap();
    let mount = ["mount", "file:disk.img", "at", "-f", "--metrics", "unix:mount.sock"];
    let mount = Running::start(dir, &mount);
    let (ssd, _) =
        Running::ready(dir, &["ssd", "--socket", "s", "--metrics", "unix:ssd", "mem:1M"]);
    let (tcp, _) =
        Running::ready(dir, &["ssd", "--tcp", "127.0.0.1:0", "--metrics", "unix:tcp", "mem:1M"]);
    let bench = Running::start(dir, &[&BENCH[..], &["--metrics", "unix:bench.sock"]].concat());
    // Written, made durable, dropped from the kernel's cache, and read.
    let at = dir.join("at");
    let own = ["mount=\""];
    scrape_until(&dir.join("mount.sock"), |s| s.sum("meantime_mount_cache_pages", &own) > 0.0);
    let script = "head -c 1000000 /dev/zero > \"$0/file\"; sync \"$0/file\"; cat \"$0/file\" | wc -c; \
                  mkdir -p \"$0/a/b\"; sync \"$0/a\"; rmdir \"$0/a\" 2>&1";
    let output = Command::new("timeout")
        .args(["-s", "KILL", "30", "sh", "-c", script])
        .arg(&at)
        .output()
        .unwrap();
    assert!(output.stdout.starts_with(b"1000000\n"), "{output:?}");
    let of_mount = scrape_anew(&dir.join("mount.sock"));
    let requests = |kind: &str| {
        let labels = [own[0], &format!("kind=\"{kind}\"")];
        ["requests", "request_errors", "request_time_seconds"]
            .map(|what| of_mount.sum(&format!("meantime_mount_{what}_total"), &labels))
    };
    let [writes, failed, seconds] = requests("write");
    assert!(writes > 0.0 && failed == 0.0 && seconds > 0.0, "{of_mount:#?}");
    assert_eq!(requests("rmdir")[..2], [1.0, 1.0], "it is not empty");
    let journal =
        ["meantime_mount_journal_commits_total", "meantime_mount_journal_fast_commits_total"];
    assert!(journal.iter().map(|name| of_mount.sum(name, &own)).sum::<f64>() > 0.0);
    let mut exported = of_mount.names();
    exported.extend(scrape(&dir.join("ssd")).names());
    exported.extend(scrape(&dir.join("tcp")).names());
    let learned = |s: &Scrape| s.sum("meantime_queue_expected_seconds", &[OPTANE]) > 0.0;
    exported.extend(scrape_until(&dir.join("bench.sock"), learned).names());
    let all: Ran = meantime(dir, &["top", "--prometheus"])
        .env("XDG_RUNTIME_DIR", dir)
        .output()
        .unwrap()
        .into();
    exported.extend(Scrape::read(&all.stdout).names());
    let shown = [dashboard(), guide()];
    let missing: Vec<_> = shown.iter().flatten().filter(|name| !exported.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?} are shown and not exported: {exported:#?}");
    for (running, socket) in
        [(bench, "bench.sock"), (ssd, "ssd"), (tcp, "tcp"), (mount, "mount.sock")]
    {
        running.end();
        assert!(!dir.join(socket).exists(), "{socket}");
    }
    e2fs::run("e2fsck", &["-fn", dir.join("disk.img").to_str().unwrap()]);
}

#[test]
fn nobody_makes_others_wait() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (server, line) = Running::ready(dir, &["top", "--prometheus", "--listen", "127.0.0.1:0"]);
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let address: SocketAddr = address.unwrap().parse().unwrap();
    let connect = || {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    // The answer, as far as it comes: what is not read when a connection is closed may cost it.
    let ask = |request: &[u8]| {
        let mut stream = connect();
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    };
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"GET /metrics HTTP/3\r\n\r\n", "505"),
        (b"nonsense\r\n\r\n", "400"),
        (b"\0\xff\xfe\r\n\r\n", "400"),
    ] {
        let answer = ask(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    let long = ask(&[&b"GET /metrics HTTP/1.1\r\nX: "[..], &[b'x'; 20_000]].concat());
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 431 "), "{long}");
    // As many as are served at a time say half a request and wait: the next is served when their
    // time is over, which is 10 s. One that does not read its answer holds nobody up.
    let deaf = connect();
    (&deaf).write_all(GET.as_bytes()).unwrap();
    let begun = Instant::now();
    let slow: Vec<TcpStream> = (0..40)
        .map(|_| {
            let stream = connect();
            (&stream).write_all(b"GET /met").unwrap();
            stream
        })
        .collect();
    assert!(ask(GET.as_bytes()).starts_with("HTTP/1.1 200 OK"));
    assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
    drop(slow);
    // Idle, it takes no CPU time: at most a look at signals each second.
    let cpu_ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
        let fields: Vec<i64> =
            stat.rsplit(") ").next().unwrap().split(' ').filter_map(|n| n.parse().ok()).collect();
        fields[10] + fields[11]
    };
    let before = cpu_ticks();
    std::thread::sleep(Duration::from_secs(3));
    assert!(cpu_ticks() - before <= 1, "in hundredths of a second");
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn other_machines_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let commands: [&[&str]; 4] = [
        &["top", "--prometheus", "--listen"],
        &["bench", "--device", "mem:1M", "--rw", "read", "--number-ios", "1", "--metrics"],
        &["ssd", "--socket", "s", "mem:1M", "--metrics"],
        &["mount", "file:none.img", ".", "-f", "-o", "nonempty", "--metrics"],
    ];
    for command in commands {
        for (address, word) in [
            ("0.0.0.0:9100", "without a password"),
            ("localhost", "127.0.0.1:9100"),
            ("unix:", "no path"),
        ] {
            let ran = run(dir, &[command, &[address]].concat());
            assert!(ran.code == Some(2) && ran.stderr.contains(word), "{command:?}: {ran:?}");
            assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        }
    }
    let ran = run(dir, &["top", "--prometheus", "--once"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let ran = run(dir, &["top", "--listen", "127.0.0.1:0"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    // A file that is there is not replaced; a place that is taken is named.
    std::fs::write(dir.join("file"), "x").unwrap();
    let ran = run(dir, &["top", "--prometheus", "--listen", "unix:file"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("unix:file"), "{ran:?}");
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"x");
}
