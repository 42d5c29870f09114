//! Maps keyed by block or inode numbers. Each change makes some dozens of look-ups in them.

use std::collections::HashMap;

/// A map keyed by a number. Its hash is seeded at random, so that no disk can make all its numbers
/// collide.
pub(crate) type ByNumber<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
