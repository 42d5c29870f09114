//! Reads files, through the page cache or past it.
//!
//! ```text
//!   cached     read_cached copies hits; from the first miss on, CachedRead::step decides
//!   blocking   read_missing: a thread takes these steps with its I/O context, and waits
//!   ahead      when a sequential reader is read ahead of, and how far
//!   window     sends that
//! ```
//! Reads past the cache are in `read_direct`, below. A task takes the steps in
//! [`AsyncFile`](crate::AsyncFile).

pub(crate) mod ahead;
mod blocking;
pub(crate) mod cached;
mod window;

use std::ops::Range;
use std::sync::Arc;

use crate::cache::PAGE;
use crate::counters::Count;
use crate::error::Result;
use crate::file::File;
use crate::inode::extents::{Extents, Finder};
use crate::io::direct::Stopped;
use crate::io::target::Target;
use crate::options::ReadOptions;

impl File {
    /// Returns extents that cover the bytes `offset..end`.
    pub(crate) fn extents_of(&self, offset: u64, end: u64) -> Result<Arc<Extents>> {
        let node = self.node();
        let shift = node.mount.block_shift;
        if let Some(extents) = self.extents.as_ref().filter(|extents| extents.reaches(end, shift)) {
            return Ok(Arc::clone(extents));
        }
        let volume = &node.mount.volume;
        let snapshot = node.inode.snapshot(volume)?;
        if node.inode.writable.is_some() {
            let extents = snapshot.extents(volume, true)?;
            if extents.reaches(end, shift) {
                return Ok(extents);
            }
        }
        let blocks = offset >> shift..((end - 1) >> shift) + 1;
        Ok(Arc::new(
            node.mount
                .consistent(|| Extents::of_range(volume, &snapshot.on_disk, blocks.clone()))?,
        ))
    }

    /// Returns the extents of `pages`.
    pub(crate) fn extents_of_pages(&self, pages: &Range<u64>) -> Result<Arc<Extents>> {
        let end = pages.end.saturating_mul(PAGE).min(self.size());
        if pages.start.saturating_mul(PAGE) >= end {
            return Ok(Arc::default());
        }
        self.extents_of(pages.start * PAGE, end)
    }

    /// Returns a finder for this file's bytes by `extents`.
    pub(crate) fn finder<'a>(&'a self, extents: &'a Extents) -> Finder<'a> {
        let mount = &*self.node().mount;
        Finder {
            extents,
            block_shift: mount.block_shift,
            volume: &mount.volume,
            overlaid: mount.overlaid,
        }
    }

    /// Reads `len` bytes, at least one and all within the file, past the cache.
    pub(crate) fn read_direct(
        &self,
        target: &mut Target<'_, '_>,
        into: usize,
        offset: u64,
        len: usize,
        options: &ReadOptions,
    ) -> Result<usize> {
        let node = self.node();
        let mount = &*node.mount;
        let mut end = offset + len as u64;
        let (_guard, extents) = match &node.inode.writable {
            None => (None, self.extents_of(offset, end)?),
            Some(writable) => {
                let (guard, extents) = self.clean_extents(writable, offset..end)?;
                // The file may have been truncated meanwhile.
                end = end.min(self.size());
                if end <= offset {
                    return Ok(into);
                }
                (Some(guard), extents)
            }
        };
        let len = (end - offset) as usize;
        let finder = self.finder(&extents);
        target.is_from_device = true;
        mount.counts.add(Count::Direct, len.div_ceil(4096) as u64);
        let mut io = mount.contexts.take()?;
        let result =
            io.read_pieces_lending(into, finder.pieces(offset..end), target, options.policy);
        match io.take_lent() {
            0 => {}
            lent => mount.counts.add(Count::Lent, lent),
        }
        match result {
            Ok(read) => Ok(read),
            Err(Stopped { done, .. }) if done > into => Ok(done),
            Err(Stopped { error, .. }) => Err(error),
        }
    }
}
