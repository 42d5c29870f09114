//! Crashes: workloads on a recorded SSD, and every disk state that a power cut may leave of them,
//! recovered by us, by e2fsck and by the kernel.
//!
//! Sequences of two operations are gone through exhaustively; longer ones, with a log that wraps,
//! several threads, and devices that fail, by seed; each over devices, file systems and mounts in
//! which each pair of settings occurs. `make crash STATES=100000` is a long run.
//! `MEANTIME_CRASH_STATES=n` is about how many states the tests look at beside the pairs (2,400),
//! `MEANTIME_CRASH_SEED=n` begins elsewhere, `MEANTIME_CRASH_KEEP=DIRECTORY` keeps the images of
//! what fails.

mod campaign;
mod device;
mod drive;
mod model;
mod ops;
mod place;
mod ranges;
mod record;
mod recovery;
mod rules;
mod settings;
mod tally;
mod threads;
mod told;
mod tree;
mod workloads;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use campaign::{Campaign, clean_end, recovered_by_e2fsck};
use device::{Config, make};
use meantime_testkit::Rng;
use model::Model;
use ops::{Op, random};
use place::Place;
use tree::Tree;
use workloads::{Bases, wanted};

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name}={value}: a number")),
        Err(_) => default,
    }
}

/// States to look at in all, beside those of the pairs.
fn states_wanted() -> u64 {
    setting("MEANTIME_CRASH_STATES", 2_400)
}

fn seed() -> u64 {
    setting("MEANTIME_CRASH_SEED", 1)
}

/// Does `each` for all numbers below `count` in a few threads, until it says that it is enough.
fn in_parallel(count: usize, each: impl Fn(usize, &mut Place) -> bool + Sync) {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut place = Place::new();
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= count || !each(number, &mut place) {
                        break;
                    }
                }
            });
        }
    });
}

/// Runs of one kind, by seed, until so many states were looked at.
fn campaign(
    name: &'static str,
    states: u64,
    run: impl Fn(&Bases, &Campaign, &mut Place, u64) -> bool + Sync,
) {
    let Some(bases) = Bases::new() else { return };
    let campaign = Campaign::new(name);
    in_parallel(usize::MAX, |number, place| {
        campaign.tally.states() < states
            && run(&bases, &campaign, place, seed() * 1_000_000 + number as u64)
    });
    campaign.end();
}

#[test]
fn every_pair_of_operations() {
    let Some(bases) = Bases::new() else { return };
    let campaign = Campaign::new("pairs");
    in_parallel(bases.pairs(), |number, place| bases.pair(&campaign, place, number));
    campaign.end();
}

#[test]
fn longer_sequences_by_seed() {
    campaign("sequences", states_wanted() / 2, Bases::sequence);
}

/// A hole within a page is a change as any other, though no block is given back: who syncs the file
/// has what was done before, too.
#[test]
fn a_hole_within_a_page() {
    let Some(bases) = Bases::new() else { return };
    let campaign = Campaign::new("hole");
    let (sync, hole) = (Op::Fsync("d/a"), Op::Punch("d/a", 6144, 118));
    let ops =
        [Op::Write("d/a", 0, 10), sync, Op::Create("b"), hole, sync, Op::Create("c"), Op::Sync];
    in_parallel(bases.settings(), |number, place| bases.fixed(&campaign, place, number, &ops));
    campaign.end();
}

/// Files that are written back together, new ones and such as grow or are written over.
#[test]
fn many_files_at_once() {
    use Op::{Append, Create, Mkdir, Step, Sync, Truncate, Unlink, Write};
    let Some(bases) = Bases::new() else { return };
    let campaign = Campaign::new("many");
    let ops = [
        Create("b"),
        Create("d/b"),
        Mkdir("e"),
        Create("e/a"),
        Write("b", 0, 5000),
        Write("d/b", 9000, 3000),
        Write("e/a", 0, 100),
        Append("a", 3000),
        Write("d/a", 4096, 4096),
        Append("d/s", 10_000),
        Sync,
        Write("a", 0, 9000),
        Write("b", 100, 8192),
        Truncate("d/b", 1000),
        Append("d/b", 20_000),
        Unlink("e/a"),
        Append("d/s", 100),
        Step,
        Write("d/a", 0, 8192),
        Append("b", 4096),
        Sync,
    ];
    in_parallel(bases.settings(), |number, place| bases.fixed(&campaign, place, number, &ops));
    campaign.end();
}

#[test]
fn several_threads() {
    campaign("threads", states_wanted() / 6, Bases::threads);
}

/// What fast commits say counts after a power cut until their transaction does, and is put onto the
/// disk by a mount that may lose its power as well.
#[test]
fn fast_commits() {
    campaign("fast commits", states_wanted() / 6, Bases::fast);
}

/// What e2fsck -p, which distributions run at boot, gets wrong where fast commits are not careful.
#[test]
fn fast_commits_that_lead_astray() {
    campaign("astray", states_wanted() / 6, Bases::astray);
}

#[test]
fn devices_that_fail() {
    campaign("failures", states_wanted() / 6, Bases::failing);
}

/// A device whose atomic unit is smaller than the superblock: what is torn there is nobody's to
/// recover, and everything else is.
#[test]
fn torn_superblocks() {
    campaign("torn", states_wanted() / 6, Bases::torn);
}

/// All kinds together, until there are as many states as are wanted.
#[test]
#[ignore = "long: make crash STATES=100000"]
fn long() {
    let Some(bases) = Bases::new() else { return };
    let campaign = Campaign::new("crash");
    eprintln!("crash: seed {}, {} states, {} settings", seed(), states_wanted(), bases.settings());
    let (pairs, others) = (AtomicUsize::new(0), AtomicUsize::new(0));
    in_parallel(usize::MAX, |number, place| {
        let next_pair = if number % 2 == 0 { pairs.fetch_add(1, Relaxed) } else { usize::MAX };
        let all_once = pairs.load(Relaxed) >= bases.pairs();
        if all_once && campaign.tally.states() >= states_wanted() {
            return false;
        }
        if next_pair < bases.pairs() * bases.settings() {
            return bases.pair(&campaign, place, next_pair);
        }
        let other = others.fetch_add(1, Relaxed);
        let seed = seed() * 1_000_000 + other as u64;
        match other % 8 {
            0..=3 => bases.sequence(&campaign, place, seed),
            4 => bases.threads(&campaign, place, seed),
            5 if other % 16 == 5 => bases.torn(&campaign, place, seed),
            5 => bases.fast(&campaign, place, seed),
            6 if other % 16 == 6 => bases.astray(&campaign, place, seed),
            6 => bases.fast(&campaign, place, seed),
            _ => bases.failing(&campaign, place, seed),
        }
    });
    campaign.end();
}

/// One run, as a violation names it: `MEANTIME_CRASH_RUN="failures 1001783"`.
#[test]
#[ignore = "a run by its seed"]
fn one_run() {
    let run = std::env::var("MEANTIME_CRASH_RUN").expect("MEANTIME_CRASH_RUN: kind and seed");
    let (kind, seed) = run.rsplit_once(' ').expect("a kind and a seed");
    let seed: u64 = seed.parse().expect("a number");
    let Some(bases) = Bases::new() else { return };
    let (campaign, mut place) = (Campaign::new("run"), Place::new());
    match kind {
        "pairs" => bases.pair(&campaign, &mut place, seed as usize),
        "sequences" => bases.sequence(&campaign, &mut place, seed),
        "threads" => bases.threads(&campaign, &mut place, seed),
        "fast commits" => bases.fast(&campaign, &mut place, seed),
        "astray" => bases.astray(&campaign, &mut place, seed),
        "failures" => bases.failing(&campaign, &mut place, seed),
        "torn" => bases.torn(&campaign, &mut place, seed),
        _ => panic!("no kind of run: {kind}"),
    };
    campaign.end();
}

/// Random sequences to a clean end: nothing for e2fsck to say, and the kernel finds exactly what
/// was written.
#[test]
fn clean_ends() {
    let Some(bases) = Bases::new() else { return };
    let violations: Mutex<Vec<String>> = Mutex::default();
    in_parallel(60, |number, place| {
        let mut rng = Rng::new(seed() + number as u64);
        let (config, base) = bases.some(number);
        let ops: Vec<Op> = (0..40).map(|_| wanted(&mut rng, true)).collect();
        if let Err(why) = clean_end(place, base, config, &ops) {
            let text = format!("{why}\n    {}\n    {:?}", ops::Shown(&ops), config);
            violations.lock().unwrap().push(text);
        }
        violations.lock().unwrap().len() < 5
    });
    let violations = violations.into_inner().unwrap();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// The kernel's ext4 keeps what the model promises: so the model is not too strict.
#[test]
fn the_kernel_agrees_with_the_model() {
    let config = Config::PLAIN;
    let Some(base) = make(&config, &[""]) else { return };
    let mut place = Place::new();
    let dir = meantime_testkit::image::scratch();
    for number in 0..setting("MEANTIME_CRASH_KERNEL", 12) {
        let mut rng = Rng::new(seed() + number);
        let image = dir.path().join("image");
        std::fs::write(&image, &base.bytes).unwrap();
        let at = dir.path().join("mnt");
        let Some(mounted) = meantime_testkit::image::Mounted::new(&image, &at, "noatime") else {
            return;
        };
        let mut model = Model::new(config.block_bytes as u64);
        let ops: Vec<Op> = (0..30).map(|_| random(&mut rng, true)).collect();
        for (n, op) in ops.iter().enumerate() {
            let done = drive::Kernels { root: &at }.apply(op, &model);
            let text = format!("seed {number}, operation {n}: {op:?}");
            match (model.apply(op), done) {
                (Ok(()), Ok(())) | (Err(_), Err(_)) => {}
                (expected, done) => {
                    panic!("{text}: the model says {expected:?}, the kernel {done:?}")
                }
            }
        }
        // As it is in this moment: a file system that was killed.
        let bytes = std::fs::read(&image).unwrap();
        let seen = Tree::kernels(&at).unwrap();
        drop(mounted);
        let found = recovered_by_e2fsck(
            &mut place,
            &device::Base { bytes, ..device::Base::default() },
            &config,
        )
        .unwrap();
        let prefix = model.check(&found, model.len(), model.len());
        assert!(prefix.is_ok(), "seed {number}: {prefix:?}\n{}", ops::Shown(&ops));
        let mut synced = model.clone();
        synced.apply(&Op::Sync).unwrap();
        assert_eq!(
            synced.check(&seen, synced.len(), synced.len()),
            Ok(synced.len()),
            "seed {number}"
        );
    }
}
