//! Locking, where poisoning is ignored: what the locks protect is consistent after each step.

use std::sync::PoisonError;

use meantime_process::lock::{Mutex, MutexGuard};

/// Locks.
pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
