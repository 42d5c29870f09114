//! Tests everything that a client or an owner can do wrong, one thing at a time. `stress` does it
//! all at once.

use std::io::{ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use meantime_shm_rpc::client::Caller;
use meantime_shm_rpc::message::{Op, Reply, Request};
use meantime_shm_rpc::owner::Answerer;
use meantime_shm_rpc::{DATA_BYTES, Ended, closings, socket};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

use crate::raw::{self, RawLine};

const READ: Request =
    Request { op: Op::Read, flags: 0, handle: 5, closings: 3, offset: 77, len: 64 };

fn raw_line() -> (Answerer, RawLine) {
    let (line, memory) = Answerer::new().unwrap();
    (line, RawLine::new(&memory))
}

/// Stores a request's words.
fn ask(raw: &RawLine, number: u32, op: u32, flags: u32, len: u32) {
    for (at, value) in [(raw::OP, op), (raw::FLAGS, flags), (raw::LEN, len), (raw::NUMBER, number)]
    {
        raw.store(at, value);
    }
}

#[test]
fn a_request_that_is_none_ends_the_line() {
    let (read, all) = (Op::Read as u32, DATA_BYTES as u32);
    let wrong = [
        (2, read, 0, 1),
        (u32::MAX, read, 0, 1),
        (1, 0, 0, 1),
        (1, 8, 0, 1),
        (1, u32::MAX, 0, 1),
        (1, read, 1 << 5, 1),
        (1, read, 1 << 31, 1),
        (1, read, 0, all + 1),
        (1, read, 0, u32::MAX),
    ];
    for (number, op, flags, len) in wrong {
        let (mut line, raw) = raw_line();
        ask(&raw, number, op, flags, len);
        assert_eq!(line.next(), Err(Ended), "{number} {op} {flags} {len}");
        // The line stays ended, also if the client stores a good request now.
        ask(&raw, 1, read, 0, 1);
        assert_eq!(line.next(), Err(Ended));
        assert_eq!(raw.load(raw::ENDED), 0);
        drop(line);
        assert_eq!(raw.load(raw::ENDED), 1);
    }
    let (mut line, raw) = raw_line();
    ask(&raw, 1, read, 0x1f, all);
    assert_eq!(line.next().map(|request| request.len), Ok(all));
    // The number was incremented before the answer: a line has no second request during a call.
    ask(&raw, 3, read, 0, 1);
    line.answer(&Reply::done(0, 0));
    assert_eq!(line.next(), Err(Ended));
}

/// A client that always says that its owner is awake can neither keep it running for long, nor from
/// seeing the end.
#[test]
fn a_client_that_does_not_let_its_owner_sleep_loses_the_line() {
    let (mut line, raw) = raw_line();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                raw.store(raw::OWNER_PARKED, 0);
                let word = raw.word(raw::OWNER_PARKED);
                let flags = rustix::thread::futex::Flags::empty();
                let _ = rustix::thread::futex::wake(word, flags, 1);
            }
        });
        let ended = line.next();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(ended, Err(Ended));
    });
}

#[test]
fn an_end_comes_through_whatever_the_client_has_stored() {
    for value in [0, 2, u32::MAX] {
        let (mut line, raw) = raw_line();
        let end = line.end();
        let owner = std::thread::spawn(move || line.next());
        while raw.load(raw::OWNER_PARKED) == 0 {
            std::thread::yield_now();
        }
        // It sleeps by now.
        std::thread::sleep(Duration::from_millis(20));
        raw.store(raw::OWNER_PARKED, value);
        let begun = Instant::now();
        end.end();
        assert_eq!(owner.join().unwrap(), Err(Ended));
        assert!(begun.elapsed() < Duration::from_millis(900), "it slept on");
    }
}

/// The size is sealed, but holes can be made. They read as zeros, and do not hide the end of the
/// line.
#[test]
fn a_client_that_takes_pages_away_ends_only_its_line() {
    use rustix::fs::{FallocateFlags, fallocate};
    let punch = |memory: &OwnedFd, at: usize, len: usize| {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(memory, flags, at as u64, len as u64).unwrap();
    };
    // While the owner sleeps.
    let (mut line, memory) = Answerer::new().unwrap();
    let raw = RawLine::new(&memory);
    let end = line.end();
    let owner = std::thread::spawn(move || line.next());
    while raw.load(raw::OWNER_PARKED) == 0 {
        std::thread::yield_now();
    }
    for _ in 0..100 {
        punch(&memory, 0, raw::BYTES);
        std::thread::sleep(Duration::from_micros(100));
    }
    let begun = Instant::now();
    end.end();
    assert_eq!(owner.join().unwrap(), Err(Ended));
    assert!(begun.elapsed() < Duration::from_secs(20), "it sleeps on");
    // While it uses the data, and then its words.
    let (mut line, memory) = Answerer::new().unwrap();
    let raw = RawLine::new(&memory);
    let owner = std::thread::spawn(move || {
        let mut bytes = vec![1; DATA_BYTES];
        let mut calls = 0;
        while line.next().is_ok() {
            line.take(&mut bytes);
            line.give(&bytes);
            line.answer(&Reply::done(0, 0));
            calls += 1;
        }
        calls
    });
    for number in 1..=20 {
        ask(&raw, number, Op::Read as u32, 0, 1);
        raw.store(raw::OWNER_PARKED, 0);
        let word = raw.word(raw::OWNER_PARKED);
        let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::empty(), 1);
        while raw.load(raw::REPLY_NUMBER) != number {
            punch(&memory, raw::DATA, DATA_BYTES);
        }
    }
    punch(&memory, 0, raw::DATA);
    assert_eq!(owner.join().unwrap(), 20, "a number that went back is a request");
}

/// A call without a reply may still be executed, with the line's data: no other call uses them.
#[test]
fn a_line_whose_call_was_not_answered_is_lost() {
    let (mut line, memory) = Answerer::new().unwrap();
    let raw = RawLine::new(&memory);
    let mut caller = Caller::new(&memory).unwrap();
    assert_eq!(caller.call(&READ, || false), Err(Ended));
    assert!(caller.has_ended());
    // It was alive, and answers.
    line.next().unwrap();
    line.answer(&Reply::done(64, 0));
    raw.store(raw::DATA, 0x1234);
    // SAFETY: the array is that long.
    unsafe { caller.put(0, [7; 64].as_ptr(), 64) };
    assert_eq!(raw.load(raw::DATA), 0x1234, "the data of a lost line were changed");
    assert_eq!(caller.call(&READ, || true), Err(Ended));
    assert_eq!(raw.load(raw::NUMBER), 1, "another call on a lost line");
}

#[test]
fn a_call_that_unwinds_loses_the_line() {
    let (_line, memory) = Answerer::new().unwrap();
    let mut caller = Caller::new(&memory).unwrap();
    let unwinds = std::panic::AssertUnwindSafe(|| {
        let _ = caller.call(&READ, || std::panic::resume_unwind(Box::new(())));
    });
    assert!(std::panic::catch_unwind(unwinds).is_err());
    assert_eq!(caller.call(&READ, || true), Err(Ended));
}

#[test]
fn a_line_that_was_used_is_refused() {
    let (mut line, memory) = Answerer::new().unwrap();
    let raw = RawLine::new(&memory);
    ask(&raw, 1, Op::Read as u32, 0, 1);
    assert!(Caller::new(&memory).is_err(), "a request");
    line.next().unwrap();
    line.answer(&Reply::done(1, 0));
    assert!(Caller::new(&memory).is_err(), "a reply");
    let (line, memory) = Answerer::new().unwrap();
    assert!(Caller::new(&memory).is_ok());
    drop(line);
    assert!(Caller::new(&memory).is_err(), "ended");
}

/// Tests replies that an owner must not give.
#[test]
fn a_reply_that_is_none_ends_a_call() {
    // Each pair is (status, result): an invalid status, or more bytes than there is room for.
    for (status, result) in [(5, 0), (u32::MAX, 0), (0, 65), (4, 65), (0, i64::MAX)] {
        let (_line, memory) = Answerer::new().unwrap();
        let raw = RawLine::new(&memory);
        let mut caller = Caller::new(&memory).unwrap();
        let owner = std::thread::spawn(move || {
            while raw.load(raw::NUMBER) != 1 {
                std::thread::yield_now();
            }
            raw.store(raw::STATUS, status);
            raw.store(raw::RESULT, result as u32);
            raw.store(raw::RESULT + 4, (result >> 32) as u32);
            raw.store(raw::REPLY_NUMBER, 1);
        });
        assert_eq!(caller.call(&READ, || true), Err(Ended), "{status} {result}");
        owner.join().unwrap();
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

fn send(socket: &OwnedFd, bytes: &[u8], descriptors: usize) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let all = [socket.as_fd(); 3];
    if descriptors > 0 {
        ancillary.push(SendAncillaryMessage::ScmRights(&all[..descriptors]));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
}

/// Returns how many descriptors of this process refer to the socket.
fn descriptors_of(socket: &OwnedFd) -> usize {
    let inode = rustix::fs::fstat(socket).unwrap().st_ino;
    let name = std::path::PathBuf::from(format!("socket:[{inode}]"));
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter(|entry| {
        std::fs::read_link(entry.as_ref().unwrap().path()).ok() == Some(name.clone())
    })
    .count()
}

#[test]
fn an_ask_is_one_byte_and_no_descriptor() {
    for (bytes, descriptors) in
        [(&b"x"[..], 0), (b"lx", 0), (&[b'l'; 4096], 0), (b"l", 1), (b"l", 3), (b"x", 2)]
    {
        let (ours, theirs) = pair();
        send(&theirs, bytes, descriptors);
        let said = socket::wait_for_ask(&ours).unwrap_err();
        assert_eq!(said.kind(), ErrorKind::InvalidData, "{bytes:?} {descriptors}");
        assert_eq!(descriptors_of(&theirs), 1, "a client's descriptor is ours");
    }
    let (ours, theirs) = pair();
    send(&theirs, b"l", 0);
    assert!(socket::wait_for_ask(&ours).unwrap());
    drop(theirs);
    assert!(!socket::wait_for_ask(&ours).unwrap());
}

/// A client gets nothing from an invalid hello either, and keeps no descriptor of it.
#[test]
fn a_hello_is_whole_and_has_one_descriptor() {
    let mut hello = *b"mtshmq\x00\x01................";
    for (len, descriptors) in [(24, 0), (24, 2), (24, 3), (23, 1), (8, 1)] {
        let (ours, theirs) = pair();
        send(&theirs, &hello[..len], descriptors);
        let said = socket::receive_hello(&ours).unwrap_err();
        assert_eq!(said.kind(), ErrorKind::InvalidData, "{len} {descriptors}");
        assert_eq!(descriptors_of(&theirs), 1);
    }
    let (ours, theirs) = pair();
    send(&theirs, &[&hello[..], b"x"].concat(), 1);
    assert!(socket::receive_hello(&ours).is_err(), "longer");
    send(&theirs, &hello, 1);
    let (nonce, memory) = socket::receive_hello(&ours).unwrap();
    assert_eq!(nonce, *b"................");
    assert!(closings::ClosingsView::new(&memory).is_err(), "a socket is no memory");
    assert!(Caller::new(&memory).is_err());
    hello[7] = 2;
    send(&theirs, &hello, 1);
    assert!(socket::receive_hello(&ours).is_err(), "another version");
}

#[test]
fn an_owner_waits_for_no_client_that_does_not_receive() {
    let (ours, _theirs) = pair();
    let (_line, memory) = Answerer::new().unwrap();
    let refused = (0..1_000_000).find_map(|_| socket::answer_ask(&ours, Some(&memory)).err());
    // ETOOMANYREFS means that more descriptors are in flight than this user may have open.
    let refused = refused.unwrap();
    let too_many = rustix::io::Errno::TOOMANYREFS.raw_os_error();
    assert!(refused.kind() == ErrorKind::WouldBlock || refused.raw_os_error() == Some(too_many));
}

/// An owner that ends before it has accepted a connection, or said hello, or answered.
#[test]
fn a_client_does_not_wait_for_an_owner_that_is_gone() {
    let name = format!("meantime-gone-{}", std::process::id());
    let listener = socket::listen(&name).unwrap();
    let there = socket::connect(&name).unwrap();
    drop(listener);
    assert!(socket::receive_hello(&there).is_err());
    assert!(socket::connect(&name).is_err());
    let (ours, theirs) = pair();
    drop(theirs);
    assert!(socket::receive_hello(&ours).is_err());
    assert!(socket::ask_line(&ours).is_err());
}

/// This test needs root, to run threads as another user.
#[test]
fn another_users_process_is_told_nothing_and_not_believed() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let as_nobody = |what: &(dyn Fn() + Sync)| {
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let nobody = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                what();
            });
        });
    };
    let name = format!("meantime-other-{}", std::process::id());
    let theirs = std::sync::OnceLock::new();
    as_nobody(&|| {
        theirs.set(socket::listen(&name).unwrap()).unwrap();
    });
    assert_eq!(socket::connect(&name).unwrap_err().kind(), ErrorKind::PermissionDenied);
    drop(theirs);
    let ours = socket::listen(&name).unwrap();
    as_nobody(&|| {
        assert_eq!(socket::connect(&name).unwrap_err().kind(), ErrorKind::PermissionDenied);
    });
    assert!(socket::accept(&ours).unwrap().is_none());
}
