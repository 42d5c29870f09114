//! Concurrent operations on one file: readers, writers, hole punchers, truncaters, zero ranges,
//! syncs. No thread may wait forever, and no reader may see bytes that were not written where it
//! reads.
//!
//! Each eight bytes are zeroes, or contain their place and version. The test takes a quarter
//! of a minute; MEANTIME_STRESS_SECONDS sets another time (ten minutes in `make test-long`).

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use meantime_ext4::{
    Advice, Allocate, Error, File, FileSystem, MountOptions, OpenOptions, ReadOptions, WriteOptions,
};

use meantime_testkit::Rng;
use meantime_testkit::filled::Image;

const BLOCK: u64 = 4096;

/// The blocks at the beginning that only one thread writes and verifies.
const OWNED: u64 = 256;

/// The smallest and largest size of the file, in blocks.
const LEAST: u64 = 1024;
const MOST: u64 = 4096;

/// The longest time for one operation of a thread: far more than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(90);

/// The value of `word` of `block` in `version`.
fn stamp(block: u64, version: u64, word: u64) -> u64 {
    (block + 1) << 40 | (version & 0x7FFF_FFFF) << 9 | word
}

fn fill(data: &mut [u8], first: u64, version: u64) {
    for (at, word) in data.chunks_exact_mut(8).enumerate() {
        let at = at as u64 * 8;
        word.copy_from_slice(&stamp(first + at / BLOCK, version, at % BLOCK / 8).to_le_bytes());
    }
}

/// Panics if anything in `data`, read from block `first`, belongs elsewhere. Returns the version of
/// each block that has a single one. Version 0 means zeroes.
fn verify(data: &[u8], first: u64, who: &str) -> Vec<Option<u64>> {
    let block = |(number, block): (usize, &[u8])| {
        let number = first + number as u64;
        let mut versions = None;
        let mut whole = true;
        for (at, word) in block.chunks_exact(8).enumerate() {
            let found = u64::from_le_bytes(word.try_into().unwrap());
            let version = found >> 9 & 0x7FFF_FFFF;
            let right = found == 0 || found == stamp(number, version, at as u64);
            assert!(right, "{who}: {found:#x} at word {at} of block {number}");
            let version = if found == 0 { 0 } else { version };
            whole &= *versions.get_or_insert(version) == version;
        }
        versions.filter(|_| whole)
    };
    data.chunks(BLOCK as usize).enumerate().map(block).collect()
}

/// The state that all threads share.
struct World {
    fs: FileSystem,
    stop: AtomicBool,
    version: AtomicU64,
}

impl World {
    fn open(&self) -> File {
        self.fs
            .open_with("/f", &OpenOptions { read: true, write: true, ..OpenOptions::default() })
            .unwrap()
    }

    /// Returns a new version. It is never 0, which means zeroes.
    fn version(&self) -> u64 {
        1 + self.version.fetch_add(1, Ordering::Relaxed)
    }
}

type Work = fn(&World, &File, &mut Rng);

fn blocks(random: &mut Rng, most: u64) -> (u64, u64) {
    let first = OWNED + random.below(MOST - OWNED);
    (first, (1 + random.below(most)).min(MOST - first))
}

fn read_in_order(_: &World, file: &File, random: &mut Rng) {
    let mut data = vec![0; 1 << (12 + random.below(6))];
    for turn in 0.. {
        let at = turn * data.len() as u64;
        let read = file.read_at(&mut data, at).unwrap();
        verify(&data[..read], at / BLOCK, "a reader in order");
        if read < data.len() {
            break;
        }
    }
    file.advise(0, 0, Advice::DontNeed).unwrap();
}

fn read_anywhere(_: &World, file: &File, random: &mut Rng) {
    let (first, count) = blocks(random, 64);
    let mut data = vec![0; (count * BLOCK) as usize];
    let options = ReadOptions { direct: random.below(2) == 0, ..ReadOptions::default() };
    if random.below(4) == 0 {
        file.advise(first * BLOCK, count * BLOCK, Advice::WillNeed).unwrap();
    }
    let read = file.read_at_with(&mut data, first * BLOCK, &options).unwrap();
    verify(&data[..read], first, "a reader anywhere");
    if random.below(4) == 0 {
        file.advise(first * BLOCK, count * BLOCK, Advice::DontNeed).unwrap();
    }
}

fn write(world: &World, file: &File, random: &mut Rng) {
    let (first, count) = blocks(random, 48);
    let mut data = vec![0; (count * BLOCK) as usize];
    fill(&mut data, first, world.version());
    let options = WriteOptions { direct: random.below(3) == 0, ..WriteOptions::default() };
    assert_eq!(file.write_at_with(&data, first * BLOCK, &options).unwrap(), data.len());
}

fn punch(_: &World, file: &File, random: &mut Rng) {
    let (first, count) = blocks(random, 256);
    file.allocate(first * BLOCK, count * BLOCK, Allocate::Punch).unwrap();
}

fn zero(_: &World, file: &File, random: &mut Rng) {
    let (first, count) = blocks(random, 128);
    let how =
        [Allocate::Zero, Allocate::ZeroKeepSize, Allocate::KeepSize][random.below(3) as usize];
    file.allocate(first * BLOCK, count * BLOCK, how).unwrap();
}

fn truncate(_: &World, file: &File, random: &mut Rng) {
    file.set_len((LEAST + random.below(MOST - LEAST)) * BLOCK).unwrap();
}

fn sync(world: &World, file: &File, random: &mut Rng) {
    match random.below(4) {
        0 => file.sync_all().unwrap(),
        1 => file.sync_data().unwrap(),
        2 => world.fs.sync().unwrap(),
        _ => file.sync_range(0..MOST * BLOCK).unwrap(),
    }
}

fn seek(_: &World, file: &File, random: &mut Rng) {
    assert_eq!(file.seek_data(0), Ok(0), "the first blocks are data");
    assert!(file.seek_hole(0).unwrap() >= OWNED * BLOCK, "all of the first blocks are data");
    let at = random.below(MOST) * BLOCK;
    match file.seek_data(at) {
        Ok(found) => assert!(found >= at),
        Err(error) => assert_eq!(error, Error::NotFound),
    }
    assert!(file.segments().unwrap()[0].kind.is_data());
}

/// No other thread writes the first blocks, so a read returns the last write.
fn own(world: &World, file: &File, random: &mut Rng) {
    let first = random.below(OWNED);
    let count = (1 + random.below(16)).min(OWNED - first);
    let (mut data, version) = (vec![0; (count * BLOCK) as usize], world.version());
    fill(&mut data, first, version);
    let direct = random.below(4) == 0;
    file.write_at_with(&data, first * BLOCK, &WriteOptions { direct, ..WriteOptions::default() })
        .unwrap();
    if random.below(2) == 0 {
        file.sync_range(first * BLOCK..(first + count) * BLOCK).unwrap();
        file.advise(first * BLOCK, count * BLOCK, Advice::DontNeed).unwrap();
    }
    let direct = random.below(4) == 0;
    let options = ReadOptions { direct, ..ReadOptions::default() };
    data.fill(0xEE);
    assert_eq!(file.read_at_with(&mut data, first * BLOCK, &options).unwrap(), data.len());
    let versions = verify(&data, first, "the owner");
    assert!(
        versions.iter().all(|found| *found == Some(version)),
        "{versions:?}, written was {version}"
    );
}

/// Each thread's work, and its pause after each operation, in µs: locks are not fair, so threads
/// with short operations would keep the lock without pauses.
const WORK: [(&str, Work, u64); 12] = [
    ("reads in order", read_in_order, 0),
    ("reads in order, too", read_in_order, 0),
    ("reads anywhere", read_anywhere, 0),
    ("reads anywhere, too", read_anywhere, 0),
    ("writes", write, 100),
    ("writes, too", write, 100),
    ("punches", punch, 5_000),
    ("zeroes", zero, 5_000),
    ("truncates", truncate, 20_000),
    ("syncs", sync, 3_000),
    ("seeks", seek, 2_000),
    ("owns", own, 0),
];

#[test]
fn everything_at_once_on_one_file() {
    let seconds =
        std::env::var("MEANTIME_STRESS_SECONDS").map_or(15, |seconds| seconds.parse().unwrap());
    let Some(image) =
        Image::make(&["-b", "4096"], 96, |root| fs::write(root.join("f"), b"").unwrap())
    else {
        return;
    };
    // The cache is smaller than the file, and the mount's thread writes back all the time.
    let options = MountOptions {
        write: true,
        cache_bytes: 4 << 20,
        commit_interval_ms: 50,
        ..MountOptions::default()
    };
    let fs = image.mount("&vwc=0", &options);
    let world = Arc::new(World { fs, stop: AtomicBool::new(false), version: AtomicU64::new(0) });
    let file = world.open();
    let mut first = vec![0; (OWNED * BLOCK) as usize];
    fill(&mut first, 0, world.version());
    file.write_at(&first, 0).unwrap();
    file.set_len(LEAST * BLOCK).unwrap();
    drop(file);
    // The threads are not joined: if one hangs, the test still fails.
    let threads: Vec<_> = WORK
        .into_iter()
        .enumerate()
        .map(|(number, (_, work, rest_us))| {
            let (world, done) = (Arc::clone(&world), Arc::new(AtomicU64::new(0)));
            let counted = Arc::clone(&done);
            let thread = std::thread::spawn(move || {
                let file = world.open();
                let mut random = Rng::new(number as u64 + 1);
                while !world.stop.load(Ordering::Relaxed) {
                    work(&world, &file, &mut random);
                    counted.fetch_add(1, Ordering::Relaxed);
                    if rest_us > 0 {
                        std::thread::sleep(Duration::from_micros(rest_us));
                    }
                }
            });
            (thread, done)
        })
        .collect();
    let began = Instant::now();
    let mut seen = vec![(0, began); threads.len()];
    let mut look = |limit: Duration| {
        for (number, (thread, done)) in threads.iter().enumerate() {
            let count = done.load(Ordering::Relaxed);
            if count != seen[number].0 {
                seen[number] = (count, Instant::now());
            }
            let stands = !thread.is_finished() && seen[number].1.elapsed() > limit;
            assert!(!stands, "who {} stands still, after {count} times", WORK[number].0);
        }
        threads.iter().any(|(thread, _)| thread.is_finished())
    };
    while began.elapsed() < Duration::from_secs(seconds) && !look(PATIENCE) {
        std::thread::sleep(Duration::from_millis(200));
    }
    world.stop.store(true, Ordering::Relaxed);
    while !threads.iter().all(|(thread, _)| thread.is_finished()) {
        look(PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    for ((thread, done), (name, ..)) in threads.into_iter().zip(WORK) {
        println!("{name}: {} times", done.load(Ordering::Relaxed));
        assert!(thread.join().is_ok(), "who {name} has failed");
    }
    let check = |file: &File, when: &str| {
        let mut all = vec![0; file.size() as usize];
        assert_eq!(file.read_at(&mut all, 0).unwrap(), all.len());
        let versions = verify(&all, 0, when);
        assert!(versions.iter().all(Option::is_some), "{when}: a block of two versions");
        versions
    };
    let Ok(world) = Arc::try_unwrap(world) else { panic!("nobody has it any more") };
    let versions = check(&world.open(), "at the end");
    world.fs.unmount().unwrap();
    image.check();
    let reader = image.mount("", &MountOptions::default());
    assert_eq!(check(&reader.open("/f").unwrap(), "mounted again"), versions);
}
