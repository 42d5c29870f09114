//! What a file system must have of a thread's files after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::str::FromStr;

use meantime_ext4::FileSystem;

pub(super) const BLOCK: usize = 4096;

/// What a thread does. Changes are noted before they are tried, syncs when they have succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Create { id: u64, slot: u64 },
    Write { id: u64, block: u64, count: u64, version: u64 },
    Rename { id: u64, slot: u64 },
    Unlink { id: u64 },
    Sync { id: u64 },
    SyncData { id: u64 },
    SyncAll,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Create { id, slot } => write!(f, "create {id} {slot}"),
            Self::Write { id, block, count, version } => {
                write!(f, "write {id} {block} {count} {version}")
            }
            Self::Rename { id, slot } => write!(f, "rename {id} {slot}"),
            Self::Unlink { id } => write!(f, "unlink {id}"),
            Self::Sync { id } => write!(f, "sync {id}"),
            Self::SyncData { id } => write!(f, "sync-data {id}"),
            Self::SyncAll => write!(f, "sync-all"),
        }
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(' ');
        let what = words.next().unwrap_or_default();
        let numbers = words.map(str::parse).collect::<Result<Vec<u64>, _>>();
        let numbers = numbers.map_err(|error| format!("{text:?}: {error}"))?;
        Ok(match (what, &numbers[..]) {
            ("create", &[id, slot]) => Self::Create { id, slot },
            ("write", &[id, block, count, version]) => Self::Write { id, block, count, version },
            ("rename", &[id, slot]) => Self::Rename { id, slot },
            ("unlink", &[id]) => Self::Unlink { id },
            ("sync", &[id]) => Self::Sync { id },
            ("sync-data", &[id]) => Self::SyncData { id },
            ("sync-all", []) => Self::SyncAll,
            _ => return Err(format!("{text:?} is no event")),
        })
    }
}

/// The name of a slot.
pub(super) fn name(slot: u64) -> String {
    format!("f{slot}")
}

/// Word `at` of a block. It contains its file, version, block and place.
fn word(id: u64, block: u64, version: u64, at: u64) -> u64 {
    id << 44 | version << 20 | block << 12 | at
}

/// The content of a block.
pub(super) fn fill(to: &mut [u8], id: u64, block: u64, version: u64) {
    for (at, bytes) in (0..).zip(to.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word(id, block, version, at).to_le_bytes());
    }
}

/// Returns the file, block and version of a block's content, or `None` if it is zeroes.
pub(super) fn parse(content: &[u8]) -> Result<Option<(u64, u64, u64)>, String> {
    let words = || content.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    if words().all(|word| word == 0) {
        return Ok(None);
    }
    let first = words().next().unwrap_or(0);
    let (id, version, block) = (first >> 44, first >> 20 & 0xFF_FFFF, first >> 12 & 0xFF);
    match (0..).zip(words()).find(|(at, found)| *found != word(id, block, version, *at)) {
        None => Ok(Some((id, block, version))),
        Some((at, found)) => Err(format!("word {at} is {found:#x}, after {first:#x}")),
    }
}

#[derive(Debug, Default)]
struct File {
    slot: u64,
    /// The names under which it may be found.
    slots: BTreeSet<u64>,
    is_synced: bool,
    may_be_gone: bool,
    must_be_gone: bool,
    /// The versions that a block may hold, oldest first, and whether it must hold one of them.
    blocks: BTreeMap<u64, (bool, Vec<u64>)>,
}

impl File {
    fn sync(&mut self, with_names: bool) {
        self.is_synced = true;
        if with_names {
            self.slots = BTreeSet::from([self.slot]);
        }
        for (is_synced, versions) in self.blocks.values_mut() {
            *is_synced = true;
            versions.drain(..versions.len() - 1);
        }
    }
}

/// The files of a thread, which are in a directory of their own.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    files: BTreeMap<u64, File>,
    pub(super) syncs: u64,
    pub(super) events: u64,
}

impl Ledger {
    fn file(&mut self, id: u64) -> &mut File {
        self.files.get_mut(&id).unwrap_or_else(|| panic!("no file {id}"))
    }

    pub(super) fn note(&mut self, event: Event) {
        self.events += 1;
        match event {
            Event::Create { id, slot } => {
                let file = File { slot, slots: BTreeSet::from([slot]), ..File::default() };
                assert!(self.files.insert(id, file).is_none(), "file {id} twice");
            }
            Event::Write { id, block, count, version } => {
                for block in block..block + count {
                    self.file(id).blocks.entry(block).or_default().1.push(version);
                }
            }
            Event::Rename { id, slot } => {
                for (_, file) in self.files.iter_mut().filter(|(other, _)| **other != id) {
                    file.may_be_gone |= file.slot == slot;
                }
                let file = self.file(id);
                file.slot = slot;
                file.slots.insert(slot);
            }
            Event::Unlink { id } => self.file(id).may_be_gone = true,
            Event::Sync { id } => self.file(id).sync(true),
            Event::SyncData { id } => self.file(id).sync(false),
            Event::SyncAll => {
                for file in self.files.values_mut() {
                    file.must_be_gone |= file.may_be_gone;
                    file.sync(true);
                }
            }
        }
        let syncs = matches!(event, Event::Sync { .. } | Event::SyncData { .. } | Event::SyncAll);
        self.syncs += u64::from(syncs);
    }

    /// Compares directory `dir` with what it must have.
    pub(super) fn check(&self, fs: &FileSystem, dir: &str) -> Result<(), String> {
        let mut found = BTreeSet::new();
        for entry in fs.read_dir(dir).map_err(|error| format!("{dir}: {error}"))? {
            let entry = entry.map_err(|error| format!("{dir}: {error}"))?;
            let entry: &OsStr = entry.name.as_ref();
            let entry = std::str::from_utf8(entry.as_bytes()).unwrap_or("?");
            if entry == "." || entry == ".." {
                continue;
            }
            let wrong = |what: String| format!("{dir}/{entry}: {what}");
            let slot = entry.strip_prefix('f').and_then(|slot| slot.parse::<u64>().ok());
            let slot = slot.ok_or_else(|| wrong("nobody made it".into()))?;
            let failed = |error: meantime_ext4::Error| wrong(error.to_string());
            let file = fs.open(format!("{dir}/{entry}")).map_err(failed)?;
            let mut content = vec![0; file.size() as usize];
            let read = file.read_at(&mut content, 0).map_err(failed)?;
            if read < content.len() {
                return Err(wrong(format!("{read} bytes of {}", content.len())));
            }
            if let Some(id) = self.check_file(slot, &content).map_err(wrong)?
                && !found.insert(id)
            {
                return Err(wrong(format!("file {id} has two names")));
            }
        }
        match self.files.iter().find(|(id, file)| {
            file.is_synced && !file.may_be_gone && !file.blocks.is_empty() && !found.contains(id)
        }) {
            Some((id, file)) => Err(format!("{dir}: file {id} was synced: {file:?}")),
            None => Ok(()),
        }
    }

    /// Checks the file at `slot`. Returns which it is, if it has any content.
    fn check_file(&self, slot: u64, content: &[u8]) -> Result<Option<u64>, String> {
        let mut is = None;
        let mut versions = BTreeMap::new();
        for (at, bytes) in (0..).zip(content.chunks(BLOCK)) {
            let found = parse(bytes).map_err(|what| format!("block {at}: {what}"))?;
            let Some((id, block, version)) = found else { continue };
            if block != at || *is.get_or_insert(id) != id {
                return Err(format!("block {at} is block {block} of file {id}, not of {is:?}"));
            }
            versions.insert(at, version);
        }
        let Some(id) = is else { return Ok(None) };
        let file = self.files.get(&id).ok_or_else(|| format!("file {id} is not from here"))?;
        let wrong = |what: String| Err(format!("{what}: file {id}: {file:?}"));
        if file.must_be_gone {
            return wrong("it was removed".into());
        }
        if !file.slots.contains(&slot) {
            return wrong("a name that it did not have, or has lost".into());
        }
        for (at, version) in &versions {
            if !file.blocks.get(at).is_some_and(|(_, may)| may.contains(version)) {
                return wrong(format!("block {at} is of version {version}"));
            }
        }
        match file.blocks.iter().find(|(at, (must, _))| *must && !versions.contains_key(at)) {
            Some((at, _)) => wrong(format!("block {at} is missing")),
            None => Ok(Some(id)),
        }
    }
}
