//! Calls between two threads, as between two processes.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use meantime_shm_rpc::client::Caller;
use meantime_shm_rpc::message::{Op, Reply, Request, Status};
use meantime_shm_rpc::owner::Answerer;
use meantime_shm_rpc::{DATA_BYTES, Ended, socket};

fn request(op: Op, len: usize) -> Request {
    Request { op, flags: 0, handle: 5, closings: 3, offset: 77, len: len as u32 }
}

/// Answers writes with the sum of the bytes as `end`, and reads with bytes of 7, until the line
/// ends.
fn serve(mut line: Answerer) {
    let mut bytes = vec![0; DATA_BYTES];
    while let Ok(request) = line.next() {
        let bytes = &mut bytes[..request.len as usize];
        let reply = match request.op {
            Op::Write => {
                line.take(bytes);
                let sum = bytes.iter().map(|byte| u64::from(*byte)).sum();
                Reply::done(bytes.len() as i64, sum)
            }
            Op::Read => {
                bytes.fill(7);
                line.give(bytes);
                Reply::done(bytes.len() as i64, request.offset)
            }
            _ => Reply::done(-i64::from(libc::EINVAL), 0),
        };
        line.answer(&reply);
    }
}

#[test]
fn each_call_gets_its_own_reply_and_data() {
    let (line, memory) = Answerer::new().unwrap();
    let end = line.end();
    let owner = std::thread::spawn(move || serve(line));
    let mut caller = Caller::new(&memory).unwrap();
    for round in 0..20_000_u32 {
        let len = [1, 64, 4096, 10_000][round as usize % 4];
        let data = vec![round as u8; len];
        // SAFETY: `data` is that long.
        unsafe { caller.put(0, data.as_ptr(), len) };
        let reply = caller.call(&request(Op::Write, len), || true).unwrap();
        assert_eq!(reply, Reply::done(len as i64, u64::from(round as u8) * len as u64));
        if round % 1000 == 0 {
            // Longer than the owner spins.
            std::thread::sleep(Duration::from_millis(3));
            let reply = caller.call(&request(Op::Read, DATA_BYTES), || true).unwrap();
            let mut data = vec![0; DATA_BYTES];
            // SAFETY: `data` is that long.
            unsafe { caller.get(0, data.as_mut_ptr(), DATA_BYTES) };
            assert_eq!((reply.status, reply.result), (Status::Done, DATA_BYTES as i64));
            assert!(data.iter().all(|byte| *byte == 7));
        }
    }
    end.end();
    owner.join().unwrap();
    assert!(caller.has_ended());
    assert_eq!(caller.call(&request(Op::Read, 1), || true), Err(Ended));
}

#[test]
fn an_owner_that_is_gone_ends_a_call() {
    let (line, memory) = Answerer::new().unwrap();
    let mut caller = Caller::new(&memory).unwrap();
    // The owner ends like a killed process: nothing is stored.
    std::mem::forget(line);
    let begun = Instant::now();
    assert_eq!(caller.call(&request(Op::SyncAll, 0), || false), Err(Ended));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn client_and_owner_meet() {
    let name = format!("meantime-test-{}", std::process::id());
    let listener = socket::listen(&name).unwrap();
    let closings = meantime_shm_rpc::closings::Closings::new().unwrap();
    let owner = std::thread::spawn(move || {
        let client = socket::accept(&listener).unwrap().unwrap();
        socket::say_hello(&client, &[9; 16], closings.for_clients()).unwrap();
        assert!(socket::wait_for_ask(&client).unwrap());
        let (line, memory) = Answerer::new().unwrap();
        socket::answer_ask(&client, Some(&memory)).unwrap();
        let server = std::thread::spawn(move || serve(line));
        assert!(socket::wait_for_ask(&client).unwrap());
        socket::answer_ask(&client, None).unwrap();
        assert!(!socket::wait_for_ask(&client).unwrap(), "closed");
        server
    });
    let there = socket::connect(&name).unwrap();
    let (nonce, memory) = socket::receive_hello(&there).unwrap();
    assert_eq!(nonce, [9; 16]);
    meantime_shm_rpc::closings::ClosingsView::new(&memory).unwrap();
    let line = socket::ask_line(there.as_fd()).unwrap();
    let mut caller = Caller::new(&line).unwrap();
    assert_eq!(caller.call(&request(Op::Read, 3), || true).unwrap().result, 3);
    assert!(socket::ask_line(&there).is_err(), "refused");
    drop(there);
    drop(owner.join().unwrap());
}
