//! Directories that change while they are listed: a name that stays is listed once.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use meantime_ext4::{FileSystem, NewNode, Node, ReadDir, RenameFlags};

use super::collide;
use meantime_testkit::image::{mkfs, mount, run, run_for, scratch, tools, writable};
use meantime_testkit::{Rng, setting};

const NEW: NewNode = NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 };

/// A changing directory with its names.
struct Changing<'a> {
    fs: &'a FileSystem,
    rng: Rng,
    file: Node,
    dir: Node,
    aside: Node,
    /// Names that are added and removed.
    guests: Vec<OsString>,
    outside: Vec<OsString>,
    made: usize,
    /// The length of names, in bytes.
    bytes: usize,
    /// The number of guests from which more are removed than added, so that a reader can catch up.
    most: usize,
}

impl Changing<'_> {
    fn new_name(&mut self) -> OsString {
        self.made += 1;
        let mut name = format!("{:x}-{}", self.rng.below(1 << 40), self.made).into_bytes();
        name.resize(name.len().max(self.bytes), b'n');
        OsStr::from_bytes(&name).to_owned()
    }

    fn add(&mut self) {
        let name = self.new_name();
        self.fs.link(&self.file, &self.dir, &name).unwrap();
        self.guests.push(name);
    }

    /// Removes a random one of `names`.
    fn one(rng: &mut Rng, names: &mut Vec<OsString>) -> Option<OsString> {
        (!names.is_empty()).then(|| names.swap_remove(rng.below(names.len() as u64) as usize))
    }

    /// Makes one change. At first, more names are added than removed.
    fn change(&mut self) {
        let flags = RenameFlags::default();
        let least = if self.guests.len() < self.most { 0 } else { 5 };
        match least + self.rng.below(10 - least) {
            0..=4 => self.add(),
            5 | 6 => {
                if let Some(name) = Self::one(&mut self.rng, &mut self.guests) {
                    self.fs.unlink(&self.dir, &name).unwrap();
                }
            }
            7 => {
                if let Some(name) = Self::one(&mut self.rng, &mut self.guests) {
                    let new = self.new_name();
                    self.fs.rename_at(&self.dir, &name, &self.dir, &new, flags).unwrap();
                    self.guests.push(new);
                }
            }
            8 => {
                if let Some(name) = Self::one(&mut self.rng, &mut self.guests) {
                    self.fs.rename_at(&self.dir, &name, &self.aside, &name, flags).unwrap();
                    self.outside.push(name);
                }
            }
            _ => {
                if let Some(name) = Self::one(&mut self.rng, &mut self.outside) {
                    self.fs.rename_at(&self.aside, &name, &self.dir, &name, flags).unwrap();
                    self.guests.push(name);
                }
            }
        }
    }
}

/// How the directory is read.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reader {
    /// One reader continues.
    Handle,
    /// A new reader each time, from the cookie of the last name.
    Cookie,
    /// One reader that returns to that cookie each time (`seekdir`).
    Seek,
}

/// Reads the directory of `changing` in parts of up to `part` names, with up to `changes` changes
/// between them. Returns how often each name was listed.
fn read(
    changing: &mut Changing<'_>,
    reader: Reader,
    part: u64,
    changes: u64,
) -> BTreeMap<OsString, usize> {
    let (fs, dir) = (changing.fs, changing.dir.clone());
    let (mut seen, mut cookie) = (BTreeMap::new(), 0);
    let mut entries: ReadDir = fs.entries(&dir).unwrap();
    loop {
        match reader {
            Reader::Handle => {}
            Reader::Cookie => {
                entries = fs.entries(&dir).unwrap();
                entries.seek(cookie);
            }
            Reader::Seek => entries.seek(cookie),
        }
        let before = cookie;
        let mut count = 1 + changing.rng.below(part);
        loop {
            let Some(entry) = entries.next() else { return seen };
            let entry = entry.unwrap();
            assert!(entry.cookie >= cookie, "a cookie falls: {entry:?}");
            cookie = entry.cookie;
            *seen.entry(entry.name).or_default() += 1;
            count = count.saturating_sub(1);
            // A part that does not pass a group of one hash would be read forever, as with the
            // kernel's cookies.
            if count == 0 && (reader == Reader::Handle || cookie > before) {
                break;
            }
        }
        for _ in 0..changing.rng.below(changes + 1) {
            changing.change();
        }
    }
}

/// Reads and changes a directory of `fs` with the names `stay` and `guests` more.
fn check(
    fs: &FileSystem,
    seed: u64,
    stay: &BTreeSet<OsString>,
    repeat: &BTreeSet<OsString>,
    guests: usize,
    what: &str,
) {
    let root = fs.root().unwrap();
    for reader in [Reader::Handle, Reader::Cookie, Reader::Seek] {
        let mut rng = Rng::new(seed);
        let (name, beside) = (format!("d{seed}{reader:?}"), format!("a{seed}{reader:?}"));
        let file = fs.create(&root, OsStr::new(&format!("f{seed}{reader:?}")), &NEW).unwrap();
        let dir = fs.mkdir(&root, OsStr::new(&name), &NEW).unwrap();
        let aside = fs.mkdir(&root, OsStr::new(&beside), &NEW).unwrap();
        let bytes = [10, 60, 200][rng.below(3) as usize];
        let (part, changes) =
            ([1, 4, 30][rng.below(3) as usize], [1, 8, 40][rng.below(3) as usize]);
        let (guests_now, outside) = (Vec::new(), Vec::new());
        let most = 2 * guests + 150;
        let mut changing = Changing {
            fs,
            rng,
            file,
            dir,
            aside,
            guests: guests_now,
            outside,
            made: 0,
            bytes,
            most,
        };
        let mut left: Vec<_> = stay.iter().collect();
        for _ in 0..guests {
            changing.add();
        }
        while !left.is_empty() {
            let at = changing.rng.below(left.len() as u64) as usize;
            fs.link(&changing.file, &changing.dir, left.swap_remove(at)).unwrap();
        }
        let seen = read(&mut changing, reader, part, changes);
        for name in stay.iter().chain([&OsString::from("."), &OsString::from("..")]) {
            let times = seen.get(name).copied().unwrap_or_default();
            let right = if repeat.contains(name) && reader != Reader::Handle {
                times >= 1
            } else {
                times == 1
            };
            assert!(
                right,
                "{what}, seed {seed}, {reader:?}, {part} at once, {changes} changes: {name:?} came {times} times"
            );
        }
        // Without further changes, the listing is complete.
        let all: BTreeSet<_> =
            fs.entries(&changing.dir).unwrap().map(|entry| entry.unwrap().name).collect();
        assert_eq!(all.len(), stay.len() + changing.guests.len() + 2, "{what}, seed {seed}");
    }
}

#[test]
fn what_is_there_all_the_while_comes_once() {
    if !tools() {
        return;
    }
    let rounds = setting("LIST_ROUNDS").unwrap_or(1);
    let dir = scratch();
    for (args, hash) in [
        (&["-b", "1024"][..], "half_md4"),
        (&["-b", "1024"], "tea"),
        (&["-b", "1024"], "legacy"),
        (&["-b", "4096"], "half_md4"),
        // These directories are read block by block: names stay where they are.
        (&["-b", "1024", "-O", "^dir_index"], "half_md4"),
    ] {
        let image = mkfs(dir.path(), "changed.img", "64M", args);
        run("tune2fs", &["-E", &format!("hash_alg={hash}"), image.to_str().unwrap()]);
        let fs = mount(&image, &writable());
        for seed in 1..=rounds {
            // The counts give no names, one block that gets an index or not, an index, and an index
            // of two levels.
            for (count, guests) in [(0, 0), (3, 1), (12, 4), (200, 100), (700, 300)] {
                let mut stay: BTreeSet<OsString> = (0..count)
                    .map(|n| format!("stays-{n}-{}", "s".repeat(n % 150)).into())
                    .collect();
                let mut repeat = BTreeSet::new();
                if hash == "legacy" && count == 200 {
                    repeat.extend(
                        collide::names(9).iter().map(|name| OsStr::from_bytes(name).to_owned()),
                    );
                    stay.extend(repeat.clone());
                }
                let what = format!("{args:?} {hash} {count}");
                check(&fs, seed * 1000 + count as u64, &stay, &repeat, guests, &what);
            }
        }
        fs.unmount().unwrap();
        run_for("e2fsck", &["-fn", image.to_str().unwrap()], &[0]);
        std::fs::remove_file(&image).unwrap();
    }
}

/// One thread lists a directory, and another adds a name for each that was listed.
#[test]
fn a_listing_ends_though_names_are_added_all_the_while() {
    if !tools() {
        return;
    }
    const COUNT: usize = 300;
    let dir = scratch();
    for args in [&["-b", "1024"][..], &["-b", "1024", "-O", "^dir_index"]] {
        let image = mkfs(dir.path(), "grows.img", "16M", args);
        let fs = mount(&image, &writable());
        let root = fs.root().unwrap();
        let file = fs.create(&root, OsStr::new("file"), &NEW).unwrap();
        let parent = fs.mkdir(&root, OsStr::new("dir"), &NEW).unwrap();
        let mut made = 0;
        let mut add = || {
            made += 1;
            let name = format!("{made}-{}", "n".repeat(100));
            fs.link(&file, &parent, OsStr::new(&name)).unwrap();
        };
        (0..COUNT).for_each(|_| add());
        let mut listed = BTreeSet::new();
        for entry in fs.entries(&parent).unwrap() {
            assert!(listed.insert(entry.unwrap().name), "{args:?}: no name comes twice");
            // By hashes, one of the new names in e comes later in the listing.
            assert!(listed.len() < 4 * COUNT, "{args:?}: the listing does not end");
            add();
        }
        assert!(listed.len() >= COUNT + 2, "{args:?}: what was there is listed");
        drop((file, parent, root));
        fs.unmount().unwrap();
    }
}
