//! The vfio-user client on our own server: in this process, and in one that hangs or is killed.
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, Done, IoErrorKind, NvmeDevice, OpenOptions, Request,
    Ticket, open_nvme,
};
use meantime_completion::Policy;
use meantime_hw::{Clock, UserOptions, UserTransport};
use meantime_nvme::{AdminQueries as _, CommandError, ControllerOptions};
use meantime_ssd::served::{Server, Socket, SocketOptions};
use meantime_ssd::{Medium, Model, Ssd, SsdConfig};

const SOCKET: &str = "MEANTIME_SERVED_SOCKET";

#[derive(Clone)]
struct RealTime(Clock);

impl meantime_ssd::Clock for RealTime {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
}

/// Serves an SSD of 16 MiB at `path`.
fn serve(path: &Path, model: &str) -> (Server, Ssd) {
    let config = SsdConfig {
        model: Model::named(model).unwrap(),
        ..SsdConfig::with_namespace(16 << 20, 512)
    };
    let ssd = Ssd::start(config, Medium::dram(16 << 20).unwrap(), RealTime(Clock::real())).unwrap();
    let socket = Socket::bind(path, &SocketOptions::default()).unwrap();
    (Server::start(socket, ssd.function_port(), |_| {}).unwrap(), ssd)
}

fn try_open(
    path: &Path,
    options: ControllerOptions,
) -> Result<NvmeDevice, meantime_block::OpenError> {
    let options = OpenOptions { controller: options, ..OpenOptions::default() };
    open_nvme(&format!("vfio-user:{}", path.display()), &options)
}

fn open(path: &Path) -> NvmeDevice {
    try_open(path, ControllerOptions::default()).unwrap()
}

/// What block `lba` holds in round `round`.
fn fill(buf: &mut [u8], lba: u64, round: u64) {
    let mut rng = meantime_testkit::Rng::new(lba << 32 ^ round);
    buf.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&rng.next().to_le_bytes()));
}

/// Writes and reads back blocks of `device` from `first` on, of all sizes up to 64 KiB.
fn verified_io(device: &NvmeDevice, policy: Policy, first: u64, round: u64) {
    let options = ChannelOptions { depth: 8, policy: Some(policy), ..ChannelOptions::default() };
    let mut channel = device.channel(&options).unwrap();
    let mut lba = first;
    for blocks in [1usize, 8, 7, 64, 128, 3] {
        let mut buf = channel.alloc(512 * blocks).unwrap();
        fill(&mut buf, lba, round);
        let expected = buf.to_vec();
        channel.write(lba, buf).unwrap();
        let tickets: Vec<Ticket> = (0..4)
            .map(|_| {
                let buf = channel.alloc(512 * blocks).unwrap();
                channel.submit(Request::read(lba, buf)).unwrap()
            })
            .collect();
        for ticket in tickets {
            let done = channel.wait(ticket);
            done.result.unwrap();
            assert!(*done.buf.unwrap() == *expected, "{blocks} blocks from {lba} on, {policy}");
        }
        lba += blocks as u64;
    }
}

#[test]
fn clients_in_turn_read_and_write_over_resets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let (_server, _ssd) = serve(&path, "null");
    for round in 0..2 {
        let device = open(&path);
        for policy in [Policy::Poll, Policy::Interrupt, Policy::HybridHalfMean] {
            verified_io(&device, policy, 1000, round);
            device.controller().reset_now();
        }
        assert_eq!(device.heap().quarantined_bytes(), 0);
    }
    // What the one has written the next one reads.
    let device = open(&path);
    let mut channel = device.channel(&ChannelOptions::default()).unwrap();
    let buf = channel.alloc(512).unwrap();
    let buf = channel.read(1000, buf).unwrap();
    let mut expected = vec![0; 512];
    fill(&mut expected, 1000, 1);
    assert!(*buf == *expected);
}

#[test]
fn several_threads_share_a_connection() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let (_server, _ssd) = serve(&path, "null");
    let device = open(&path);
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let device = &device;
            threads.spawn(move || {
                let policy = if thread % 2 == 0 { Policy::Poll } else { Policy::Interrupt };
                for round in 0..3 {
                    verified_io(device, policy, 1000 * thread, round);
                }
            });
        }
    });
}

/// The last URI that names a shared controller decides.
#[test]
fn coalescing_is_the_controllers() {
    const INTERRUPT_COALESCING: u8 = 0x08;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ssd");
    let (_server, _ssd) = serve(&path, "null");
    let open = |query: &str| {
        let uri = format!("vfio-user:{}{query}", path.display());
        open_nvme(&uri, &OpenOptions::default()).unwrap()
    };
    let coalescing =
        |device: &NvmeDevice| device.controller().get_feature(INTERRUPT_COALESCING, 0).unwrap();
    let plain = open("");
    assert_eq!(coalescing(&plain), 0);
    let coalesced = open("?coalesce=4/200us");
    assert_eq!((coalescing(&coalesced), coalescing(&plain)), (0x0203, 0x0203));
    plain.controller().reset_now();
    assert_eq!(coalescing(&plain), 0x0203, "set again after a reset");
    drop((plain, coalesced));
    assert_eq!(coalescing(&open("")), 0, "a controller that is taken anew is reset");
}

#[test]
fn a_server_that_sleeps_is_woken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let (_server, ssd) = serve(&path, "null");
    let options =
        ControllerOptions { io_timeout_ns: 20_000_000_000, ..ControllerOptions::default() };
    let device = try_open(&path, options).unwrap();
    let mut channel = device.channel(&ChannelOptions::default()).unwrap();
    let mut buf = channel.alloc(4096).unwrap();
    let begun = Instant::now();
    for _ in 0..20 {
        // Its thread parks after 2 ms.
        std::thread::sleep(Duration::from_millis(6));
        buf = channel.read(0, buf).unwrap();
    }
    // One that is not woken is found at an eighth of its deadline, 2.5 s, at the earliest.
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    drop(ssd);
}

#[test]
fn a_second_client_waits_for_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let (_server, _ssd) = serve(&path, "null");
    let first = open(&path);
    // Beside it in this process: the same controller.
    let beside = open(&path);
    assert!(std::sync::Arc::ptr_eq(first.controller(), beside.controller()));
    let error = UserTransport::connect(&path, &UserOptions { timeout_ns: 300_000_000 }).err();
    let error = error.expect("one at a time").to_string();
    assert!(error.contains("one at a time"), "{error}");
    let waiting = std::thread::spawn({
        let path = path.clone();
        move || UserTransport::connect(&path, &UserOptions { timeout_ns: 60_000_000_000 }).map(drop)
    });
    std::thread::sleep(Duration::from_millis(50));
    drop((first, beside));
    waiting.join().unwrap().unwrap();
    verified_io(&open(&path), Policy::Poll, 0, 1);
}

/// Not a test, but the process of those below.
#[test]
fn serve_in_a_process() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    let _served = serve(Path::new(&path), "nand");
    std::thread::sleep(Duration::from_secs(120));
}

struct Process(Child);

impl Process {
    fn start(path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "vfio_user::serve_in_a_process"])
            .env(SOCKET, path)
            .stdout(Stdio::null());
        let process = Self(command.spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while !path.exists() {
            assert!(Instant::now() < deadline, "it serves");
            std::thread::sleep(Duration::from_millis(5));
        }
        process
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What becomes of reads in flight when the server gets `signal`, how long it took, and how much
/// memory was given up.
fn struck(signal: rustix::process::Signal, io_timeout_ns: u64) -> (Vec<Done>, Duration, usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let process = Process::start(&path);
    let options = ControllerOptions {
        io_timeout_ns,
        abort_grace_ns: 100_000_000,
        admin_timeout_ns: 4_000_000_000,
        ..ControllerOptions::default()
    };
    let device = try_open(&path, options).unwrap();
    let mut channel =
        device.channel(&ChannelOptions { depth: 16, ..ChannelOptions::default() }).unwrap();
    // Some end, some do not; those that end are sent again, until it is all over.
    let mut tickets: Vec<Ticket> = (0..16)
        .map(|lba| {
            let buf = channel.alloc(4096).unwrap();
            channel.submit(Request::read(8 * lba, buf)).unwrap()
        })
        .collect();
    process.signal(signal);
    let begun = Instant::now();
    let mut failed = Vec::new();
    while let Some(ticket) = tickets.pop() {
        let done = channel.wait(ticket);
        if done.result.is_err() {
            failed.push(done);
        } else if let Ok(ticket) = channel.submit(Request::read(0, done.buf.unwrap())) {
            tickets.push(ticket);
        }
    }
    let took = begun.elapsed();
    assert!(channel.alloc(4096).map_or(true, |buf| channel.submit(Request::read(0, buf)).is_err()));
    drop(channel);
    (failed, took, device.heap().quarantined_bytes())
}

#[test]
fn a_server_killed_in_the_middle() {
    // It is seen long before a deadline.
    let (failed, took, quarantined) = struck(rustix::process::Signal::KILL, 16_000_000_000);
    assert!(!failed.is_empty());
    for done in &failed {
        // Its memory is ours again: the process is known to have ended.
        assert_eq!(done.result.unwrap_err().kind, CommandError::Gone { memory_released: true });
        assert!(done.buf.is_some());
    }
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(quarantined, 0);
}

#[test]
fn a_server_that_hangs_in_the_middle() {
    let (failed, took, quarantined) = struck(rustix::process::Signal::STOP, 2_000_000_000);
    assert!(!failed.is_empty());
    for done in &failed {
        assert!(matches!(
            done.result.unwrap_err().kind,
            IoErrorKind::Command(CommandError::TimedOut | CommandError::Gone { .. })
        ));
        // It may wake up, and write.
        assert!(done.buf.is_none());
    }
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert!(quarantined >= 4096 * failed.len());
}
