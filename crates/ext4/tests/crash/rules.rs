//! Breaking a rule of docs/ordering.md is detected, for each rule that has a switch.

use std::ops::Range;
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use meantime_ext4::journal::{Rule, break_rule};

use crate::campaign::{Campaign, Effort};
use crate::device::{Base, Config, make};
use crate::in_parallel;
use crate::ops::Op;
use crate::place::Place;
use crate::record::{Script, run};
use crate::recovery::Kind;
use crate::workloads::{coming_round, spread, wanted};
use meantime_testkit::Rng;
use meantime_testkit::image;

/// The rule that a process breaks. Rules are process-wide, so each is broken in its own process.
const RULE: &str = "MEANTIME_CRASH_BREAK";

/// No rule: the same runs must be clean.
const NONE: &str = "none";

/// Each rule, and the runs in which breaking it must be detected.
const RULES: [(&str, Rule, Range<usize>); 16] = [
    ("log-first", Rule::LogFirst, WHOLE),
    ("data-first", Rule::DataFirst, WHOLE),
    ("flush-first", Rule::FlushFirst, WHOLE),
    ("fua", Rule::Fua, WHOLE),
    ("in-place-before-tail", Rule::InPlaceBeforeTail, WHOLE),
    ("tail-before-reuse", Rule::TailBeforeReuse, WHOLE),
    ("held", Rule::Held, WHOLE),
    ("revoke", Rule::Revoke, WHOLE),
    ("supersede", Rule::Supersede, SUPERSEDED),
    ("flush-data", Rule::FlushData, IN_PLACE),
    ("straight", Rule::Straight, ROUND),
    ("tree-in-inode", Rule::TreeInInode, SPREAD),
    ("trim", Rule::Trim, TRIMMED),
    // The same for a fast commit as for a commit block (15).
    ("data-first of fast commits", Rule::DataFirst, FAST),
    ("flush-first of fast commits", Rule::FlushFirst, FAST),
    ("fua of fast commits", Rule::Fua, FAST),
];

/// The runs with whole commits only; with whole commits after fast ones; with fast commits only;
/// without metadata changes that are waited for; in which the log wraps; with fast commits of trees
/// that have left their inodes; with trims.
const WHOLE: Range<usize> = 0..36;
const SUPERSEDED: Range<usize> = 36..40;
const FAST: Range<usize> = 40..44;
const IN_PLACE: Range<usize> = 44..48;
const ROUND: Range<usize> = 48..52;
const SPREAD: Range<usize> = 52..60;
const TRIMMED: Range<usize> = 60..64;

const NOTICED: &str = "noticed";
const CLEAN: &str = "clean";

#[test]
fn broken_rules_are_noticed() {
    if let Ok(name) = std::env::var(RULE) {
        let broken = RULES.into_iter().find(|(known, ..)| *known == name);
        assert!(broken.is_some() || name == NONE, "{name}: no rule");
        let (rule, runs) =
            broken.map_or((None, 0..TRIMMED.end), |(_, rule, runs)| (Some(rule), runs));
        break_rule(rule);
        println!("{name}: {}", all_runs(runs, rule.is_none()));
        return;
    }
    if !image::tools() {
        return;
    }
    let mut wrong = Vec::new();
    for (name, expected) in RULES.iter().map(|(name, ..)| (*name, NOTICED)).chain([(NONE, CLEAN)]) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "rules::broken_rules_are_noticed", "--nocapture"]).env(RULE, name);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = text.lines().find_map(|line| line.split_once(&format!("{name}: ")));
        let found = found.map_or("it ended otherwise", |(_, found)| found);
        println!("{name}: {}", found.chars().take(400).collect::<String>());
        if !found.starts_with(expected) {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "broken and not noticed, or kept and not clean: {wrong:?}");
}

/// Makes `runs` until a broken rule shows, or (`all`) all of them. Returns the violations. A
/// failure before any power cut does not count, but is printed.
fn all_runs(runs: Range<usize>, all: bool) -> String {
    let campaign = Campaign::new("rules");
    let plain = Config::PLAIN;
    let small = Config { block_bytes: 1024, lba_bytes: 512, ..plain };
    let whole =
        [Config { volatile: true, ..plain }, plain, Config { volatile: true, ..small }, small];
    let configs = [whole, whole.map(|config| Config { fast_commit: true, ..config })].concat();
    let bases: Vec<OnceLock<Base>> = configs.iter().map(|_| OnceLock::new()).collect();
    let effort = Effort { per_cut: 20, per_run: 60, kernel: 0, again: 0 };
    let found: Mutex<Option<String>> = Mutex::new(None);
    in_parallel(runs.len(), |number, place: &mut Place| {
        let number = runs.start + number;
        // Runs that other tests find clean need not be checked here, too.
        if all && !crate::all() && !number.is_multiple_of(4) {
            return true;
        }
        let (which, warm, ops) = if WHOLE.contains(&number) {
            breaking(number)
        } else if IN_PLACE.contains(&number) {
            (number % whole.len(), Vec::new(), in_place())
        } else if TRIMMED.contains(&number) {
            (number % whole.len(), Vec::new(), trimming())
        } else if ROUND.contains(&number) || SPREAD.contains(&number) {
            let mut rng = Rng::new(number as u64);
            let work = if ROUND.contains(&number) { coming_round } else { spread };
            let (warm, ops) = work(&mut rng);
            (whole.len() + number % whole.len(), warm, ops)
        } else {
            let ops = if SUPERSEDED.contains(&number) { superseding() } else { fast() };
            (whole.len() + number % whole.len(), Vec::new(), ops)
        };
        let base = bases[which].get_or_init(|| make(&configs[which], &[""]).unwrap());
        let scripts = [Script { root: "", warm, ops }];
        let run = run(place, base, &configs[which], &scripts, None, number as u64);
        campaign.check(run, &configs[which], "rules", &effort, place, number as u64);
        let noticed =
            campaign.violations().into_iter().find(|violation| violation.kind != Kind::Workload);
        let mut found = found.lock().unwrap();
        if let Some(violation) = noticed.filter(|_| found.is_none()) {
            let states = campaign.tally.states();
            *found =
                Some(format!("{:?}, by then {states} states: {}", violation.kind, violation.why));
        }
        all || found.is_none()
    });
    let others =
        campaign.violations().into_iter().filter(|violation| violation.kind == Kind::Workload);
    let others: Vec<String> = others.map(|violation| violation.why).collect();
    let text = match (found.into_inner().unwrap(), others.first()) {
        (Some(found), _) => format!("{NOTICED}: {found}"),
        (None, Some(other)) => format!("only workloads that fail: {other}"),
        (None, None) => format!("{CLEAN}: {}", campaign.tally.line()),
    };
    text.replace('\n', " ")
}

/// The configuration and the operations of run `number`: blocks move between files, directories and
/// attributes, with syncs between; the file system is remounted; the log wraps.
fn breaking(number: usize) -> (usize, Vec<Op>, Vec<Op>) {
    let mut rng = Rng::new(number as u64);
    let (volatile, small) = ((number / 3).is_multiple_of(2), number / 6 % 2 == 1);
    let which = usize::from(!volatile) + 2 * usize::from(small);
    let mut ops = changing_hands(&mut rng);
    match number % 3 {
        0 => {
            // Without data: if there may be data in the device's cache, a flush follows the
            // commit, too.
            ops.splice(
                0..0,
                [Op::Create("d/b"), Op::Fsync("d"), Op::Unlink("d/b"), Op::Fsync("d")],
            );
            (which, Vec::new(), ops)
        }
        1 => {
            ops.splice(0..0, [Op::Create("c"), Op::Append("c", 5000), Op::Fsync("c"), Op::Remount]);
            ops.extend([Op::Remount, Op::Mode("a", 0o600), Op::Fsync("a")]);
            (which, Vec::new(), ops)
        }
        // On a small log, which wraps.
        _ => {
            let turn = |n: usize| match n % 4 {
                0 => Op::Attribute("d/a", 700),
                2 => Op::RemoveAttribute("d/a"),
                _ => Op::Fsync("d/a"),
            };
            let mut warm: Vec<Op> = (0..1000).map(turn).collect();
            warm.push(Op::Step);
            (2 + usize::from(!volatile), warm, ops)
        }
    }
}

/// Consecutive fast commits, of a name and of data.
fn fast() -> Vec<Op> {
    let mut ops = vec![Op::Create("b"), Op::Fsync("b")];
    for name in ["b", "d/a", "d/s", "b"] {
        ops.extend([Op::Append(name, 9000), Op::Fsync(name)]);
    }
    ops
}

/// Overwrites of existing data.
fn in_place() -> Vec<Op> {
    let write = |at| [Op::Write("d/a", at, 4096), Op::Fdatasync("d/a")];
    let direct = |at| [Op::Direct("d/a", at, 4096), Op::Fdatasync("d/a")];
    [write(0), write(4096), direct(8192), write(0), direct(4096)].concat()
}

/// Trims freed blocks before and after their transaction commits.
fn trimming() -> Vec<Op> {
    let mut ops = vec![Op::Append("a", 12_000), Op::Fsync("a"), Op::Trim];
    ops.extend([Op::Truncate("d/a", 0), Op::Trim, Op::Fsync("d/a"), Op::Trim]);
    ops.extend([Op::Append("d/s", 9000), Op::Fsync("d/s"), Op::Unlink("a"), Op::Trim]);
    ops.extend([Op::Append("d/a", 5000), Op::Fsync("d/a"), Op::Trim, Op::Sync]);
    ops
}

/// Fast commits, then the whole transaction, because no fast commit can describe a new directory or
/// a deleted file; then fast commits that continue from that.
fn superseding() -> Vec<Op> {
    let mut ops = fast();
    ops.extend([Op::Mkdir("e"), Op::Fsync("e"), Op::Append("b", 5000), Op::Fsync("b")]);
    ops.extend([Op::Unlink("a"), Op::Fsync("d"), Op::Create("d/b"), Op::Fsync("d/b")]);
    ops.extend([Op::Append("d/a", 5000), Op::Fsync("d/a"), Op::Sync]);
    ops
}

fn changing_hands(rng: &mut Rng) -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..2 + rng.below(3) {
        match rng.below(6) {
            // Metadata blocks that become data: of a directory, and of attributes.
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
            // Data blocks that move to another file.
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
            4 => ops.extend([
                Op::Unlink("d/a"),
                Op::Append("d/s", 14_000),
                Op::Fsync("d/s"),
                Op::Step,
            ]),
            _ => ops.extend((0..3).map(|_| wanted(rng, false)).chain([Op::Fsync("d"), Op::Step])),
        }
    }
    ops.push(Op::Sync);
    ops
}
