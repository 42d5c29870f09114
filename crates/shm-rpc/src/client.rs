//! The client's end of a line.

#![expect(unsafe_code, reason = "copies from and to the memory of a C program")]

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::compiler_fence;
use std::time::Duration;

use crate::Ended;
use crate::layout::{DATA_AT, DATA_BYTES, LINE_BYTES, Line};
use crate::memory::Mapping;
use crate::message::{Reply, Request};
use crate::patience::{Patience, cpu};
use crate::sync::Ordering;

/// The longest time for which a client spins to get a reply.
const SPIN: Duration = Duration::from_micros(100);

/// One thread's line to the owner.
#[derive(Debug)]
pub struct Caller {
    memory: Mapping,
    /// The number of the last request.
    pub(crate) number: u32,
    patience: Patience,
    state: State,
}

/// The state of a line for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// A call has begun. If this is seen while no call is in progress, the call did not return.
    InCall,
    /// A request was not answered.
    Lost,
}

impl Caller {
    /// Maps the line that the owner passed as `memory`.
    ///
    /// # Errors
    /// The errors of mmap(2); `InvalidData` if the memory is no line, or one that was used.
    pub fn new(memory: &OwnedFd) -> io::Result<Self> {
        let memory = Mapping::of(memory.as_fd(), LINE_BYTES, false)?;
        let caller = Self { memory, number: 0, patience: Patience::new(SPIN), state: State::Ready };
        // A line that was used has replies, which would be taken for ours.
        let line = caller.line();
        let is_new = !line.has_request_after(0) && !line.is_over(1);
        if is_new { Ok(caller) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    fn line(&self) -> &Line {
        self.memory.at(0)
    }

    /// Copies `len` bytes from `bytes` to the line's data, at `at`, for the next call. Does nothing
    /// if the line is lost, or if a call was left, because the owner may still be using the data of
    /// the last call.
    ///
    /// # Panics
    /// Panics if they are not within [`DATA_BYTES`].
    ///
    /// # Safety
    /// `bytes` can be read for `len` bytes.
    pub unsafe fn put(&mut self, at: usize, bytes: *const u8, len: usize) {
        assert!(at <= DATA_BYTES && len <= DATA_BYTES - at);
        if self.state != State::Ready {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.memory.put_from(DATA_AT + at, bytes, len) }
    }

    /// Copies `len` bytes of the last reply's data, from `at`, to `bytes`.
    ///
    /// # Panics
    /// Panics if they are not within [`DATA_BYTES`].
    ///
    /// # Safety
    /// `bytes` can be written for `len` bytes.
    pub unsafe fn get(&self, at: usize, bytes: *mut u8, len: usize) {
        assert!(at <= DATA_BYTES && len <= DATA_BYTES - at);
        // SAFETY: the caller's promise.
        unsafe { self.memory.get_into(DATA_AT + at, bytes, len) }
    }

    /// Makes the owner execute `request`, and waits for the reply. From time to time it calls
    /// `is_alive`, which says whether the owner's process is there.
    ///
    /// After a call that does not return (a panic of `is_alive`, a `siglongjmp`) the line [was
    /// left](Self::was_left). The owner may still be executing the call, with the line's data.
    ///
    /// # Errors
    /// [`Ended`] if the line has ended. It is unknown whether the request was executed, unless the
    /// line was lost or left before.
    #[inline]
    pub fn call(&mut self, request: &Request, is_alive: impl Fn() -> bool) -> Result<Reply, Ended> {
        if self.state != State::Ready {
            return Err(Ended);
        }
        self.state = State::InCall;
        // This precedes the change of the number, because a signal handler may leave this function
        // anywhere.
        compiler_fence(Ordering::SeqCst);
        let here = cpu();
        let line: &Line = self.memory.at(0);
        self.number = self.number.wrapping_add(1);
        let number = self.number;
        line.ask(number, request, here);
        let is_same_cpu = line.reply.cpu.load(Ordering::Relaxed) == here;
        if !self.patience.spin(is_same_cpu, || line.is_over(number)) {
            line.sleep_until_over(number, is_alive);
        }
        let reply = line.reply_to(number, request);
        self.state = if reply.is_ok() { State::Ready } else { State::Lost };
        reply
    }

    /// Returns whether a call did not return, and the line needs [`recover`](Self::recover).
    #[inline]
    pub fn was_left(&self) -> bool {
        self.state == State::InCall
    }

    /// Makes a line usable again that was left. It waits until the owner has answered the request,
    /// if the request came so far. So nothing of the line is used for two calls at once, and the
    /// calls of a thread are executed in their order. It is unknown afterwards what the owner did.
    ///
    /// # Errors
    /// [`Ended`] if the owner has ended the line, or if `is_alive` says that the owner is gone.
    #[cold]
    pub fn recover(&mut self, is_alive: impl Fn() -> bool) -> Result<(), Ended> {
        let line: &Line = self.memory.at(0);
        if line.has_request_after(self.number) {
            // The number was taken, and not stored.
            self.number = self.number.wrapping_sub(1);
        } else {
            line.remind();
            line.sleep_until_over(self.number, is_alive);
            if !line.is_answered(self.number) {
                self.state = State::Lost;
                return Err(Ended);
            }
        }
        self.state = State::Ready;
        Ok(())
    }

    /// Returns whether the line can no longer be used.
    pub fn has_ended(&self) -> bool {
        self.state == State::Lost || self.line().has_ended()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Op;
    use crate::owner::Answerer;

    fn request(offset: u64) -> Request {
        Request { op: Op::Read, flags: 0, handle: 0, closings: 0, offset, len: 1 }
    }

    #[test]
    fn a_call_that_was_left_is_over_before_its_line_is_used_again() {
        let (mut line, memory) = Answerer::new().unwrap();
        let mut caller = Caller::new(&memory).unwrap();
        let (answer, may_answer) = std::sync::mpsc::channel();
        let owner = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while let Ok(request) = line.next() {
                if request.offset == 7 {
                    may_answer.recv().unwrap();
                }
                let mut data = [0];
                line.take(&mut data);
                seen.push((request.offset, data[0]));
                line.answer(&Reply::done(1, request.offset));
            }
            seen
        });
        let put = |caller: &mut Caller, byte: u8| {
            // SAFETY: a byte can be read.
            unsafe { caller.put(0, &raw const byte, 1) };
        };
        put(&mut caller, 1);
        // The call is left as by a jump: the owner has the request, and the client no longer waits
        // for the reply.
        let left = std::panic::AssertUnwindSafe(|| caller.call(&request(7), || panic!("left")));
        assert!(std::panic::catch_unwind(left).is_err());
        assert!(caller.was_left() && !caller.has_ended());
        put(&mut caller, 2);
        assert_eq!(caller.call(&request(8), || true), Err(Ended), "the owner has its data");
        answer.send(()).unwrap();
        caller.recover(|| true).unwrap();
        put(&mut caller, 3);
        assert_eq!(caller.call(&request(9), || true), Ok(Reply::done(1, 9)));
        // The call is left before the owner has the request, at each place.
        for taken in [0, 1] {
            (caller.state, caller.number) = (State::InCall, caller.number + taken);
            caller.recover(|| true).unwrap();
            assert_eq!(caller.call(&request(10), || true), Ok(Reply::done(1, 10)));
        }
        // A call that only this side noticed is no call that was left.
        caller.number += 1;
        assert_eq!(caller.call(&request(11), || true), Err(Ended));
        assert!(!caller.was_left() && caller.has_ended());
        assert_eq!(owner.join().unwrap(), [(7, 1), (9, 3), (10, 3), (10, 3)]);
    }

    #[test]
    fn a_call_that_was_left_to_an_owner_that_is_gone_loses_the_line() {
        let (line, memory) = Answerer::new().unwrap();
        let mut caller = Caller::new(&memory).unwrap();
        std::mem::forget(line);
        let left = std::panic::AssertUnwindSafe(|| caller.call(&request(0), || panic!("left")));
        assert!(std::panic::catch_unwind(left).is_err());
        assert_eq!(caller.recover(|| false), Err(Ended));
        assert!(caller.has_ended());
    }
}
