//! How fast names are created, looked up, moved and removed: `fs_names (--device URI | --dir PATH)
//! [COUNT]`.
//!
//! With a device it uses Meantime's ext4; with a directory, the file system mounted there, by
//! system calls relative to open directories. Both do the same list of operations, `COUNT` (50
//! thousand) of most kinds; the times of changes include a `sync` of the whole file system. Prints
//! a JSON object: for each kind the rate per second, and the CPU time of the calling thread per
//! operation, in µs. `scripts/bench-fs-writes.sh` compares several.

use std::error::Error;
use std::ffi::OsStr;
use std::hint::black_box;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Instant;

use meantime::block::{self, OpenOptions};
use meantime::ext4::{self, FileSystem, FileType, MountOptions, NewNode, Node, RenameFlags};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Size of a small file, in bytes.
const SMALL_BYTES: usize = 1024;
/// Size of a page of the cache, in bytes; a small file has one.
const PAGE_BYTES: usize = 4096;
/// Small files in a directory of the tree.
const BRANCH: u64 = 50;
/// Number of listings.
const LISTINGS: u64 = 5;

/// A name in a directory, and whether it is a directory.
type Found = (Vec<u8>, bool);

/// The file system under test.
trait Place {
    type Dir;
    /// Makes a directory.
    fn mkdir(&self, parent: &Self::Dir, name: &str) -> Result<()>;
    /// Opens a directory to work in.
    fn enter(&self, parent: &Self::Dir, name: &OsStr) -> Result<Self::Dir>;
    /// Creates a file with `content`: opened for writing, and closed.
    fn make(&self, parent: &Self::Dir, name: &str, content: &[u8]) -> Result<()>;
    /// The size of a file.
    fn stat(&self, parent: &Self::Dir, name: &str) -> Result<u64>;
    fn link(&self, dir: &Self::Dir, old: &str, new: &str) -> Result<()>;
    fn rename(&self, dir: &Self::Dir, old: &str, new: &str) -> Result<()>;
    fn unlink(&self, parent: &Self::Dir, name: &OsStr) -> Result<()>;
    fn rmdir(&self, parent: &Self::Dir, name: &OsStr) -> Result<()>;
    /// Calls `found` with each name but `.` and `..`, and whether it is a directory.
    fn list(&self, dir: &Self::Dir, found: impl FnMut(&[u8], bool)) -> Result<()>;
    /// Makes everything durable.
    fn sync(&self) -> Result<()>;
}

struct Ours(FileSystem);

const DIRECTORY: NewNode = NewNode { mode: 0o755, uid: 0, gid: 0, umask: 0 };
const FILE: NewNode = NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 };

impl Place for Ours {
    type Dir = Node;

    fn mkdir(&self, parent: &Node, name: &str) -> Result<()> {
        self.0.mkdir(parent, OsStr::new(name), &DIRECTORY)?;
        Ok(())
    }

    fn enter(&self, parent: &Node, name: &OsStr) -> Result<Node> {
        Ok(self.0.lookup(parent, name)?)
    }

    fn make(&self, parent: &Node, name: &str, content: &[u8]) -> Result<()> {
        let node = self.0.create(parent, OsStr::new(name), &FILE)?;
        let options = ext4::OpenOptions { write: true, ..ext4::OpenOptions::default() };
        let file = self.0.open_node_with(&node, &options)?;
        if !content.is_empty() && file.write_at(content, 0)? != content.len() {
            return Err("a short write".into());
        }
        Ok(())
    }

    fn stat(&self, parent: &Node, name: &str) -> Result<u64> {
        Ok(self.0.lookup(parent, OsStr::new(name))?.metadata().size)
    }

    fn link(&self, dir: &Node, old: &str, new: &str) -> Result<()> {
        let node = self.0.lookup(dir, OsStr::new(old))?;
        Ok(self.0.link(&node, dir, OsStr::new(new))?)
    }

    fn rename(&self, dir: &Node, old: &str, new: &str) -> Result<()> {
        let (old, new) = (OsStr::new(old), OsStr::new(new));
        Ok(self.0.rename_at(dir, old, dir, new, RenameFlags::default())?)
    }

    fn unlink(&self, parent: &Node, name: &OsStr) -> Result<()> {
        Ok(self.0.unlink(parent, name)?)
    }

    fn rmdir(&self, parent: &Node, name: &OsStr) -> Result<()> {
        Ok(self.0.rmdir(parent, name)?)
    }

    fn list(&self, dir: &Node, mut found: impl FnMut(&[u8], bool)) -> Result<()> {
        for entry in self.0.entries(dir)? {
            let entry = entry?;
            let name = entry.name.as_encoded_bytes();
            if name != b"." && name != b".." {
                found(name, entry.file_type == Some(FileType::Directory));
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.0.sync()?)
    }
}

struct Mounted(OwnedFd);

impl Place for Mounted {
    type Dir = OwnedFd;

    fn mkdir(&self, parent: &OwnedFd, name: &str) -> Result<()> {
        Ok(rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))?)
    }

    fn enter(&self, parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
    }

    fn make(&self, parent: &OwnedFd, name: &str, content: &[u8]) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
        if !content.is_empty() && rustix::io::pwrite(&file, content, 0)? != content.len() {
            return Err("a short write".into());
        }
        Ok(())
    }

    fn stat(&self, parent: &OwnedFd, name: &str) -> Result<u64> {
        Ok(rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?.st_size as u64)
    }

    fn link(&self, dir: &OwnedFd, old: &str, new: &str) -> Result<()> {
        Ok(rustix::fs::linkat(dir, old, dir, new, AtFlags::empty())?)
    }

    fn rename(&self, dir: &OwnedFd, old: &str, new: &str) -> Result<()> {
        Ok(rustix::fs::renameat(dir, old, dir, new)?)
    }

    fn unlink(&self, parent: &OwnedFd, name: &OsStr) -> Result<()> {
        Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?)
    }

    fn rmdir(&self, parent: &OwnedFd, name: &OsStr) -> Result<()> {
        Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
    }

    fn list(&self, dir: &OwnedFd, mut found: impl FnMut(&[u8], bool)) -> Result<()> {
        rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0))?;
        // The size of the C library's `readdir` buffer.
        let mut room = [MaybeUninit::uninit(); 32 << 10];
        let mut entries = RawDir::new(dir, &mut room);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                found(name, entry.file_type() == rustix::fs::FileType::Directory);
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(&self.0)?)
    }
}

/// Removes everything in `dir`, as `rm -r` does. Returns the number of names.
fn remove_all<P: Place>(place: &P, dir: &P::Dir) -> Result<u64> {
    let mut all: Vec<Found> = Vec::new();
    place.list(dir, |name, is_directory| all.push((name.to_vec(), is_directory)))?;
    let mut removed = all.len() as u64;
    for (name, is_directory) in all {
        let name = std::os::unix::ffi::OsStrExt::from_bytes(&name[..]);
        if is_directory {
            removed += remove_all(place, &place.enter(dir, name)?)?;
            place.rmdir(dir, name)?;
        } else {
            place.unlink(dir, name)?;
        }
    }
    Ok(removed)
}

/// The CPU time of the calling thread, in seconds.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Results, as members of a JSON object.
struct Results(Vec<String>);

impl Results {
    /// Times `work`, which returns its number of operations.
    fn time(&mut self, name: &str, work: impl FnOnce() -> Result<u64>) -> Result<()> {
        let (began, cpu_before) = (Instant::now(), cpu_seconds());
        let count = work()?;
        let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu_before);
        let (rate, cpu_us) = (count as f64 / seconds, cpu * 1e6 / count as f64);
        self.0.push(format!(
            r#""{name}": {{"rate": {rate:.1}, "cpu_us": {cpu_us:.2}, "count": {count}}}"#
        ));
        Ok(())
    }
}

fn work<P: Place>(place: &P, root: &P::Dir, count: u64) -> Result<String> {
    let mut results = Results(Vec::new());
    // Calls `once` for 0 to `times`, and then syncs.
    let each = |times: u64, once: &dyn Fn(u64) -> Result<()>| {
        (0..times).try_for_each(once)?;
        place.sync()?;
        Ok(times)
    };
    let directory = |name: &str| {
        place.mkdir(root, name)?;
        place.enter(root, OsStr::new(name))
    };
    let dir = directory("many")?;
    place.sync()?;
    results.time("create", || each(count, &|at| place.make(&dir, &format!("name-{at}"), &[])))?;
    results.time("stat", || {
        for at in 0..count {
            black_box(place.stat(&dir, &format!("name-{at}"))?);
        }
        Ok(count)
    })?;
    results.time("link", || {
        each(count, &|at| place.link(&dir, &format!("name-{at}"), &format!("link-{at}")))
    })?;
    results.time("readdir", || {
        let mut names = 0;
        for _ in 0..LISTINGS {
            place.list(&dir, |name, _| {
                black_box(name);
                names += 1;
            })?;
        }
        if names == 2 * count * LISTINGS { Ok(names) } else { Err("names are missing".into()) }
    })?;
    results.time("rename", || {
        each(count, &|at| place.rename(&dir, &format!("link-{at}"), &format!("moved-{at}")))
    })?;
    results.time("unlink a link", || {
        each(count, &|at| place.unlink(&dir, format!("moved-{at}").as_ref()))
    })?;
    results
        .time("unlink", || each(count, &|at| place.unlink(&dir, format!("name-{at}").as_ref())))?;
    // A hundred names at a time, so that the directory has several blocks.
    let dir = directory("few")?;
    place.sync()?;
    results.time("create+unlink", || {
        each(count, &|at| {
            place.make(&dir, &format!("name-{at}"), &[])?;
            match at.checked_sub(100) {
                Some(before) => place.unlink(&dir, format!("name-{before}").as_ref()),
                None => Ok(()),
            }
        })
    })?;
    let (dir, some) = (directory("directories")?, count / 5);
    place.sync()?;
    results.time("mkdir", || each(some, &|at| place.mkdir(&dir, &format!("name-{at}"))))?;
    results.time("rmdir", || each(some, &|at| place.rmdir(&dir, format!("name-{at}").as_ref())))?;
    // The page cache has used as much memory before: what it costs to get that from the system is
    // another matter.
    place.make(root, "large", &vec![0x5A; count as usize * PAGE_BYTES])?;
    place.sync()?;
    place.unlink(root, OsStr::new("large"))?;
    let dir = directory("tree")?;
    place.sync()?;
    results.time("tree made", || {
        let small = [0x5A; SMALL_BYTES];
        for branch in 0..count.div_ceil(BRANCH) {
            let name = format!("branch-{branch}");
            place.mkdir(&dir, &name)?;
            let inside = place.enter(&dir, name.as_ref())?;
            for at in branch * BRANCH..((branch + 1) * BRANCH).min(count) {
                place.make(&inside, &format!("name-{at}"), &small)?;
            }
        }
        place.sync()?;
        Ok(count)
    })?;
    results.time("rm -r", || {
        let removed = remove_all(place, &dir)?;
        place.sync()?;
        Ok(removed)
    })?;
    Ok(format!("{{{}}}", results.0.join(", ")))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, place, rest @ ..] = &arguments[..] else {
        return Err("usage: fs_names (--device URI | --dir PATH) [COUNT]".into());
    };
    let count = rest.first().map_or(Ok(50_000), |text| text.parse())?;
    let results = match &kind[..] {
        "--device" => {
            let device = block::open(place, &OpenOptions::default())?;
            let options = MountOptions { write: true, ..MountOptions::default() };
            let ours = Ours(FileSystem::mount(device, &options)?);
            let root = ours.0.root()?;
            let results = work(&ours, &root, count)?;
            drop(root);
            ours.0.unmount()?;
            results
        }
        "--dir" => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let open = || rustix::fs::open(&place[..], flags, Mode::empty());
            work(&Mounted(open()?), &open()?, count)?
        }
        other => return Err(format!("{other}: --device or --dir").into()),
    };
    Ok(writeln!(std::io::stdout(), "{results}")?)
}
