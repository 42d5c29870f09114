//! What a call costs that hands over 4 KiB, beside the least it can cost between two CPUs: a word
//! that says "do", the copy of 4 KiB by the other side, a word that says "done", and a copy out of
//! memory that the other CPU has just written. In turns, in one process.
//!
//! `cargo bench -p meantime-shm-rpc --bench call -- [--json] [ROUNDS [CLIENT_CPU OWNER_CPU]]`

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use meantime_shm_rpc::client::Caller;
use meantime_shm_rpc::message::{Op, Reply, Request};
use meantime_shm_rpc::owner::Answerer;

const BYTES: usize = 4096;
const CALLS: u64 = 20_000;

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).expect("the CPU exists");
}

/// A word in a cache line of its own.
#[repr(align(64))]
struct Word(AtomicU64);

/// Measures the least that a call can cost, in ns: two words, and two copies.
fn hand_over_ns(owner: usize) -> f64 {
    let (asked, done) = (Word(AtomicU64::new(0)), Word(AtomicU64::new(0)));
    let shared: Vec<AtomicU8> = (0..BYTES).map(|_| AtomicU8::new(0)).collect();
    let at = shared.as_ptr().cast::<u8>().cast_mut() as usize;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            pin(owner);
            let own = black_box([7_u8; BYTES]);
            for number in 1..=CALLS {
                while asked.0.load(Ordering::Acquire) != number {
                    spin_loop();
                }
                // SAFETY: `shared` lives, and the other thread uses it only after `done`.
                unsafe { std::ptr::copy_nonoverlapping(own.as_ptr(), at as *mut u8, BYTES) };
                done.0.store(number, Ordering::Release);
            }
        });
        let mut mine = [0_u8; BYTES];
        let mut begun = Instant::now();
        for number in 1..=CALLS {
            if number == CALLS / 2 {
                begun = Instant::now();
            }
            asked.0.store(number, Ordering::Release);
            while done.0.load(Ordering::Acquire) != number {
                spin_loop();
            }
            // SAFETY: as above: the other thread waits for the next number.
            unsafe { std::ptr::copy_nonoverlapping(at as *const u8, mine.as_mut_ptr(), BYTES) };
            black_box(&mut mine);
        }
        begun.elapsed().as_nanos() as f64 / (CALLS / 2) as f64
    })
}

/// A read of 4 KiB by a line whose owner has them. In ns.
fn call_ns(owner: usize) -> f64 {
    let (mut line, memory) = Answerer::new().expect("memory");
    let mut caller = Caller::new(&memory).expect("a line");
    let answering = std::thread::spawn(move || {
        pin(owner);
        let own = black_box([7_u8; BYTES]);
        for _ in 0..CALLS {
            line.next().expect("a request");
            line.give(&own);
            line.answer(&Reply::done(BYTES as i64, 0));
        }
    });
    let len = BYTES as u32;
    let request = Request { op: Op::Read, flags: 0, handle: 1, closings: 0, offset: 0, len };
    let mut mine = [0_u8; BYTES];
    let mut begun = Instant::now();
    for number in 1..=CALLS {
        if number == CALLS / 2 {
            begun = Instant::now();
        }
        caller.call(&request, || true).expect("a reply");
        // SAFETY: there is room.
        unsafe { caller.get(0, mine.as_mut_ptr(), BYTES) };
        black_box(&mut mine);
    }
    let ns = begun.elapsed().as_nanos() as f64 / (CALLS / 2) as f64;
    answering.join().expect("the owner ends");
    ns
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let is_json = args.first().is_some_and(|arg| arg == "--json");
    args.drain(..usize::from(is_json));
    let number = |at: usize, usual| {
        args.get(at).map_or(usual, |arg| arg.parse().expect("ROUNDS [CLIENT_CPU OWNER_CPU]"))
    };
    let (rounds, client, owner): (usize, usize, usize) =
        (number(0, 21), number(1, 1), number(2, 0));
    pin(client);
    let (mut floors, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        floors.push(hand_over_ns(owner));
        calls.push(call_ns(owner));
    }
    let mut over: Vec<f64> = floors.iter().zip(&calls).map(|(floor, call)| call - floor).collect();
    let (floor, call, over) = (median(&mut floors), median(&mut calls), median(&mut over));
    if is_json {
        println!(r#"{{"hand_over_ns": {floor:.0}, "call_ns": {call:.0}}}"#);
    } else {
        println!("4 KiB between CPU {client} and CPU {owner}, {rounds} rounds:");
        println!("  the least            {floor:6.0} ns");
        println!("  a call               {call:6.0} ns, {over:.0} ns more");
    }
}
