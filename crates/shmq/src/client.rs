//! The client's end of a line.

#![expect(unsafe_code, reason = "copies from and to the memory of a C program")]

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::Ended;
use crate::layout::{DATA_AT, DATA_BYTES, LINE_BYTES, Line};
use crate::memory::Mapping;
use crate::message::{Reply, Request, Status};
use crate::patience::{Patience, cpu};

/// The longest time for which a client spins for a reply.
const SPIN: Duration = Duration::from_micros(100);
/// Time between two checks whether the owner is alive.
const CHECK: Duration = Duration::from_millis(200);

/// One thread's line to the owner.
#[derive(Debug)]
pub struct Caller {
    memory: Mapping,
    number: u32,
    patience: Patience,
}

impl Caller {
    /// Maps the line that the owner passed as `memory`.
    ///
    /// # Errors
    /// Of mmap(2); `InvalidData` if it is no line.
    pub fn new(memory: &OwnedFd) -> io::Result<Self> {
        let memory = Mapping::of(memory.as_fd(), LINE_BYTES, false)?;
        Ok(Self { memory, number: 0, patience: Patience::new(SPIN) })
    }

    fn line(&self) -> &Line {
        self.memory.at(0)
    }

    /// Copies `len` bytes from `bytes` to the line's data, at `at`, for the next call.
    ///
    /// # Panics
    /// If they are not within [`DATA_BYTES`].
    ///
    /// # Safety
    /// `bytes` can be read for `len` bytes.
    pub unsafe fn put(&mut self, at: usize, bytes: *const u8, len: usize) {
        assert!(at <= DATA_BYTES && len <= DATA_BYTES - at);
        // SAFETY: the caller's promise.
        unsafe { self.memory.put_from(DATA_AT + at, bytes, len) }
    }

    /// Copies `len` bytes of the last reply's data, from `at`, to `bytes`.
    ///
    /// # Panics
    /// If they are not within [`DATA_BYTES`].
    ///
    /// # Safety
    /// `bytes` can be written for `len` bytes.
    pub unsafe fn get(&self, at: usize, bytes: *mut u8, len: usize) {
        assert!(at <= DATA_BYTES && len <= DATA_BYTES - at);
        // SAFETY: the caller's promise.
        unsafe { self.memory.get_into(DATA_AT + at, bytes, len) }
    }

    /// Has the owner execute `request`, and waits for the reply. `is_alive` is asked from time to
    /// time whether the owner's process is there.
    ///
    /// # Errors
    /// [`Ended`]: whether the request was executed is unknown.
    #[inline]
    pub fn call(&mut self, request: &Request, is_alive: impl Fn() -> bool) -> Result<Reply, Ended> {
        let here = cpu();
        let line: &Line = self.memory.at(0);
        self.number = self.number.wrapping_add(1);
        let words = &line.request;
        words.op.store(request.op as u32, Ordering::Relaxed);
        words.flags.store(request.flags, Ordering::Relaxed);
        words.len.store(request.len, Ordering::Relaxed);
        words.handle.store(request.handle, Ordering::Relaxed);
        words.offset.store(request.offset, Ordering::Relaxed);
        words.cpu.store(here, Ordering::Relaxed);
        // Release: the owner that sees the number sees the request, and its data.
        words.number.store(self.number, Ordering::Release);
        line.owner.wake();

        let number = self.number;
        // Acquire: with the number come the reply, and its data.
        let is_there = || {
            line.reply.number.load(Ordering::Acquire) == number
                || line.reply.ended.load(Ordering::Relaxed) != 0
        };
        let is_same_cpu = line.reply.cpu.load(Ordering::Relaxed) == here;
        if !self.patience.spin(is_same_cpu, is_there) {
            loop {
                line.client.sleep(CHECK, is_there);
                if is_there() {
                    break;
                }
                if !is_alive() {
                    return Err(Ended);
                }
            }
        }
        if line.reply.number.load(Ordering::Acquire) != number {
            return Err(Ended);
        }
        let status = Status::of(line.reply.status.load(Ordering::Relaxed)).ok_or(Ended)?;
        let result = line.reply.result.load(Ordering::Relaxed);
        let end = line.reply.end.load(Ordering::Relaxed);
        Ok(Reply { status, result, end })
    }

    /// Returns whether the owner has ended the line.
    pub fn has_ended(&self) -> bool {
        self.line().reply.ended.load(Ordering::Relaxed) != 0
    }
}
