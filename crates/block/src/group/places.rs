//! The members of a group, by key.

use std::sync::atomic::{AtomicU32, Ordering};

/// A place, and the generation of what is in it: a key of an earlier one, or of another group, is
/// not taken for it.
pub(super) type Key = (usize, u32);

/// Values that keep their places.
#[derive(Debug)]
pub(super) struct Places<T>(Vec<(u32, Option<T>)>);

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Places<T> {
    pub(super) fn add(&mut self, value: T) -> Key {
        static ADDED: AtomicU32 = AtomicU32::new(1);
        let free = self.0.iter().position(|(_, value)| value.is_none()).unwrap_or(self.0.len());
        if free == self.0.len() {
            self.0.push((0, None));
        }
        let place = &mut self.0[free];
        // Nothing else is ordered by it.
        *place = (ADDED.fetch_add(1, Ordering::Relaxed), Some(value));
        (free, place.0)
    }

    /// # Panics
    /// If it was removed, or the key is of another group.
    pub(super) fn remove(&mut self, key: Key) -> T {
        self.place(key).take().expect(GONE)
    }

    /// # Panics
    /// If it was removed, or the key is of another group.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, key: Key) -> &mut T {
        self.place(key).as_mut().expect(GONE)
    }

    #[inline(always)]
    fn place(&mut self, key: Key) -> &mut Option<T> {
        let place = self.0.get_mut(key.0).filter(|place| place.0 == key.1);
        &mut place.expect(GONE).1
    }

    /// The value at the place `at`, where there is one.
    #[inline(always)]
    pub(super) fn at(&mut self, at: usize) -> &mut T {
        self.0[at].1.as_mut().expect(GONE)
    }

    pub(super) fn key(&self, at: usize) -> Key {
        (at, self.0[at].0)
    }

    /// The values with their keys.
    pub(super) fn keyed_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        let places = self.0.iter_mut().enumerate();
        places.filter_map(|(at, (generation, value))| Some(((at, *generation), value.as_mut()?)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.0.iter().enumerate().filter_map(|(at, (_, value))| Some((at, value.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().filter_map(|(_, value)| value.as_mut())
    }
}

const GONE: &str = "it was removed from the group, or the key is of another group";
