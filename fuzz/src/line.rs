//! A client that stores anything anywhere in its line, between the steps of the owner that serves
//! it. The owner takes what is a request and nothing else, stores only its own words and the data
//! of a reply, and neither panics nor hangs.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Input;
use meantime_shm_rpc::message::{FLAGS, Op, Reply, Request, Status};
use meantime_shm_rpc::owner::Answerer;
use meantime_shm_rpc::{DATA_BYTES, Ended};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Words of the head, by their place: a request (its words of 64 bits in two halves), a reply, and
/// who sleeps. `crates/shm-rpc/src/layout.rs` has the structure.
const NUMBER: usize = 0;
const OP: usize = 1;
const FLAG_WORD: usize = 2;
const LEN: usize = 3;
const HANDLE: usize = 4;
const OFFSET: usize = 6;
const CLOSINGS: usize = 10;
const REPLY_NUMBER: usize = 16;
const STATUS: usize = 17;
const RESULT: usize = 18;
const END: usize = 20;
const OWNERS_CPU: usize = 22;
const ENDED: usize = 23;
const CLIENT_PARKED: usize = 32;
const OWNER_PARKED: usize = 48;
const HEAD: usize = 64;
/// The data, in words.
const DATA: usize = 1024;
const WORDS: usize = DATA + DATA_BYTES / 4;

/// The client's mapping of a line.
struct Words(NonNull<AtomicU32>);

impl Words {
    fn new(memory: &OwnedFd) -> Self {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let begin = unsafe {
            mmap(std::ptr::null_mut(), WORDS * 4, protection, MapFlags::SHARED, memory, 0)
        };
        Self(NonNull::new(begin.expect("the line's memory").cast()).expect("an address"))
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at < WORDS);
        // SAFETY: it is in the mapping. The owner uses it as an atomic, or copies its bytes while
        // nobody stores: all is on one thread.
        unsafe { self.0.add(at).as_ref() }
    }

    fn load(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Relaxed)
    }

    fn load64(&self, at: usize) -> u64 {
        u64::from(self.load(at)) | u64::from(self.load(at + 1)) << 32
    }

    fn store(&self, at: usize, value: u32) {
        self.word(at).store(value, Ordering::Relaxed);
    }

    fn head(&self) -> [u32; HEAD] {
        std::array::from_fn(|at| self.load(at))
    }

    /// The request that the words are after the `old`th, if they are one.
    fn request(&self, old: u32) -> Option<Request> {
        let op = match self.load(OP) {
            1 => Op::Read,
            2 => Op::Write,
            3 => Op::SyncData,
            4 => Op::SyncAll,
            5 => Op::Truncate,
            6 => Op::Attributes,
            7 => Op::Leave,
            _ => return None,
        };
        let (flags, len) = (self.load(FLAG_WORD), self.load(LEN));
        let (handle, offset) = (self.load64(HANDLE), self.load64(OFFSET));
        let closings = self.load64(CLOSINGS);
        let is_valid = flags <= FLAGS && len <= 1 << 20 && self.load(NUMBER) == old.wrapping_add(1);
        is_valid.then_some(Request { op, flags, handle, closings, offset, len })
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no reference outlives `self`.
        unsafe { munmap(self.0.as_ptr().cast(), WORDS * 4).expect("it was mapped") };
    }
}

/// Asserts that of the head nothing but `but` has changed.
fn assert_kept(words: &Words, before: &[u32; HEAD], but: &[usize]) {
    for (at, value) in before.iter().enumerate() {
        assert!(but.contains(&at) || words.load(at) == *value, "word {at}");
    }
}

/// Checks what comes of one input.
pub fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (line, memory) = Answerer::new().expect("a line");
    let words = Words::new(&memory);
    let end = line.end();
    let mut line = Some(line);
    let mut number = 0_u32;
    let mut is_ended = false;
    let mut data = vec![0; DATA_BYTES];
    while let (Some(owner), false) = (&mut line, input.is_empty()) {
        let before = words.head();
        match input.u8() % 10 {
            // The client: anything in the head, anything anywhere, what may mean something.
            0 => words.store(usize::from(input.u8()) % HEAD, input.u32()),
            1 => words.store(input.u32() as usize % WORDS, input.u32()),
            2 => {
                let at = input.pick(&[NUMBER, OP, FLAG_WORD, LEN, REPLY_NUMBER, ENDED]);
                let some = [0, 1, 2, 6, 7, 0x1f, 0x20, 1 << 20, (1 << 20) + 1, 1 << 31, u32::MAX];
                words.store(at, input.pick(&some));
            }
            3 => {
                words.store(OP, 1 + u32::from(input.u8()) % 6);
                words.store(FLAG_WORD, u32::from(input.u8()) & FLAGS);
                words.store(LEN, u32::from(input.u16()) << 4);
                words.store(NUMBER, number.wrapping_add(1));
            }
            4 => words.store(input.pick(&[CLIENT_PARKED, OWNER_PARKED]), input.u8().into()),
            // The owner. It waits if there is nothing, so then it is not asked.
            5 | 6 => {
                if words.load(NUMBER) == number && !is_ended {
                    continue;
                }
                let expected = words.request(number).filter(|_| !is_ended).ok_or(Ended);
                assert_eq!(owner.next(), expected);
                match expected {
                    Ok(_) => number = number.wrapping_add(1),
                    Err(Ended) => is_ended = true,
                }
                assert_kept(&words, &before, &[OWNER_PARKED]);
            }
            7 => {
                let len = usize::from(input.u16());
                owner.take(&mut data[..len]);
                for (at, four) in data[..len & !3].chunks(4).enumerate() {
                    assert_eq!(u32::from_ne_bytes(four.try_into().unwrap()), words.load(DATA + at));
                }
                assert_kept(&words, &before, &[]);
            }
            8 => {
                let (len, byte) = (usize::from(input.u8()) * 4, input.u8());
                data[..len].fill(byte);
                let after = words.load(DATA + len / 4);
                owner.give(&data[..len]);
                assert!((0..len / 4).all(|at| words.load(DATA + at).to_ne_bytes() == [byte; 4]));
                assert_eq!(words.load(DATA + len / 4), after);
                assert_kept(&words, &before, &[]);
            }
            _ if input.u8() == 0 => {
                end.end();
                is_ended = true;
                assert_kept(&words, &before, &[OWNER_PARKED]);
            }
            _ => {
                let status = input.pick(&[
                    Status::Done,
                    Status::Resized,
                    Status::Long,
                    Status::Left,
                    Status::Stale,
                ]);
                let reply = Reply { status, result: input.u64() as i64, end: input.u64() };
                owner.answer(&reply);
                assert_eq!((words.load(REPLY_NUMBER), words.load(STATUS)), (number, status as u32));
                assert_eq!(words.load64(RESULT) as i64, reply.result);
                assert_eq!(words.load64(END), reply.end);
                let theirs = [REPLY_NUMBER, STATUS, RESULT, RESULT + 1, END, END + 1, OWNERS_CPU];
                assert_kept(&words, &before, &[&theirs[..], &[CLIENT_PARKED]].concat());
            }
        }
        if is_ended && input.u8() == 0 {
            line = None;
        }
    }
    drop(line);
    assert_eq!(words.load(ENDED), 1);
}
