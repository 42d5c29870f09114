//! The workloads before a power cut: pairs of operations, longer sequences, threads, devices that
//! fail.

use std::sync::OnceLock;

use meantime_nvme_spec::opcode::IoOpcode;
use meantime_nvme_spec::status::{Status, StatusCode};
use meantime_ssd::{Fault, FaultPlan, FaultRule, OpcodeSet, When};

use crate::campaign::{Campaign, Effort};
use crate::device::{Base, Config, make};
use crate::ops::{Name, Op, alphabet, random};
use crate::place::Place;
use crate::record::{Script, run};
use crate::settings::covering;
use meantime_testkit::Rng;
use meantime_testkit::image;

/// The threads' own directories.
const ROOTS: [&str; 3] = ["t0", "t1", "t2"];

/// Each 512-byte part of a block may be written or not.
const TORN: Config = Config { unit_bytes: 512, lba_bytes: 512, ..Config::PLAIN };

/// Whether `op` is used: all are, or only those on data (`MEANTIME_CRASH_ONLY=data`).
pub(crate) fn is_wanted(op: &Op) -> bool {
    std::env::var("MEANTIME_CRASH_ONLY").as_deref() != Ok("data") || op.is_on_data()
}

/// Returns a random operation that is used.
pub(crate) fn wanted(rng: &mut Rng, heavy: bool) -> Op {
    loop {
        let op = random(rng, heavy);
        if is_wanted(&op) {
            return op;
        }
    }
}

fn one(ops: Vec<Op>) -> [Script<'static>; 1] {
    [Script { root: "", warm: Vec::new(), ops }]
}

/// The operations before power may be cut, and those after: whole transactions up to the log's end,
/// and more of them with fast commits between.
pub(crate) fn coming_round(rng: &mut Rng) -> (Vec<Op>, Vec<Op>) {
    let turn = |n: u64| match n % 4 {
        0 => Op::Attribute("d/a", 700),
        2 => Op::RemoveAttribute("d/a"),
        _ => Op::Fsync("d/a"),
    };
    let warm = (0..300 + 2 * rng.below(200)).map(turn).collect();
    let mut ops = Vec::new();
    for n in 0..3 + rng.below(4) {
        ops.extend((0..4).map(turn));
        if n % 2 == 1 {
            ops.extend([Op::Append("a", 3000), Op::Fsync("a")]);
        }
    }
    (warm, ops)
}

/// The same for files with about as many extents as fit into an inode, or more, a tree node where
/// there was room before them, and blocks that move between files.
pub(crate) fn spread(rng: &mut Rng) -> (Vec<Op>, Vec<Op>) {
    const FILES: [Name; 3] = ["a", "b", "c"];
    let (mut warm, mut next) = (vec![Op::Append("d/s", 40_000), Op::Sync], [0_u64; FILES.len()]);
    let mut apart = |file: usize| {
        next[file] += 1;
        Op::Write(FILES[file], next[file] * 9000, 100)
    };
    warm.extend([Op::Create("b"), Op::Create("c")]);
    for (file, name) in FILES.into_iter().enumerate() {
        warm.extend((0..1 + rng.below(4)).map(|_| apart(file)));
        warm.push(Op::Fsync(name));
    }
    warm.extend([Op::Truncate("d/s", 0), Op::Sync]);
    for (file, name) in FILES.into_iter().enumerate() {
        warm.extend((0..rng.below(4)).map(|_| apart(file)));
        warm.push(Op::Fsync(name));
    }
    let mut ops = Vec::new();
    for _ in 0..8 + rng.below(6) {
        let file = rng.below(FILES.len() as u64) as usize;
        let name = FILES[file];
        let (op, name) = match rng.below(8) {
            0 => (Op::Append("d/s", 5000), "d/s"),
            1 => (Op::Punch(name, rng.below(6) * 4096, 9000), name),
            2 => (Op::Keep(name, rng.below(20) * 4096, 9000), name),
            3 => (Op::Truncate(name, rng.below(40_000)), name),
            _ => (apart(file), name),
        };
        ops.extend([op, Op::Fsync(name)]);
    }
    (warm, ops)
}

/// Configurations with their file systems, each made when it is first used.
struct Made {
    roots: &'static [&'static str],
    all: Vec<(Config, OnceLock<Base>)>,
}

impl Made {
    fn new(configs: &[Config], roots: &'static [&'static str]) -> Self {
        Self { roots, all: configs.iter().map(|config| (*config, OnceLock::new())).collect() }
    }

    /// Returns entry `number`, modulo their count.
    fn some(&self, number: usize) -> (&Config, &Base) {
        let (config, base) = &self.all[number % self.all.len()];
        (
            config,
            base.get_or_init(|| make(config, self.roots).expect("e2fsprogs, which were there")),
        )
    }

    fn any(&self, rng: &mut Rng) -> (&Config, &Base) {
        self.some(rng.below(self.all.len() as u64) as usize)
    }
}

/// File systems of each configuration.
pub(crate) struct Bases {
    alphabet: Vec<Op>,
    alone: Made,
    shared: Made,
    fast: Made,
    torn: Made,
}

impl Bases {
    /// `None` without e2fsprogs.
    pub(crate) fn new() -> Option<Self> {
        if !image::tools() {
            return None;
        }
        let configs = covering();
        let fast: Vec<Config> =
            configs.iter().filter(|config| config.makes_fast_commits()).copied().collect();
        let torn = [
            TORN,
            Config { volatile: true, ..TORN },
            Config { block_bytes: 1024, ..TORN },
            Config { block_bytes: 1024, volatile: true, ..TORN },
        ];
        Some(Self {
            alphabet: alphabet().into_iter().filter(is_wanted).collect(),
            alone: Made::new(&configs, &[""]),
            shared: Made::new(&configs, &ROOTS),
            fast: Made::new(&fast, &[""]),
            torn: Made::new(&torn, &[""]),
        })
    }

    /// The number of pairs of operations.
    pub(crate) fn pairs(&self) -> usize {
        self.alphabet.len() * self.alphabet.len()
    }

    /// The quarter that a pair belongs to.
    pub(crate) fn quarter(&self, pair: usize) -> usize {
        (pair / self.alphabet.len() + pair % self.alphabet.len()) % 4
    }

    pub(crate) fn settings(&self) -> usize {
        self.alone.all.len()
    }

    pub(crate) fn some(&self, number: usize) -> (&Config, &Base) {
        self.alone.some(number)
    }

    /// Runs a pair of operations. Beyond [`pairs`](Self::pairs) they repeat, each time on another
    /// configuration.
    pub(crate) fn pair(&self, campaign: &Campaign, place: &mut Place, number: usize) -> bool {
        let (pair, round) = (number % self.pairs(), number / self.pairs());
        let (first, second) = (pair / self.alphabet.len(), pair % self.alphabet.len());
        let (config, base) = self.some(first * 5 + second + round);
        let effort = Effort { per_cut: 8, per_run: 24, kernel: 97, again: 61 };
        let ops = vec![self.alphabet[first], self.alphabet[second], Op::Sync];
        let run = run(place, base, config, &one(ops), None, 3);
        campaign.check(run, config, "pairs", &effort, place, number as u64)
    }

    /// Runs fixed operations on configuration `number`.
    pub(crate) fn fixed(
        &self,
        campaign: &Campaign,
        place: &mut Place,
        number: usize,
        ops: &[Op],
    ) -> bool {
        let (config, base) = self.some(number);
        let effort = Effort { per_cut: 12, per_run: 40, kernel: 0, again: 0 };
        let run = run(place, base, config, &one(ops.to_vec()), None, 3);
        campaign.check(run, config, "fixed sequences", &effort, place, number as u64)
    }

    /// Runs a longer sequence, sometimes on a log near its end.
    pub(crate) fn sequence(&self, campaign: &Campaign, place: &mut Place, seed: u64) -> bool {
        let mut rng = Rng::new(seed);
        let (config, base) = self.alone.any(&mut rng);
        // Enough operations for the log to reach its end or to wrap.
        let warm = if rng.one_in(3) { 100 + rng.below(300) } else { 0 };
        let warm = (0..warm)
            .map(|n| if n % 2 == 0 { Op::Fsync("d") } else { wanted(&mut rng, false) })
            .collect();
        let mut ops: Vec<Op> = (0..3 + rng.below(10)).map(|_| wanted(&mut rng, true)).collect();
        ops.push(Op::Sync);
        let effort = Effort { per_cut: 12, per_run: 60, kernel: 41, again: 53 };
        let run = run(place, base, config, &[Script { root: "", warm, ops }], None, seed);
        campaign.check(run, config, "sequences", &effort, place, seed)
    }

    /// Runs threads, each on a tree of its own, that share commits.
    pub(crate) fn threads(&self, campaign: &Campaign, place: &mut Place, seed: u64) -> bool {
        let mut rng = Rng::new(seed ^ 0x7472_6565);
        let (config, base) = self.shared.any(&mut rng);
        let script = |root: &&'static str| {
            let mut op = |n: u64| match n % 3 {
                2 => Op::Fsync(["a", "d/a", "d"][rng.below(3) as usize]),
                _ => wanted(&mut rng, false),
            };
            Script { root, warm: Vec::new(), ops: (0..12).map(&mut op).collect() }
        };
        let scripts: Vec<Script<'_>> = ROOTS.iter().map(script).collect();
        let effort = Effort { per_cut: 6, per_run: 80, kernel: 83, again: 71 };
        let run = run(place, base, config, &scripts, None, seed);
        campaign.check(run, config, "threads", &effort, place, seed)
    }

    /// Runs fast commits that e2fsck would replay wrongly without precautions: in a log that wraps,
    /// and of files whose trees have left their inodes, or are about to.
    pub(crate) fn astray(&self, campaign: &Campaign, place: &mut Place, seed: u64) -> bool {
        let mut rng = Rng::new(seed ^ 0x7374_7261);
        let (config, base) = self.fast.any(&mut rng);
        let (warm, ops) = if rng.one_in(3) { coming_round(&mut rng) } else { spread(&mut rng) };
        let effort = Effort { per_cut: 8, per_run: 60, kernel: 41, again: 23 };
        let run = run(place, base, config, &[Script { root: "", warm, ops }], None, seed);
        campaign.check(run, config, "astray", &effort, place, seed)
    }

    /// Runs fast commits: every other operation is a sync, so that eligible changes are committed
    /// fast, one after another.
    pub(crate) fn fast(&self, campaign: &Campaign, place: &mut Place, seed: u64) -> bool {
        let mut rng = Rng::new(seed ^ 0x6661_7374);
        let (config, base) = self.fast.any(&mut rng);
        let one = |n: u64, rng: &mut Rng| match n % 2 {
            1 => Op::Fsync(["a", "b", "d/a", "d"][rng.below(4) as usize]),
            _ => wanted(rng, false),
        };
        let warm = if rng.one_in(3) { 50 + rng.below(100) } else { 0 };
        let warm = (0..warm).map(|n| one(n, &mut rng)).collect();
        let ops = (0..6 + 2 * rng.below(6)).map(|n| one(n, &mut rng)).collect();
        let effort = Effort { per_cut: 8, per_run: 60, kernel: 41, again: 7 };
        let run = run(place, base, config, &[Script { root: "", warm, ops }], None, seed);
        campaign.check(run, config, "fast commits", &effort, place, seed)
    }

    /// Runs with a write or a flush that fails: once, from then on, or so that a retry succeeds.
    pub(crate) fn failing(&self, campaign: &Campaign, place: &mut Place, seed: u64) -> bool {
        let mut rng = Rng::new(seed ^ 0x6661_696C);
        let (config, base) = self.alone.any(&mut rng);
        let flush = config.volatile && rng.one_in(3);
        let opcodes = OpcodeSet::io(&[if flush { IoOpcode::Flush } else { IoOpcode::Write }]);
        let from = 1 + rng.below(if flush { 4 } else { 14 });
        let status = Status::from_code(StatusCode::WriteFault);
        let (status, times) = match rng.below(4) {
            0 => (status.with_dnr(), None),
            1 => (Status::from_code(StatusCode::NamespaceNotReady), Some(1)),
            _ => (status.with_dnr(), Some(1)),
        };
        let when = When { opcodes: Some(opcodes), from, times, ..When::ALWAYS };
        let plan = FaultPlan::only(FaultRule::new(Fault::Status(status), when));
        let op = |rng: &mut Rng, n: u64| match n % 3 {
            2 => [Op::Fsync("a"), Op::Fsync("d/a"), Op::Fdatasync("a"), Op::Sync]
                [rng.below(4) as usize],
            _ => wanted(rng, false),
        };
        let ops: Vec<Op> =
            (0..12).map(|n| op(&mut rng, n)).filter(|op| !matches!(op, Op::Read(_))).collect();
        let effort = Effort { per_cut: 8, per_run: 50, kernel: 0, again: 31 };
        let run = run(place, base, config, &one(ops), Some(plan), seed);
        campaign.check(run, config, "failures", &effort, place, seed)
    }

    /// Runs on a device whose atomic unit is smaller than the superblock.
    pub(crate) fn torn(&self, campaign: &Campaign, place: &mut Place, seed: u64) -> bool {
        let mut rng = Rng::new(seed ^ 0x746F_726E);
        let (config, base) = self.torn.any(&mut rng);
        let mut ops: Vec<Op> = (0..2 + rng.below(4)).map(|_| wanted(&mut rng, false)).collect();
        ops.extend([Op::Sync, Op::Remount, wanted(&mut rng, false), Op::Sync]);
        let effort = Effort { per_cut: 16, per_run: 60, kernel: 11, again: 0 };
        let run = run(place, base, config, &one(ops), None, seed);
        campaign.check(run, config, "torn", &effort, place, seed)
    }
}
