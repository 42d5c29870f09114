//! The operations of both sides on the words of a line.
//!
//! They do not depend on memory or spinning, so loom can model them (`loom_model`).

use std::time::Duration;

use crate::Ended;
use crate::layout::{DATA_BYTES, Line};
use crate::message::{FLAGS, Op, Reply, Request, Status};
use crate::sync::{AtomicBool, Ordering};

/// Time between two checks whether the owner is alive.
const CHECK: Duration = Duration::from_millis(200);
/// The owner's longest sleep. It bounds the effect of a client that clears the owner's word, or
/// ends before it wakes the owner.
const SLEEP: Duration = Duration::from_secs(1);
/// The number of sleeps in a row that a client may end early without a request. A good client does
/// so once, by a wake that is late. A client that always clears the owner's word would make the
/// owner run all the time.
const EARLY: u32 = 1000;

/// The client's side.
impl Line {
    /// Asks for `request`, which is the line's request `number`. Its data are already there.
    #[inline]
    pub(crate) fn ask(&self, number: u32, request: &Request, cpu: u32) {
        let words = &self.request;
        words.op.store(request.op as u32, Ordering::Relaxed);
        words.flags.store(request.flags, Ordering::Relaxed);
        words.len.store(request.len, Ordering::Relaxed);
        words.handle.store(request.handle, Ordering::Relaxed);
        words.offset.store(request.offset, Ordering::Relaxed);
        words.closings.store(request.closings, Ordering::Relaxed);
        words.cpu.store(cpu, Ordering::Relaxed);
        // Release: the owner that sees the number sees the request, and its data.
        words.number.store(number, Ordering::Release);
        self.owner.wake();
    }

    /// Returns whether the request was answered, or will never be answered.
    #[inline]
    pub(crate) fn is_over(&self, number: u32) -> bool {
        // Acquire: with the number come the reply and its data, and with the end come all replies.
        self.reply.number.load(Ordering::Acquire) == number || self.has_ended()
    }

    /// Returns whether the request was answered.
    #[cfg(not(loom))]
    pub(crate) fn is_answered(&self, number: u32) -> bool {
        // Acquire: as in `is_over`.
        self.reply.number.load(Ordering::Acquire) == number
    }

    /// Wakes the owner for a request for which it may not have been woken.
    #[cfg(not(loom))]
    pub(crate) fn remind(&self) {
        self.owner.wake_surely();
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.reply.ended.load(Ordering::Acquire) != 0
    }

    /// Sleeps until the request is over, or the owner is not alive.
    pub(crate) fn sleep_until_over(&self, number: u32, is_alive: impl Fn() -> bool) {
        while !self.is_over(number) {
            self.client.sleep(CHECK, || self.is_over(number));
            // A reply that the owner stored before its end is there, because `reply_to` checks
            // after this.
            if !self.is_over(number) && !is_alive() {
                break;
            }
        }
    }

    /// Returns the reply to `request`, which has `number`.
    ///
    /// # Errors
    /// Fails if there is no reply, or it is not one to this request.
    #[inline]
    pub(crate) fn reply_to(&self, number: u32, request: &Request) -> Result<Reply, Ended> {
        let words = &self.reply;
        // Acquire: as in `is_over`.
        if words.number.load(Ordering::Acquire) != number {
            return Err(Ended);
        }
        let status = Status::of(words.status.load(Ordering::Relaxed)).ok_or(Ended)?;
        let result = words.result.load(Ordering::Relaxed);
        let end = words.end.load(Ordering::Relaxed);
        let is_transfer = matches!(request.op, Op::Read | Op::Write);
        if is_transfer && result > i64::from(request.len) {
            return Err(Ended);
        }
        Ok(Reply { status, result, end })
    }
}

/// The owner's side.
impl Line {
    /// Returns whether there is a request after request `old`.
    #[inline]
    pub(crate) fn has_request_after(&self, old: u32) -> bool {
        // Acquire: with the number come the request, and its data.
        self.request.number.load(Ordering::Acquire) != old
    }

    /// Sleeps until there is a request after request `old`, or `is_ended`.
    ///
    /// # Errors
    /// Fails if the client does not let the owner sleep.
    pub(crate) fn sleep_until_asked(&self, old: u32, is_ended: &AtomicBool) -> Result<(), Ended> {
        // The load is relaxed, because a caller that sees the end loads it again with Acquire.
        let is_there = || self.has_request_after(old) || is_ended.load(Ordering::Relaxed);
        let mut early = 0;
        while !is_there() {
            let has_passed = self.owner.sleep(SLEEP, is_there);
            early = if has_passed { 0 } else { early + 1 };
            if early > EARLY {
                return Err(Ended);
            }
        }
        Ok(())
    }

    /// Returns the request after request `old`.
    ///
    /// # Errors
    /// Fails if it is no request, or if the line `is_ended`.
    #[inline]
    pub(crate) fn request_after(&self, old: u32, is_ended: &AtomicBool) -> Result<Request, Ended> {
        // Acquire: this side sees what was done before the line was ended. The check comes first,
        // so that no request is taken that came after the end.
        if is_ended.load(Ordering::Acquire) {
            return Err(Ended);
        }
        let words = &self.request;
        // Acquire, as in `has_request_after`. Each word is loaded once, and only these copies are
        // checked and used.
        let number = words.number.load(Ordering::Acquire);
        let op = Op::of(words.op.load(Ordering::Relaxed)).ok_or(Ended)?;
        let request = Request {
            op,
            flags: words.flags.load(Ordering::Relaxed),
            handle: words.handle.load(Ordering::Relaxed),
            offset: words.offset.load(Ordering::Relaxed),
            closings: words.closings.load(Ordering::Relaxed),
            len: words.len.load(Ordering::Relaxed),
        };
        let is_next = number == old.wrapping_add(1);
        let is_valid = request.flags & !FLAGS == 0 && request.len as usize <= DATA_BYTES;
        if is_next && is_valid { Ok(request) } else { Err(Ended) }
    }

    /// Answers request `number`. The reply's data are already there.
    #[inline]
    pub(crate) fn answer(&self, number: u32, reply: &Reply, cpu: u32) {
        let words = &self.reply;
        words.status.store(reply.status as u32, Ordering::Relaxed);
        words.result.store(reply.result, Ordering::Relaxed);
        words.end.store(reply.end, Ordering::Relaxed);
        words.cpu.store(cpu, Ordering::Relaxed);
        // Release: the client that sees the number sees the reply, and its data.
        words.number.store(number, Ordering::Release);
        self.client.wake();
    }

    /// Ends the line, from another thread than the one that serves it.
    pub(crate) fn end(&self, is_ended: &AtomicBool) {
        is_ended.store(true, Ordering::Release);
        // The client may have stored anything in the word that says whether the owner sleeps.
        self.owner.wake_surely();
    }

    /// Tells the client that there will be no more replies.
    pub(crate) fn tell_end(&self) {
        // Release: the client that sees it sees all replies.
        self.reply.ended.store(1, Ordering::Release);
        self.client.wake_surely();
    }
}
