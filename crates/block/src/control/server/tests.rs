use std::io::{BufRead as _, BufReader, Read as _};
use std::time::Instant;

use serde_json::{Value, json};

use super::super::{Client, LINE_BYTES_MAX};
use super::*;
use meantime_completion::Policy;
use meantime_completion::telemetry::{QueueFigures, Telemetry};

fn safe_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

fn served() -> (tempfile::TempDir, ControlServer) {
    let dir = safe_dir();
    let server = serve(&dir.path().join("1.sock")).unwrap();
    (dir, server)
}

/// Sends `bytes`, closes the sending side, and reads to the end.
fn answers(server: &ControlServer, bytes: &[u8]) -> Vec<Value> {
    let mut stream = UnixStream::connect(server.path()).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_socket_is_the_owners_and_goes_with_the_server() {
    let (dir, server) = served();
    let path = server.path().to_owned();
    assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert!(matches!(serve(&path), Err(ControlError::Taken { .. })));
    assert!(path.exists(), "refusing leaves the other's socket");
    drop(server);
    assert!(!path.exists());
    // A socket left over from a dead process.
    drop(UnixListener::bind(&path).unwrap());
    let again = serve(&path).unwrap();
    // Must not remove another process's socket.
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(again);
    assert!(path.exists());
    // A file that is not a socket is not removed.
    let file = dir.path().join("2.sock");
    fs::write(&file, "x").unwrap();
    assert!(matches!(serve(&file), Err(ControlError::Io { .. })));
    assert_eq!(fs::read(&file).unwrap(), b"x");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(serve(&dir.path().join("3.sock")), Err(ControlError::Unsafe { .. })));
}

#[test]
fn only_the_owner_and_root_may_ask() {
    assert!(may_ask(1000, 1000) && may_ask(0, 1000) && may_ask(0, 0));
    assert!(!may_ask(1001, 1000) && !may_ask(1000, 0));
}

#[test]
fn a_queue_is_seen_and_changed() {
    let (_dir, server) = served();
    let mut telemetry = Telemetry::new("mem:3M", Policy::Poll, 0);
    telemetry.publish(1, Policy::Poll, &QueueFigures { ended: 42, ..QueueFigures::default() });
    let id = telemetry.control().id();
    let mut client = Client::connect(server.path()).unwrap();
    let snapshot = client.snapshot().unwrap();
    let queue = snapshot.queues.iter().find(|queue| queue.id == id).unwrap();
    assert_eq!(
        (queue.device.as_str(), queue.policy.as_str(), queue.figures.ended),
        ("mem:3M", "poll", 42)
    );
    std::thread::scope(|scope| {
        let channel = scope.spawn(|| {
            for answer in [Ok(()), Err("no such queue pair")] {
                let policy = loop {
                    match telemetry.take_request() {
                        Some(policy) => break policy,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(policy, Policy::HybridHalfMean);
                telemetry.answer(answer);
            }
        });
        client.set(id, "hybrid").unwrap();
        let refused = client.set(id, "hybrid").unwrap_err().to_string();
        assert_eq!(refused, "refused: no such queue pair");
        channel.join().unwrap();
    });
    let change = Change { queue: id, before: "poll".into(), after: "hybrid".into() };
    assert_eq!(server.changes(), [change]);
    // No channel takes the request.
    let asked = Instant::now();
    let error = client.set(id, "poll").unwrap_err().to_string();
    assert!(error.contains("withdrawn"), "{error}");
    assert!(asked.elapsed() >= Duration::from_secs(2));
    assert_eq!(telemetry.take_request(), None);
}

#[test]
fn bad_lines_are_answered_and_the_next_is_obeyed() {
    let (_dir, server) = served();
    let answers = answers(&server, b"nonsense\n\n{\"get\":1}\r\n\xff\xfe\n{\"get\":\"queues\"}");
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert!(answers[..3].iter().all(|answer| answer["error"].is_string()), "{answers:?}");
    assert_eq!(answers[3]["pid"], json!(std::process::id()));
}

#[test]
fn a_line_too_long_ends_the_connection_and_nothing_else() {
    let (_dir, server) = served();
    let mut stream = UnixStream::connect(server.path()).unwrap();
    // The server may close before all is written.
    let _ = stream.write_all(&vec![b'x'; LINE_BYTES_MAX]);
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("at most 4096 bytes"), "{line}");
    assert_eq!(reader.read_line(&mut line).unwrap(), 0);
    let longest =
        [vec![b' '; LINE_BYTES_MAX - 1 - 16], b"{\"get\":\"queues\"}\n".to_vec()].concat();
    assert_eq!(longest.len(), LINE_BYTES_MAX);
    assert!(answers(&server, &longest)[0]["queues"].is_array());
}

#[test]
fn clients_are_bounded_and_one_that_does_not_read_blocks_no_other() {
    let (_dir, server) = served();
    let mut deaf: Vec<UnixStream> =
        (0..CLIENTS_MAX - 1).map(|_| UnixStream::connect(server.path()).unwrap()).collect();
    // More answers than any socket buffer holds, which are never read.
    for stream in &mut deaf {
        stream.set_nonblocking(true).unwrap();
        while stream.write(&b"{\"get\":\"queues\"}\n".repeat(100)).is_ok() {}
    }
    let mut last = Client::connect(server.path()).unwrap();
    last.snapshot().unwrap();
    let error = Client::connect(server.path()).unwrap().snapshot().unwrap_err().to_string();
    assert!(error.contains("connected already"), "{error}");
    deaf.pop();
    let freed = Instant::now();
    while Client::connect(server.path()).unwrap().snapshot().is_err() {
        assert!(freed.elapsed() < Duration::from_secs(60));
    }
    last.snapshot().unwrap();
}
