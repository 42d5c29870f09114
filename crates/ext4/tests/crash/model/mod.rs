//! What a file system in ordered mode, with delayed allocation, may be after a crash, by the
//! promises of POSIX and ext4.
//!
//! - Metadata changes are atomic and ordered: the state found is that after some prefix of the
//!   operations, at least as long as what was synced. A sync of a file makes everything durable up
//!   to the last operation that changed it; a data sync, up to the last that changed more than
//!   bytes within its size. The data themselves are there in any case.
//! - Unsynced data may be there or not, byte by byte; the size of a written file may be that
//!   before, that after, or one in between. But a byte is only ever something that was written to
//!   it, or zero where there was nothing: the earlier content of a file's blocks is never visible,
//!   and truncated data do not come back.

mod apply;
mod check;
mod data;
mod moment;

use std::ops::Range;

use crate::ops::{BEGINNING, Op};
use data::Data;
use moment::{Content, Moment, Object};

/// The modes of new files, directories and symbolic links.
pub(crate) const FILE_MODE: u16 = 0o644;
pub(crate) const DIRECTORY_MODE: u16 = 0o755;
const SYMLINK_MODE: u16 = 0o777;

pub(crate) use data::{beginning_id, byte, content, target, value};

/// Why an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fail {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    Invalid,
    NoAttribute,
    Other,
}

/// What an operation may do to a file's blocks before it is durable itself.
#[derive(Debug, Clone)]
struct Effect {
    object: u32,
    range: Range<u64>,
    id: u32,
}

/// What an operation synced, once it has returned.
#[derive(Debug, Clone, Default)]
struct Synced {
    /// The shortest prefix that may be found.
    floor: usize,
    /// Files whose data in these ranges are durable.
    objects: Vec<(u32, Range<u64>)>,
}

/// A run: the tree after each operation.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    block_bytes: u64,
    moments: Vec<Moment>,
    effects: Vec<Vec<Effect>>,
    synced: Vec<Synced>,
    next_object: u32,
}

impl Model {
    /// The state before the first operation. The initial content has "writes" numbered beyond all
    /// others.
    pub(crate) fn new(block_bytes: u64) -> Self {
        let mut first = Moment::default();
        let mut next_object = 1;
        first.names.insert(String::new(), 0);
        let object =
            |content, mode| Object { content, mode, attribute: None, touched: 0, data_touched: 0 };
        first.objects.insert(0, object(Content::Directory, DIRECTORY_MODE));
        for (name, size) in BEGINNING {
            let new = match size {
                Some(size) => object(Content::File(Data::new(size, beginning_id(name))), FILE_MODE),
                None => object(Content::Directory, DIRECTORY_MODE),
            };
            first.objects.insert(next_object, new);
            first.names.insert(name.to_owned(), next_object);
            next_object += 1;
        }
        Self {
            block_bytes,
            moments: vec![first],
            effects: vec![Vec::new()],
            synced: vec![Synced::default()],
            next_object,
        }
    }

    /// The error that `op` would give now, if any.
    pub(crate) fn would_fail(&self, op: &Op) -> Option<Fail> {
        self.clone().apply(op).err()
    }

    /// The number of operations.
    pub(crate) fn len(&self) -> usize {
        self.moments.len() - 1
    }

    /// The identity of the next operation's writes.
    pub(crate) fn next_id(&self) -> u32 {
        self.moments.len() as u32
    }

    /// What a program reads from `name` now, or `None` if it is not a file.
    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        let mut moment = self.moments.last()?.clone();
        let (_, data) = moment.file(name).ok()?;
        let mut bytes = vec![0; data.size as usize];
        for (range, id) in data.now.pieces(0..data.size) {
            for at in range.clone() {
                bytes[at as usize] = byte(*id, at);
            }
        }
        Some(bytes)
    }

    /// The size of file `name` now.
    pub(crate) fn size(&self, name: &str) -> Option<u64> {
        self.moments.last()?.clone().file(name).ok().map(|(_, data)| data.size)
    }

    /// Applies one more operation, which may fail.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<(), Fail> {
        let number = self.moments.len();
        // What was synced before is certain from now on.
        let mut before = self.moments.last().expect("the first").clone();
        before.sync(&self.synced.last().expect("the first").objects);
        let mut next = before.clone();
        let mut effects = Vec::new();
        let mut synced = Synced::default();
        let result = self.change(&mut next, op, number, &mut effects, &mut synced);
        if result.is_err() {
            next = before;
            effects.clear();
            synced = Synced::default();
        }
        self.moments.push(next);
        self.effects.push(effects);
        self.synced.push(synced);
        result
    }
}
