//! A bounded map that evicts unused entries first. It holds metadata, inodes and names; on a mount
//! for reading, these never change.

use meantime_process::lock::{Mutex, MutexGuard, Rank};
use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::sync::PoisonError;

use foldhash::fast::RandomState;

/// Independent shards, so that threads seldom contend.
const SHARDS: usize = 16;

/// Keeps values by key until their weights exceed the limit. An entry that was used since it was
/// added, or since it was last spared, is spared once more.
pub(super) struct Bounded<K, V> {
    shards: [Mutex<Shard<K, V>>; SHARDS],
    /// Randomly seeded, so that no disk can put all keys into one shard.
    hasher: RandomState,
    shard_limit: usize,
}

struct Shard<K, V> {
    kept: HashMap<K, Kept<V>, RandomState>,
    /// Keys in the order in which they were added or last spared.
    queue: VecDeque<K>,
    weight: usize,
}

struct Kept<V> {
    value: V,
    weight: usize,
    used: bool,
}

impl<K: Hash + Eq, V> Shard<K, V> {
    fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let Self { kept, queue, weight } = self;
        if let Some(entry) = kept.remove(key) {
            *weight -= entry.weight;
            // Its key in the queue is skipped later, or removed here with many others.
            if queue.len() > 2 * kept.len() + 64 {
                queue.retain(|queued| kept.contains_key(queued.borrow()));
            }
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Bounded<K, V> {
    /// Creates a map with a limit in the unit of the weights.
    pub(super) fn new(limit: usize) -> Self {
        let shard = |_| {
            Mutex::new(
                Rank::Kept,
                Shard { kept: HashMap::default(), queue: VecDeque::new(), weight: 0 },
            )
        };
        Self {
            shards: std::array::from_fn(shard),
            hasher: RandomState::default(),
            shard_limit: limit / SHARDS,
        }
    }

    fn shard<Q: Hash + ?Sized>(&self, key: &Q) -> MutexGuard<'_, Shard<K, V>> {
        let shard = self.hasher.hash_one(key) as usize % SHARDS;
        // Every update leaves the shard consistent, so a panic elsewhere does no harm.
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value of `key`.
    pub(super) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let mut shard = self.shard(key);
        let kept = shard.kept.get_mut(key)?;
        kept.used = true;
        Some(kept.value.clone())
    }

    /// Removes the entry of `key`.
    pub(super) fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.remove_if(key, |_| true);
    }

    /// Removes the entry of `key` if `which` accepts its value.
    pub(super) fn remove_if<Q: Hash + Eq + ?Sized>(&self, key: &Q, which: impl FnOnce(&V) -> bool)
    where
        K: Borrow<Q>,
    {
        let mut shard = self.shard(key);
        if shard.kept.get(key).is_some_and(|entry| which(&entry.value)) {
            shard.remove(key);
        }
    }

    /// Replaces the value of `key`, if there is one, by the result of `change`, which must weigh
    /// the same.
    pub(super) fn update<Q: Hash + Eq + ?Sized>(&self, key: &Q, change: impl FnOnce(&V) -> V)
    where
        K: Borrow<Q>,
    {
        let mut shard = self.shard(key);
        if let Some(kept) = shard.kept.get_mut(key) {
            kept.value = change(&kept.value);
        }
    }

    /// Adds `value`, unless it exceeds the limit by itself. Returns the value in use for `key`: an
    /// existing one is kept.
    pub(super) fn keep(&self, key: K, value: V, weight: usize) -> V {
        let mut shard = self.shard(&key);
        if let Some(there) = shard.kept.get(&key) {
            return there.value.clone();
        }
        self.add(&mut shard, key, value.clone(), weight);
        value
    }

    /// Replaces the value of `key` if `replaces` accepts it; both must weigh the same. If there is
    /// no value, adds this one, unless it exceeds the limit by itself.
    pub(super) fn put<'a, Q: Hash + Eq + ?Sized>(
        &self,
        key: &'a Q,
        (value, weight): (V, usize),
        replaces: impl FnOnce(&V) -> bool,
    ) where
        K: Borrow<Q> + From<&'a Q>,
    {
        let mut shard = self.shard(key);
        match shard.kept.get_mut(key) {
            Some(there) if replaces(&there.value) => there.value = value,
            Some(_) => {}
            None => self.add(&mut shard, key.into(), value, weight),
        }
    }

    /// Replaces the value of `key`, if there is one, by `last`, which must weigh the same and is
    /// not spared. Once half of the limit is taken, removes the entry.
    pub(super) fn retire<Q: Hash + Eq + ?Sized>(&self, key: &Q, last: V)
    where
        K: Borrow<Q>,
    {
        let mut shard = self.shard(key);
        if shard.weight > self.shard_limit / 2 {
            shard.remove(key);
        } else if let Some(there) = shard.kept.get_mut(key) {
            (there.value, there.used) = (last, false);
        }
    }

    fn add(&self, shard: &mut Shard<K, V>, key: K, value: V, weight: usize) {
        if weight > self.shard_limit {
            return;
        }
        let Shard { kept, queue, weight: total } = shard;
        // This ends, because each turn removes an entry or clears a mark that only a look-up sets.
        while *total + weight > self.shard_limit
            && let Some(oldest) = queue.pop_front()
        {
            let spared = kept.get_mut(&oldest).is_some_and(|entry| std::mem::take(&mut entry.used));
            if spared {
                queue.push_back(oldest);
            } else if let Some(entry) = kept.remove(&oldest) {
                *total -= entry.weight;
            }
        }
        *total += weight;
        queue.push_back(key.clone());
        kept.insert(key, Kept { value, weight, used: false });
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
