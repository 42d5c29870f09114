//! Handles. Their memory is never freed, only marked and reused. So one load shows whether a handle
//! is open or closed: the hot path has no time for a search.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A type that a handle can refer to.
pub trait Kind: Sized + Send + 'static {
    /// Identifies the kind; the lower eight bits are 0.
    const TAG: u32;
    /// The name in C.
    const NAME: &'static str;
    /// All handles of this kind.
    fn registry() -> &'static Registry<Self>;
}

/// The state of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Closed.
    Closed,
    /// It has its value.
    Open,
    /// Its value is with the device, and will return.
    Away,
    /// Its value never returns.
    Empty,
    /// A panic occurred in a call on it: permanently unusable.
    Broken,
}

/// A handle: `mt_device`, `mt_channel`, `mt_buf`.
#[repr(C)]
pub struct Handle<T> {
    /// The kind's tag and a [`State`].
    state: AtomicU32,
    /// Some if it is open; none if it is closed, away or empty.
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is reached by unsafe functions only, which ask for what `Sync` would promise;
// and by `create` and `remove`, to which the lock of the registry and the state give it
// exclusively.
unsafe impl<T: Send> Sync for Handle<T> {}

/// All handles of a kind.
pub struct Registry<T: 'static>(Mutex<Option<Lists<T>>>);

struct Lists<T: 'static> {
    /// By address.
    live: BTreeMap<usize, &'static Handle<T>>,
    closed: Vec<&'static Handle<T>>,
}

impl<T: Kind> Registry<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Lists<T>>> {
        // No code in here panics midway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Kind> Handle<T> {
    /// A new handle for `value`.
    pub fn create(value: T) -> *mut Self {
        let mut lists = T::registry().lock();
        let lists =
            lists.get_or_insert_with(|| Lists { live: BTreeMap::new(), closed: Vec::new() });
        let handle: &'static Self = lists.closed.pop().unwrap_or_else(|| {
            let state = AtomicU32::new(T::TAG | State::Closed as u32);
            Box::leak(Box::new(Self { state, value: UnsafeCell::new(None) }))
        });
        // SAFETY: it is closed and was in the list, or is new: no other thread touches its value.
        unsafe { *handle.value.get() = Some(value) };
        handle.set(State::Open);
        let ptr = std::ptr::from_ref(handle);
        lists.live.insert(ptr.addr(), handle);
        ptr.cast_mut()
    }

    /// Closes the handle. Returns its value, if present. Does not dereference `ptr`, which may be
    /// any address.
    ///
    /// # Errors
    /// The state that prevents it: away, broken, or not one of our handles.
    pub fn remove(ptr: *const Self) -> Result<Option<T>, State> {
        let mut lists = T::registry().lock();
        let Some(lists) = lists.as_mut() else { return Err(State::Closed) };
        let handle = *lists.live.get(&ptr.addr()).ok_or(State::Closed)?;
        match handle.state() {
            State::Open | State::Empty => {}
            other => return Err(other),
        }
        handle.set(State::Closed);
        lists.live.remove(&ptr.addr());
        // SAFETY: it was open or empty, so it is not the device's; the caller owns it (header: one
        // thread at a time, and close is the last call).
        let value = unsafe { (*handle.value.get()).take() };
        lists.closed.push(handle);
        Ok(value)
    }

    /// The handle at `ptr`, if it is one of this kind, closed or not.
    ///
    /// # Safety
    /// `ptr` is NULL or the address of a handle, of whatever kind, closed or not.
    #[inline(always)]
    pub unsafe fn at(ptr: *const Self) -> Option<&'static Self> {
        if ptr.is_null() {
            return None;
        }
        // SAFETY: handles are never unmapped, and each begins with its state.
        let state = unsafe { &*ptr.cast::<AtomicU32>() };
        if state.load(Ordering::Relaxed) & !0xff != T::TAG {
            return None;
        }
        // SAFETY: the tag, which never changes, is that of this kind.
        Some(unsafe { &*ptr })
    }

    /// Its state.
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) & 0xff {
            1 => State::Open,
            2 => State::Away,
            3 => State::Empty,
            4 => State::Broken,
            _ => State::Closed,
        }
    }

    #[inline(always)]
    fn set(&self, state: State) {
        self.state.store(T::TAG | state as u32, Ordering::Release);
    }

    #[inline(always)]
    fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == T::TAG | State::Open as u32
    }

    /// Its value, if present.
    ///
    /// # Safety
    /// No other thread changes it, closes the handle or sends the value away meanwhile.
    #[inline(always)]
    pub unsafe fn value(&self) -> Option<&T> {
        if !self.is_open() {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe { (*self.value.get()).as_ref() }
    }

    /// Its value for changes, if present.
    ///
    /// # Safety
    /// No other thread uses the handle meanwhile.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // That is what the promise is for.
    pub unsafe fn value_mut(&self) -> Option<&mut T> {
        if !self.is_open() {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe { (*self.value.get()).as_mut() }
    }

    /// Takes the value away temporarily, if present.
    ///
    /// # Safety
    /// As [`Handle::value_mut`].
    #[inline(always)]
    pub unsafe fn send_away(&self) -> Option<T> {
        if !self.is_open() {
            return None;
        }
        self.set(State::Away);
        // SAFETY: the caller's promise.
        unsafe { (*self.value.get()).take() }
    }

    /// Returns the value; `None` if it is lost.
    ///
    /// # Safety
    /// The caller has sent it away; no other thread touches a value that is away.
    #[inline(always)]
    pub unsafe fn come_back(&self, value: Option<T>) {
        let state = if value.is_some() { State::Open } else { State::Empty };
        // SAFETY: the caller's promise. What is overwritten is `None`, since it was taken.
        unsafe { self.value.get().write(value) };
        self.set(state);
    }

    /// Marks it as permanently unusable, without dropping its value.
    pub fn mark_broken(&self) {
        self.set(State::Broken);
    }
}
