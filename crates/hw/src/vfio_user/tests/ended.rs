//! Servers in separate processes, which hang and end.

use std::os::unix::net::UnixListener;
use std::process::{Child, Command as Process, Stdio};

use super::fake::Fake;
use super::*;

const SOCKET: &str = "MEANTIME_FAKE_SOCKET";

/// Not a test, but the server for those below.
#[test]
fn serve() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    let listener = UnixListener::bind(path).unwrap();
    for stream in listener.incoming() {
        Fake::over(stream.unwrap(), Box::new(|_| None)).run();
    }
}

struct Server(Child);

impl Server {
    fn start(path: &Path) -> Self {
        let mut command = Process::new(std::env::current_exe().unwrap());
        command.args(["--exact", "vfio_user::tests::ended::serve"]).env(SOCKET, path);
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connects as soon as the server exists.
fn connect(path: &Path, options: &UserOptions) -> UserTransport {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        match UserTransport::connect(path, options) {
            Ok(transport) => return transport,
            Err(HwError::VfioUser(UserError::Connect { .. }))
                if std::time::Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn memory_comes_back_when_the_server_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let server = Server::start(&path);
    let transport = connect(&path, &PATIENT);
    transport.map_dma(1 << 32, &shared_pages()).unwrap();
    server.signal(rustix::process::Signal::KILL);
    assert_eq!(transport.read32(0x1c), u32::MAX);
    assert!(transport.is_gone());
    transport.unmap(1 << 32).expect("it has ended, and its mappings with it");
}

#[test]
fn memory_stays_lost_while_the_server_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let server = Server::start(&path);
    let transport = connect(&path, &UserOptions { timeout_ns: 5_000_000_000 });
    transport.map_dma(1 << 32, &shared_pages()).unwrap();
    server.signal(rustix::process::Signal::STOP);
    // It may stop a little later.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while transport.read32(0x1c) != u32::MAX {
        assert!(std::time::Instant::now() < deadline, "it has stopped");
    }
    assert!(transport.is_gone());
    assert!(transport.unmap(1 << 32).is_err(), "it may wake up and write");
    server.signal(rustix::process::Signal::KILL);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while transport.unmap(1 << 32).is_err() {
        assert!(std::time::Instant::now() < deadline, "it has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_next_client_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cntrl");
    let _server = Server::start(&path);
    drop(connect(&path, &PATIENT));
    // Also by the directory's name.
    assert_eq!(connect(dir.path(), &PATIENT).read32(4), 0x1122_3344);
}
