//! A program that makes each of its steps on files durable, and the check of what survives.
//!
//! Before a step the program notes the step, and after it that it is durable. The notes are not on
//! the mount. The one step that was under way may be there wholly, not at all or in part, as in
//! ext4; a rename is atomic.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use meantime_testkit::Rng;

/// Number of names that a program uses.
const NAMES: u64 = 12;
/// The name under which a replacement is written first; its content is not checked.
const TEMPORARY: &str = "temporary";

/// One step of a program.
#[derive(Debug, Clone)]
enum Step {
    /// Writes a new file.
    Create {
        name: String,
        seed: u64,
    },
    /// Writes in place, perhaps beyond the end.
    Write {
        name: String,
        at: u64,
        seed: u64,
    },
    /// Writes a new file, and renames it over the name.
    Replace {
        name: String,
        seed: u64,
    },
    Link {
        name: String,
        new: String,
    },
    Rename {
        name: String,
        new: String,
    },
    Unlink {
        name: String,
    },
}

/// Returns the bytes that a step with `seed` writes.
fn content(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    // Usually some pages, sometimes many.
    let most = if rng.one_in(8) { 200_000 } else { 12_000 };
    let len = 1 + rng.below(most) as usize;
    (0..len.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).take(len).collect()
}

impl Step {
    /// Returns a random step that is possible where `names` exist.
    fn random(rng: &mut Rng, names: &[String]) -> Self {
        let name = |rng: &mut Rng| format!("f{}", rng.below(NAMES));
        let (one, other) = (name(rng), name(rng));
        let is = |name: &String| names.contains(name);
        let seed = rng.next() >> 1;
        if !is(&one) {
            return Self::Create { name: one, seed };
        }
        match rng.below(8) {
            0 => Self::Unlink { name: one },
            1 if !is(&other) => Self::Link { name: one, new: other },
            1 | 2 if one != other => Self::Rename { name: one, new: other },
            3 | 4 => Self::Replace { name: one, seed },
            _ => Self::Write { name: one, at: rng.below(40_000), seed },
        }
    }

    fn line(&self) -> String {
        match self {
            Self::Create { name, seed } => format!("create {name} {seed}"),
            Self::Write { name, at, seed } => format!("write {name} {at} {seed}"),
            Self::Replace { name, seed } => format!("replace {name} {seed}"),
            Self::Link { name, new } => format!("link {name} {new}"),
            Self::Rename { name, new } => format!("rename {name} {new}"),
            Self::Unlink { name } => format!("unlink {name}"),
        }
    }

    /// Parses `line`. Returns `None` if it is incomplete.
    fn of(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        let number = |word: &str| word.parse().ok();
        let text = |word: &str| word.to_owned();
        Some(match words[..] {
            ["create", name, seed] => Self::Create { name: text(name), seed: number(seed)? },
            ["write", name, at, seed] => {
                Self::Write { name: text(name), at: number(at)?, seed: number(seed)? }
            }
            ["replace", name, seed] => Self::Replace { name: text(name), seed: number(seed)? },
            ["link", name, new] => Self::Link { name: text(name), new: text(new) },
            ["rename", name, new] => Self::Rename { name: text(name), new: text(new) },
            ["unlink", name] => Self::Unlink { name: text(name) },
            _ => return None,
        })
    }

    /// Executes the step in `dir`. When this returns, it is durable.
    fn run(&self, dir: &Path) -> io::Result<()> {
        let path = |name: &str| dir.join(name);
        let write_new = |name: &str, seed: u64| {
            let mut file = File::create(path(name))?;
            file.write_all(&content(seed))?;
            file.sync_all()
        };
        match self {
            Self::Create { name, seed } => write_new(name, *seed)?,
            Self::Write { name, at, seed } => {
                let file = File::options().write(true).open(path(name))?;
                // The write does not begin beyond the end: it would leave a hole, whose durability
                // is not promised.
                file.write_all_at(&content(*seed), (*at).min(file.metadata()?.len()))?;
                return file.sync_data();
            }
            Self::Replace { name, seed } => {
                write_new(TEMPORARY, *seed)?;
                fs::rename(path(TEMPORARY), path(name))?;
            }
            Self::Link { name, new } => fs::hard_link(path(name), path(new))?,
            Self::Rename { name, new } => fs::rename(path(name), path(new))?,
            Self::Unlink { name } => fs::remove_file(path(name))?,
        }
        File::open(dir)?.sync_all()
    }
}

/// The program: executes steps in `dir` until it is killed, or the mount is gone.
pub(crate) fn work(dir: &Path, notes: &Path, seed: u64) -> io::Result<()> {
    let mut rng = Rng::new(seed);
    let mut notes = File::options().create(true).append(true).open(notes)?;
    loop {
        let names = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().into_string().unwrap()));
        let step = Step::random(&mut rng, &names.collect::<io::Result<Vec<_>>>()?);
        notes.write_all(format!("{}\n", step.line()).as_bytes())?;
        step.run(dir)?;
        notes.write_all(b"durable\n")?;
    }
}

/// The content of a directory: the file of each name, and the bytes of each file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    names: BTreeMap<String, u64>,
    files: BTreeMap<u64, Vec<u8>>,
}

impl Tree {
    fn of(dir: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name().into_string().unwrap();
            if name != TEMPORARY {
                let ino = entry.metadata()?.ino();
                tree.files.insert(ino, fs::read(entry.path())?);
                tree.names.insert(name, ino);
            }
        }
        Ok(tree)
    }

    fn content(&self, name: &str) -> Option<&Vec<u8>> {
        Some(&self.files[self.names.get(name)?])
    }

    /// Applies `step`.
    fn apply(&mut self, step: &Step) {
        // This is an inode number that no file has.
        let fresh = u64::MAX - self.files.len() as u64;
        match step {
            Step::Create { name, seed } | Step::Replace { name, seed } => {
                self.names.insert(name.clone(), fresh);
                self.files.insert(fresh, content(*seed));
            }
            Step::Write { name, at, seed } => {
                let file = self.files.get_mut(&self.names[name]).unwrap();
                let (at, written) = ((*at as usize).min(file.len()), content(*seed));
                file.resize(file.len().max(at + written.len()), 0);
                file[at..at + written.len()].copy_from_slice(&written);
            }
            Step::Link { name, new } => {
                self.names.insert(new.clone(), self.names[name]);
            }
            Step::Rename { name, new } => {
                // Between two names of one file, `rename` does nothing.
                if self.names.get(name) != self.names.get(new) {
                    let ino = self.names.remove(name).unwrap();
                    self.names.insert(new.clone(), ino);
                }
            }
            Step::Unlink { name } => {
                self.names.remove(name);
            }
        }
    }

    /// Checks that names and contents are those of `other`.
    fn is(&self, other: &Self) -> Result<(), String> {
        for name in self.names.keys().chain(other.names.keys()) {
            let (here, there) = (self.content(name), other.content(name));
            if here != there {
                let say = |content: Option<&Vec<u8>>| {
                    content.map_or("none".to_owned(), |bytes| format!("{} bytes", bytes.len()))
                };
                let differs = here.zip(there).and_then(|(here, there)| {
                    here.iter().zip(there).position(|(here, there)| here != there)
                });
                return Err(format!(
                    "{name} has {}, not {}; first other byte {differs:?}",
                    say(here),
                    say(there)
                ));
            }
        }
        Ok(())
    }

    /// Checks that this may be the result of applying `step` to `before` wholly, not at all or in
    /// part.
    fn is_part_of(&self, step: &Step, before: &Self) -> Result<(), String> {
        let mut after = before.clone();
        after.apply(step);
        let whole = self.is(before).or_else(|_| self.is(&after));
        let (Err(_), Step::Create { name, .. } | Step::Write { name, .. }) = (&whole, step) else {
            return whole;
        };
        // A partial write: each byte is the old or the new one.
        let (Some(here), new) = (self.content(name), after.content(name).unwrap()) else {
            return whole;
        };
        let old = before.content(name).cloned().unwrap_or_default();
        let is_mixed = here.len() >= old.len().min(new.len())
            && here.len() <= new.len()
            && here
                .iter()
                .enumerate()
                .all(|(at, byte)| old.get(at) == Some(byte) || new.get(at) == Some(byte));
        if !is_mixed {
            return whole;
        }
        // All other files are unchanged.
        let mut rest = before.clone();
        let file = after.names[name];
        rest.names.insert(name.clone(), file);
        rest.files.insert(file, here.clone());
        self.is(&rest)
    }
}

/// Checks, after the program was killed, that `dir` has everything of `before` and of the `notes`.
/// Returns its content, from which the next run starts.
pub(crate) fn check(dir: &Path, before: &Tree, notes: &Path) -> Result<Tree, String> {
    let mut expected = before.clone();
    let mut under_way = None;
    let text = fs::read_to_string(notes).unwrap_or_default();
    let mut steps = 0;
    for line in text.split_inclusive('\n') {
        let Some(line) = line.strip_suffix('\n') else { break };
        if line == "durable" {
            expected.apply(&under_way.take().ok_or("durable, and no step")?);
            steps += 1;
        } else {
            under_way = Step::of(line);
        }
    }
    let found = Tree::of(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let right = match &under_way {
        Some(step) => found.is_part_of(step, &expected),
        None => found.is(&expected),
    };
    right.map_err(|why| {
        format!("{}, after {steps} steps, with {under_way:?} under way: {why}", dir.display())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_noticed() {
        let scratch = tempfile::tempdir().unwrap();
        let (dir, notes) = (scratch.path().join("d"), scratch.path().join("notes"));
        let begin = |dir: &Path| {
            let _ = fs::remove_dir_all(dir);
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("f1"), content(1)).unwrap();
            fs::write(dir.join("f2"), content(2)).unwrap();
        };
        begin(&dir);
        let before = Tree::of(&dir).unwrap();
        let check = |lines: &str| {
            fs::write(&notes, lines).unwrap();
            check(&dir, &before, &notes).map(drop)
        };
        check("rename f1 f2\n").unwrap();
        check("replace f1 3\n").unwrap();
        check("write f1 4 3\nnot finis").unwrap();
        for lost in [
            "create f3 5\ndurable\n",
            "unlink f1\ndurable\n",
            "link f1 f3\ndurable\n",
            "write f1 0 7\ndurable\nunlink f2\n",
            "replace f1 7\ndurable\n",
        ] {
            assert!(check(lost).is_err(), "{lost}");
        }
        // These are a rename that was half done, and a file that was replaced in part.
        fs::remove_file(dir.join("f1")).unwrap();
        assert!(check("rename f1 f3\n").is_err());
        fs::write(dir.join("f1"), &content(3)[..1]).unwrap();
        assert!(check("replace f1 3\n").is_err());
    }
}
