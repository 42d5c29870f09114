//! The operations of a thread on files of its own.

use std::collections::BTreeMap;

use meantime_ext4::{Error, File, FileSystem, OpenOptions, ReadOptions, RenameFlags};
use meantime_testkit::Rng;
use meantime_testkit::image::READ_WRITE;

use super::ledger::{BLOCK, Event, fill, name, parse};

/// The number of names.
const SLOTS: u64 = 8;
/// The largest file, in blocks.
const BLOCKS: u64 = 24;

struct Own {
    id: u64,
    file: File,
    /// The version of each block, or 0 for none.
    versions: Vec<u64>,
}

/// A thread's files, in directory `dir`.
pub(super) struct Worker<'a> {
    fs: &'a FileSystem,
    dir: String,
    random: Rng,
    next_id: u64,
    version: u64,
    files: BTreeMap<u64, Own>,
    /// Whether what is read must be what was written last.
    pub(super) verifies: bool,
}

impl<'a> Worker<'a> {
    /// Files get numbers from `first_id` on.
    pub(super) fn new(fs: &'a FileSystem, dir: String, seed: u64, first_id: u64) -> Self {
        let random = Rng::new(seed);
        let files = BTreeMap::new();
        Self { fs, dir, random, next_id: first_id, version: 0, files, verifies: true }
    }

    fn path(&self, slot: u64) -> String {
        format!("{}/{}", self.dir, name(slot))
    }

    /// Does something.
    pub(super) fn step(&mut self, note: &mut dyn FnMut(Event)) -> Result<(), Error> {
        let slot = self.random.below(SLOTS);
        if !self.files.contains_key(&slot) {
            return self.create(slot, note);
        }
        match self.random.below(16) {
            0..=4 => self.write(slot, note),
            5..=7 => self.read(slot),
            8..=10 => self.sync(slot, note),
            11 => {
                self.fs.sync()?;
                note(Event::SyncAll);
                Ok(())
            }
            12 | 13 => self.rename(slot, note),
            14 => {
                note(Event::Unlink { id: self.files[&slot].id });
                self.files.remove(&slot);
                self.fs.remove_file(self.path(slot))
            }
            _ => {
                // Another handle.
                let file = self.fs.open_with(self.path(slot), &READ_WRITE)?;
                self.files.get_mut(&slot).expect("it is there").file = file;
                Ok(())
            }
        }
    }

    fn create(&mut self, slot: u64, note: &mut dyn FnMut(Event)) -> Result<(), Error> {
        let id = self.next_id;
        self.next_id += 1;
        note(Event::Create { id, slot });
        let options = OpenOptions { create_new: true, mode: 0o644, ..READ_WRITE };
        let file = self.fs.open_with(self.path(slot), &options)?;
        self.files.insert(slot, Own { id, file, versions: Vec::new() });
        self.write(slot, note)
    }

    fn write(&mut self, slot: u64, note: &mut dyn FnMut(Event)) -> Result<(), Error> {
        self.version += 1;
        let version = self.version;
        let own = self.files.get_mut(&slot).expect("it is there");
        // The first block first, and often more of the end.
        let len = own.versions.len() as u64;
        let block = if self.random.one_in(3) { len } else { self.random.below(len + 1) };
        let block = block.min(BLOCKS - 1);
        let count = (1 + self.random.below(4)).min(BLOCKS - block);
        let mut data = vec![0; count as usize * BLOCK];
        for (at, bytes) in (block..).zip(data.chunks_exact_mut(BLOCK)) {
            fill(bytes, own.id, at, version);
        }
        own.versions.resize(own.versions.len().max((block + count) as usize), 0);
        own.versions[block as usize..(block + count) as usize].fill(version);
        note(Event::Write { id: own.id, block, count, version });
        // A write that fails in the middle is short, and the rest says why.
        let mut at = 0;
        while at < data.len() {
            at += own.file.write_at(&data[at..], block * BLOCK as u64 + at as u64)?;
        }
        Ok(())
    }

    fn read(&mut self, slot: u64) -> Result<(), Error> {
        let own = &self.files[&slot];
        let block = self.random.below(own.versions.len() as u64);
        let mut data = [0; BLOCK];
        let options = ReadOptions { direct: !self.random.one_in(3), ..ReadOptions::default() };
        let read = own.file.read_at_with(&mut data, block * BLOCK as u64, &options)?;
        if self.verifies {
            let want = Some((own.id, block, own.versions[block as usize]));
            assert!(read == BLOCK && parse(&data) == Ok(want), "{want:?}: {:?}", parse(&data));
        }
        Ok(())
    }

    fn sync(&mut self, slot: u64, note: &mut dyn FnMut(Event)) -> Result<(), Error> {
        let own = &self.files[&slot];
        let id = own.id;
        if self.random.one_in(3) {
            own.file.sync_data()?;
            note(Event::SyncData { id });
        } else {
            own.file.sync_all()?;
            note(Event::Sync { id });
        }
        Ok(())
    }

    fn rename(&mut self, slot: u64, note: &mut dyn FnMut(Event)) -> Result<(), Error> {
        let to = self.random.below(SLOTS);
        if to == slot {
            return Ok(());
        }
        let Some(own) = self.files.remove(&slot) else { return Ok(()) };
        note(Event::Rename { id: own.id, slot: to });
        self.files.insert(to, own);
        let dir = self.fs.resolve(&self.fs.root()?, &self.dir, true)?;
        let (from, to) = (name(slot), name(to));
        let flags = RenameFlags::default();
        self.fs.rename_at(&dir, from.as_ref(), &dir, to.as_ref(), flags)
    }
}
