//! Handles. The memory of a handle is never freed, only marked and reused. So one load shows
//! whether a handle is open or closed: the fast path has no time for a search.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A type that a handle can refer to.
pub trait Kind: Sized + Send + 'static {
    /// Identifies the kind; the lower eight bits are 0.
    const TAG: u32;
    /// The name in C.
    const NAME: &'static str;
    /// What a handle has beside its value; any thread may look at it at any time.
    type Beside: Default + Sync + 'static;
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
    Lent,
    /// Its value never returns.
    Empty,
    /// A panic occurred in a call on it: permanently unusable.
    Broken,
    /// A channel in a group: the thread that holds the group may use it.
    Grouped,
    /// One call uses the handle exclusively; see [`Held`].
    Held,
}

/// A handle: `mt_device`, `mt_channel`, `mt_buf`, `mt_group`, `mt_waker`.
#[repr(C)]
pub struct Handle<T: Kind> {
    /// The kind's tag and a [`State`].
    state: AtomicU32,
    /// None if it is closed, lent or empty.
    value: UnsafeCell<Option<T>>,
    /// What the handle has beside its value; see [`Kind::Beside`].
    pub beside: T::Beside,
}

// SAFETY: the value is reached by unsafe functions, which ask for what `Sync` would promise; by
// `create` and `remove`, to which the lock of the registry and the state give it exclusively; and
// by `Held`, to which the state does. What is beside it is `Sync`.
unsafe impl<T: Kind> Sync for Handle<T> {}

/// All handles of a kind.
pub struct Registry<T: Kind>(Mutex<Option<Lists<T>>>);

struct Lists<T: Kind> {
    /// The handles in use, by address.
    live: BTreeMap<usize, &'static Handle<T>>,
    closed: Vec<&'static Handle<T>>,
}

impl<T: Kind> Lists<T> {
    /// Makes the memory of `handle`, which has no value any more, available again.
    fn retire(&mut self, handle: &'static Handle<T>) {
        self.live.remove(&std::ptr::from_ref(handle).addr());
        self.closed.push(handle);
    }
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
            let beside = T::Beside::default();
            Box::leak(Box::new(Self { state, value: UnsafeCell::new(None), beside }))
        });
        // SAFETY: it is closed and was in the list, or is new: no other thread touches its value.
        unsafe { *handle.value.get() = Some(value) };
        handle.set(State::Open);
        let ptr = std::ptr::from_ref(handle);
        lists.live.insert(ptr.addr(), handle);
        ptr.cast_mut()
    }

    /// Closes the handle. Returns its value, if present. It does not dereference `ptr`, which may
    /// be any address.
    ///
    /// # Errors
    /// Returns the state that prevents it: lent, broken, grouped or held; or closed if `ptr` is no
    /// handle.
    pub fn remove(ptr: *const Self) -> Result<Option<T>, State> {
        let mut lists = T::registry().lock();
        let Some(lists) = lists.as_mut() else { return Err(State::Closed) };
        let handle = *lists.live.get(&ptr.addr()).ok_or(State::Closed)?;
        let mut state = handle.state();
        while matches!(state, State::Open | State::Empty) && !handle.turn(state, State::Closed) {
            state = handle.state();
        }
        if !matches!(state, State::Open | State::Empty) {
            return Err(state);
        }
        // SAFETY: it was open or empty, so it is not the device's; the caller owns it (header: one
        // thread at a time, and close is the last call).
        let value = unsafe { (*handle.value.get()).take() };
        lists.retire(handle);
        Ok(value)
    }

    /// The handle at `ptr`, unless it was closed. It does not dereference `ptr`, which may be any
    /// address.
    pub fn find(ptr: *const Self) -> Option<&'static Self> {
        T::registry().lock().as_ref()?.live.get(&ptr.addr()).copied()
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
            2 => State::Lent,
            3 => State::Empty,
            4 => State::Broken,
            5 => State::Grouped,
            6 => State::Held,
            _ => State::Closed,
        }
    }

    #[inline(always)]
    fn set(&self, state: State) {
        self.state.store(T::TAG | state as u32, Ordering::Release);
    }

    /// Changes the state from `from` to `to`. Returns false, and changes nothing, if the state is
    /// another.
    pub fn turn(&self, from: State, to: State) -> bool {
        let (from, to) = (T::TAG | from as u32, T::TAG | to as u32);
        // Acquire, Release: the value goes from one call to the next.
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Takes the handle for one call, whatever other threads do. Returns `None` if it is not open.
    pub fn hold(&'static self) -> Option<Held<T>> {
        // This is lazy because a `Held` that is dropped opens the handle.
        self.turn(State::Open, State::Held).then(|| Held(self))
    }

    #[inline(always)]
    fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == T::TAG | State::Open as u32
    }

    /// Its value, if present.
    ///
    /// # Safety
    /// No other thread changes it, closes the handle or lends the value meanwhile.
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

    /// Takes the value for a request, if present.
    ///
    /// # Safety
    /// No other thread uses the handle meanwhile.
    #[inline(always)]
    pub unsafe fn lend(&self) -> Option<T> {
        if !self.is_open() {
            return None;
        }
        self.set(State::Lent);
        // SAFETY: the caller's promise.
        unsafe { (*self.value.get()).take() }
    }

    /// Returns a lent value to the handle; `None` if the value is lost.
    ///
    /// # Safety
    /// The caller has lent it; no other thread touches a value that is lent.
    #[inline(always)]
    pub unsafe fn restore(&self, value: Option<T>) {
        let state = if value.is_some() { State::Open } else { State::Empty };
        // SAFETY: the caller's promise. What is overwritten is `None`, since it was taken.
        unsafe { self.value.get().write(value) };
        self.set(state);
    }

    /// The value of a channel that is in a group.
    ///
    /// # Safety
    /// The state is [`State::Grouped`]. The caller holds the channel's group as long as it uses the
    /// value, and changes it by no other reference meanwhile.
    #[inline(always)]
    pub unsafe fn grouped(&self) -> &T {
        debug_assert_eq!(self.state(), State::Grouped);
        // SAFETY: the caller's promise: others ask for an open handle, or hold the group.
        unsafe { (*self.value.get()).as_ref() }.expect(HAS_VALUE)
    }

    /// The value of a channel that is in a group, for changes.
    ///
    /// # Safety
    /// The state is [`State::Grouped`]. The caller holds the channel's group as long as it uses the
    /// value, and has no other reference to the value.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // As for `value_mut`.
    pub unsafe fn grouped_mut(&self) -> &mut T {
        debug_assert_eq!(self.state(), State::Grouped);
        // SAFETY: as above.
        unsafe { (*self.value.get()).as_mut() }.expect(HAS_VALUE)
    }

    /// Marks it as permanently unusable, without dropping its value.
    pub fn mark_broken(&self) {
        self.set(State::Broken);
    }
}

const HAS_VALUE: &str = "a handle that is neither closed nor lent has its value";

/// A handle that one call uses exclusively. Its state goes from open to held, where calls of other
/// threads find it, and back.
pub struct Held<T: Kind>(&'static Handle<T>);

impl<T: Kind> Held<T> {
    /// Closes the handle. Returns its value.
    pub fn close(self) -> Option<T> {
        let mut lists = T::registry().lock();
        self.0.set(State::Closed);
        // SAFETY: it was held until now, and is not in the list of closed ones yet.
        let value = unsafe { (*self.0.value.get()).take() };
        if let Some(lists) = lists.as_mut() {
            lists.retire(self.0);
        }
        std::mem::forget(self);
        value
    }

    /// Marks it as permanently unusable, without dropping its value.
    pub fn mark_broken(self) {
        self.0.mark_broken();
        std::mem::forget(self);
    }
}

impl<T: Kind> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: from `hold` until this is dropped the state is held, and the other ways to the
        // value ask for an open handle, or for a channel's.
        unsafe { (*self.0.value.get()).as_ref() }.expect(HAS_VALUE)
    }
}

impl<T: Kind> DerefMut for Held<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; and this is borrowed exclusively.
        unsafe { (*self.0.value.get()).as_mut() }.expect(HAS_VALUE)
    }
}

impl<T: Kind> Drop for Held<T> {
    fn drop(&mut self) {
        self.0.set(State::Open);
    }
}
