//! Everything wrong at once: processes that do what no client may, and are stopped and killed
//! meanwhile, against an owner that also serves a good client, whose every reply is checked.
//!
//! MEANTIME_STRESS_SECONDS sets another time (ten minutes in `make test-long`),
//! MEANTIME_STRESS_SEED another seed.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use meantime_shm_rpc::client::Caller;
use meantime_shm_rpc::closings::{Closings, ClosingsView};
use meantime_shm_rpc::message::{Op, Reply, Request};
use meantime_shm_rpc::owner::Answerer;
use meantime_shm_rpc::{DATA_BYTES, Ended, socket};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::raw::{self, RawLine};

/// Connections at a time, and lines of each.
const CONNECTIONS: usize = 16;
const LINES: usize = 4;
/// Processes that do wrong.
const HOSTILE: usize = 3;
/// Tells a process of ours what to do.
const VARIABLE: &str = "MEANTIME_SHMQ_PROCESS";

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 11) as usize % end
    }
}

/// Returns the byte at `at` of the file with this handle.
fn content(handle: u64, at: u64) -> u8 {
    (at.wrapping_mul(31) ^ at >> 8 ^ handle.wrapping_mul(7)) as u8
}

fn sum(handle: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(handle, |sum, byte| sum.rotate_left(5).wrapping_add((*byte).into()))
}

/// The owner's counters.
#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    refused_asks: AtomicU64,
    wrong_messages: AtomicU64,
    lines: AtomicU64,
    calls: AtomicU64,
}

fn serve_line(mut line: Answerer, counts: &Counts) {
    let mut bytes = vec![0; DATA_BYTES];
    while let Ok(request) = line.next() {
        // No client can make this slicing panic.
        let bytes = &mut bytes[..request.len as usize];
        counts.calls.fetch_add(1, Ordering::Relaxed);
        let (handle, offset) = (request.handle, request.offset);
        let reply = match request.op {
            Op::Write => {
                line.take(bytes);
                Reply::done(bytes.len() as i64, sum(handle, bytes))
            }
            Op::Read => {
                for (byte, at) in bytes.iter_mut().zip(0..) {
                    *byte = content(handle, offset.wrapping_add(at));
                }
                line.give(bytes);
                Reply::done(bytes.len() as i64, offset)
            }
            _ => Reply::done(-i64::from(libc::EINVAL), handle ^ offset),
        };
        line.answer(&reply);
    }
}

fn serve_connection(client: &OwnedFd, closings: &Closings, counts: &Arc<Counts>) {
    let mut lines = Vec::new();
    if socket::say_hello(client, &[9; 16], closings.for_clients()).is_ok() {
        loop {
            match socket::wait_for_ask(client) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    if error.kind() == std::io::ErrorKind::InvalidData {
                        counts.wrong_messages.fetch_add(1, Ordering::Relaxed);
                    }
                    break;
                }
            }
            let answered = if lines.len() < LINES {
                let (line, memory) = Answerer::new().unwrap();
                let end = line.end();
                let counts = Arc::clone(counts);
                counts.lines.fetch_add(1, Ordering::Relaxed);
                lines.push((end, std::thread::spawn(move || serve_line(line, &counts))));
                socket::answer_ask(client, Some(&memory))
            } else {
                counts.refused_asks.fetch_add(1, Ordering::Relaxed);
                socket::answer_ask(client, None)
            };
            if answered.is_err() {
                break;
            }
        }
    }
    for (end, _) in &lines {
        end.end();
    }
    for (_, thread) in lines {
        thread.join().expect("a client had an owner's thread panic");
    }
}

/// Serves until `is_over` and one more connection.
fn own(name: &str, counts: &Arc<Counts>, is_over: &Arc<AtomicBool>) -> JoinHandle<()> {
    let listener = socket::listen(name).unwrap();
    let (counts, is_over) = (Arc::clone(counts), Arc::clone(is_over));
    std::thread::spawn(move || {
        let closings = Arc::new(Closings::new().unwrap());
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        while !is_over.load(Ordering::Acquire) {
            // A client that is gone already is an error.
            let Ok(Some(client)) = socket::accept(&listener) else { continue };
            // The good client's place is kept, since it is the first.
            if counts.connections.load(Ordering::Acquire) >= CONNECTIONS {
                continue;
            }
            counts.connections.fetch_add(1, Ordering::AcqRel);
            let (closings, counts) = (Arc::clone(&closings), Arc::clone(&counts));
            threads.push(std::thread::spawn(move || {
                serve_connection(&client, &closings, &counts);
                counts.connections.fetch_sub(1, Ordering::AcqRel);
            }));
            let (ended, running) = threads.into_iter().partition(JoinHandle::is_finished);
            threads = running;
            ended.into_iter().for_each(|thread: JoinHandle<()>| thread.join().unwrap());
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    })
}

/// Calls until `until` or the owner's end, checks each reply, and counts the `calls`.
fn good_client(there: &OwnedFd, seed: u64, until: Instant, calls: &AtomicU64) -> Result<(), Ended> {
    let (nonce, closings) = socket::receive_hello(there).unwrap();
    assert_eq!(nonce, [9; 16]);
    assert_eq!(ClosingsView::new(&closings).unwrap().count(0), Some(0));
    let mut caller = Caller::new(&socket::ask_line(there).unwrap()).unwrap();
    let mut random = Random(seed);
    let mut bytes = vec![0; DATA_BYTES];
    while Instant::now() < until {
        let len = 1 << random.below(17) | random.below(64);
        let (handle, offset) = (random.next(), random.next() >> 1);
        let op = [Op::Read, Op::Write, Op::SyncAll][random.below(3)];
        let request = Request { op, flags: 0, handle, closings: 0, offset, len: len as u32 };
        let bytes = &mut bytes[..len];
        if op == Op::Write {
            let byte = random.next();
            bytes.iter_mut().zip(byte..).for_each(|(to, at)| *to = at as u8);
            // SAFETY: there are so many bytes.
            unsafe { caller.put(0, bytes.as_ptr(), len) };
        }
        let reply = caller.call(&request, || is_open(there))?;
        let expected = match op {
            Op::Read => {
                // SAFETY: as above.
                unsafe { caller.get(0, bytes.as_mut_ptr(), len) };
                let is_right = bytes
                    .iter()
                    .zip(0..)
                    .all(|(byte, at)| *byte == content(handle, offset.wrapping_add(at)));
                assert!(is_right, "wrong data, as success");
                Reply::done(len as i64, offset)
            }
            Op::Write => Reply::done(len as i64, sum(handle, bytes)),
            _ => Reply::done(-i64::from(libc::EINVAL), handle ^ offset),
        };
        assert_eq!(reply, expected);
        calls.fetch_add(1, Ordering::Relaxed);
        if random.below(1000) == 0 {
            // Longer than either side spins.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(())
}

/// Returns whether the other side of the socket is there.
fn is_open(there: &OwnedFd) -> bool {
    let mut poll = [PollFd::new(there, PollFlags::empty())];
    rustix::event::poll(&mut poll, Some(&Timespec::default())) == Ok(0)
}

/// A process of ours, which is killed with this.
struct Process(Child);

impl Process {
    /// One that does wrong.
    fn hostile(name: &str, seed: u64) -> Self {
        Self::new("stress::hostile_process", &format!("{name} {seed}"))
    }

    fn new(test: &str, told: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", test, "--nocapture"])
            .env(VARIABLE, told)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Continues the process if it is stopped.
    fn go_on(&self) {
        kill_process(Pid::from_child(&self.0), Signal::CONT).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the test in a process of its own, where no other test opens descriptors. Returns true
/// there.
fn is_alone(test: &str) -> bool {
    const MARK: &str = "MEANTIME_SHMQ_ALONE";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let ended = command.args(["--exact", test, "--nocapture"]).env(MARK, "1").output().unwrap();
    let [said, errors] =
        [&ended.stdout, &ended.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(ended.status.success() && said.contains("1 passed"), "{said}\n{errors}");
    print!("{said}");
    false
}

#[test]
fn no_client_harms_the_owner_or_another_client() {
    if !is_alone("stress::no_client_harms_the_owner_or_another_client") {
        return;
    }
    let number =
        |name: &str, other| std::env::var(name).map_or(other, |text| text.parse().unwrap());
    let time = Duration::from_secs(number("MEANTIME_STRESS_SECONDS", 2));
    let mut random = Random(number("MEANTIME_STRESS_SEED", 1).wrapping_mul(2) | 1);
    let name = format!("meantime-stress-{}", std::process::id());
    let (counts, is_over) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
    let open_before = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let owner = own(&name, &counts, &is_over);
    let there = socket::connect(&name).unwrap();
    let until = Instant::now() + time;
    let seed = random.next() | 1;
    let calls = Arc::new(AtomicU64::new(0));
    let good = {
        let calls = Arc::clone(&calls);
        std::thread::spawn(move || good_client(&there, seed, until, &calls))
    };
    let mut hostile: Vec<_> =
        (0..HOSTILE).map(|_| Process::hostile(&name, random.next() | 1)).collect();
    while Instant::now() < until && !good.is_finished() {
        std::thread::sleep(Duration::from_millis(20));
        let one = &mut hostile[random.below(HOSTILE)];
        if random.below(4) == 0 {
            *one = Process::hostile(&name, random.next() | 1);
        } else {
            one.go_on();
        }
    }
    assert_eq!(good.join().expect("the good client"), Ok(()), "a good client lost its line");
    let calls = calls.load(Ordering::Relaxed);
    drop(hostile);
    is_over.store(true, Ordering::Release);
    // Whatever they left, the owner ends.
    let begun = Instant::now();
    drop(socket::connect(&name));
    while !owner.is_finished() {
        assert!(begun.elapsed() < Duration::from_secs(30), "an owner's thread hangs");
        std::thread::sleep(Duration::from_millis(10));
    }
    owner.join().expect("the owner");
    let open_after = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert_eq!(open_after, open_before, "descriptors stay open");
    let of_others = counts.calls.load(Ordering::Relaxed) - calls;
    let lines = counts.lines.load(Ordering::Relaxed);
    let wrong_messages = counts.wrong_messages.load(Ordering::Relaxed);
    let refused = counts.refused_asks.load(Ordering::Relaxed);
    println!(
        "{calls} good calls, {of_others} of others on {lines} lines; {wrong_messages} wrong \
         messages, {refused} asks refused"
    );
    assert!(calls > 0 && of_others > 0 && lines > 1 && wrong_messages > 0 && refused > 0);
}

/// Whenever an owner is killed, its client's call ends soon, and no reply before was wrong.
#[test]
fn a_killed_owner_ends_its_clients_calls() {
    let mut random = Random(5);
    for round in 0..10 {
        let name = format!("meantime-killed-{}-{round}", std::process::id());
        let owner = Process::new("stress::owner_process", &name);
        let until = Instant::now() + Duration::from_secs(60);
        let there = loop {
            match socket::connect(&name) {
                Ok(there) => break there,
                Err(error) => assert!(Instant::now() < until, "no owner: {error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let seed = random.next() | 1;
        let calls = Arc::new(AtomicU64::new(0));
        let good = {
            let calls = Arc::clone(&calls);
            std::thread::spawn(move || good_client(&there, seed, until, &calls))
        };
        // The owner is not killed before the line is there: until then an error of the socket would
        // end the client.
        while calls.load(Ordering::Relaxed) == 0 && !good.is_finished() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000) as u64));
        drop(owner);
        let killed = Instant::now();
        assert_eq!(good.join().expect("a wrong reply, or no line"), Err(Ended));
        assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    }
}

/// The body of that test's owner. It is not a test of its own.
#[test]
fn owner_process() {
    let Ok(name) = std::env::var(VARIABLE) else { return };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    own(&name, &Arc::new(Counts::default()), &is_over).join().unwrap();
}

/// The body of a process that does wrong. It is not a test of its own.
#[test]
fn hostile_process() {
    let Ok(said) = std::env::var(VARIABLE) else { return };
    let (name, seed) = said.split_once(' ').unwrap();
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let mut random = Random(seed.parse().unwrap());
    loop {
        // If any part of it fails, the loop tries the next.
        let _ = do_wrong(name, &mut random);
    }
}

fn send(there: &OwnedFd, bytes: &[u8], descriptors: &[OwnedFd]) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptors.iter().map(OwnedFd::as_fd).collect();
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(there, &[IoSlice::new(bytes)], &mut ancillary, flags)?;
    Ok(())
}

fn do_wrong(name: &str, random: &mut Random) -> std::io::Result<()> {
    let there = socket::connect(name)?;
    if random.below(4) == 0 {
        return Ok(());
    }
    let what = random.below(8);
    if what == 0 {
        // Asks, and does not receive.
        while send(&there, b"l", &[]).is_ok() {}
        return Ok(());
    }
    socket::receive_hello(&there)?;
    match what {
        1 => {
            let bytes: Vec<u8> = (0..random.below(3000)).map(|_| random.next() as u8).collect();
            return send(&there, &bytes, &[]);
        }
        2 => {
            let mut some = vec![there.try_clone()?];
            let (one, other) = std::os::unix::net::UnixStream::pair()?;
            some.extend([OwnedFd::from(one), other.into()]);
            return send(&there, b"l", &some[random.below(3)..]);
        }
        3 => {
            // More lines than there are.
            let lines: Vec<_> = (0..2 * LINES).map(|_| socket::ask_line(&there)).collect();
            return lines.into_iter().collect::<Result<Vec<_>, _>>().map(drop);
        }
        _ => {}
    }
    let line = RawLine::new(&socket::ask_line(&there)?);
    let until = Instant::now() + Duration::from_millis(random.below(50) as u64);
    match what {
        4 => scribble(&line, random, until),
        5 => {
            // The owner's word for sleeping, all the time.
            while Instant::now() < until {
                line.store(raw::OWNER_PARKED, random.below(2) as u32);
                let word = line.word(raw::OWNER_PARKED);
                let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::empty(), 9);
            }
        }
        6 => {
            ask(&line, random, 1);
            kill_process(getpid(), Signal::STOP)?;
        }
        _ => {
            ask(&line, random, 1);
            std::thread::sleep(Duration::from_micros(random.below(100) as u64));
            kill_process(getpid(), Signal::KILL)?;
        }
    }
    Ok(())
}

/// Asks for something right, and wakes the owner.
fn ask(line: &RawLine, random: &mut Random, number: u32) {
    line.store(raw::OP, 1 + random.below(6) as u32);
    line.store(raw::FLAGS, random.below(32) as u32);
    line.store(raw::LEN, random.below(DATA_BYTES + 1) as u32);
    line.store(raw::NUMBER, number);
    line.store(raw::OWNER_PARKED, 0);
    let word = line.word(raw::OWNER_PARKED);
    let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::empty(), 1);
}

/// Asks for something right again and again, and stores anything anywhere meanwhile.
fn scribble(line: &RawLine, random: &mut Random, until: Instant) {
    let is_over = AtomicBool::new(false);
    let mut theirs = Random(random.next() | 1);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // Mostly the data and the words of a request are overwritten, but rarely its
                // number: the line would end at once.
                let at = match theirs.below(1 << 16) {
                    0 => theirs.below(64) * 4,
                    1..9_000 => [raw::OP, raw::FLAGS, raw::LEN][theirs.below(3)],
                    9_000..30_000 => raw::HANDLE + theirs.below(4) * 4,
                    _ => raw::DATA + theirs.below(DATA_BYTES / 4) * 4,
                };
                let value = if at == raw::OP { 1 + theirs.below(6) as u32 } else { 31 };
                line.store(at, value);
            }
        });
        let mut number = 0_u32;
        while Instant::now() < until && line.load(raw::ENDED) == 0 {
            number = number.wrapping_add(1);
            ask(line, random, number);
            let asked = Instant::now();
            while line.load(raw::REPLY_NUMBER) != number && asked.elapsed().as_millis() < 5 {
                std::hint::spin_loop();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
