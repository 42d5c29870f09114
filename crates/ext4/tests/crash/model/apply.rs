//! Applies operations to a tree.

use super::data::{Data, target};
use super::moment::{Content, Moment, Object};
use super::{DIRECTORY_MODE, Effect, FILE_MODE, Fail, Model, SYMLINK_MODE, Synced};
use crate::ops::Op;

impl Model {
    /// Applies `op`, operation `number`, to `next`.
    pub(super) fn change(
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
                let (content, mode) = match op {
                    Op::Create(_) => (Content::File(Data::new(0, 0)), FILE_MODE),
                    Op::Mkdir(_) => (Content::Directory, DIRECTORY_MODE),
                    _ => (Content::Symlink(target(name)), SYMLINK_MODE),
                };
                let object = self.next_object;
                self.next_object += 1;
                let new = Object {
                    content,
                    mode,
                    attribute: None,
                    touched: number,
                    data_touched: number,
                };
                next.objects.insert(object, new);
                next.names.insert(name.to_owned(), object);
                next.touch(&[dir, object], number, true);
            }
            Op::Link(old, name) => {
                let object = next.look_up(old)?;
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
                let object = next.look_up(name)?;
                if next.is_directory(object) {
                    return Err(Fail::IsDirectory);
                }
                let dir = next.parent_of(name)?;
                next.names.remove(name);
                next.touch(&[dir], number, true);
                next.touch(&[object], number, false);
            }
            Op::Rmdir(name) => {
                let object = next.look_up(name)?;
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
                let dirs = [next.parent_of(old)?, next.parent_of(new)?];
                let (one, two) = (next.look_up(old)?, next.look_up(new)?);
                let below = |a: &str, b: &str| a.starts_with(&format!("{b}/"));
                if below(old, new) || below(new, old) {
                    return Err(Fail::Invalid);
                }
                if old == new || one == two {
                    return Ok(());
                }
                let first = next.moved(old, new);
                let second = next.moved(new, old);
                next.names.extend(first);
                next.names.extend(second);
                next.touch(&dirs, number, true);
                next.touch(&[one, two], number, false);
            }
            Op::Mode(name, mode) => {
                let object = next.look_up(name)?;
                if let Content::Symlink(_) = next.objects[&object].content {
                    return Err(Fail::Other);
                }
                next.objects.get_mut(&object).expect("an object").mode = mode;
                next.touch(&[object], number, false);
            }
            Op::Attribute(name, bytes) => {
                let object = next.look_up(name)?;
                if let Content::Symlink(_) = next.objects[&object].content {
                    return Err(Fail::Other);
                }
                next.objects.get_mut(&object).expect("an object").attribute = Some(bytes);
                next.touch(&[object], number, false);
            }
            Op::RemoveAttribute(name) => {
                let object = next.look_up(name)?;
                if let Content::Symlink(_) = next.objects[&object].content {
                    return Err(Fail::Other);
                }
                let slot = &mut next.objects.get_mut(&object).expect("an object").attribute;
                slot.take().ok_or(Fail::NoAttribute)?;
                next.touch(&[object], number, false);
            }
            Op::Write(name, at, bytes)
            | Op::Direct(name, at, bytes)
            | Op::WriteSync(name, at, bytes) => {
                let id = number as u32;
                let (object, data) = next.file(name)?;
                let grows = at + bytes > data.size;
                data.write(at..at + bytes, id);
                effects.push(Effect { object, range: at..at + bytes, id });
                if let Op::WriteSync(..) = op {
                    *synced = Synced { floor: number, objects: vec![(object, at..at + bytes)] };
                }
                // Overwriting in place writes only data: a data sync's demand for them is kept
                // apart from its floor.
                next.touch(&[object], number, grows);
            }
            Op::Append(name, bytes) => {
                let id = number as u32;
                let (object, data) = next.file(name)?;
                let range = data.size..data.size + bytes;
                data.write(range.clone(), id);
                effects.push(Effect { object, range, id });
                next.touch(&[object], number, true);
            }
            Op::Truncate(name, size) | Op::Set(name, _, size) => {
                let (object, data) = next.file(name)?;
                data.resize(size);
                if let Op::Set(_, mode, _) = *op {
                    next.objects.get_mut(&object).expect("an object").mode = mode;
                }
                // The rest of the last block is zeroed first, and may be on the disk without the
                // new size.
                effects.push(Effect { object, range: size..size.next_multiple_of(block), id: 0 });
                next.touch(&[object], number, true);
            }
            Op::Punch(name, at, bytes) => {
                let (object, data) = next.file(name)?;
                if at >= data.size {
                    // Nothing changes, not even a time.
                    return Ok(());
                }
                let end = (at + bytes).min(data.size);
                let zeroed = data.zero(at..end);
                effects.extend(zeroed.map(|range| Effect { object, range, id: 0 }));
                next.touch(&[object], number, true);
            }
            Op::Zero(name, at, bytes) => {
                let (object, data) = next.file(name)?;
                data.grow(at + bytes);
                let zeroed = data.zero(at..at + bytes);
                effects.extend(zeroed.map(|range| Effect { object, range, id: 0 }));
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
                let object = next.look_up(name)?;
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
            Op::Step | Op::Trim => {}
        }
        Ok(())
    }

    fn rename(&self, next: &mut Moment, old: &str, new: &str, number: usize) -> Result<(), Fail> {
        let dirs = [next.parent_of(old)?, next.parent_of(new)?];
        let object = next.look_up(old)?;
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
}
