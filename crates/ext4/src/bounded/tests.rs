use super::*;

#[test]
fn what_is_retired_makes_room() {
    let bounded: Bounded<Box<[u8]>, u32> = Bounded::new(100 * SHARDS);
    let key = |n: u32| n.to_le_bytes();
    for n in 0..100 * SHARDS as u32 {
        bounded.put(&key(n)[..], (n + 1, 10), |_| true);
        assert_eq!(bounded.get(&key(n)[..]), Some(n + 1));
        bounded.put(&key(n)[..], (7, 10), |there| *there == 0);
        assert_eq!(bounded.get(&key(n)[..]), Some(n + 1));
        bounded.retire(&key(n)[..], 0);
        assert!(matches!(bounded.get(&key(n)[..]), None | Some(0)));
    }
    for shard in &bounded.shards {
        let shard = shard.lock().unwrap();
        assert!((40..=60).contains(&shard.weight), "{}", shard.weight);
    }
    // It may come back.
    bounded.put(&key(1)[..], (8, 10), |there| *there == 0);
    assert_eq!(bounded.get(&key(1)[..]), Some(8));
}

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
    // The first value stays. A value that is too heavy is not added, and evicts nothing.
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
