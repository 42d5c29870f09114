//! A thread's line, and whether the thread is in one of our calls.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;

use meantime_process::{fork, thread as process_thread};
use meantime_shm_rpc::client::Caller;

use crate::link::{self, Link};
use crate::report::Reason;
use crate::state;

/// The number of calls that take the FUSE path after the owner refused a line.
const CALLS_WITHOUT: u32 = 1000;

/// The value in the frame of a call that is in progress.
const IN_PROGRESS: usize = 0x6d65_616e_7469_6d65;
/// A frame of an ending thread, which is in no stack.
const ENDING: usize = usize::MAX;

/// The minimum distance between the frames of a call and of a handler that interrupts it on the
/// same stack, in bytes. It is what the kernel saves for the handler (1084 with the area below the
/// stack pointer on x86-64, more than 4 KiB on AArch64).
const SIGNAL_BYTES: usize = 1024;

thread_local! {
    static THREAD: Thread = const {
        Thread {
            frame: Cell::new(0),
            may_be_child: Cell::new(false),
            without: Cell::new(0),
            connection: Cell::new(0),
            stack: UnsafeCell::new(0..0),
            caller: UnsafeCell::new(None),
        }
    };
}

/// The state of a thread.
pub(crate) struct Thread {
    /// The address of the [`Frame`] of the call in progress, or 0 if there is none. A signal
    /// handler, or an allocator that we call, takes the FUSE path meanwhile.
    frame: Cell<usize>,
    /// Whether the thread has called `vfork`, so that this may be the child, which has other
    /// descriptors.
    may_be_child: Cell<bool>,
    /// The number of calls that will not ask for a line.
    without: Cell<u32>,
    /// The number of the connection to which the line belongs.
    connection: Cell<u32>,
    /// The thread's own stack. It is empty until the thread has asked for a line, or seems to have
    /// left a call.
    stack: UnsafeCell<Range<usize>>,
    /// The line. Only the call in progress uses it.
    caller: UnsafeCell<Option<Caller>>,
}

/// Says, on the stack, that the call with this frame is in progress. No other code writes there as
/// long as the call is.
struct Frame(UnsafeCell<usize>);

impl Frame {
    #[inline]
    fn at(&self) -> usize {
        self.0.get() as usize
    }

    #[inline]
    fn begin(&self) {
        // SAFETY: our own, of which there is no reference. Volatile: `is_left` reads it where the
        // compiler does not see that.
        unsafe { self.0.get().write_volatile(IN_PROGRESS) };
    }
}

/// Notes the end of the call when it is dropped.
struct Leave<'a>(&'a Cell<usize>);

impl Drop for Leave<'_> {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        self.0.set(0);
    }
}

/// Runs `body`, unless this thread is already in a call, is ending, or is a child's.
#[inline]
pub(crate) fn enter<R>(body: impl FnOnce(&Thread) -> Result<R, Reason>) -> Result<R, Reason> {
    let frame = Frame(UnsafeCell::new(0));
    let entered = THREAD.try_with(|thread| {
        if thread.frame.get() != 0 && !thread.is_left(frame.at()) {
            return Err(Reason::Busy);
        }
        frame.begin();
        thread.frame.set(frame.at());
        compiler_fence(SeqCst);
        let _leave = Leave(&thread.frame);
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

    /// Returns whether the call that is in progress according to `self.frame` was left by a signal
    /// handler (`siglongjmp`). `here` is the frame of the call that begins. The result is false
    /// where that is not certain, and this call then takes the FUSE path.
    ///
    /// Code that interrupts a call runs between the begin and the end of its frame. It is an
    /// allocator, or anything else that our code calls where others' functions may be called
    /// (`slowly`). Or it is a signal handler, on the same stack, on one of its own, or on that of a
    /// coroutine to which it has switched. A call that was left is over, so
    /// - other code has used its frame's memory for something else, which is enough; or
    /// - this call's frame is above or about where that one is, on the thread's own stack. A
    ///   handler's frame would be below it, by what the kernel saves, or elsewhere: on a stack for
    ///   signals, for which the kernel is asked, or on another one. Two cases are not known: a
    ///   stack inside the thread's own one to which a handler switches while a call is in progress,
    ///   and one for signals there with SS_AUTODISARM.
    #[cold]
    #[inline(never)]
    fn is_left(&self, here: usize) -> bool {
        if process_thread::is_ours() {
            return false;
        }
        crate::slowly(|| self.look_at_stack());
        let frame = self.frame.get();
        // SAFETY: it was changed above for the last time.
        let stack = unsafe { &*self.stack.get() };
        if !stack.contains(&frame) {
            return false;
        }
        // SAFETY: a place in this thread's stack that was in use, so its page is there.
        if unsafe { (frame as *const usize).read_volatile() } != IN_PROGRESS {
            return true;
        }
        stack.contains(&here) && here + SIGNAL_BYTES > frame && !is_on_signal_stack()
    }

    /// Finds out once which stack this thread has.
    #[cold]
    fn look_at_stack(&self) {
        // SAFETY: there is no reference to it: only `is_left` makes one, later. Signals are
        // blocked.
        unsafe {
            if (*self.stack.get()).is_empty() {
                *self.stack.get() = own_stack();
            }
        }
    }

    /// Runs `body` with this thread's line of `link`.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        link: &'static Link,
        body: impl FnOnce(&mut Caller) -> R,
    ) -> Result<R, Reason> {
        // SAFETY: only here and where the thread ends or is forgotten is it used, by one at a time:
        // a `Thread` is given only to the body of `enter`, which does not nest (what was left is
        // over); nor does this function, since `body` gets no `Thread` of its own.
        let caller = unsafe { &mut *self.caller.get() };
        if self.connection.get() != link.number {
            // A handler must not leave a line half stored.
            crate::slowly(|| self.get(link, caller))?;
        }
        let caller = caller.as_mut().ok_or(Reason::NoLine)?;
        if caller.was_left() {
            self.recover(link, caller)?;
        }
        Ok(body(caller))
    }

    /// Makes the owner end the call that was left on this line.
    #[cold]
    fn recover(&self, link: &'static Link, caller: &mut Caller) -> Result<(), Reason> {
        crate::slowly(|| caller.recover(|| link.is_alive())).map_err(|_| {
            self.drop_line();
            Reason::Ended
        })
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
        let line = link.line().inspect_err(|reason| {
            if matches!(reason, Reason::NoLine) {
                self.without.set(CALLS_WITHOUT);
            }
        })?;
        self.look_at_stack();
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
    /// Handles the end of the thread.
    fn drop(&mut self) {
        self.frame.set(ENDING);
        let Some(mut line) = self.caller.get_mut().take() else { return };
        if fork::is_child() || !state::is_owner() {
            // The child of a vfork has the parent's memory.
            return std::mem::forget(line);
        }
        match link::current() {
            Some(link) if link.number == self.connection.get() => crate::slowly(|| {
                if !line.was_left() || line.recover(|| link.is_alive()).is_ok() {
                    link.keep(line);
                }
            }),
            _ => drop(line),
        }
    }
}

/// Returns the stack with which this thread was started, or an empty range if it is not known.
fn own_stack() -> Range<usize> {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: attributes that the C library has filled are asked, and given back.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return 0..0;
        }
        let (mut begin, mut bytes) = (std::ptr::null_mut(), 0);
        let said = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut begin, &raw mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        if said == 0 { begin as usize..begin as usize + bytes } else { 0..0 }
    }
}

/// Returns whether this is a signal handler's call, on a stack for signals.
fn is_on_signal_stack() -> bool {
    let mut stack = MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: nothing is set; a call that succeeds has written the answer.
    unsafe {
        libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) != 0
            || stack.assume_init().ss_flags & libc::SS_ONSTACK != 0
    }
}

/// Notes that this thread calls `vfork`.
pub(crate) fn may_be_child() {
    let _ = THREAD.try_with(|thread| thread.may_be_child.set(true));
}

/// Is called in a child, which has only this thread. Its line is the parent's. A call that a
/// signal handler has interrupted to fork may still be using it, so it is dropped later.
pub(crate) fn forget() {
    let _ = THREAD.try_with(|thread| {
        thread.connection.set(0);
        thread.without.set(0);
        thread.may_be_child.set(false);
    });
}
