//! Fast commits of the kernel: it changes a file system and syncs file by file, the image is copied
//! while mounted, and this crate's replay of the copy must equal what the kernel shows.
//! `MEANTIME_FAST_COMMIT_SEEDS=n` tries more.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use meantime_ext4::FileType;
use meantime_ext4::format::{Volume, journal};

use meantime_testkit::Rng;
use meantime_testkit::image::{self, Image, Mounted, content, mkfs, open, run, scratch, tools};

fn bytes(rng: &mut Rng, count: usize) -> Vec<u8> {
    (0..count).map(|_| rng.next() as u8).collect()
}

fn one_of<'a, T>(rng: &mut Rng, all: &'a [T]) -> Option<&'a T> {
    if all.is_empty() { None } else { all.get(rng.below(all.len() as u64) as usize) }
}

/// Makes one change to the tree below `root`, and sometimes syncs a file.
fn step(root: &Path, random: &mut Rng, number: usize) -> std::io::Result<()> {
    let (mut files, mut dirs) = (Vec::new(), vec![root.to_owned()]);
    let mut at = 0;
    while let Some(dir) = dirs.get(at).cloned() {
        at += 1;
        for entry in
            fs::read_dir(dir)?.map(Result::unwrap).filter(|entry| entry.file_name() != "lost+found")
        {
            let kind = entry.file_type()?;
            if kind.is_dir() {
                dirs.push(entry.path())
            } else if kind.is_file() {
                files.push(entry.path())
            }
        }
    }
    files.sort();
    dirs.sort();
    let dir = one_of(random, &dirs).cloned().unwrap_or_default();
    let file = one_of(random, &files).cloned();
    let choice = random.below(12);
    match (choice, &file) {
        (0..=2, _) => {
            let count = random.below(20_000) as usize;
            let mut new = File::create(dir.join(format!("file-{number}")))?;
            new.write_all(&bytes(random, count))?;
            new.sync_all()?;
        }
        (3, _) if dirs.len() < 8 => fs::create_dir(dir.join(format!("dir-{number}")))?,
        (4, _) => symlink(format!("to/{number}"), dir.join(format!("link-{number}")))?,
        (5, Some(file)) => {
            let count = random.below(9_000) as usize;
            OpenOptions::new().append(true).open(file)?.write_all(&bytes(random, count))?;
        }
        (6, Some(file)) => {
            let (at, count) = (random.below(100_000), random.below(9_000) as usize);
            OpenOptions::new().write(true).open(file)?.write_all_at(&bytes(random, count), at)?;
        }
        (7, Some(file)) => {
            OpenOptions::new().write(true).open(file)?.set_len(random.below(50_000))?
        }
        (8, Some(file)) => fs::hard_link(file, dir.join(format!("hard-{number}")))?,
        (9, Some(file)) => fs::remove_file(file)?,
        (10, Some(file)) => fs::rename(file, dir.join(format!("moved-{number}")))?,
        (11, Some(file)) => {
            let file = OpenOptions::new().write(true).open(file)?;
            rustix::fs::fallocate(
                &file,
                rustix::fs::FallocateFlags::KEEP_SIZE,
                random.below(200_000),
                8192,
            )?;
        }
        _ => {}
    }
    if random.below(3) == 0
        && let Some(file) = file.filter(|file| file.exists())
    {
        File::open(file)?.sync_all()?;
    }
    Ok(())
}

/// The attributes of a file that are compared.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    mode: u32,
    size: u64,
    /// `None` for directories, whose link counts fast commits do not contain.
    links: Option<u64>,
    content: Vec<u8>,
}

type Tree = BTreeMap<PathBuf, Seen>;

fn kernels(root: &Path, below: &Path, tree: &mut Tree) {
    let metadata = fs::symlink_metadata(root.join(below)).unwrap();
    let kind = metadata.file_type();
    let content = if kind.is_symlink() {
        fs::read_link(root.join(below)).unwrap().into_os_string().into_encoded_bytes()
    } else if kind.is_file() {
        fs::read(root.join(below)).unwrap()
    } else {
        Vec::new()
    };
    let is_dir = kind.is_dir();
    let size = if is_dir { 0 } else { metadata.size() };
    let links = (!is_dir).then(|| metadata.nlink());
    tree.insert(below.to_owned(), Seen { mode: metadata.mode(), size, links, content });
    if is_dir {
        for entry in fs::read_dir(root.join(below)).unwrap() {
            kernels(root, &below.join(entry.unwrap().file_name()), tree);
        }
    }
}

fn ours(volume: &Volume<Image>, ino: u32, below: &Path, tree: &mut Tree) {
    let inode = volume.inode(ino).unwrap();
    let kind = inode.file_type();
    let bytes = match kind {
        FileType::Regular => content(volume, &inode),
        FileType::Symlink => volume.read_link(&inode).unwrap(),
        _ => Vec::new(),
    };
    let metadata = volume.metadata(&inode);
    let is_dir = kind == FileType::Directory;
    let seen = Seen {
        mode: u32::from(metadata.mode),
        size: if is_dir { 0 } else { metadata.size },
        links: (!is_dir).then_some(u64::from(metadata.links)),
        content: bytes,
    };
    tree.insert(below.to_owned(), seen);
    if !is_dir {
        return;
    }
    let mut cookie = 0;
    loop {
        let entries = volume.entries(&inode, cookie).unwrap();
        let Some(last) = entries.last() else { break };
        cookie = last.cookie;
        for entry in entries.iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
            assert_eq!(
                volume.lookup(&inode, &entry.name).unwrap().map(|(ino, _)| ino),
                Some(entry.ino)
            );
            let name = String::from_utf8(entry.name.clone()).unwrap();
            ours(volume, entry.ino, &below.join(name), tree);
        }
    }
}

/// Mounts `image` for writing and unmounts it. Returns the number of replayed fast commits.
fn replay(image: &Path) -> u32 {
    let fs = image::mount(image, &image::writable());
    let replayed = fs.info().recovered.map_or(0, |recovered| recovered.fast_commits);
    fs.unmount().unwrap();
    replayed
}

#[test]
fn what_the_kernel_committed_fast_is_there() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let point = dir.path().join("mnt");
    let mut fast_commits = 0;
    let seeds =
        std::env::var("MEANTIME_FAST_COMMIT_SEEDS").map_or(4, |seeds| seeds.parse().unwrap());
    for seed in 1..=seeds {
        let mut random = Rng::new(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let image = mkfs(dir.path(), "image", "64M", &["-O", "fast_commit"]);
        let Some(mounted) = Mounted::new(&image, &point, "rw") else { return };
        for number in 0..40 {
            step(&point, &mut random, number).unwrap();
        }
        // This makes every file durable, whatever changed last.
        let mut live = Tree::new();
        kernels(&point, Path::new(""), &mut live);
        for file in
            live.keys().filter(|file| fs::symlink_metadata(point.join(file)).unwrap().is_file())
        {
            File::open(point.join(file)).unwrap().sync_all().unwrap();
        }
        let copy = dir.path().join("copy");
        fs::copy(&image, &copy).unwrap();
        drop(mounted);

        let mut volume = open(&copy);
        let recovery = journal::recover(&volume).unwrap();
        let found = recovery.apply(&mut volume).unwrap().fast_commits;
        fast_commits += found;
        let mut replayed = Tree::new();
        ours(&volume, 2, Path::new(""), &mut replayed);
        let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&replayed), names(&live), "seed {seed}");
        for (path, seen) in &live {
            let same = replayed.get(path) == Some(seen);
            let ours = replayed.get(path).map(|ours| (ours.mode, ours.size, ours.links));
            assert!(
                same,
                "seed {seed}, {path:?}: {ours:?}, not {:?}",
                (seen.mode, seen.size, seen.links)
            );
        }
        drop(volume);

        // The same on the disk, after a mount for writing replayed it.
        assert_eq!(replay(&copy), found, "seed {seed}");
        run("e2fsck", &["-fn", copy.to_str().unwrap()]);
        let mounted = Mounted::new(&copy, &point, "rw").expect("it was mounted before");
        let mut kept = Tree::new();
        kernels(&point, Path::new(""), &mut kept);
        drop(mounted);
        assert_eq!(names(&kept), names(&live), "seed {seed}: on the disk");
        for (path, seen) in &live {
            let same = kept.get(path) == Some(seen);
            let ours = kept.get(path).map(|ours| (ours.mode, ours.size, ours.links));
            let seen = (seen.mode, seen.size, seen.links);
            assert!(same, "seed {seed}, {path:?} on the disk: {ours:?}, not {seen:?}");
        }
    }
    assert!(fast_commits > 0, "the kernel made no fast commit: nothing was tried");
    println!("{fast_commits} fast commits");
}
