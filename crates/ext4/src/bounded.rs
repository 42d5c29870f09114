//! A map that keeps what is used, up to a limit: for metadata, inodes and names, which never change
//! while a file system is mounted for reading.

use meantime_process::lock::{Mutex, MutexGuard, Rank};
use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::PoisonError;

/// Independent parts, so that threads seldom meet.
const SHARDS: usize = 16;

/// Keeps values by key until their weights exceed the limit. What was used since it came, or since
/// it was last spared, is spared.
pub(super) struct Bounded<K, V> {
    shards: [Mutex<Shard<K, V>>; SHARDS],
    /// Chosen at random, so that no disk can make everything fall into one part.
    hasher: RandomState,
    shard_limit: usize,
}

struct Shard<K, V> {
    kept: HashMap<K, Kept<V>>,
    /// In the order of their coming, or of their second chance.
    queue: VecDeque<K>,
    weight: usize,
}

struct Kept<V> {
    value: V,
    weight: usize,
    used: bool,
}

impl<K: Hash + Eq + Clone, V: Clone> Bounded<K, V> {
    /// Up to `limit`, in whatever unit weights have.
    pub(super) fn new(limit: usize) -> Self {
        let shard = |_| {
            Mutex::new(
                Rank::Kept,
                Shard { kept: HashMap::new(), queue: VecDeque::new(), weight: 0 },
            )
        };
        Self {
            shards: std::array::from_fn(shard),
            hasher: RandomState::new(),
            shard_limit: limit / SHARDS,
        }
    }

    fn shard<Q: Hash + ?Sized>(&self, key: &Q) -> MutexGuard<'_, Shard<K, V>> {
        let shard = self.hasher.hash_one(key) as usize % SHARDS;
        // Every update leaves the shard consistent, so that a panic elsewhere does not spoil it.
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is kept for `key`.
    pub(super) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let mut shard = self.shard(key);
        let kept = shard.kept.get_mut(key)?;
        kept.used = true;
        Some(kept.value.clone())
    }

    /// Keeps nothing for `key` any more.
    pub(super) fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.remove_if(key, |_| true);
    }

    /// The same, if what is kept is what `which` says.
    pub(super) fn remove_if<Q: Hash + Eq + ?Sized>(&self, key: &Q, which: impl FnOnce(&V) -> bool)
    where
        K: Borrow<Q>,
    {
        let mut shard = self.shard(key);
        let Shard { kept, queue, weight } = &mut *shard;
        if !kept.get(key).is_some_and(|entry| which(&entry.value)) {
            return;
        }
        if let Some(entry) = kept.remove(key) {
            *weight -= entry.weight;
            // Its place in the queue is passed over, or goes with many.
            if queue.len() > 2 * kept.len() + 64 {
                queue.retain(|queued| kept.contains_key(queued.borrow()));
            }
        }
    }

    /// Replaces what is kept for `key`, if anything is, by what `change` makes of it, which weighs
    /// as much.
    pub(super) fn update<Q: Hash + Eq + ?Sized>(&self, key: &Q, change: impl FnOnce(&V) -> V)
    where
        K: Borrow<Q>,
    {
        let mut shard = self.shard(key);
        if let Some(kept) = shard.kept.get_mut(key) {
            kept.value = change(&kept.value);
        }
    }

    /// Keeps `value`, unless it alone weighs too much; what is kept for `key` then: what was there
    /// before, if anything was.
    pub(super) fn keep(&self, key: K, value: V, weight: usize) -> V {
        let mut shard = self.shard(&key);
        if let Some(there) = shard.kept.get(&key) {
            return there.value.clone();
        }
        if weight > self.shard_limit {
            return value;
        }
        let Shard { kept, queue, weight: total } = &mut *shard;
        // Each turn removes something, or takes a second chance away that only a look-up gives: it
        // ends.
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
        kept.insert(key, Kept { value: value.clone(), weight, used: false });
        value
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_again_outlives_what_is_not() {
        let bounded = Bounded::new(4 * SHARDS);
        let same_shard: Vec<u32> = {
            let of = |key: &u32| bounded.hasher.hash_one(key) as usize % SHARDS;
            let first = of(&0);
            (0..).filter(|key| of(key) == first).take(6).collect()
        };
        for key in &same_shard[..4] {
            assert_eq!(bounded.keep(*key, *key, 1), *key);
        }
        assert_eq!(bounded.get(&same_shard[0]), Some(same_shard[0]));
        bounded.keep(same_shard[4], 0, 1);
        assert_eq!(bounded.get(&same_shard[0]), Some(same_shard[0]));
        assert_eq!(bounded.get(&same_shard[1]), None);
        // The first to come stays; what is too heavy is not kept, and nothing lost for it.
        assert_eq!(bounded.keep(same_shard[0], 77, 1), same_shard[0]);
        assert_eq!(bounded.keep(same_shard[5], 5, 5), 5);
        assert_eq!(bounded.get(&same_shard[5]), None);
        assert_eq!(bounded.get(&same_shard[2]), Some(same_shard[2]));
        bounded.update(&same_shard[2], |value| value + 1);
        bounded.update(&same_shard[1], |value| value + 1);
        assert_eq!(
            (bounded.get(&same_shard[2]), bounded.get(&same_shard[1])),
            (Some(same_shard[2] + 1), None)
        );
    }
}
