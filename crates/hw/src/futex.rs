//! A word that a thread can sleep on until another thread changes it.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

use super::kernel_time::timespec;

/// A word that threads of one process sleep on.
#[derive(Debug, Default)]
pub struct Futex(AtomicU32);

impl Futex {
    /// The word's value.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Takes its value, and leaves 0.
    pub fn take(&self) -> u32 {
        self.0.swap(0, Ordering::AcqRel)
    }

    /// Sets the word and wakes a thread that sleeps on it.
    pub fn set(&self, value: u32) {
        self.0.store(value, Ordering::Release);
        // Fails if no thread sleeps on it.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
    }

    /// Changes the word to a value that it has not had recently, and wakes every thread that sleeps
    /// on it.
    pub fn advance(&self) {
        self.0.fetch_add(1, Ordering::Release);
        // Fails if no thread sleeps on it.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    /// Sleeps while the word is `value`, for `timeout_ns` at most. The sleep may end early, for
    /// example by a signal, so the caller checks again.
    pub fn wait(&self, value: u32, timeout_ns: u64) {
        let timeout = timespec(timeout_ns);
        // Timed out, interrupted, or the word has changed: the caller checks the word in each case.
        let _ = futex::wait(&self.0, futex::Flags::PRIVATE, value, Some(&timeout));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_before_the_sleep_is_not_missed() {
        let futex = Futex::default();
        futex.set(1);
        // This would be an hour.
        futex.wait(0, 3_600_000_000_000);
        std::thread::scope(|scope| {
            scope.spawn(|| futex.set(2));
            while futex.get() == 1 {
                futex.wait(1, 3_600_000_000_000);
            }
        });
        assert_eq!(futex.get(), 2);
    }
}
