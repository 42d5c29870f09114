//! Recovers a state by this crate, by e2fsck and by the kernel.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use meantime_ext4::{FileSystem, MountError};
use meantime_testkit::power_cut::{History, State};

use crate::device::{Config, attach, e2fsck, mounted};
use crate::place::Place;
use crate::tally::Counts;
use crate::tree::Tree;

/// The ways in which a promise is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The model does not allow the state: synced data are missing, or there is something that
    /// never was.
    Broken,
    /// e2fsck finds something to fix.
    Unclean,
    /// The state is not recovered, or cannot be read.
    Refused,
    /// Two recoveries have different results.
    Differs,
    /// The workload itself failed: no power was cut.
    Workload,
}

#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub kind: Kind,
    pub why: String,
}

impl Violation {
    pub(crate) fn new(kind: Kind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }

    pub(crate) fn before(self, what: &str) -> Self {
        Self { why: format!("{what}: {}", self.why), ..self }
    }
}

/// The results of a run by fingerprint: many states have the same result.
#[derive(Default)]
pub(crate) struct Seen {
    ours: HashSet<u64>,
    theirs: HashMap<u64, Vec<Tree>>,
}

/// How a state is recovered.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub config: &'a Config,
    pub roots: &'a [&'a str],
    /// Whether the kernel recovers it, too.
    pub kernel: bool,
    /// Whether it is checked even if it equals a known result.
    pub thorough: bool,
    /// Whether the device failed. The file system may then be marked, so that it has to be checked
    /// before the next mount.
    pub failed: bool,
}

fn trees(fs: &FileSystem, roots: &[&str]) -> Result<Vec<Tree>, Violation> {
    let tree = |root: &&str| {
        Tree::ours(fs, root)
            .map_err(|error| Violation::new(Kind::Refused, format!("reading: {error}")))
    };
    roots.iter().map(tree).collect()
}

/// Checks that `e2fsck -fn` finds no problem in `image`.
pub(crate) fn silent(image: &Path, whose: &str) -> Result<(), Violation> {
    let (code, said) = e2fsck(image, "-fn");
    if code == 0 && said.is_empty() {
        Ok(())
    } else {
        Err(Violation::new(Kind::Unclean, format!("e2fsck -fn after {whose}: {code}, {said:?}")))
    }
}

/// e2fsck's message for an empty orphan file that the superblock marks as in use, as it is while
/// the file system is mounted. e2fsck clears the mark in a full check, but not when it only
/// recovers the journal.
const ORPHANS_LEFT: &str = "Feature orphan_present is set but orphan file is clean.";

/// The lines of e2fsck -p's output `said` that report more than a mount always has to do after a
/// crash.
fn unexpected<'a>(said: &'a [String], task: &Task<'_>) -> Vec<&'a String> {
    let mut cleared = false;
    let mut is_expected = |line: &str| {
        // The answer to the previous line.
        let may_clear = std::mem::replace(&mut cleared, false);
        if may_clear && line == "CLEARED." {
            return true;
        }
        // The device failed, so the file system is marked for a full check.
        if task.failed && line.ends_with("contains a file system with errors, check forced.") {
            return true;
        }
        if task.failed && task.config.has_orphan_file() && line.ends_with(ORPHANS_LEFT) {
            cleared = true;
            return true;
        }
        // An inode that had lost its last name, but not its blocks yet; and the summary.
        let is_orphan = line.contains(": Clearing orphaned inode ");
        let is_summary = line.contains(": clean, ") && line.ends_with(" blocks");
        line.ends_with(": recovering journal") || is_orphan || is_summary
    };
    said.iter().filter(|line| !is_expected(line)).collect()
}

/// Whether this crate's mount is refused because of an earlier failure.
fn is_marked(error: &MountError) -> bool {
    error.to_string().contains("has errors")
}

/// Recovers by this crate: mounts for writing and unmounts. Returns the writes, too.
pub(crate) fn ours(
    place: &mut Place,
    task: &Task<'_>,
    model: &'static str,
) -> Result<(Vec<Tree>, bool, History), Violation> {
    let config = Config { model, ..*task.config };
    let refused = |error: MountError| Violation::new(Kind::Refused, format!("our mount: {error}"));
    let attached = attach(place.medium(), &config, 7);
    let recorder = attached.ssd.record();
    let mount = |write| FileSystem::mount(attached.device(), &config.recovery_options(write));
    let (fs, marked) = match mount(true) {
        // It can only be mounted for reading.
        Err(error) if task.failed && is_marked(&error) => (mount(false).map_err(refused)?, true),
        mounted => (mounted.map_err(refused)?, false),
    };
    let trees = trees(&fs, task.roots).map_err(|why| why.before("our mount"))?;
    fs.unmount().map_err(|error| Violation::new(Kind::Refused, format!("our unmount: {error}")))?;
    attached.ssd.run_until_idle();
    let history = History::from(recorder.take());
    place.wrote(&history);
    if marked && !history.is_empty() {
        return Err(Violation::new(
            Kind::Refused,
            "a mount that was refused has written something",
        ));
    }
    Ok((trees, marked, history))
}

fn same(ours: &[Tree], theirs: &[Tree], whose: &str) -> Result<(), Violation> {
    match ours.iter().zip(theirs).find_map(|(ours, theirs)| ours.difference(theirs)) {
        None => Ok(()),
        Some(difference) => Err(Violation::new(
            Kind::Differs,
            format!("recovered by us and by {whose}: {difference}"),
        )),
    }
}

/// Recovers the states `on` the run's base by all three, which must have the same trees. Returns
/// these. After a failure, the image differs from what `place` records.
pub(crate) fn recover(
    place: &mut Place,
    on: &[&State],
    task: &Task<'_>,
    seen: &mut Seen,
    counts: &mut Counts,
) -> Result<Vec<Tree>, Violation> {
    place.put(on);
    let (ours, marked, _) = ours(place, task, "null")?;
    counts.ours += 1;
    if !marked && (seen.ours.insert(place.fingerprint()) || task.thorough) {
        counts.silent += 1;
        silent(place.image(), "our recovery")?;
    }
    by_e2fsck(place, on, task, &ours, seen, counts)?;
    if task.kernel {
        by_kernel(place, on, task, &ours, counts)?;
    }
    Ok(ours)
}

/// The same by e2fsck -p.
fn by_e2fsck(
    place: &mut Place,
    on: &[&State],
    task: &Task<'_>,
    ours: &[Tree],
    seen: &mut Seen,
    counts: &mut Counts,
) -> Result<(), Violation> {
    place.put(on);
    let (code, said) = e2fsck(place.image(), "-p");
    counts.e2fsck += 1;
    // Exit code 1 means that e2fsck has fixed something. Recovery after a crash does not count.
    if code > i32::from(task.failed) || code < 0 || !unexpected(&said, task).is_empty() {
        return Err(Violation::new(Kind::Unclean, format!("e2fsck -p: {code}, {said:?}")));
    }
    place.find_changes(false);
    let print = place.fingerprint();
    if task.thorough || !seen.theirs.contains_key(&print) {
        counts.silent += 1;
        let entries_left = silent_after_e2fsck(place, task.config)?;
        let read_only = mounted(place.medium(), task.config, &task.config.recovery_options(false));
        let (ssd, fs) = read_only.map_err(|error| {
            Violation::new(Kind::Refused, format!("mount after e2fsck: {error}"))
        })?;
        seen.theirs
            .insert(print, trees(&fs, task.roots).map_err(|why| why.before("after e2fsck"))?);
        drop((fs, ssd));
        if entries_left {
            // The next mount for writing removes them.
            let (ours, ..) = self::ours(place, task, "null")?;
            silent(place.image(), "our mount after e2fsck's recovery")?;
            same(&ours, &seen.theirs[&print], "e2fsck")?;
        }
    }
    same(ours, &seen.theirs[&print], "e2fsck")
}

/// Whether the kernel has mounted any state. If so, a later failure is not for lack of loop devices
/// or privileges.
static KERNEL_MOUNTS: AtomicBool = AtomicBool::new(false);

fn by_kernel(
    place: &mut Place,
    on: &[&State],
    task: &Task<'_>,
    ours: &[Tree],
    counts: &mut Counts,
) -> Result<(), Violation> {
    place.put(on);
    let mut kernels = kernel(place, task.roots)?;
    // Another process may use the loop device for a moment.
    for _ in 0..50 {
        if kernels.is_some() || !KERNEL_MOUNTS.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        kernels = kernel(place, task.roots)?;
    }
    match kernels {
        Some(kernels) => {
            KERNEL_MOUNTS.store(true, Ordering::Relaxed);
            counts.kernel += 1;
            same(ours, &kernels, "the kernel")?;
        }
        None if KERNEL_MOUNTS.load(Ordering::Relaxed) => {
            return Err(Violation::new(
                Kind::Refused,
                "the kernel does not mount it, which mounted others",
            ));
        }
        None => {}
    }
    place.find_changes(true);
    Ok(())
}

/// Checks that `e2fsck -fn` after e2fsck -p finds only what that leaves of orphans, as it does with
/// file systems written by the kernel, too: the mark that there are some, and entries of deleted
/// ones in the orphan file. Returns whether there are such entries.
fn silent_after_e2fsck(place: &Place, config: &Config) -> Result<bool, Violation> {
    let (code, said) = e2fsck(place.image(), "-fn");
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    let is_end = |end: &str| {
        config.has_orphan_file() && end.contains("WARNING: Filesystem still has errors")
    };
    let left = match &said[..] {
        [] if code == 0 => Some(false),
        [ORPHANS_LEFT, "Clear? no", end] if is_end(end) => Some(false),
        [what, "Clear? no", "Failed to initialize orphan file.", "Recreate? no", end] => {
            let is_entry =
                what.starts_with("Orphan file (inode ") && what.ends_with(" is not clean.");
            (is_entry && is_end(end)).then_some(true)
        }
        _ => None,
    };
    if let Some(left) = left {
        return Ok(left);
    }
    Err(Violation::new(
        Kind::Unclean,
        format!("e2fsck -fn after e2fsck's recovery: {code}, {said:?}"),
    ))
}

/// Returns the trees that the kernel reads from a copy of the image, or `None` if it cannot be
/// mounted here.
///
/// A mount namespace that another process makes meanwhile keeps a copy of the mount: then the kernel
/// goes on writing after the unmount. So no other state is in that file, and it is not looked at.
pub(crate) fn kernel(place: &Place, roots: &[&str]) -> Result<Option<Vec<Tree>>, Violation> {
    static COPIES: AtomicU64 = AtomicU64::new(0);
    let copy = place.beside(&format!("copy{}", COPIES.fetch_add(1, Ordering::Relaxed)));
    std::fs::copy(place.image(), &copy).unwrap();
    let trees = kernel_on(&copy, &place.beside("mnt"), roots);
    std::fs::remove_file(&copy).unwrap();
    trees
}

fn kernel_on(copy: &Path, at: &Path, roots: &[&str]) -> Result<Option<Vec<Tree>>, Violation> {
    let Some(mounted) = meantime_testkit::image::Mounted::new(copy, at, "noatime") else {
        return Ok(None);
    };
    let tree = |root: &&str| {
        Tree::kernels(&at.join(root))
            .map_err(|error| Violation::new(Kind::Refused, format!("the kernel: {error}")))
    };
    let trees = roots.iter().map(tree).collect::<Result<Vec<_>, _>>()?;
    drop(mounted);
    let begun = Instant::now();
    while is_on_loop_device(copy) {
        if begun.elapsed() > Duration::from_secs(5) {
            eprintln!("another mount namespace has the kernel's mount: not looked at by e2fsck");
            return Ok(Some(trees));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    silent(copy, "the kernel's recovery")?;
    Ok(Some(trees))
}

/// Whether a loop device has this file. The loop device stays for a moment after its mount is gone.
fn is_on_loop_device(file: &Path) -> bool {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices.into_iter().any(|device| {
        let backing = std::fs::read_to_string(device.path().join("loop/backing_file"));
        backing.is_ok_and(|backing| Path::new(backing.trim_end()) == file)
    })
}
