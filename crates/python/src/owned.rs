//! What belongs to one process.

use std::mem::ManuallyDrop;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::error::{closed, misuse};

/// A value that only the process that made it uses and drops. The child of a fork has neither the
/// threads nor the device's queues: using the value there would hang, or reach into the parent's
/// I/O.
pub(crate) struct Owned<T> {
    value: ManuallyDrop<T>,
    pid: u32,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), pid: process::id() }
    }
}

impl<T> std::ops::Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> std::ops::DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.pid == process::id() {
            // SAFETY: it is dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// A place for a value until it is closed. The lock is only held for moments, never in a wait.
pub(crate) struct Slot<T: Send> {
    what: &'static str,
    pid: u32,
    value: Mutex<Option<T>>,
}

impl<T: Send> Slot<T> {
    pub(crate) fn new(what: &'static str, value: T) -> Self {
        Self { what, pid: process::id(), value: Mutex::new(Some(value)) }
    }

    /// Refuses a forked child. It must come before any lock: another thread of the parent may have
    /// held it.
    pub(crate) fn check(&self) -> PyResult<()> {
        if self.pid == process::id() {
            return Ok(());
        }
        Err(misuse(format!(
            "this {} was opened by process {}, and a forked child cannot use it: open it in the \
             child, or start processes by 'spawn'",
            self.what, self.pid
        )))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.check().is_err() || lock(&self.value).is_none()
    }

    /// Takes the value out. Returns `None` if that was done before, or in a forked child.
    pub(crate) fn close(&self) -> Option<T> {
        self.check().ok()?;
        lock(&self.value).take()
    }
}

/// Locks a mutex whose value no panic leaves half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send> Drop for Slot<T> {
    /// Releases the interpreter: Python drops an object with the interpreter held, and the drop may
    /// wait for what is in flight.
    fn drop(&mut self) {
        let value = self.value.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if value.is_some() {
            Python::try_attach(|py| py.detach(|| drop(value)));
        }
    }
}

impl<T: Clone + Send> Slot<T> {
    pub(crate) fn get(&self) -> PyResult<T> {
        self.check()?;
        lock(&self.value).clone().ok_or_else(|| closed(self.what))
    }
}
