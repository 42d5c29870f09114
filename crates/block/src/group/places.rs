//! The members of a group, by key.

/// A place, and the generation of what is in it: a key of an earlier one is not taken for it.
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
        let free = self.0.iter().position(|(_, value)| value.is_none()).unwrap_or(self.0.len());
        if free == self.0.len() {
            self.0.push((0, None));
        }
        let place = &mut self.0[free];
        place.0 += 1;
        place.1 = Some(value);
        (free, place.0)
    }

    /// # Panics
    /// If it was removed.
    pub(super) fn remove(&mut self, key: Key) -> T {
        let place = &mut self.0[key.0];
        let value = if place.0 == key.1 { place.1.take() } else { None };
        value.expect(GONE)
    }

    /// # Panics
    /// If it was removed.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, key: Key) -> &mut T {
        let place = &mut self.0[key.0];
        if place.0 == key.1 { place.1.as_mut() } else { None }.expect(GONE)
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

const GONE: &str = "it was removed from the group";
