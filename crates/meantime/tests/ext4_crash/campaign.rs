//! A workload on a recorded SSD, and every state (or many) that a power cut may leave of it: recovered, looked at, compared.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use meantime::ext4::FileSystem;
use meantime_ssd::Rng as SsdRng;
use meantime_ssd::record::{CutOptions, History, State};

use crate::device::{Attached, Config, attach, e2fsck, mounted, read_only};
use crate::drive::Ours;
use crate::model::Model;
use crate::ops::{Op, Shown};
use crate::tree::Tree;

/// One thread's operations, on a tree of its own.
pub struct Script<'a> {
    pub root: &'a str,
    /// Done before recording begins, and synced.
    pub warm: Vec<Op>,
    pub ops: Vec<Op>,
}

/// When an operation began and returned, in events; `None`: not yet.
type Marks = Vec<(usize, usize)>;

/// What was recorded.
pub struct Run {
    base: Vec<u8>,
    history: History,
    tracks: Vec<Track>,
    config: Config,
    what: String,
}

struct Track {
    root: String,
    model: Model,
    /// How many operations were done before recording began.
    warm: usize,
    marks: Marks,
}

/// How much is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// States of one cut, at most.
    pub per_cut: u64,
    /// States of a run, at most.
    pub per_run: usize,
    /// One state in so many is mounted by the kernel; 0: none.
    pub kernel: u64,
    /// In one state in so many power is cut during recovery as well; 0: none.
    pub again: u64,
}

/// What was looked at.
#[derive(Debug, Default)]
pub struct Tally {
    pub runs: AtomicU64,
    pub cuts: AtomicU64,
    pub states: AtomicU64,
    pub checks: AtomicU64,
    pub kernel: AtomicU64,
    pub again: AtomicU64,
    pub changed: AtomicU64,
}

impl Tally {
    pub fn line(&self) -> String {
        let [runs, cuts, states, checks, kernel, again, changed] =
            [&self.runs, &self.cuts, &self.states, &self.checks, &self.kernel, &self.again, &self.changed]
                .map(|count| count.load(Relaxed));
        format!(
            "{runs} runs, {cuts} power cuts, {states} distinct states, {checks} checks, {kernel} mounted by the kernel, {again} after a cut during recovery, {changed} buffers changed under the device"
        )
    }
}

/// Does the scripts, each in a thread if there are several, on what `base` holds.
pub fn run(base: &[u8], config: &Config, scripts: &[Script<'_>], seed: u64) -> Result<Run, String> {
    let attached = attach(base, config, seed);
    let ssd = &attached.ssd;
    let fs = FileSystem::mount(attached.device(), &config.mount_options())
        .map_err(|error| format!("mount: {error}"))?;
    let what = scripts
        .iter()
        .map(|script| format!("{}[{}]", script.root, Shown(&script.ops)))
        .collect::<Vec<_>>()
        .join(" | ");
    let mut tracks = Vec::new();
    for script in scripts {
        let mut model = Model::new(config.block_bytes as u64);
        for op in script.warm.iter().chain([&Op::Sync]).filter(|op| **op != Op::Remount) {
            let done = Ours { fs: &fs, root: script.root }.apply(op, &model);
            compare(&mut model, op, done.map_err(|error| error.to_string()))?;
        }
        let warm = model.len();
        tracks.push(Track { root: script.root.into(), model, warm, marks: Vec::new() });
    }
    fs.sync().map_err(|error| format!("sync: {error}"))?;
    ssd.settle();
    let base = ssd.contents();
    let recorder = ssd.record();
    let mut fs = Some(fs);
    if let ([script], [track]) = (scripts, &mut tracks[..]) {
        for op in &script.ops {
            let begun = recorder.position();
            let mounted = fs.take().expect("mounted");
            let done = if *op == Op::Remount {
                fs = Some(remount(mounted, &attached, config)?);
                Ok(())
            } else {
                let done = Ours { fs: &mounted, root: script.root }.apply(op, &track.model);
                fs = Some(mounted);
                done.map_err(|error| error.to_string())
            };
            track.marks.push((begun, recorder.position()));
            compare(&mut track.model, op, done).map_err(|why| format!("{why} [{what}]"))?;
        }
    } else {
        let fs = fs.as_ref().expect("mounted");
        let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
            let threads: Vec<_> = scripts
                .iter()
                .zip(&mut tracks)
                .map(|(script, track)| {
                    let recorder = recorder.clone();
                    scope.spawn(move || {
                        for op in script.ops.iter().filter(|op| **op != Op::Remount) {
                            let begun = recorder.position();
                            let done = Ours { fs, root: script.root }.apply(op, &track.model);
                            track.marks.push((begun, recorder.position()));
                            compare(&mut track.model, op, done.map_err(|error| error.to_string()))?;
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        results.into_iter().collect::<Result<Vec<()>, String>>().map_err(|why| format!("{why} [{what}]"))?;
    }
    let history = recorder.take();
    // A mount that is dropped ends as by a crash, or not: it is not recorded any more.
    drop(fs);
    Ok(Run { base, history, tracks, config: *config, what })
}

fn remount(fs: FileSystem, attached: &Attached, config: &Config) -> Result<FileSystem, String> {
    fs.unmount().map_err(|error| format!("unmount: {error}"))?;
    FileSystem::mount(attached.device(), &config.mount_options()).map_err(|error| format!("mount: {error}"))
}

/// The model and the file system must be of one mind.
fn compare(model: &mut Model, op: &Op, done: Result<(), String>) -> Result<(), String> {
    let number = model.len() + 1;
    match (model.apply(op), done) {
        (Ok(()), Ok(())) | (Err(_), Err(_)) => Ok(()),
        (Ok(()), Err(error)) => Err(format!("operation {number}, {op:?}: {error}")),
        (Err(fail), Ok(())) => Err(format!("operation {number}, {op:?}: done, instead of {fail:?}")),
    }
}

/// What a state comes to.
struct Recovered {
    trees: Vec<Tree>,
}

/// A place for images.
pub struct Place {
    dir: tempfile::TempDir,
    kernel: bool,
}

impl Place {
    pub fn new(kernel: bool) -> Self {
        // In memory, if there is such a directory.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { dir, kernel }
    }

    fn image(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn trees(fs: &FileSystem, roots: &[&str]) -> Result<Vec<Tree>, String> {
    roots.iter().map(|root| Tree::ours(fs, root).map_err(|error| format!("reading: {error}"))).collect()
}

/// The trees of a recovered file system, what is on the medium afterwards, and what was written for it.
type Mounted = (Vec<Tree>, Vec<u8>, Option<History>);

/// Recovered by us: mounted for writing, and unmounted.
fn recover_ours(bytes: &[u8], config: &Config, roots: &[&str], record: bool) -> Result<Mounted, String> {
    let model = if record { config.model } else { "null" };
    let attached = attach(bytes, &Config { model, ..*config }, 7);
    let ssd = &attached.ssd;
    let recorder = record.then(|| ssd.record());
    let mounted = FileSystem::mount(attached.device(), &config.mount_options());
    let fs = mounted.map_err(|error| format!("our mount: {error}"))?;
    let trees = trees(&fs, roots).map_err(|why| format!("our mount: {why}"))?;
    fs.unmount().map_err(|error| format!("our unmount: {error}"))?;
    ssd.settle();
    Ok((trees, ssd.contents(), recorder.map(|recorder| recorder.take())))
}

/// That `e2fsck -fn` has nothing to say of `image`.
fn silent(image: &Path, whose: &str) -> Result<(), String> {
    let (code, said) = e2fsck(image, "-fn");
    if code == 0 && said.is_empty() {
        Ok(())
    } else {
        Err(format!("e2fsck -fn after {whose}: {code}, {said:?}"))
    }
}

/// What e2fsck -p may do: what is left to do for every mount after a crash.
fn is_expected(line: &str) -> bool {
    ["recovering journal", "Clearing orphaned inode", "Truncating orphaned inode", "Clearing orphan"]
        .iter()
        .any(|expected| line.contains(expected))
        || line.contains("orphan file")
        // (What it answers to that the file of orphans was in use, which it was, and is empty.)
        || line == "CLEARED."
}

impl Place {
    fn recover(
        &self,
        bytes: &[u8],
        config: &Config,
        roots: &[&str],
        kernel: bool,
    ) -> Result<Recovered, String> {
        let (ours, after, _) = recover_ours(bytes, config, roots, false)?;
        let image = self.image("ours");
        std::fs::write(&image, &after).unwrap();
        silent(&image, "our recovery")?;

        let image = self.image("theirs");
        std::fs::write(&image, bytes).unwrap();
        let (code, said) = e2fsck(&image, "-fp");
        let other: Vec<&String> = said.iter().filter(|line| !is_expected(line.as_str())).collect();
        if code > 1 || !other.is_empty() {
            return Err(format!("e2fsck -fp: {code}, {said:?}"));
        }
        silent(&image, "e2fsck's recovery")?;
        let recovered = std::fs::read(&image).unwrap();
        let (_ssd, fs) = read_only(&recovered, config).map_err(|error| format!("after e2fsck: {error}"))?;
        let theirs = trees(&fs, roots).map_err(|why| format!("after e2fsck: {why}"))?;
        if let Some(difference) = ours.iter().zip(&theirs).find_map(|(ours, theirs)| ours.difference(theirs))
        {
            return Err(format!("recovered by us and by e2fsck: {difference}"));
        }
        if kernel {
            std::fs::write(&image, bytes).unwrap();
            let kernels = self.kernel(&image, roots)?;
            if let Some(kernels) = kernels
                && let Some(difference) =
                    ours.iter().zip(&kernels).find_map(|(ours, kernels)| ours.difference(kernels))
            {
                return Err(format!("recovered by us and by the kernel: {difference}"));
            }
        }
        Ok(Recovered { trees: ours })
    }

    /// The tree after e2fsck's recovery.
    pub fn trees(&self, bytes: &[u8], config: &Config) -> Result<Tree, String> {
        let image = self.image("theirs");
        std::fs::write(&image, bytes).unwrap();
        let (code, said) = e2fsck(&image, "-fp");
        if code > 1 {
            return Err(format!("e2fsck -fp: {code}, {said:?}"));
        }
        let (_ssd, fs) =
            read_only(&std::fs::read(&image).unwrap(), config).map_err(|error| error.to_string())?;
        trees(&fs, &[""]).map(|mut trees| trees.remove(0))
    }

    fn kernel(&self, image: &Path, roots: &[&str]) -> Result<Option<Vec<Tree>>, String> {
        if !self.kernel {
            return Ok(None);
        }
        let Some(mounted) = crate::image::Mounted::new(image, &self.image("mnt"), "noatime") else {
            return Ok(None);
        };
        let trees = roots
            .iter()
            .map(|root| {
                Tree::kernels(&self.image("mnt").join(root)).map_err(|error| format!("the kernel: {error}"))
            })
            .collect::<Result<Vec<_>, _>>()?;
        drop(mounted);
        silent(image, "the kernel's recovery")?;
        Ok(Some(trees))
    }
}

impl Run {
    fn roots(&self) -> Vec<&str> {
        self.tracks.iter().map(|track| &*track.root).collect()
    }

    /// How many operations of each track had begun and returned at event `at`.
    fn promises(&self, at: usize) -> Vec<(usize, usize)> {
        let count = |track: &Track| {
            let begun = track.marks.iter().filter(|(begun, _)| *begun <= at).count();
            let returned = track.marks.iter().filter(|(_, returned)| *returned <= at).count();
            (track.warm + begun, track.warm + returned)
        };
        self.tracks.iter().map(count).collect()
    }

    /// Looks at what power cuts may leave. Violations, as text.
    pub fn look(
        &self,
        cut: &CutOptions,
        effort: &Effort,
        place: &Place,
        rng: &mut SsdRng,
        tally: &Tally,
        keep: &dyn Fn(&[u8]) -> String,
    ) -> Vec<String> {
        let mut violations = Vec::new();
        tally.runs.fetch_add(1, Relaxed);
        let changed = self.history.writes().iter().filter(|write| write.changed.is_some()).count();
        tally.changed.fetch_add(changed as u64, Relaxed);
        let cut = CutOptions { strict: cut.strict && self.tracks.len() == 1, ..*cut };
        let returns = self.tracks.iter().flat_map(|track| track.marks.iter().map(|(_, returned)| *returned));
        let mut points: BTreeSet<usize> = self.history.turning_points(cut.volatile).chain(returns).collect();
        points.insert(self.history.len());
        let mut known: HashMap<u64, Vec<Tree>> = HashMap::new();
        let mut bad: HashSet<u64> = HashSet::new();
        // The last ones first as often as the first, if there is not time for all.
        let points: Vec<usize> = points.into_iter().collect();
        let per_cut = effort.per_cut.min((effort.per_run as u64 / points.len() as u64).max(2));
        for at in points {
            let possible = self.history.cut(&self.base, at, &cut);
            tally.cuts.fetch_add(1, Relaxed);
            let promises = self.promises(at);
            let states: Vec<State> = possible.states(per_cut, rng).collect();
            for state in states {
                let hash = state.hash();
                if bad.contains(&hash) {
                    continue;
                }
                let is_new = !known.contains_key(&hash);
                if is_new {
                    if known.len() >= effort.per_run {
                        continue;
                    }
                    let number = tally.states.fetch_add(1, Relaxed);
                    let bytes = state.on(&self.base);
                    let kernel = effort.kernel > 0 && number.is_multiple_of(effort.kernel);
                    tally.kernel.fetch_add(u64::from(kernel), Relaxed);
                    let recovered =
                        place.recover(&bytes, &self.config, &self.roots(), kernel).and_then(|found| {
                            if effort.again > 0 && number.is_multiple_of(effort.again) {
                                self.again(&bytes, &found.trees, rng, tally)?;
                            }
                            Ok(found)
                        });
                    match recovered {
                        Ok(recovered) => {
                            known.insert(hash, recovered.trees);
                        }
                        Err(why) => {
                            bad.insert(hash);
                            violations.push(self.violation(at, &why, &keep(&bytes)));
                            continue;
                        }
                    }
                }
                for (number, track) in self.tracks.iter().enumerate() {
                    let (begun, returned) = promises[number];
                    tally.checks.fetch_add(1, Relaxed);
                    if let Err(why) = track.model.check(&known[&hash][number], begun, returned) {
                        bad.insert(hash);
                        violations.push(self.violation(at, &why, &keep(&state.on(&self.base))));
                        break;
                    }
                }
                if violations.len() > 5 {
                    return violations;
                }
            }
        }
        violations
    }

    fn violation(&self, at: usize, why: &str, kept: &str) -> String {
        let warm: Vec<usize> = self.tracks.iter().map(|track| track.warm).collect();
        format!(
            "power cut after event {at} of {} ({:?}): {why}\n    (operations before: {warm:?}) {}\n    {:?}{kept}",
            self.history.len(),
            self.history.event(at),
            self.what,
            self.config,
        )
    }

    /// Cuts the power during the recovery of `bytes` as well: whatever is left is recovered to the same `trees`.
    fn again(&self, bytes: &[u8], trees: &[Tree], rng: &mut SsdRng, tally: &Tally) -> Result<(), String> {
        let roots = self.roots();
        let (_, _, history) = recover_ours(bytes, &self.config, &roots, true)?;
        let history = history.expect("it was recorded");
        let options = self.config.cut();
        let points: Vec<usize> = history.turning_points(options.volatile).collect();
        for _ in 0..6 {
            let at = points[rng.below(points.len() as u64) as usize];
            let cut = history.cut(bytes, at, &options);
            let states: Vec<State> = cut.states(2, rng).collect();
            for state in states {
                tally.again.fetch_add(1, Relaxed);
                let (second, after, _) = recover_ours(&state.on(bytes), &self.config, &roots, false)
                    .map_err(|why| format!("after a power cut at event {at} of recovery: {why}"))?;
                if let Some(difference) = trees.iter().zip(&second).find_map(|(a, b)| a.difference(b)) {
                    return Err(format!("after a power cut at event {at} of recovery: {difference}"));
                }
                let image = tempfile::NamedTempFile::new().unwrap();
                std::fs::write(image.path(), after).unwrap();
                silent(image.path(), "a second recovery")?;
            }
        }
        Ok(())
    }
}

/// What is left at the end of a workload and a clean unmount.
pub fn clean_end(base: &[u8], config: &Config, ops: &[Op], place: &Place) -> Result<(), String> {
    let (ssd, fs) = mounted(base, config, &config.mount_options()).map_err(|error| error.to_string())?;
    let mut model = Model::new(config.block_bytes as u64);
    for op in ops.iter().filter(|op| **op != Op::Remount) {
        let done = Ours { fs: &fs, root: "" }.apply(op, &model);
        compare(&mut model, op, done.map_err(|error| error.to_string()))?;
    }
    model.apply(&Op::Sync).map_err(|fail| format!("{fail:?}"))?;
    fs.unmount().map_err(|error| format!("unmount: {error}"))?;
    ssd.settle();
    let image = place.image("clean");
    std::fs::write(&image, ssd.contents()).unwrap();
    silent(&image, "an unmount")?;
    if let Some(trees) = place.kernel(&image, &[""])? {
        model.check(&trees[0], model.len(), model.len())?;
    }
    Ok(())
}
