//! What a file system in ordered mode, with delayed allocation, may be after a crash, from what POSIX and ext4 promise.
//!
//! - Changes of metadata are atomic and come in order: what is found is the state after some prefix of the operations, which is no shorter than what was
//!   synced: a sync of a file makes everything durable up to the last operation that changed it.
//! - Data that were not synced may be there or not, byte by byte; the size of a file to which was written may be that before or after, or between. But a
//!   byte is only ever something that was written to it, or zero where there was nothing: whatever is in blocks before a file has them is nobody's to see, and what was
//!   truncated does not come back.

use std::collections::{BTreeMap, BTreeSet};

use crate::ops::{BEGINNING, Op};
use crate::ranges::Ranges;
use crate::tree::{Inode, Kind, Tree};

/// What is cached: smaller holes are made by writing zeroes, in bytes.
const PAGE: u64 = 4096;

/// Why an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fail {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    Invalid,
    NoAttribute,
    Other,
}

/// What byte `at` of write `id` is; 0 is no write, but zeroes.
pub fn byte(id: u32, at: u64) -> u8 {
    if id == 0 {
        return 0;
    }
    let word = (at / 8).wrapping_add(u64::from(id) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let byte = ((word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> (at % 8 * 8)) as u8;
    // Zeroes are told from everything that was written.
    if byte == 0 { 0x5A } else { byte }
}

/// The bytes of write `id` from `at` on.
pub fn content(id: u32, at: u64, bytes: u64) -> Vec<u8> {
    (at..at + bytes).map(|at| byte(id, at)).collect()
}

/// The value of attribute `user.x` of so many bytes.
pub fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + bytes) as u8).collect()
}

/// Where the symbolic link called `name` leads to.
pub fn target(name: &str) -> String {
    // Some fit into the inode, others do not.
    format!("{}/{name}", if name.len() > 2 { "x".repeat(100) } else { "y".into() })
}

#[derive(Debug, Clone)]
struct Data {
    size: u64,
    /// The write whose byte a program sees.
    now: Ranges<u32>,
    /// The writes whose byte may be on the disk.
    may: Ranges<BTreeSet<u32>>,
    /// The size on the disk is one of these.
    least: u64,
    most: u64,
}

impl Data {
    fn new(size: u64, id: u32) -> Self {
        let (mut now, mut may) = (Ranges::new(0), Ranges::new(BTreeSet::from([0])));
        now.set(0..size, id);
        may.set(0..size, BTreeSet::from([id]));
        Self { size, now, may, least: size, most: size }
    }

    fn write(&mut self, range: std::ops::Range<u64>, id: u32) {
        self.now.set(range.clone(), id);
        self.may.change(range.clone(), |ids| {
            ids.insert(id);
        });
        self.size = self.size.max(range.end);
        self.most = self.most.max(range.end);
    }

    fn resize(&mut self, size: u64) {
        if size < self.size {
            self.now.set(size..u64::MAX, 0);
            self.may.set(size..u64::MAX, BTreeSet::from([0]));
            self.least = self.least.min(size);
        } else if self.least == self.most {
            self.least = size;
        }
        (self.size, self.most) = (size, size);
        self.least = self.least.min(size);
    }

    /// Zeroes: at once where whole blocks go, and otherwise as a write: in what is left of a page, zeroes are written to the cache, so that they reach the disk when
    /// what is written there does. No standard says more of a hole than of a write that was not synced, and nobody sees but what was in this file before. (The kernel
    /// has the zeroes on the disk before the transaction commits: this would be stricter.)
    fn zero(&mut self, range: std::ops::Range<u64>, block: u64) {
        self.now.set(range.clone(), 0);
        self.may.change(range.clone(), |ids| {
            ids.insert(0);
        });
        let whole = range.start.next_multiple_of(block)..range.end / block * block;
        if whole.start < whole.end {
            self.may.set(whole, BTreeSet::from([0]));
        }
    }

    fn grow(&mut self, size: u64) {
        if size > self.size {
            self.resize(size);
        }
    }

    fn sync(&mut self, range: &std::ops::Range<u64>) {
        let pieces: Vec<_> = self.now.pieces(range.clone()).map(|(piece, id)| (piece, *id)).collect();
        for (piece, id) in pieces {
            self.may.set(piece, BTreeSet::from([id]));
        }
        self.least = self.least.max(self.size.min(range.end));
        if range.end >= self.size {
            self.most = self.size;
        }
    }
}

#[derive(Debug, Clone)]
enum Content {
    Directory,
    Symlink(String),
    File(Data),
}

#[derive(Debug, Clone)]
struct Object {
    content: Content,
    mode: Option<u16>,
    attribute: Option<usize>,
    /// The last operation that changed it, from 1 on; and that changed what a sync of data must write.
    touched: usize,
    data_touched: usize,
}

/// What an operation may do to a file's blocks before it is itself durable.
#[derive(Debug, Clone)]
struct Effect {
    object: u32,
    range: std::ops::Range<u64>,
    id: u32,
}

/// The tree after an operation.
#[derive(Debug, Clone, Default)]
struct Moment {
    /// Paths, all of them; the root is "".
    names: BTreeMap<String, u32>,
    objects: BTreeMap<u32, Object>,
}

/// What an operation synced, once it has returned.
#[derive(Debug, Clone, Default)]
struct Synced {
    /// The shortest prefix that may be found.
    floor: usize,
    /// Files whose data are durable: those in this range.
    objects: Vec<(u32, std::ops::Range<u64>)>,
}

/// A run: the tree after each operation.
#[derive(Debug, Clone)]
pub struct Model {
    block_bytes: u64,
    moments: Vec<Moment>,
    effects: Vec<Vec<Effect>>,
    synced: Vec<Synced>,
    next_object: u32,
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Moment {
    fn look(&self, name: &str) -> Result<u32, Fail> {
        let mut at = String::new();
        for part in name.split('/') {
            let above = self.names.get(&at).ok_or(Fail::NotFound)?;
            if !matches!(self.objects[above].content, Content::Directory) {
                return Err(Fail::NotDirectory);
            }
            if !at.is_empty() {
                at.push('/');
            }
            at.push_str(part);
        }
        self.names.get(&at).copied().ok_or(Fail::NotFound)
    }

    /// The directory in which `name` is to be made.
    fn parent_of(&self, name: &str) -> Result<u32, Fail> {
        let above = parent(name);
        let dir = if above.is_empty() { self.names[""] } else { self.look(above)? };
        match self.objects[&dir].content {
            Content::Directory => Ok(dir),
            _ => Err(Fail::NotDirectory),
        }
    }

    fn file(&mut self, name: &str) -> Result<(u32, &mut Data), Fail> {
        let object = self.look(name)?;
        match &mut self.objects.get_mut(&object).expect("an object").content {
            Content::File(data) => Ok((object, data)),
            Content::Directory => Err(Fail::IsDirectory),
            Content::Symlink(_) => Err(Fail::Other),
        }
    }

    fn sync(&mut self, objects: &[(u32, std::ops::Range<u64>)]) {
        for (object, range) in objects {
            if let Content::File(data) = &mut self.objects.get_mut(object).expect("an object").content {
                data.sync(range);
            }
        }
    }

    fn is_directory(&self, object: u32) -> bool {
        matches!(self.objects[&object].content, Content::Directory)
    }

    fn children(&self, name: &str) -> Vec<String> {
        let prefix = format!("{name}/");
        self.names.keys().filter(|key| key.starts_with(&prefix)).cloned().collect()
    }

    fn touch(&mut self, objects: &[u32], op: usize, data: bool) {
        for object in objects {
            let object = self.objects.get_mut(object).expect("an object");
            object.touched = op;
            if data {
                object.data_touched = op;
            }
        }
    }

    /// Moves a name, and all below it.
    fn moved(&mut self, from: &str, to: &str) -> Vec<(String, u32)> {
        let mut all = self.children(from);
        all.push(from.to_owned());
        all.into_iter()
            .map(|name| {
                let object = self.names.remove(&name).expect("a name");
                (format!("{to}{}", &name[from.len()..]), object)
            })
            .collect()
    }

    fn links(&self, object: u32) -> u32 {
        let names = self.names.iter().filter(|(_, other)| **other == object).map(|(name, _)| name);
        if !self.is_directory(object) {
            return names.count() as u32;
        }
        let name = names.clone().next().expect("a directory has a name");
        let depth = |name: &str| if name.is_empty() { 0 } else { name.split('/').count() };
        let is_sub = |(other, child): &(&String, &u32)| {
            self.is_directory(**child)
                && depth(other) == depth(name) + 1
                && (name.is_empty() || other.starts_with(&format!("{name}/")))
        };
        2 + self.names.iter().filter(is_sub).count() as u32
    }
}

impl Model {
    /// Before the first operation. What is there in the beginning was written by "writes" beyond all others.
    pub fn new(block_bytes: u64) -> Self {
        let mut first = Moment::default();
        let mut next_object = 1;
        first.names.insert(String::new(), 0);
        let object = |content| Object { content, mode: None, attribute: None, touched: 0, data_touched: 0 };
        first.objects.insert(0, object(Content::Directory));
        for (name, size) in BEGINNING {
            let content = match size {
                Some(size) => Content::File(Data::new(size, beginning_id(name))),
                None => Content::Directory,
            };
            first.objects.insert(next_object, object(content));
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

    /// Whether `op` could be done now.
    pub fn would_do(&self, op: &Op) -> bool {
        self.clone().apply(op).is_ok()
    }

    /// How many operations there were.
    pub fn len(&self) -> usize {
        self.moments.len() - 1
    }

    /// The identity of the writes of the next operation.
    pub fn next_id(&self) -> u32 {
        self.moments.len() as u32
    }

    /// What a program reads from `name` now; `None`: it is no file.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
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

    /// Size of file `name` now.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.moments.last()?.clone().file(name).ok().map(|(_, data)| data.size)
    }

    /// One more operation; whether it fails.
    pub fn apply(&mut self, op: &Op) -> Result<(), Fail> {
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

    fn change(
        &mut self,
        next: &mut Moment,
        op: &Op,
        number: usize,
        effects: &mut Vec<Effect>,
        synced: &mut Synced,
    ) -> Result<(), Fail> {
        let block = self.block_bytes;
        match *op {
            Op::Create(name) | Op::Mkdir(name) | Op::Symlink(name) => {
                let dir = next.parent_of(name)?;
                if next.names.contains_key(name) {
                    return Err(Fail::Exists);
                }
                let content = match op {
                    Op::Create(_) => Content::File(Data::new(0, 0)),
                    Op::Mkdir(_) => Content::Directory,
                    _ => Content::Symlink(target(name)),
                };
                let mode = match op {
                    Op::Create(_) => Some(0o644),
                    Op::Mkdir(_) => Some(0o755),
                    _ => None,
                };
                let object = self.next_object;
                self.next_object += 1;
                let new = Object { content, mode, attribute: None, touched: number, data_touched: number };
                next.objects.insert(object, new);
                next.names.insert(name.to_owned(), object);
                next.touch(&[dir, object], number, true);
            }
            Op::Link(old, name) => {
                let object = next.look(old)?;
                let dir = next.parent_of(name)?;
                if next.names.contains_key(name) {
                    return Err(Fail::Exists);
                }
                if next.is_directory(object) {
                    return Err(Fail::Other);
                }
                next.names.insert(name.to_owned(), object);
                next.touch(&[dir], number, true);
                next.touch(&[object], number, false);
            }
            Op::Unlink(name) => {
                let object = next.look(name)?;
                if next.is_directory(object) {
                    return Err(Fail::IsDirectory);
                }
                let dir = next.parent_of(name)?;
                next.names.remove(name);
                next.touch(&[dir], number, true);
                next.touch(&[object], number, false);
            }
            Op::Rmdir(name) => {
                let object = next.look(name)?;
                if !next.is_directory(object) {
                    return Err(Fail::NotDirectory);
                }
                if !next.children(name).is_empty() {
                    return Err(Fail::NotEmpty);
                }
                let dir = next.parent_of(name)?;
                next.names.remove(name);
                next.touch(&[dir, object], number, true);
            }
            Op::Rename(old, new) => self.rename(next, old, new, number)?,
            Op::Exchange(old, new) => {
                let (one, two) = (next.look(old)?, next.look(new)?);
                let below = |a: &str, b: &str| a.starts_with(&format!("{b}/"));
                if below(old, new) || below(new, old) {
                    return Err(Fail::Invalid);
                }
                if old == new || one == two {
                    return Ok(());
                }
                let dirs = [next.parent_of(old)?, next.parent_of(new)?];
                let first = next.moved(old, new);
                let second = next.moved(new, old);
                next.names.extend(first);
                next.names.extend(second);
                next.touch(&dirs, number, true);
                next.touch(&[one, two], number, false);
            }
            Op::Mode(name, mode) => {
                let object = next.look(name)?;
                if let Content::Symlink(_) = next.objects[&object].content {
                    return Err(Fail::Other);
                }
                next.objects.get_mut(&object).expect("an object").mode = Some(mode);
                next.touch(&[object], number, false);
            }
            Op::Attribute(name, bytes) => {
                let object = next.look(name)?;
                if let Content::Symlink(_) = next.objects[&object].content {
                    return Err(Fail::Other);
                }
                next.objects.get_mut(&object).expect("an object").attribute = Some(bytes);
                next.touch(&[object], number, false);
            }
            Op::RemoveAttribute(name) => {
                let object = next.look(name)?;
                if let Content::Symlink(_) = next.objects[&object].content {
                    return Err(Fail::Other);
                }
                let slot = &mut next.objects.get_mut(&object).expect("an object").attribute;
                slot.take().ok_or(Fail::NoAttribute)?;
                next.touch(&[object], number, false);
            }
            Op::Write(name, at, bytes) | Op::Direct(name, at, bytes) | Op::WriteSync(name, at, bytes) => {
                let id = number as u32;
                let (object, data) = next.file(name)?;
                data.write(at..at + bytes, id);
                effects.push(Effect { object, range: at..at + bytes, id });
                if let Op::WriteSync(..) = op {
                    *synced = Synced { floor: number, objects: vec![(object, at..at + bytes)] };
                }
                next.touch(&[object], number, true);
            }
            Op::Append(name, bytes) => {
                let id = number as u32;
                let (object, data) = next.file(name)?;
                let range = data.size..data.size + bytes;
                data.write(range.clone(), id);
                effects.push(Effect { object, range, id });
                next.touch(&[object], number, true);
            }
            Op::Truncate(name, size) => {
                let (object, data) = next.file(name)?;
                data.resize(size);
                // The end of the last block is made zero before.
                effects.push(Effect { object, range: size..size.next_multiple_of(block), id: 0 });
                next.touch(&[object], number, true);
            }
            Op::Punch(name, at, bytes) => {
                let (object, data) = next.file(name)?;
                if at >= data.size {
                    // Nothing is done, and no time changes.
                    return Ok(());
                }
                let end = (at + bytes).min(data.size);
                data.zero(at..end, block.max(PAGE));
                effects.push(Effect { object, range: at..end, id: 0 });
                next.touch(&[object], number, true);
            }
            Op::Zero(name, at, bytes) => {
                let (object, data) = next.file(name)?;
                data.grow(at + bytes);
                data.zero(at..at + bytes, block.max(PAGE));
                effects.push(Effect { object, range: at..at + bytes, id: 0 });
                next.touch(&[object], number, true);
            }
            Op::Keep(name, ..) => {
                let (object, _) = next.file(name)?;
                next.touch(&[object], number, true);
            }
            Op::Extend(name, at, bytes) => {
                let (object, data) = next.file(name)?;
                data.grow(at + bytes);
                next.touch(&[object], number, true);
            }
            Op::Read(name) => {
                next.file(name)?;
            }
            Op::Fsync(name) | Op::Fdatasync(name) => {
                let object = next.look(name)?;
                let known = &next.objects[&object];
                let is_link = matches!(known.content, Content::Symlink(_));
                if is_link {
                    return Err(Fail::Other);
                }
                let full = matches!(op, Op::Fsync(_));
                synced.floor = if full { known.touched } else { known.data_touched };
                if let Content::File(_) = known.content {
                    synced.objects.push((object, 0..u64::MAX));
                }
            }
            Op::Sync | Op::Remount => {
                synced.floor = number;
                synced.objects = next.objects.keys().map(|object| (*object, 0..u64::MAX)).collect();
            }
            Op::Step => {}
        }
        Ok(())
    }

    fn rename(&self, next: &mut Moment, old: &str, new: &str, number: usize) -> Result<(), Fail> {
        let object = next.look(old)?;
        let dirs = [next.parent_of(old)?, next.parent_of(new)?];
        let is_directory = next.is_directory(object);
        if new.starts_with(&format!("{old}/")) {
            return Err(if is_directory { Fail::Invalid } else { Fail::NotDirectory });
        }
        let there = next.names.get(new).copied();
        if old.starts_with(&format!("{new}/")) {
            return Err(Fail::NotEmpty);
        }
        if there == Some(object) {
            return Ok(());
        }
        if let Some(there) = there {
            match (is_directory, next.is_directory(there)) {
                (true, false) => return Err(Fail::NotDirectory),
                (false, true) => return Err(Fail::IsDirectory),
                (true, true) if !next.children(new).is_empty() => return Err(Fail::NotEmpty),
                _ => next.touch(&[there], number, false),
            }
            next.names.remove(new);
        }
        let all = next.moved(old, new);
        next.names.extend(all);
        next.touch(&dirs, number, true);
        next.touch(&[object], number, false);
        Ok(())
    }

    /// Whether `tree` may be what is found after a crash when `begun` operations had begun and `returned` of them had returned; else why not.
    ///
    /// Which prefix it is.
    pub fn check(&self, tree: &Tree, begun: usize, returned: usize) -> Result<usize, String> {
        let floor = self.synced[..=returned].iter().map(|synced| synced.floor).max().unwrap_or(0);
        let mut why = Vec::new();
        // The newest first: that is what it most often is.
        for prefix in (floor..=begun).rev() {
            match self.check_prefix(tree, prefix, begun, returned) {
                Ok(()) => return Ok(prefix),
                Err(reason) => why.push(format!("not the state after {prefix}: {reason}")),
            }
        }
        let most = why.len().min(12);
        Err(format!("{begun} begun, {returned} returned, {floor} synced: {}", why[..most].join("; ")))
    }

    fn check_prefix(&self, tree: &Tree, prefix: usize, begun: usize, returned: usize) -> Result<(), String> {
        let moment = &self.moments[prefix];
        let expected: Vec<&str> = moment.names.keys().map(String::as_str).collect();
        let found: Vec<&str> = tree.names.keys().map(String::as_str).collect();
        if expected != found {
            return Err(format!("names {found:?}, not {expected:?}"));
        }
        let mut inodes: BTreeMap<u32, u64> = BTreeMap::new();
        for (name, object) in &moment.names {
            let ino = tree.names[name];
            if *inodes.entry(*object).or_insert(ino) != ino {
                return Err(format!("{name}: another inode than its other names"));
            }
        }
        let distinct: BTreeSet<u64> = inodes.values().copied().collect();
        if distinct.len() != inodes.len() {
            return Err("one inode for two files".into());
        }
        for (name, object) in &moment.names {
            let inode = &tree.inodes[&tree.names[name]];
            self.check_object(moment, *object, inode, prefix, begun, returned)
                .map_err(|why| format!("{name:?}: {why}"))?;
        }
        Ok(())
    }

    fn check_object(
        &self,
        moment: &Moment,
        number: u32,
        inode: &Inode,
        prefix: usize,
        begun: usize,
        returned: usize,
    ) -> Result<(), String> {
        let object = &moment.objects[&number];
        let links = moment.links(number);
        if number != 0 && inode.links != links {
            return Err(format!("{} links, not {links}", inode.links));
        }
        if let Some(mode) = object.mode.filter(|mode| *mode != inode.mode) {
            return Err(format!("mode {:o}, not {mode:o}", inode.mode));
        }
        let attribute = object.attribute.map(value);
        if inode.attribute != attribute {
            let bytes = |value: &Option<Vec<u8>>| value.as_ref().map(Vec::len);
            return Err(format!(
                "attribute of {:?} bytes, not {:?}",
                bytes(&inode.attribute),
                bytes(&attribute)
            ));
        }
        match (&object.content, &inode.kind) {
            (Content::Directory, Kind::Directory) => Ok(()),
            (Content::Symlink(target), Kind::Symlink(found)) if target.as_bytes() == found => Ok(()),
            (Content::File(data), Kind::File(found)) => {
                let mut data = data.clone();
                // What was synced then, or later without having been changed between.
                for synced in self.synced.get(prefix..=returned).unwrap_or_default() {
                    for (_, range) in synced.objects.iter().filter(|(object, _)| *object == number) {
                        data.sync(range);
                    }
                }
                for effect in self.effects[(prefix + 1).min(begun + 1)..=begun].iter().flatten() {
                    if effect.object == number {
                        data.may.change(effect.range.clone(), |ids| {
                            ids.insert(effect.id);
                        });
                    }
                }
                check_data(&data, found)
            }
            _ => Err("of another kind".into()),
        }
    }
}

fn check_data(data: &Data, found: &[u8]) -> Result<(), String> {
    let size = found.len() as u64;
    if !(data.least..=data.most).contains(&size) {
        return Err(format!("{size} bytes, not {} to {}", data.least, data.most));
    }
    for (range, ids) in data.may.pieces(0..size) {
        for at in range.clone() {
            let is = found[at as usize];
            if !ids.iter().any(|id| byte(*id, at) == is) {
                let end = (at as usize + 8).min(found.len());
                let seen = &found[at as usize..end];
                return Err(format!("byte {at} of {size} is {is:#x} ({seen:02x?}), from none of {ids:?}"));
            }
        }
    }
    Ok(())
}

/// The "write" that made what is in file `name` in the beginning.
pub fn beginning_id(name: &str) -> u32 {
    let place = BEGINNING.iter().position(|(other, _)| *other == name).expect("one of the beginning");
    1_000_000 + place as u32
}
