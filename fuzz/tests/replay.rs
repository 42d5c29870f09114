//! The fuzzers' checks on the inputs of `corpus-seed`, and on inputs that are generated from them by
//! seed: parts overwritten, repeated, cut and put together. MEANTIME_FUZZ_INPUTS sets how many times
//! as many are generated.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;

use meantime_testkit::{Rng, setting};

/// The longest input, in bytes, as for the fuzzers.
const BYTES_MAX: usize = 1024;

/// Values at which integers of any width wrap, or change their sign.
const EDGES: [u8; 8] = [0, 1, 0x7F, 0x80, 0xFF, 0xFE, 0x10, 0x40];

fn directory(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus-seed").join(target)
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(directory(target)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// A place in `bytes`, or at their end.
fn place(rng: &mut Rng, bytes: &[u8]) -> usize {
    rng.below(bytes.len() as u64 + 1) as usize
}

/// A part of `bytes`, usually a short one.
fn part(rng: &mut Rng, bytes: &[u8]) -> std::ops::Range<usize> {
    let start = place(rng, bytes);
    let longest = if rng.one_in(4) { BYTES_MAX as u64 } else { 16 };
    start..bytes.len().min(start + rng.below(longest) as usize)
}

/// Changes `input` in one way.
fn change(rng: &mut Rng, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    match rng.below(7) {
        0 => {
            let range = part(rng, input);
            input[range].fill_with(|| rng.next() as u8);
        }
        1 => {
            let range = part(rng, input);
            let edge = EDGES[rng.below(EDGES.len() as u64) as usize];
            input[range].fill(edge);
        }
        2 if !input.is_empty() => {
            let at = rng.below(input.len() as u64) as usize;
            input[at] ^= 1 << rng.below(8);
        }
        3 => drop(input.drain(part(rng, input))),
        4 => {
            let again = input[part(rng, input)].to_vec();
            let at = place(rng, input);
            input.splice(at..at, again);
        }
        5 => {
            let other = &seeds[rng.below(seeds.len() as u64) as usize];
            let from = part(rng, other);
            let at = place(rng, input);
            input.splice(at..at, other[from].to_vec());
        }
        _ => {
            let at = place(rng, input);
            let new: Vec<u8> = (0..1 + rng.below(16)).map(|_| rng.next() as u8).collect();
            input.splice(at..at, new);
        }
    }
    input.truncate(BYTES_MAX);
}

/// Runs `check` on all seeds of `target`, and on `count` inputs made of them.
fn replay(target: &str, count: u64, check: fn(&[u8])) {
    let seeds = seeds(target);
    assert!(!seeds.is_empty());
    let run = |input: &[u8]| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
            let path = std::env::temp_dir().join(format!("meantime-fuzz-{target}"));
            std::fs::write(&path, input).unwrap();
            eprintln!(
                "the input is in {}: put it into {}",
                path.display(),
                directory(target).display()
            );
            resume_unwind(panic);
        }
    };
    seeds.iter().for_each(|seed| run(seed));
    let seed = setting("MEANTIME_FUZZ_SEED").unwrap_or(1);
    let mut rng = Rng::new(seed);
    for _ in 0..count * setting("MEANTIME_FUZZ_INPUTS").unwrap_or(1) {
        let mut input = seeds[rng.below(seeds.len() as u64) as usize].clone();
        for _ in 0..1 + rng.below(8) {
            change(&mut rng, &mut input, &seeds);
        }
        run(&input);
    }
}

macro_rules! targets {
    ($($target:ident: $count:literal,)*) => {
        $(
            #[test]
            fn $target() {
                replay(stringify!($target), $count, meantime_fuzz::$target::check);
            }
        )*
    };
}

targets! {
    auth: 5_000,
    disk: 20_000,
    driver: 2_000,
    ext4: 500,
    host: 2_000,
    job: 5_000,
    line: 2_000,
    meeting: 1_000,
    served: 500,
    ssd: 2_000,
    tcp: 250,
    uri: 20_000,
    user: 1_000,
}
