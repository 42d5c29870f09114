//! Locks for which poisoning is ignored, because what they protect is consistent after each step.

use std::sync::PoisonError;

use meantime_process::lock::{Mutex, MutexGuard};

/// Takes `lock`, poisoned or not.
pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
