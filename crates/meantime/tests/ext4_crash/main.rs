//! Crashes: workloads on a recorded SSD, and every disk state that a power cut may leave of them, recovered by us, by e2fsck and by the kernel.
//!
//! Sequences of two operations are gone through exhaustively; longer ones, with a journal that wraps, by seed. `MEANTIME_CRASH_STATES=100000` is a long run (1,500 for sequences and threads unless told),
//! `MEANTIME_CRASH_SEED=n` begins elsewhere, `MEANTIME_CRASH_KEEP=DIRECTORY` keeps the images of what fails.

mod campaign;
#[path = "../common/mod.rs"]
mod common;
mod device;
mod drive;
#[path = "../common/ext4_image.rs"]
mod image;
mod model;
mod ops;
mod ranges;
mod tree;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use campaign::{Effort, Place, Run, Script, Tally};
use common::Rng;
use device::{Config, make};
use meantime::ext4::Overlap;
use meantime_ssd::Rng as SsdRng;
use model::Model;
use ops::{Op, alphabet, random};
use tree::Tree;

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name}={value}: a number")),
        Err(_) => default,
    }
}

/// States to look at in all.
fn states_wanted() -> u64 {
    setting("MEANTIME_CRASH_STATES", 1_500)
}

fn seed() -> u64 {
    setting("MEANTIME_CRASH_SEED", 1)
}

static KEPT: AtomicU64 = AtomicU64::new(0);

/// Keeps an image, if that is wanted; where.
fn keep(bytes: &[u8]) -> String {
    let Ok(directory) = std::env::var("MEANTIME_CRASH_KEEP") else { return String::new() };
    let number = KEPT.fetch_add(1, Relaxed);
    if number >= 20 {
        return String::new();
    }
    let path = std::path::Path::new(&directory).join(format!("crash-{number}.img"));
    std::fs::write(&path, bytes).unwrap();
    format!("\n    kept as {}", path.display())
}

/// Does `each` for all numbers below `count` in a few threads, until it says that it is enough.
fn in_parallel(count: usize, each: impl Fn(usize, &Place) -> bool + Sync) {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let place = Place::new(true);
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= count || !each(number, &place) {
                        break;
                    }
                }
            });
        }
    });
}

/// Whether `op` is to be done: all, or only those on data (`MEANTIME_CRASH_ONLY=data`).
fn is_wanted(op: &Op) -> bool {
    std::env::var("MEANTIME_CRASH_ONLY").as_deref() != Ok("data") || op.is_on_data()
}

/// As [`random`], wanted.
fn wanted(rng: &mut Rng, heavy: bool) -> Op {
    loop {
        let op = random(rng, heavy);
        if is_wanted(&op) {
            return op;
        }
    }
}

/// A test's violations, and how far it is.
struct Campaign {
    name: &'static str,
    tally: Tally,
    violations: Mutex<Vec<String>>,
    begun: Instant,
    told: AtomicU64,
}

impl Campaign {
    fn new(name: &'static str) -> Self {
        let (begun, told) = (Instant::now(), AtomicU64::new(0));
        Self { name, tally: Tally::default(), violations: Mutex::default(), begun, told }
    }

    fn look(
        &self,
        run: Result<Run, String>,
        config: &Config,
        effort: &Effort,
        place: &Place,
        seed: u64,
    ) -> bool {
        let found = match run {
            Ok(run) => run.look(&config.cut(), effort, place, &mut SsdRng::new(seed), &self.tally, &keep),
            Err(why) => vec![why],
        };
        let mut violations = self.violations.lock().unwrap();
        violations.extend(found.into_iter().map(|why| format!("seed {seed}: {why}")));
        let seconds = self.begun.elapsed().as_secs();
        if self.told.fetch_max(seconds / 10, Relaxed) < seconds / 10 {
            println!("{}: {seconds} s, {}", self.name, self.tally.line());
        }
        violations.len() < 10
    }

    fn end(self) {
        println!("{}: {} s, {}", self.name, self.begun.elapsed().as_secs(), self.tally.line());
        let violations = self.violations.into_inner().unwrap();
        assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
    }
}

const BLOCK_1K: Config = Config { block_bytes: 1024, lba_bytes: 512, unit_bytes: 4096, ..Config::PLAIN };
const VOLATILE: Config = Config { volatile: true, ..Config::PLAIN };

/// Devices and mounts in which each pair of settings occurs.
fn configs() -> Vec<Config> {
    let none = Overlap::NONE;
    vec![
        Config::PLAIN,
        VOLATILE,
        Config { volatile: true, overlap: none, ..BLOCK_1K },
        BLOCK_1K,
        Config { overlap: none, ..Config::PLAIN },
        Config {
            lba_bytes: 512,
            volatile: true,
            features: "metadata_csum_seed,orphan_file",
            ..Config::PLAIN
        },
        Config { features: "^metadata_csum,^64bit", ..BLOCK_1K },
    ]
}

#[test]
fn every_pair_of_operations() {
    let campaign = Campaign::new("pairs");
    let alphabet: Vec<Op> = alphabet().into_iter().filter(is_wanted).collect();
    let configs = [Config::PLAIN, VOLATILE, Config { volatile: true, ..BLOCK_1K }];
    let Some(bases) = configs.iter().map(|config| make(config, &[""])).collect::<Option<Vec<_>>>() else {
        return;
    };
    let pairs = alphabet.len() * alphabet.len();
    // Each pair once with one of them, or with all if there is time.
    let each = if states_wanted() > 20_000 { configs.len() } else { 1 };
    let effort = Effort { per_cut: (states_wanted() / 500).max(2), per_run: 200, kernel: 97, again: 61 };
    in_parallel(pairs * each, |number, place| {
        let pair = number / each;
        let which = (if each > 1 { number % each } else { pair + pair / alphabet.len() }) % configs.len();
        let ops = vec![alphabet[pair / alphabet.len()], alphabet[pair % alphabet.len()], Op::Sync];
        let script = Script { root: "", warm: Vec::new(), ops };
        let run = campaign::run(&bases[which], &configs[which], &[script], 3);
        campaign.look(run, &configs[which], &effort, place, number as u64)
    });
    campaign.end();
}

#[test]
fn longer_sequences_by_seed() {
    let campaign = Campaign::new("sequences");
    let configs = configs();
    let Some(bases) = configs.iter().map(|config| make(config, &[""])).collect::<Option<Vec<_>>>() else {
        return;
    };
    let enough = states_wanted() / 2;
    let effort = Effort { per_cut: 12, per_run: 60, kernel: 41, again: 53 };
    in_parallel(usize::MAX, |number, place| {
        if campaign.tally.states.load(Relaxed) >= enough {
            return false;
        }
        let seed = seed() * 1_000_000 + number as u64;
        let mut rng = Rng(seed);
        let which = rng.below(configs.len() as u64) as usize;
        // So many that the log comes to its end, or begins anew.
        let warm = if rng.one_in(3) { 100 + rng.below(300) } else { 0 };
        let warm =
            (0..warm).map(|n| if n % 2 == 0 { Op::Fsync("d") } else { wanted(&mut rng, false) }).collect();
        let mut ops: Vec<Op> = (0..3 + rng.below(10)).map(|_| wanted(&mut rng, true)).collect();
        ops.push(Op::Sync);
        let run = campaign::run(&bases[which], &configs[which], &[Script { root: "", warm, ops }], seed);
        campaign.look(run, &configs[which], &effort, place, seed)
    });
    campaign.end();
}

/// What fast commits say counts after a power cut until their transaction does, for us, e2fsck and the kernel, and is put onto the disk by a mount that may lose
/// its power as well.
#[test]
fn fast_commits() {
    let campaign = Campaign::new("fast commits");
    let fast = |config: Config| Config { fast_commit: true, features: "fast_commit", ..config };
    let configs = [
        fast(Config::PLAIN),
        fast(VOLATILE),
        fast(Config { volatile: true, overlap: Overlap::NONE, ..BLOCK_1K }),
        Config {
            lba_bytes: 512,
            features: "fast_commit,metadata_csum_seed,orphan_file",
            ..fast(Config::PLAIN)
        },
    ];
    let Some(bases) = configs.iter().map(|config| make(config, &[""])).collect::<Option<Vec<_>>>() else {
        return;
    };
    let enough = states_wanted() / 2;
    let effort = Effort { per_cut: 8, per_run: 60, kernel: 41, again: 7 };
    in_parallel(usize::MAX, |number, place| {
        if campaign.tally.states.load(Relaxed) >= enough {
            return false;
        }
        let seed = seed() * 1_000_000 + number as u64;
        let mut rng = Rng(seed ^ 0x6661_7374);
        let which = rng.below(configs.len() as u64) as usize;
        // Every other one a sync of a file: what can be said is, one after another.
        let one = |n: u64, rng: &mut Rng| {
            if n % 2 == 1 {
                Op::Fsync(["a", "b", "d/a", "d"][rng.below(4) as usize])
            } else {
                wanted(rng, false)
            }
        };
        let warm = if rng.one_in(3) { 50 + rng.below(100) } else { 0 };
        let warm = (0..warm).map(|n| one(n, &mut rng)).collect();
        let ops = (0..6 + 2 * rng.below(6)).map(|n| one(n, &mut rng)).collect();
        let run = campaign::run(&bases[which], &configs[which], &[Script { root: "", warm, ops }], seed);
        campaign.look(run, &configs[which], &effort, place, seed)
    });
    campaign.end();
}

#[test]
fn several_threads() {
    let campaign = Campaign::new("threads");
    let roots = ["t0", "t1", "t2"];
    let configs = [Config::PLAIN, VOLATILE];
    let Some(bases) = configs.iter().map(|config| make(config, &roots)).collect::<Option<Vec<_>>>() else {
        return;
    };
    let enough = states_wanted() / 10;
    let effort = Effort { per_cut: 6, per_run: 80, kernel: 83, again: 71 };
    in_parallel(usize::MAX, |number, place| {
        if campaign.tally.states.load(Relaxed) >= enough {
            return false;
        }
        let seed = seed() * 1_000_000 + number as u64;
        let mut rng = Rng(seed ^ 0x7472_6565);
        let which = number % configs.len();
        let scripts: Vec<Script<'_>> = roots
            .iter()
            .map(|root| {
                let one = |n: u64, rng: &mut Rng| {
                    if n % 3 == 2 {
                        Op::Fsync(["a", "d/a", "d"][rng.below(3) as usize])
                    } else {
                        wanted(rng, false)
                    }
                };
                let ops = (0..12).map(|n| one(n, &mut rng)).collect();
                Script { root, warm: Vec::new(), ops }
            })
            .collect();
        let run = campaign::run(&bases[which], &configs[which], &scripts, seed);
        campaign.look(run, &configs[which], &effort, place, seed)
    });
    campaign.end();
}

/// Random sequences to a clean end: nothing for e2fsck to say, and the kernel finds exactly what was written.
#[test]
fn clean_ends() {
    let configs = configs();
    let Some(bases) = configs.iter().map(|config| make(config, &[""])).collect::<Option<Vec<_>>>() else {
        return;
    };
    let violations: Mutex<Vec<String>> = Mutex::default();
    in_parallel(60, |number, place| {
        let mut rng = Rng(seed() + number as u64);
        let which = number % configs.len();
        let ops: Vec<Op> = (0..40).map(|_| wanted(&mut rng, true)).collect();
        if let Err(why) = campaign::clean_end(&bases[which], &configs[which], &ops, place) {
            let text = format!("{why}\n    {}\n    {:?}", ops::Shown(&ops), configs[which]);
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
    let place = Place::new(true);
    let dir = tempfile::tempdir().unwrap();
    for number in 0..setting("MEANTIME_CRASH_KERNEL", 12) {
        let mut rng = Rng(seed() + number);
        let image = dir.path().join("image");
        std::fs::write(&image, &base).unwrap();
        let at = dir.path().join("mnt");
        let Some(mounted) = image::Mounted::new(&image, &at, "noatime") else { return };
        let mut model = Model::new(config.block_bytes as u64);
        let ops: Vec<Op> = (0..30).map(|_| random(&mut rng, true)).collect();
        for (n, op) in ops.iter().enumerate() {
            let done = drive::Kernels { root: &at }.apply(op, &model);
            let text = format!("seed {number}, operation {n}: {op:?}");
            match (model.apply(op), done) {
                (Ok(()), Ok(())) | (Err(_), Err(_)) => {}
                (expected, done) => panic!("{text}: the model says {expected:?}, the kernel {done:?}"),
            }
        }
        // As it is in this moment: a file system that was killed.
        let bytes = std::fs::read(&image).unwrap();
        let seen = Tree::kernels(&at).unwrap();
        drop(mounted);
        let found = place.trees(&bytes, &config).unwrap();
        let prefix = model.check(&found, model.len(), model.len());
        assert!(prefix.is_ok(), "seed {number}: {prefix:?}\n{}", ops::Shown(&ops));
        let mut synced = model.clone();
        synced.apply(&Op::Sync).unwrap();
        assert_eq!(synced.check(&seen, synced.len(), synced.len()), Ok(synced.len()), "seed {number}");
    }
}

/// Rules of docs/ordering.md that are not kept any more are noticed, each one.
#[cfg(feature = "broken-rules")]
#[test]
fn broken_rules_are_noticed() {
    use meantime::ext4::journal::{Rule, break_rule};
    // (Rules are of the process: each is broken in one of its own.)
    const RULE: &str = "MEANTIME_CRASH_BREAK";
    let rules = [
        ("log-first", Rule::LogFirst),
        ("data-first", Rule::DataFirst),
        ("flush-first", Rule::FlushFirst),
        ("fua", Rule::Fua),
        ("home-before-tail", Rule::HomeBeforeTail),
        ("tail-before-reuse", Rule::TailBeforeReuse),
        ("held", Rule::Held),
        ("revoke", Rule::Revoke),
    ];
    if let Ok(name) = std::env::var(RULE) {
        let (_, rule) = rules.into_iter().find(|(known, _)| *known == name).expect("a rule");
        break_rule(Some(rule));
        let found = broken_run();
        println!("{name}: {found}");
        return;
    }
    if !image::tools() {
        return;
    }
    let mut unnoticed = Vec::new();
    for (name, _) in rules {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "broken_rules_are_noticed", "--nocapture"]).env(RULE, name);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or("it ended otherwise").to_owned();
        println!("{}", line.chars().take(600).collect::<String>());
        if line.contains("nothing was noticed") {
            unnoticed.push(name);
        }
    }
    assert!(unnoticed.is_empty(), "broken, and nobody noticed: {unnoticed:?}");
}

/// Runs workloads until something is noticed; what.
#[cfg(feature = "broken-rules")]
fn broken_run() -> String {
    let campaign = Campaign::new("broken");
    let configs = [VOLATILE, Config::PLAIN, Config { volatile: true, ..BLOCK_1K }];
    let bases: Vec<_> = configs.iter().map(|config| make(config, &[""]).unwrap()).collect();
    let effort = Effort { per_cut: 20, per_run: 150, kernel: 0, again: 0 };
    let found: Mutex<Option<String>> = Mutex::new(None);
    in_parallel(600, |number, place| {
        let mut rng = Rng(number as u64);
        let which = number % configs.len();
        let (warm, ops) = breaking(&mut rng, number);
        let run =
            campaign::run(&bases[which], &configs[which], &[Script { root: "", warm, ops }], number as u64);
        if !campaign.look(run, &configs[which], &effort, place, number as u64)
            || !campaign.violations.lock().unwrap().is_empty()
        {
            let violations = campaign.violations.lock().unwrap();
            let first = violations.first().cloned().unwrap_or_default();
            found
                .lock()
                .unwrap()
                .get_or_insert(format!("noticed in run {number}: {}", first.replace('\n', " ")));
        }
        found.lock().unwrap().is_none()
    });
    let found = found.into_inner().unwrap();
    found.unwrap_or_else(|| format!("nothing was noticed: {}", campaign.tally.line()))
}

/// Operations in which every rule matters: blocks change hands between files, directories and attributes, with syncs between; and now and then the log comes round.
#[cfg(feature = "broken-rules")]
fn breaking(rng: &mut Rng, number: usize) -> (Vec<Op>, Vec<Op>) {
    let warm = match number % 3 {
        // The log's end comes, and its beginning again.
        0 => (0..260 + rng.below(200))
            .map(|n| match n % 4 {
                0 => Op::Fsync("d"),
                1 => Op::Attribute("d/a", 700),
                2 => Op::RemoveAttribute("d/a"),
                _ => wanted(rng, false),
            })
            .collect(),
        _ => Vec::new(),
    };
    let mut ops = Vec::new();
    for _ in 0..2 + rng.below(5) {
        match rng.below(6) {
            // Blocks of metadata that become data: of a directory, and of attributes.
            0 => ops.extend([
                Op::Mkdir("e"),
                Op::Fsync("e"),
                Op::Rmdir("e"),
                Op::Append("a", 20_000),
                Op::Fsync("a"),
                Op::Append("d/a", 20_000),
                Op::Fsync("d/a"),
            ]),
            1 => ops.extend([
                Op::Attribute("a", 700),
                Op::Attribute("d/a", 600),
                Op::Sync,
                Op::RemoveAttribute("a"),
                Op::RemoveAttribute("d/a"),
                Op::Append("d/s", 30_000),
                Op::Fsync("d/s"),
                Op::Append("a", 30_000),
                Op::Fsync("a"),
            ]),
            // Blocks of data that change hands.
            2 => ops.extend([
                Op::Truncate("d/a", 0),
                Op::Append("a", 12_000),
                Op::Fsync("a"),
                Op::Unlink("a"),
                Op::Create("b"),
                Op::Append("b", 12_000),
                Op::Fsync("b"),
            ]),
            3 => ops.extend([
                Op::Append("a", 9000),
                Op::Fdatasync("a"),
                Op::Step,
                Op::Rename("a", "b"),
                Op::Fsync("d"),
            ]),
            4 => ops.extend([Op::Unlink("d/a"), Op::Append("d/s", 14_000), Op::Fsync("d/s"), Op::Step]),
            _ => ops.extend((0..3).map(|_| wanted(rng, false)).chain([Op::Fsync("d"), Op::Step])),
        }
    }
    ops.push(Op::Sync);
    (warm, ops)
}
