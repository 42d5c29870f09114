//! Recovers and checks all (or many) disk states that a power cut may leave of a workload.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use meantime_ssd::Rng as SsdRng;
use meantime_testkit::power_cut::{CutOptions, State};

use crate::device::{Base, Config, attach, e2fsck};
use crate::drive::Ours;
use crate::model::Model;
use crate::ops::Op;
use crate::place::Place;
use crate::record::{Failed, Run, Track, compare};
use crate::recovery::{self, Kind, Seen, Task, Violation};
use crate::tally::{Counts, Tally};
use crate::tree::Tree;

/// The limits on how many states are checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// The most states per cut.
    pub per_cut: u64,
    /// The most states per run.
    pub per_run: usize,
    /// The kernel mounts one in this many states, or none if this is 0.
    pub kernel: u64,
    /// In one in this many states, power is cut during recovery, too. 0 means none.
    pub again: u64,
}

/// One in this many states is checked even if it is indistinguishable from an earlier one after its
/// recovery.
const THOROUGH: u64 = 16;

/// The violations and the progress of a test.
pub(crate) struct Campaign {
    name: &'static str,
    pub tally: Tally,
    /// The number of states begun, which selects those that the kernel mounts.
    number: AtomicU64,
    violations: Mutex<Vec<Violation>>,
    begun: Instant,
    told: AtomicU64,
}

impl Campaign {
    pub(crate) fn new(name: &'static str) -> Self {
        let (begun, told) = (Instant::now(), AtomicU64::new(0));
        Self {
            name,
            tally: Tally::default(),
            number: AtomicU64::new(0),
            violations: Mutex::default(),
            begun,
            told,
        }
    }

    /// Checks a run. Returns whether to continue.
    pub(crate) fn check(
        &self,
        run: Result<Run, Violation>,
        config: &Config,
        what: &str,
        effort: &Effort,
        place: &mut Place,
        seed: u64,
    ) -> bool {
        let mut counts = Counts { runs: 1, ..Counts::default() };
        let found = match run {
            Ok(run) => {
                let mut look = Look { run: &run, effort, campaign: self, counts: &mut counts };
                look.all(place, &mut SsdRng::new(seed))
            }
            Err(why) => vec![why],
        };
        counts.violations = found.len() as u64;
        self.tally.add(config, what, &counts);
        let mut violations = self.violations.lock().unwrap_or_else(PoisonError::into_inner);
        for violation in found {
            let violation = violation.before(&format!("{what}, seed {seed}"));
            eprintln!("{}: {:?}: {}", self.name, violation.kind, violation.why);
            violations.push(violation);
        }
        let seconds = self.begun.elapsed().as_secs();
        if self.told.fetch_max(seconds / 10, Relaxed) < seconds / 10 {
            eprintln!(
                "{}: {seconds} s, {}, {} violations",
                self.name,
                self.tally.line(),
                violations.len()
            );
        }
        violations.len() < 10
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Prints a summary.
    ///
    /// # Panics
    /// Panics if there were violations.
    pub(crate) fn end(self) {
        println!("{}: {} s, {}", self.name, self.begun.elapsed().as_secs(), self.tally.line());
        println!("{}", self.tally.table());
        let violations = self.violations();
        let text: Vec<String> = violations
            .iter()
            .map(|violation| format!("{:?}: {}", violation.kind, violation.why))
            .collect();
        assert!(text.is_empty(), "{} violations:\n{}", text.len(), text.join("\n"));
    }
}

static KEPT: AtomicU64 = AtomicU64::new(0);

/// Keeps the image of `place` with the states `on`, if requested. Returns a message with its path.
fn keep(place: &mut Place, on: &[&State]) -> String {
    let Ok(directory) = std::env::var("MEANTIME_CRASH_KEEP") else { return String::new() };
    let number = KEPT.fetch_add(1, Relaxed);
    if number >= 20 {
        return String::new();
    }
    place.put(on);
    let path = std::path::Path::new(&directory).join(format!("crash-{number}.img"));
    // A long run does not fail because there is no room for an image.
    match std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&path, place.bytes())) {
        Ok(()) => format!("\n    kept as {}", path.display()),
        Err(error) => format!("\n    not kept as {}: {error}", path.display()),
    }
}

/// The size and alignment of a superblock. A device with a smaller atomic unit may tear it.
const SUPERBLOCK_BYTES: usize = 1024;

/// Whether the primary superblock of `place` with `state` is torn: its checksum is wrong, which
/// ext4 cannot survive either. Everything that may be torn has a checksum; without one this could
/// not be detected.
fn is_torn(place: &Place, state: &State) -> bool {
    let mut superblock = place.base()[1024..2048].to_vec();
    for (offset, content) in state.changes() {
        for (at, byte) in (offset..).zip(content) {
            if let Some(place) = at.checked_sub(1024).and_then(|at| superblock.get_mut(at as usize))
            {
                *place = *byte;
            }
            if at >= 2048 {
                break;
            }
        }
    }
    let sum = u32::from_le_bytes(superblock[1020..].try_into().expect("four bytes"));
    // ext4's checksum has no final inversion.
    !crc32c::crc32c(&superblock[..1020]) != sum
}

struct Look<'a> {
    run: &'a Run,
    effort: &'a Effort,
    campaign: &'a Campaign,
    counts: &'a mut Counts,
}

impl Look<'_> {
    fn roots(run: &Run) -> Vec<&str> {
        run.tracks.iter().map(|track| &*track.root).collect()
    }

    /// The numbers of operations of each track that had begun and returned at event `at`.
    fn promises(&self, at: usize) -> Vec<(usize, usize)> {
        let count = |track: &Track| {
            let begun = track.marks.iter().filter(|(begun, _)| *begun <= at).count();
            let returned = track.marks.iter().filter(|(_, returned)| *returned <= at).count();
            (track.warm + begun, track.warm + returned)
        };
        self.run.tracks.iter().map(count).collect()
    }

    /// Checks what power cuts may leave.
    fn all(&mut self, place: &mut Place, rng: &mut SsdRng) -> Vec<Violation> {
        let mut violations = Vec::new();
        let run = self.run;
        if run.history.writes().iter().any(|write| write.changed.is_some()) {
            let why = format!("a buffer was changed while the device had it: {}", run.what);
            violations.push(Violation::new(Kind::Workload, why));
        }
        // With several threads, one may learn of a completion in the same turn in which another's
        // request is taken because of it, so only the order of events is a known order. With one
        // thread, no request taken in a turn can result from a completion in it. The journal's
        // thread does not count: the thread that has it commit sleeps meanwhile.
        let cut = CutOptions { strict: run.tracks.len() == 1, ..run.config.cut() };
        let returns =
            run.tracks.iter().flat_map(|track| track.marks.iter().map(|(_, returned)| *returned));
        let mut points: BTreeSet<usize> =
            run.history.turning_points(cut.volatile).chain(returns).collect();
        points.insert(run.history.len());
        points.retain(|at| *at <= run.history.len());
        let mut known: HashMap<u64, Vec<Tree>> = HashMap::new();
        let mut bad: HashSet<u64> = HashSet::new();
        let mut seen = Seen::default();
        let per_cut =
            self.effort.per_cut.min((self.effort.per_run as u64 / points.len() as u64).max(2));
        for at in points {
            let possible = run.history.cut(place.base(), at, &cut);
            self.counts.cuts += 1;
            let promises = self.promises(at);
            let states: Vec<State> = possible.states(per_cut, rng).collect();
            for state in states {
                let hash = state.hash();
                if bad.contains(&hash) {
                    continue;
                }
                if !known.contains_key(&hash) {
                    if known.len() >= self.effort.per_run {
                        continue;
                    }
                    match self.one(place, &state, &mut seen, rng) {
                        Ok(Some(trees)) => {
                            known.insert(hash, trees);
                        }
                        Ok(None) => {
                            bad.insert(hash);
                            continue;
                        }
                        Err(why) => {
                            bad.insert(hash);
                            place.corrupt();
                            violations.push(self.violation(at, why, &keep(place, &[&state])));
                            continue;
                        }
                    }
                }
                if let Some(why) = self.check(&known[&hash], &promises) {
                    bad.insert(hash);
                    let why = Violation::new(Kind::Broken, why);
                    violations.push(self.violation(at, why, &keep(place, &[&state])));
                }
                if violations.len() > 5 {
                    return violations;
                }
            }
        }
        violations
    }

    /// The reason why `trees` violates the promises, if it does.
    fn check(&mut self, trees: &[Tree], promises: &[(usize, usize)]) -> Option<String> {
        let mut tracks = self.run.tracks.iter().zip(trees).zip(promises);
        self.counts.checks += trees.len() as u64;
        tracks.find_map(|((track, tree), (begun, returned))| {
            track.model.check(tree, *begun, *returned).err()
        })
    }

    /// The result of a new state; `None`: it cannot be recovered at all.
    fn one(
        &mut self,
        place: &mut Place,
        state: &State,
        seen: &mut Seen,
        rng: &mut SsdRng,
    ) -> Result<Option<Vec<Tree>>, Violation> {
        let campaign = self.campaign;
        let is_new = campaign.tally.is_new(place.hash(state));
        self.counts.states += u64::from(is_new);
        let number = campaign.number.fetch_add(1, Relaxed);
        let one_in = |some: u64| some > 0 && number.is_multiple_of(some);
        let run = self.run;
        let (config, roots) = (&run.config, Self::roots(run));
        let kernel = one_in(self.effort.kernel);
        let task =
            Task { config, roots: &roots, kernel, thorough: one_in(THOROUGH), failed: run.failed };
        if config.unit_bytes < SUPERBLOCK_BYTES && is_torn(place, state) {
            self.counts.torn += 1;
            return self.torn(place, state, &task).map(|()| None);
        }
        let trees = recovery::recover(place, &[state], &task, seen, self.counts)?;
        if one_in(self.effort.again) {
            self.again(place, state, &trees, &task, rng)?;
        }
        Ok(Some(trees))
    }

    /// Checks a torn superblock: it must not be mounted, nor read as anything else.
    fn torn(&mut self, place: &mut Place, state: &State, task: &Task<'_>) -> Result<(), Violation> {
        place.put(&[state]);
        if let Ok((trees, ..)) = recovery::ours(place, task, "null") {
            let why = format!("a torn superblock was mounted: {} names", trees[0].names.len());
            return Err(Violation::new(Kind::Refused, why));
        }
        self.counts.ours += 1;
        if task.kernel {
            place.put(&[state]);
            self.counts.kernel += 1;
            let image = place.image().to_owned();
            if meantime_testkit::image::Mounted::new(&image, &place.beside("mnt"), "noatime")
                .is_some()
            {
                place.corrupt();
                let why = "the kernel mounts a superblock that is torn";
                return Err(Violation::new(Kind::Differs, why));
            }
        }
        Ok(())
    }

    fn violation(&self, at: usize, why: Violation, kept: &str) -> Violation {
        let run = self.run;
        let warm: Vec<usize> = run.tracks.iter().map(|track| track.warm).collect();
        let text = format!(
            "power cut after event {at} of {} ({:?}): {}\n    (operations before: {warm:?}) {}\n    {:?}{kept}",
            run.history.len(),
            run.history.event(at),
            why.why,
            run.what,
            run.config,
        );
        Violation::new(why.kind, text)
    }

    /// Cuts the power during the recovery of `first`, too. Whatever is left must be recovered to
    /// the same `trees`.
    fn again(
        &mut self,
        place: &mut Place,
        first: &State,
        trees: &[Tree],
        task: &Task<'_>,
        rng: &mut SsdRng,
    ) -> Result<(), Violation> {
        place.put(&[first]);
        let bytes = place.bytes();
        let (_, _, history) = recovery::ours(place, task, task.config.model)?;
        let options = task.config.cut();
        let points: Vec<usize> = history.turning_points(options.volatile).collect();
        if points.is_empty() {
            // A refused mount writes nothing.
            return Ok(());
        }
        let mut seen = Seen::default();
        for _ in 0..6 {
            let at = points[rng.below(points.len() as u64) as usize];
            let cut = history.cut(&bytes, at, &options);
            let states: Vec<State> = cut.states(2, rng).collect();
            for second in states {
                let hash = place.hash(first).wrapping_mul(3).wrapping_add(second.hash());
                if !self.campaign.tally.is_new(hash) {
                    continue;
                }
                self.counts.states += 1;
                self.counts.again += 1;
                let task = Task { kernel: false, thorough: false, ..*task };
                let found =
                    recovery::recover(place, &[first, &second], &task, &mut seen, self.counts)
                        .map_err(|why| {
                            why.before(&format!("after a power cut at event {at} of recovery"))
                        })?;
                if let Some(difference) =
                    trees.iter().zip(&found).find_map(|(a, b)| a.difference(b))
                {
                    let why = format!("after a power cut at event {at} of recovery: {difference}");
                    return Err(Violation::new(Kind::Differs, why));
                }
            }
        }
        Ok(())
    }
}

/// The result of a workload and a clean unmount.
pub(crate) fn clean_end(
    place: &mut Place,
    base: &Base,
    config: &Config,
    ops: &[Op],
) -> Result<(), String> {
    place.load(base);
    let attached = attach(place.medium(), &Config { model: "null", ..*config }, 1);
    let fs = meantime_ext4::FileSystem::mount(attached.device(), &config.mount_options())
        .map_err(|error| error.to_string())?;
    let mut model = Model::new(config.block_bytes as u64);
    for op in ops.iter().filter(|op| **op != Op::Remount) {
        let done = Ours { fs: &fs, root: "" }.apply(op, &model);
        compare(&mut model, op, done.map_err(Failed::from))?;
    }
    model.apply(&Op::Sync).map_err(|fail| format!("{fail:?}"))?;
    fs.unmount().map_err(|error| format!("unmount: {error}"))?;
    attached.ssd.run_until_idle();
    drop(attached);
    recovery::silent(place.image(), "an unmount").map_err(|violation| violation.why)?;
    if let Some(trees) = recovery::kernel(place, &[""]).map_err(|violation| violation.why)? {
        model.check(&trees[0], model.len(), model.len())?;
    }
    Ok(())
}

/// The tree of `place`'s image after e2fsck's recovery.
pub(crate) fn recovered_by_e2fsck(
    place: &mut Place,
    base: &Base,
    config: &Config,
) -> Result<Tree, String> {
    place.load(base);
    let (code, said) = e2fsck(place.image(), "-fp");
    if code > 1 {
        return Err(format!("e2fsck -fp: {code}, {said:?}"));
    }
    let options = config.recovery_options(false);
    let (_ssd, fs) = crate::device::mounted(place.medium(), config, &options)
        .map_err(|error| error.to_string())?;
    Tree::ours(&fs, "").map_err(|error| error.to_string())
}
