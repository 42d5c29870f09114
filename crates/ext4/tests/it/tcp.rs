//! ext4 on NVMe over TCP whose connections, client or power are cut in the middle of work: what was
//! synced with success is there, and the file system is consistent.
//!
//! `MEANTIME_TCP_SECONDS=n` sets the time for each test with faults (default 5),
//! `MEANTIME_TCP_ROUNDS=n` how many clients are cut (default 100), `MEANTIME_TCP_SEED=n` the first
//! seed.

mod ledger;
mod work;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use meantime_block as block;
use meantime_ext4::{Error, FileSystem, MountOptions};
use meantime_ssd::tcp::{DEFAULT_NQN, NetFaults, Target, TargetOptions};
use meantime_ssd::{Medium, SsdConfig};
use meantime_testkit::image::{clean, mkfs, run, run_for, scratch, tools, writable};
use meantime_testkit::proxy::{Cut, Direction, Proxy};
use meantime_testkit::{Rng, setting};

use ledger::{Event, Ledger};
use work::Worker;

/// The environment variable that makes a process a client: what it is to do.
const CLIENT: &str = "MEANTIME_TCP_CLIENT";

/// Files of a round have numbers from here on, a thread's.
const IDS: u64 = 2_000;

/// A file system at a target.
struct Served {
    target: Target,
    image: PathBuf,
    _dir: tempfile::TempDir,
}

impl Served {
    fn new(has_cache: bool) -> Self {
        let dir = scratch();
        let features = ["-b", "4096", "-O", "fast_commit", "-J", "size=4"];
        let image = mkfs(dir.path(), "image", "32M", &features);
        let medium = Medium::file(&image, None).unwrap();
        let config = SsdConfig {
            volatile_write_cache: has_cache,
            ..SsdConfig::with_namespace(medium.len(), 4096)
        };
        let target = Target::start(config, medium, TargetOptions::default()).unwrap();
        Self { target, image, _dir: dir }
    }

    fn mount(&self, parameters: &str, options: &MountOptions) -> FileSystem {
        mount(self.target.addr(), parameters, options)
    }

    /// Waits until the target has taken notice that its hosts are gone.
    fn wait_for_end_of_hosts(&self) {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let counters = self.target.tcp_counters();
            if counters.associations == counters.associations_ended {
                return;
            }
            assert!(Instant::now() < until, "{counters:?}");
            sleep(Duration::from_millis(1));
        }
    }

    /// Mounts it by a new host, which replays the journal, and compares it with the ledgers of
    /// directories, which it removes.
    fn check(&self, ledgers: &[(String, Ledger)], what: &str) {
        self.wait_for_end_of_hosts();
        let fs = self.mount("", &writable());
        clean(&fs, what);
        for (dir, ledger) in ledgers {
            ledger.check(&fs, dir).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
            fs.remove_dir_all(dir).unwrap();
        }
        fs.unmount().unwrap();
        assert!(self.target.handle().flush());
        fsck(&self.image);
    }
}

fn fsck(image: &Path) {
    run("e2fsck", &["-fn", image.to_str().unwrap()]);
}

fn uri(addr: SocketAddr, parameters: &str) -> String {
    format!(
        "nvme+tcp://{addr}/{DEFAULT_NQN}?hostnqn=nqn.2014-08.org.example:host\
         &hostid=0123456789abcdef0123456789abcdef{parameters}"
    )
}

fn mount(addr: SocketAddr, parameters: &str, options: &MountOptions) -> FileSystem {
    let uri = uri(addr, parameters);
    let open = || block::open(&uri, &block::OpenOptions::default());
    // A busy machine may let a Keep Alive Timeout of half a second pass while it opens.
    let device = open().or_else(|_| open()).or_else(|_| open()).unwrap();
    FileSystem::mount(device, options).unwrap()
}

/// Options with much work at the same time: small limits, and the mount's own thread.
fn options(seed: u64) -> MountOptions {
    MountOptions {
        background: true,
        commit_interval_ms: 20,
        dirty_bytes: [0, 64 << 10][(seed / 2 % 2) as usize],
        fast_commit: seed % 2 == 1,
        channels: 4,
        ..writable()
    }
}

fn dir(round: u64, thread: u64) -> String {
    format!("/r{round}t{thread}")
}

/// Makes the threads' directories.
fn begin(fs: &FileSystem, round: u64, threads: u64) {
    for thread in 0..threads {
        fs.create_dir(dir(round, thread)).unwrap();
    }
    fs.sync().unwrap();
}

/// Works with `threads` threads until `ended`, or the first error of each. Returns the ledgers, and
/// the errors.
fn work(
    fs: &FileSystem,
    round: u64,
    threads: u64,
    verifies: bool,
    ended: &AtomicBool,
) -> (Vec<(String, Ledger)>, Vec<Error>) {
    let one = |thread: u64| {
        let mut ledger = Ledger::default();
        let (dir, seed) = (dir(round, thread), round * 2 + thread);
        let mut worker = Worker::new(fs, dir.clone(), seed, 1 + seed % 256 * IDS);
        worker.verifies = verifies;
        let mut result = Ok(());
        while result.is_ok() && !ended.load(Ordering::Relaxed) {
            result = worker.step(&mut |event| ledger.note(event));
        }
        ((dir, ledger), result.err())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        let (ledgers, errors): (Vec<_>, Vec<_>) =
            threads.into_iter().map(|thread| thread.join().unwrap()).unzip();
        (ledgers, errors.into_iter().flatten().collect())
    })
}

fn seconds() -> Duration {
    Duration::from_secs(setting("MEANTIME_TCP_SECONDS").unwrap_or(5))
}

fn seed() -> u64 {
    setting("MEANTIME_TCP_SEED").unwrap_or(1)
}

/// Runs `act` beside work on `fs`, which then ends, and is unmounted.
fn beside(
    fs: FileSystem,
    round: u64,
    threads: u64,
    verifies: bool,
    act: impl FnOnce(),
) -> (Vec<(String, Ledger)>, Vec<Error>) {
    let ended = AtomicBool::new(false);
    let (mut ledgers, mut errors) = std::thread::scope(|scope| {
        let works = scope.spawn(|| work(&fs, round, threads, verifies, &ended));
        act();
        ended.store(true, Ordering::Relaxed);
        works.join().unwrap()
    });
    match fs.unmount() {
        Ok(()) => ledgers.iter_mut().for_each(|(_, ledger)| ledger.note(Event::SyncAll)),
        Err(error) => errors.push(error),
    }
    (ledgers, errors)
}

/// Without a volatile write cache lost connections are invisible.
#[test]
fn connections_are_lost_at_random() {
    if !tools() {
        return;
    }
    for threads in [1, 2] {
        let served = Served::new(false);
        let round = seed() + threads;
        let fs = served.mount("&kato_ms=500", &options(round));
        begin(&fs, round, threads);
        let faults =
            NetFaults { drop_one_in: 700, cut_one_in: 700, seed: round, ..NetFaults::NONE };
        let (ledgers, errors) = beside(fs, round, threads, true, || {
            served.target.set_net_faults(faults);
            sleep(seconds());
            served.target.set_net_faults(NetFaults::NONE);
        });
        let counters = served.target.tcp_counters();
        let syncs: u64 = ledgers.iter().map(|(_, ledger)| ledger.syncs).sum();
        println!("{threads} threads: {syncs} syncs, {errors:?}, {counters:?}");
        assert!(counters.injected_closes > 0 && syncs > 0);
        assert!(errors.is_empty(), "{errors:?}");
        served.check(&ledgers, "lost connections");
    }
}

/// Power is lost with what the cache had: a sync says so, or its data is there.
#[test]
fn power_is_cut_at_the_target() {
    if !tools() {
        return;
    }
    let until = Instant::now() + seconds();
    let told = Mutex::new([0; 2]);
    std::thread::scope(|scope| {
        // Most of the time they wait for a Keep Alive Timeout.
        for lane in 0..6 {
            let told = &told;
            scope.spawn(move || {
                let served = Served::new(true);
                let mut random = Rng::new(seed() * 100 + lane);
                let mut round = seed() * 1_000 + lane * 50;
                while Instant::now() < until {
                    round += 1;
                    power_is_cut(&served, round, &mut random, told);
                }
            });
        }
    });
    let [errors, rounds] = told.into_inner().unwrap();
    println!("{rounds} rounds, {errors} of them with errors");
    assert!(errors > 0);
}

fn power_is_cut(served: &Served, round: u64, random: &mut Rng, told: &Mutex<[u64; 2]>) {
    let threads = 1 + round % 2;
    let fs = served.mount("&kato_ms=500", &options(round));
    begin(&fs, round, threads);
    // Sometimes the I/O queues' connections are lost at the same time, for which the host resets
    // the controller.
    let faults = NetFaults { drop_one_in: 20, seed: random.next(), ..NetFaults::NONE };
    let (ledgers, errors) = beside(fs, round, threads, false, || {
        sleep(Duration::from_millis(random.below(120)));
        if random.one_in(2) {
            served.target.set_net_faults(faults);
            sleep(Duration::from_micros(random.below(10_000)));
        }
        served.target.power_cut(random.next());
        served.target.set_net_faults(NetFaults::NONE);
        if random.one_in(3) {
            sleep(Duration::from_millis(random.below(1_000)));
            served.target.power_cut(random.next());
        }
        // Sleeps until the host is back, and somewhat longer.
        sleep(Duration::from_millis(750 + random.below(100)));
    });
    {
        let mut told = told.lock().unwrap();
        told[0] += u64::from(!errors.is_empty());
        told[1] += 1;
    }
    // Data that were not flushed are lost, too.
    served.target.power_cut(random.next());
    let what = format!("round {round}, {errors:?}");
    served.wait_for_end_of_hosts();
    // A mount whose journal was aborted has said so in the superblock.
    let fs = served.mount("", &MountOptions::default());
    clean(&fs, &what);
    for (dir, ledger) in &ledgers {
        ledger.check(&fs, dir).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    }
    drop(fs);
    run_for("e2fsck", &["-p", served.image.to_str().unwrap()], &[0, 1]);
    served.check(&ledgers, &what);
}

/// A client is killed, or loses its network for good, at a random time.
#[test]
fn a_client_is_cut_for_good() {
    if !tools() {
        return;
    }
    let rounds = setting("MEANTIME_TCP_ROUNDS").unwrap_or(100);
    let totals = Mutex::new([0; 2]);
    std::thread::scope(|scope| {
        for lane in 0..2 {
            let totals = &totals;
            scope.spawn(move || {
                let served = Served::new(false);
                let mut random = Rng::new(seed() * 100 + lane);
                for round in (lane..rounds).step_by(2) {
                    let ledgers = a_client_is_cut(&served, round, &mut random);
                    let mut totals = totals.lock().unwrap();
                    for (_, ledger) in &ledgers {
                        totals[0] += ledger.events;
                        totals[1] += ledger.syncs;
                    }
                    drop(totals);
                    served.check(&ledgers, &format!("round {round}"));
                }
            });
        }
    });
    let [events, syncs] = totals.into_inner().unwrap();
    println!("{rounds} rounds, {events} events, {syncs} syncs");
    assert!(syncs > rounds, "{syncs} syncs");
}

/// A process that works until it is killed.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_client_is_cut(served: &Served, round: u64, random: &mut Rng) -> Vec<(String, Ledger)> {
    let threads = 1 + round % 2;
    let proxy = Proxy::start(served.target.addr(), random.next()).unwrap();
    let way = random.below(3);
    if way == 2 {
        // The cut is usually in the middle of a PDU. The host goes on after a reset, or is killed
        // before.
        let bytes = 10_000..=1_000_000;
        let (direction, reset) = (Direction::Up, random.one_in(2));
        proxy.cut(Cut { connection: None, direction, bytes, reset });
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "tcp::a_client", "--test-threads=1", "--nocapture"])
        .env(CLIENT, format!("{} {round} {threads}", proxy.address()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut client = Client(command.spawn().unwrap());
    let mut lines = BufReader::new(client.0.stdout.take().unwrap()).lines();
    // The test harness prints, too, perhaps without the end of a line.
    let is_ready = lines.by_ref().any(|line| line.unwrap().contains("@ready"));
    assert!(is_ready, "round {round}: the client has failed");
    sleep(Duration::from_micros(random.below(60_000)));
    match way {
        1 => {
            proxy.refuse(true);
            proxy.cut_now();
            served.wait_for_end_of_hosts();
        }
        _ => client.0.kill().unwrap(),
    }
    drop(client);
    let mut ledgers: Vec<_> =
        (0..threads).map(|thread| (dir(round, thread), Ledger::default())).collect();
    for line in lines {
        let line = line.unwrap();
        // The client may have been killed in the middle of a line.
        let Some(line) = line.strip_suffix('.') else { continue };
        let Some((_, line)) = line.split_once('@') else { continue };
        let (thread, event) = line.split_once(' ').unwrap();
        let thread: usize = thread.parse().unwrap();
        ledgers[thread].1.note(event.parse().unwrap());
    }
    ledgers
}

/// The client's process, if it was started for that.
#[test]
fn a_client() {
    let Ok(what) = std::env::var(CLIENT) else { return };
    let words: Vec<&str> = what.split(' ').collect();
    let (addr, round, threads): (SocketAddr, u64, u64) =
        (words[0].parse().unwrap(), words[1].parse().unwrap(), words[2].parse().unwrap());
    let fs = mount(addr, "&kato_ms=5000", &options(round));
    begin(&fs, round, threads);
    let say = |line: &str| std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    say("\n@ready\n");
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (fs, say) = (&fs, &say);
            scope.spawn(move || {
                let seed = round * 2 + thread;
                let first = 1 + seed % 256 * IDS;
                let mut worker = Worker::new(fs, dir(round, thread), seed, first);
                while worker.step(&mut |event| say(&format!("@{thread} {event}.\n"))).is_ok() {}
            });
        }
    });
}
