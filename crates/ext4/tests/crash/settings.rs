//! Devices, file systems and mounts such that each pair of settings occurs in one of them.

use std::collections::BTreeSet;

use meantime_ext4::{CommitOverlap, Overlap};

use crate::device::Config;
use meantime_testkit::Rng;

/// The number of values of each setting: blocks, cache, unit, data, prepare, reads, fast commits,
/// features, log, dirty pages, logical blocks, kind of device, committing thread.
const LEVELS: [usize; 13] = [3, 2, 2, 2, 2, 2, 2, 4, 2, 2, 2, 3, 2];

/// Fast commits are wanted.
const FAST: Value = (6, 1);

/// The values that prevent fast commits: no checksums, and a journal thread that commits.
const NOT_FAST: [Value; 2] = [(7, 1), (12, 1)];

/// Additional features for mkfs.
const FEATURES: [&str; 4] =
    ["", "^metadata_csum,^64bit", "metadata_csum_seed,orphan_file", "^flex_bg,^dir_index"];

type Row = [usize; LEVELS.len()];

/// Excludes logical blocks larger than the file system's blocks.
fn is_possible(one: Value, two: Value) -> bool {
    !matches!((one, two), ((0, 1 | 2), (10, 0)))
}

fn config(row: &Row) -> Config {
    let block_bytes = [4096, 1024, 2048][row[0]];
    Config {
        block_bytes,
        volatile: row[1] == 1,
        unit_bytes: [4096, block_bytes][row[2]],
        commit_overlap: CommitOverlap {
            data: row[3] == 0,
            prepare: row[4] == 0,
            caller_commits: row[12] == 0,
        },
        overlap: [Overlap::ALL, Overlap::NONE][row[5]],
        fast_commit: row[6] == 1,
        features: FEATURES[row[7]],
        log_blocks: [1024, 1536][row[8]],
        dirty_bytes: [0, 64 << 10][row[9]],
        lba_bytes: [4096, 512][row[10]],
        model: ["optane", "nand", "zssd"][row[11]],
    }
}

/// A setting and one of its values, by index.
type Value = (usize, usize);

/// All pairs of values of different settings.
fn pairs() -> impl Iterator<Item = (Value, Value)> {
    let values = || {
        LEVELS
            .iter()
            .enumerate()
            .flat_map(|(setting, levels)| (0..*levels).map(move |n| (setting, n)))
    };
    values()
        .flat_map(move |one| values().filter(move |two| two.0 > one.0).map(move |two| (one, two)))
}

/// Whether the pair takes effect in `row`. If a row's fast commits are prevented, its value "fast
/// commits" counts only in pairs with the values that prevent them.
fn occurs(row: &Row, one: Value, two: Value) -> bool {
    let has = |value: Value| row[value.0] == value.1;
    let is_about_fast =
        one == FAST && !NOT_FAST.contains(&two) || two == FAST && !NOT_FAST.contains(&one);
    has(one) && has(two) && !(is_about_fast && NOT_FAST.into_iter().any(has))
}

/// Rows in which each pair of values occurs, deterministic. The first is the default.
fn rows() -> Vec<Row> {
    let mut missing: BTreeSet<_> = pairs().filter(|(one, two)| is_possible(*one, *two)).collect();
    let mut rng = Rng::new(7);
    let mut rows: Vec<Row> = Vec::new();
    while !missing.is_empty() {
        let some = (0..200).map(|_| {
            let mut row: Row = LEVELS.map(|levels| rng.below(levels as u64) as usize);
            if row[0] > 0 {
                row[10] = 1;
            }
            row
        });
        let gain = |row: &Row| missing.iter().filter(|(one, two)| occurs(row, *one, *two)).count();
        let best =
            if rows.is_empty() { [0; LEVELS.len()] } else { some.max_by_key(gain).expect("some") };
        missing.retain(|(one, two)| !occurs(&best, *one, *two));
        rows.push(best);
    }
    rows
}

/// Configurations in which each pair of settings occurs.
pub(crate) fn covering() -> Vec<Config> {
    rows().iter().map(config).collect()
}

#[test]
fn each_pair_of_settings_occurs() {
    let rows = rows();
    assert!((12..30).contains(&rows.len()), "{} rows", rows.len());
    for (one, two) in pairs() {
        let somewhere = rows.iter().any(|row| occurs(row, one, two));
        assert_eq!(somewhere, is_possible(one, two), "{one:?} with {two:?}");
    }
}
