//! The client's end of a line.

#![expect(unsafe_code, reason = "copies from and to the memory of a C program")]

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use crate::Ended;
use crate::layout::{DATA_AT, DATA_BYTES, LINE_BYTES, Line};
use crate::memory::Mapping;
use crate::message::{Reply, Request};
use crate::patience::{Patience, cpu};
use crate::sync::Ordering;

/// The longest time for which a client spins for a reply.
const SPIN: Duration = Duration::from_micros(100);

/// One thread's line to the owner.
#[derive(Debug)]
pub struct Caller {
    memory: Mapping,
    /// The number of the last request.
    pub(crate) number: u32,
    patience: Patience,
    /// A request was not answered.
    is_lost: bool,
}

impl Caller {
    /// Maps the line that the owner passed as `memory`.
    ///
    /// # Errors
    /// Of mmap(2); `InvalidData` if it is no line, or one that was used.
    pub fn new(memory: &OwnedFd) -> io::Result<Self> {
        let memory = Mapping::of(memory.as_fd(), LINE_BYTES, false)?;
        let caller = Self { memory, number: 0, patience: Patience::new(SPIN), is_lost: false };
        // A line that was used has replies that would be taken for ours.
        let line = caller.line();
        let is_new = !line.has_request_after(0) && !line.is_over(1);
        if is_new { Ok(caller) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    fn line(&self) -> &Line {
        self.memory.at(0)
    }

    /// Copies `len` bytes from `bytes` to the line's data, at `at`, for the next call. Does nothing
    /// if the line is lost, where the owner may still be using the data of the last call.
    ///
    /// # Panics
    /// If they are not within [`DATA_BYTES`].
    ///
    /// # Safety
    /// `bytes` can be read for `len` bytes.
    pub unsafe fn put(&mut self, at: usize, bytes: *const u8, len: usize) {
        assert!(at <= DATA_BYTES && len <= DATA_BYTES - at);
        if self.is_lost {
            return;
        }
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
    /// A call that does not return (a panic of `is_alive`, a `siglongjmp`) loses the line, as an
    /// error does: the owner may still be executing it, with the line's data.
    ///
    /// # Errors
    /// [`Ended`]: whether the request was executed is unknown, but if the line was lost before.
    #[inline]
    pub fn call(&mut self, request: &Request, is_alive: impl Fn() -> bool) -> Result<Reply, Ended> {
        if self.is_lost {
            return Err(Ended);
        }
        self.is_lost = true;
        let here = cpu();
        let line: &Line = self.memory.at(0);
        self.number = self.number.wrapping_add(1);
        let number = self.number;
        line.ask(number, request, here);
        let is_same_cpu = line.reply.cpu.load(Ordering::Relaxed) == here;
        if !self.patience.spin(is_same_cpu, || line.is_over(number)) {
            line.sleep_until_over(number, is_alive);
        }
        let reply = line.reply_to(number, request)?;
        self.is_lost = false;
        Ok(reply)
    }

    /// Returns whether the line is of no more use.
    pub fn has_ended(&self) -> bool {
        self.is_lost || self.line().has_ended()
    }
}
