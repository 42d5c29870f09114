//! Changes sizes, preallocates blocks, and punches holes.

use std::ops::Range;

use super::back::Writeback;
use crate::cache::PAGE;
use crate::error::{Error, Result};
use crate::file::File;
use crate::inode::Node;
use crate::inode::attributes::Attributes;
use crate::inode::setattr::SetMetadata;
use crate::inode::times::Times;
use crate::inode::writable::Writable;
use crate::journal::Handle;
use crate::ops::{Progress, fallocate, truncate};
use crate::options::Allocate;

/// Approximate limit of the blocks that one step of a large change of metadata edits.
const STEP_BLOCKS: usize = 64;

/// Maximum number of blocks of a file.
const BLOCKS_MOST: u64 = u32::MAX as u64;

impl File {
    /// Truncates the file to `bytes`, or grows it to that by a hole (`ftruncate`).
    ///
    /// # Errors
    /// As `ftruncate(2)`.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.set_len_with(bytes, None)
    }

    /// Sets the size to `bytes`, and the attributes of `set` in the same change.
    pub(crate) fn set_len_with(&self, bytes: u64, set: Option<&SetMetadata>) -> Result<()> {
        self.check_writable()?;
        let (_, _, writable) = self.to_change()?;
        let _content = writable.lock_content();
        if bytes > self.most_bytes() {
            return Err(Error::FileTooBig);
        }
        if bytes < self.size() { self.shrink(bytes, set) } else { self.grow(bytes, set) }
    }

    /// Grows the file to `bytes` by a hole, unless it is as large.
    pub(crate) fn grow_to(&self, bytes: u64) -> Result<()> {
        let (_, _, writable) = self.to_change()?;
        let _content = writable.lock_content();
        if bytes <= self.size() { Ok(()) } else { self.grow(bytes, None) }
    }

    /// Changes, in one change, the size and the attributes of `set`.
    fn change_size(&self, bytes: u64, set: Option<&SetMetadata>) -> Result<Progress> {
        let (mount, inode, writable) = self.to_change()?;
        let rw_mount = mount.for_writing()?;
        let attributes = Attributes { rw_mount, inode, writable };
        let (progress, times) = rw_mount.change(|handle| {
            let progress = truncate::set_size(handle, inode.ino, bytes, STEP_BLOCKS)?;
            renew_times(writable, handle);
            let times = match set {
                None => Times::default(),
                Some(set) => attributes.set_in(handle, set)?,
            };
            Ok((progress, times))
        })?;
        writable.pages().times.stored(times);
        Ok(progress)
    }

    /// Continues a truncation that was begun, to its end.
    fn finish(&self, mut progress: Progress) -> Result<()> {
        let Node { mount, inode } = self.node();
        while progress == Progress::More {
            progress = mount.change(|handle| truncate::go_on(handle, inode.ino, STEP_BLOCKS))?;
        }
        Ok(())
    }

    /// Returns the largest size of the file, in bytes.
    pub(crate) fn most_bytes(&self) -> u64 {
        BLOCKS_MOST << self.node().mount.block_shift
    }

    /// Zeroes the last block past the file's end on the disk, before the file grows to `bytes`.
    fn prepare_end(&self, bytes: u64) -> Result<()> {
        let (size, unit) = (self.size(), self.node().mount.units().unit());
        self.zero_end(bytes)?;
        if bytes > size && size % unit != 0 {
            let node = self.node();
            let end = size / unit * unit;
            let pages = end / PAGE..(end + unit) / PAGE;
            Writeback::of(&node.mount)?.write_back_and_wait(&node.inode, pages)?;
        }
        Ok(())
    }

    fn grow(&self, bytes: u64, set: Option<&SetMetadata>) -> Result<()> {
        let (_, inode, writable) = self.to_change()?;
        self.prepare_end(bytes)?;
        let progress = self.change_size(bytes, set)?;
        inode.set_size(bytes);
        forget_times(writable);
        self.finish(progress)
    }

    fn shrink(&self, bytes: u64, set: Option<&SetMetadata>) -> Result<()> {
        let (mount, inode, writable) = self.to_change()?;
        let back = Writeback::of(mount)?;
        let (old, unit) = (self.size(), mount.units().unit());
        let rest = bytes..old.min(bytes.next_multiple_of(unit));
        self.zero_cached(rest)?;
        // From here on no reader uses its blocks.
        let blocks = writable.take_blocks();
        inode.set_size(bytes);
        back.drop_pages(inode, bytes.next_multiple_of(unit) / PAGE..(old + unit).div_ceil(PAGE));
        let changed = self.change_size(bytes, set);
        match &changed {
            Ok(_) => forget_times(writable),
            Err(_) => inode.set_size(old),
        }
        let finished = changed.and_then(|progress| self.finish(progress));
        drop(blocks);
        finished
    }

    /// Preallocates, punches or zeroes `bytes` bytes from `offset` on (`fallocate`).
    ///
    /// # Errors
    /// As `fallocate(2)`.
    pub fn allocate(&self, offset: u64, bytes: u64, how: Allocate) -> Result<()> {
        self.check_writable()?;
        let (_, _, writable) = self.to_change()?;
        let _content = writable.lock_content();
        let end = offset.checked_add(bytes).filter(|_| bytes > 0);
        let end = end.ok_or(Error::Invalid("a range of no bytes, or beyond what there can be"))?;
        if end > self.most_bytes() {
            return Err(Error::FileTooBig);
        }
        match how {
            Allocate::Extend => self.set_aside(offset..end, true),
            Allocate::KeepSize => self.set_aside(offset..end, false),
            Allocate::Punch => {
                self.make_zero(offset..end.min(self.size().max(offset)), false, false)
            }
            Allocate::Zero => self.make_zero(offset..end, true, true),
            Allocate::ZeroKeepSize => self.make_zero(offset..end, true, false),
        }
    }

    fn set_aside(&self, range: Range<u64>, grow: bool) -> Result<()> {
        let (mount, inode, writable) = self.to_change()?;
        let size = (grow && range.end > self.size()).then_some(range.end);
        if let Some(size) = size {
            self.prepare_end(size)?;
        }
        let blocks = mount.units().blocks(range);
        let (mut next, end) = (blocks.start as u32, blocks.end as u32);
        // The size is set last: writeback may make it larger meanwhile, never smaller.
        while next < end {
            next = mount.change(|handle| {
                let next = fallocate::allocate(handle, inode.ino, next..end, size, STEP_BLOCKS)?;
                if size.is_some() {
                    renew_times(writable, handle);
                }
                Ok(next)
            })?;
        }
        // Without a new size, the modification time stays.
        if let Some(size) = size {
            inode.set_size(size);
            forget_times(writable);
        }
        Ok(())
    }

    /// Makes the bytes `range` zeroes: with preallocated blocks (`aside`), or as a hole.
    fn make_zero(&self, range: Range<u64>, aside: bool, grow: bool) -> Result<()> {
        let (mount, inode, writable) = self.to_change()?;
        let size = self.size();
        let whole = |unit: u64| {
            let start = range.start.next_multiple_of(unit);
            // Past the end the cache has zeroes, which need not be kept.
            let end = if range.end >= size { range.end.next_multiple_of(unit) } else { range.end };
            start..(end / unit * unit).max(start)
        };
        // Blocks may be smaller than pages.
        let (freed, pages) = (whole(1 << mount.block_shift), whole(mount.units().unit()));
        if freed.is_empty() {
            self.zero_cached(range.start..range.end.min(size.max(range.start)))?;
            if range.start < size {
                // No block changes, but the times have to be stored, as for a write.
                inode.note_modified(&mut writable.pages());
                mount.for_writing()?.keep(inode);
            }
        } else {
            self.zero_cached(range.start..pages.start.min(range.end).min(size.max(range.start)))?;
            self.zero_cached(pages.end..range.end.min(size).max(pages.end))?;
            let back = Writeback::of(mount)?;
            // A page that keeps other blocks stays in the cache. Its zeroes are written, so that it
            // is clean when it has no block for them any more.
            if freed.start < pages.start {
                back.write_back_and_wait(inode, freed.start / PAGE..freed.start / PAGE + 1)?;
            }
            if pages.end < freed.end {
                back.write_back_and_wait(inode, pages.end / PAGE..freed.end.div_ceil(PAGE))?;
            }
            // The dirty pages at the end bring the disk's size up to the file's: without them it
            // would stay smaller. Write them first.
            if range.end >= size && inode.snapshot(&mount.volume)?.metadata.size < size {
                back.write_back_and_wait(inode, pages.start / PAGE..pages.end / PAGE)?;
            }
            let blocks = writable.take_blocks();
            back.drop_pages(inode, pages.start / PAGE..pages.end / PAGE);
            let all = mount.units().blocks(freed);
            let (mut next, end) = (all.start as u32, all.end.min(BLOCKS_MOST) as u32);
            let changed = loop {
                let step = mount.change(|handle| {
                    let next = if aside {
                        fallocate::zero(handle, inode.ino, next..end, None, STEP_BLOCKS)?
                    } else {
                        let progress = fallocate::punch(handle, inode.ino, next..end, STEP_BLOCKS)?;
                        if progress == Progress::Done { end } else { next }
                    };
                    renew_times(writable, handle);
                    Ok(next)
                });
                match step {
                    Ok(at) if at >= end => break Ok(()),
                    Ok(at) => next = at,
                    Err(error) => break Err(error),
                }
            };
            drop(blocks);
            changed?;
            forget_times(writable);
        }
        if aside { self.set_aside(range, grow) } else { Ok(()) }
    }
}

/// Renews the modification time to be stored: the change of `handle` sets a newer one.
fn renew_times(writable: &Writable, handle: &Handle<'_>) {
    let times = &mut writable.pages().times;
    times.modified = times.modified.map(|_| handle.now());
}

/// Drops the modification time to be stored: the inode has a newer one.
fn forget_times(writable: &Writable) {
    writable.pages().times.modified = None;
}
