//! A thread's line, and whether the thread is in one of our calls.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;

use meantime_process::fork;
use meantime_shmq::client::Caller;

use crate::link::{self, Link};
use crate::report::Reason;
use crate::state;

/// Calls that go the long way after the owner refused a line.
const CALLS_WITHOUT: u32 = 1000;

thread_local! {
    static THREAD: Thread = const {
        Thread {
            is_busy: Cell::new(false),
            may_be_child: Cell::new(false),
            without: Cell::new(0),
            connection: Cell::new(0),
            caller: UnsafeCell::new(None),
        }
    };
}

/// What a thread has.
pub(crate) struct Thread {
    /// A call is in progress: a signal handler, or an allocator that we call, goes the long way.
    is_busy: Cell<bool>,
    /// The thread has called `vfork`: this may be the child, which has other descriptors.
    may_be_child: Cell<bool>,
    /// Calls that will not ask for a line.
    without: Cell<u32>,
    /// The number of the connection that the line is of.
    connection: Cell<u32>,
    /// Used only while `is_busy`.
    caller: UnsafeCell<Option<Caller>>,
}

/// Clears the flag when it is dropped.
struct Leave<'a>(&'a Cell<bool>);

impl Drop for Leave<'_> {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        self.0.set(false);
    }
}

/// Runs `body`, unless this thread is in it already, ends, or is a child's.
#[inline]
pub(crate) fn enter<R>(body: impl FnOnce(&Thread) -> Result<R, Reason>) -> Result<R, Reason> {
    let entered = THREAD.try_with(|thread| {
        if thread.is_busy.replace(true) {
            return Err(Reason::Busy);
        }
        compiler_fence(SeqCst);
        let _leave = Leave(&thread.is_busy);
        if fork::is_child() || thread.may_be_child.get() && thread.is_child() {
            return Err(Reason::Child);
        }
        body(thread)
    });
    entered.unwrap_or(Err(Reason::Busy))
}

impl Thread {
    #[cold]
    fn is_child(&self) -> bool {
        let is_owner = state::is_owner();
        if is_owner {
            self.may_be_child.set(false);
        }
        !is_owner
    }

    /// Runs `body` with this thread's line of `link`.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        link: &'static Link,
        body: impl FnOnce(&mut Caller) -> R,
    ) -> Result<R, Reason> {
        // SAFETY: only here and where the thread ends or is forgotten is it used, by one at a time:
        // a `Thread` is given only to the body of `enter`, which does not nest; nor does this
        // function, since `body` gets no `Thread` of its own.
        let caller = unsafe { &mut *self.caller.get() };
        if self.connection.get() != link.number {
            self.get(link, caller)?;
        }
        caller.as_mut().map(body).ok_or(Reason::NoLine)
    }

    #[cold]
    fn get(&self, link: &'static Link, caller: &mut Option<Caller>) -> Result<(), Reason> {
        self.connection.set(0);
        *caller = None;
        let without = self.without.get();
        if without > 0 {
            self.without.set(without - 1);
            return Err(Reason::NoLine);
        }
        let line = crate::slowly(|| link.line()).inspect_err(|reason| {
            if matches!(reason, Reason::NoLine) {
                self.without.set(CALLS_WITHOUT);
            }
        })?;
        *caller = Some(line);
        self.connection.set(link.number);
        Ok(())
    }

    /// Drops the line, which the owner has ended.
    pub(crate) fn drop_line(&self) {
        self.connection.set(0);
    }
}

impl Drop for Thread {
    /// The thread ends.
    fn drop(&mut self) {
        self.is_busy.set(true);
        let Some(line) = self.caller.get_mut().take() else { return };
        if fork::is_child() || !state::is_owner() {
            // The child of a vfork has the parent's memory.
            return std::mem::forget(line);
        }
        match link::current() {
            Some(link) if link.number == self.connection.get() => {
                crate::slowly(|| link.keep(line));
            }
            _ => drop(line),
        }
    }
}

/// Notes that this thread calls `vfork`.
pub(crate) fn may_be_child() {
    let _ = THREAD.try_with(|thread| thread.may_be_child.set(true));
}

/// In a child, which has only this thread: its line is the parent's. (A call that a signal handler
/// has interrupted to fork may be using it still, so it is dropped later.)
pub(crate) fn forget() {
    let _ = THREAD.try_with(|thread| {
        thread.connection.set(0);
        thread.without.set(0);
        thread.may_be_child.set(false);
    });
}
