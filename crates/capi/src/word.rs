//! Words of memory that a group waits for.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use meantime_block::Watch;
use meantime_hw::EventFd;

use crate::abi::Word;
use crate::error::{Answer, Failed, fail, misuse};
use crate::guard::guarded;

/// A word of a group.
pub struct Watched {
    value: *const AtomicU64,
    seen: *const AtomicU64,
    parked: *const AtomicU32,
    event: EventFd,
    /// The key that C chose.
    pub key: u64,
}

// SAFETY: any thread may read and write what the pointers name: atomically, and until the word is
// removed (header).
unsafe impl Send for Watched {}

impl Watched {
    /// Whether a group can wait for the word that C describes.
    pub fn check(call: &str, word: &Word) -> Result<(), Failed> {
        for (name, address, size) in [
            ("value", word.value.addr(), size_of::<AtomicU64>()),
            ("seen", word.seen.addr(), size_of::<AtomicU64>()),
            ("parked", word.parked.addr(), size_of::<AtomicU32>()),
        ] {
            if address == 0 {
                return Err(misuse(call, format_args!("word->{name} is NULL")));
            }
            if !address.is_multiple_of(size) {
                let what = format_args!("word->{name} is not aligned to {size} bytes");
                return Err(misuse(call, what));
            }
        }
        Ok(())
    }

    /// The word that C describes, after [`Watched::check`].
    pub fn new(word: &Word, event: EventFd, key: u64) -> Self {
        let (value, seen) = (word.value.cast(), word.seen.cast());
        Self { value, seen, parked: word.parked.cast_const().cast(), event, key }
    }

    fn set_parked(&self, parked: u32) {
        // SAFETY: `check` has seen address and alignment; the header has it stay there, and be
        // accessed atomically, until the word is removed.
        unsafe { (*self.parked).store(parked, Ordering::Relaxed) };
    }
}

impl Watch for Watched {
    fn is_ready(&mut self) -> bool {
        // SAFETY: as in `set_parked`. Relaxed loads are sound also where memory can only be read.
        let (value, seen) = unsafe {
            ((*self.value).load(Ordering::Relaxed), (*self.seen).load(Ordering::Relaxed))
        };
        if value == seen {
            return false;
        }
        // What the other side stored before the word is visible to the caller.
        fence(Ordering::Acquire);
        true
    }

    fn park(&mut self) {
        self.set_parked(1);
        // Dekker's pattern, with `changed`: each side stores, executes a full fence, and loads.
        fence(Ordering::SeqCst);
    }

    fn unpark(&mut self) {
        self.set_parked(0);
    }

    fn event(&self) -> &EventFd {
        &self.event
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mt_word_changed(parked: *const u32, event_fd: c_int) -> c_int {
    const CALL: &str = "mt_word_changed";
    guarded(CALL, || -> Answer {
        if parked.is_null() || !parked.is_aligned() {
            return Err(misuse(CALL, "parked is NULL, or not aligned to 4 bytes"));
        }
        fence(Ordering::SeqCst);
        // SAFETY: not NULL, and aligned; the header has it be what the group stores.
        if unsafe { (*parked.cast::<AtomicU32>()).load(Ordering::Relaxed) } == 0 {
            return Ok(0);
        }
        // The flag stays set, so that another thread or process that changes the word signals, too,
        // if this process is killed before it has.
        let one = 1u64;
        // SAFETY: eight bytes of a local are read.
        let wrote = unsafe { libc::write(event_fd, (&raw const one).cast(), size_of_val(&one)) };
        let error = std::io::Error::last_os_error();
        match (wrote, error.raw_os_error()) {
            // The counter is full, so the event has been signalled already.
            (8, _) | (-1, Some(libc::EAGAIN)) => Ok(0),
            (-1, Some(errno)) => {
                Err(fail(errno, format_args!("{CALL}: cannot signal {event_fd}: {error}")))
            }
            _ => Err(misuse(CALL, format_args!("{event_fd} is no event of a group"))),
        }
    })
}
