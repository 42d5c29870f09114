//! Writes through the page cache. Space is only promised: writeback allocates the blocks.

use std::ops::Range;

use super::back::Writeback;
use crate::alloc::Reservation;
use crate::cache::{Claiming, Filling, PAGE, PAGE_BYTES, Written};
use crate::error::{Error, Result, Unsupported};
use crate::file::File;
use crate::inode::extents::{Blocks, Extents};
use crate::inode::writable::Pages;
use meantime_ext4_format::inode::flags;
use meantime_hw::DmaBuf;
use meantime_process::lock::{Rank, check_may_wait};

/// Interval of the checks while another reader fills a page, in ns.
const LOOK_NS: u64 = 100_000;

/// Number of these checks before the page is taken away from its reader.
const LOOKS: u32 = 20;

/// Number of attempts to get memory for a page.
const TRIES: u32 = 64;

/// The content of a write.
#[derive(Clone, Copy)]
enum Content<'a> {
    Data(&'a [u8]),
    Zeroes(usize),
}

impl Content<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            Self::Zeroes(bytes) => *bytes,
        }
    }
}

impl File {
    /// Writes `data` from byte `offset` on into the cache. Returns the number of bytes, which is
    /// smaller than asked for if no more could be written. The caller has the content locked.
    ///
    /// # Errors
    /// Fails only if nothing was written.
    pub(super) fn write_cached(&self, data: &[u8], offset: u64) -> Result<usize> {
        let node = self.node();
        let rw_mount = node.mount.for_writing()?;
        self.zero_end(offset)?;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (index, within) = (at / PAGE, (at % PAGE) as usize);
            let part = (PAGE_BYTES - within).min(data.len() - done);
            let written = self.write_page(index, within, Content::Data(&data[done..done + part]));
            match written {
                Ok(()) => done += part,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            // A later sync reports a failure.
            if rw_mount.dirty_pages() > rw_mount.dirty_most
                && Writeback::of(&node.mount)?.make_clean(&node.inode).is_err()
            {
                break;
            }
        }
        Ok(done)
    }

    /// Zeroes the bytes `range`, within a block or a page, where they are not zeroes already. The
    /// caller has the content locked.
    pub(super) fn zero_cached(&self, range: Range<u64>) -> Result<()> {
        let mount = &*self.node().mount;
        let mut at = range.start;
        while at < range.end {
            let (index, within) = (at / PAGE, (at % PAGE) as usize);
            let part = (PAGE - within as u64).min(range.end - at);
            let (dirty, in_flight) =
                mount.contexts.cache().writing_state(self.file_number(), index);
            let extents = self.extents_of(at, at + part)?;
            let blocks = mount.units().blocks(at..at + part);
            let data =
                blocks.into_iter().any(|block| matches!(extents.at(block).0, Blocks::Written(_)));
            if data || dirty || in_flight {
                self.write_page(index, within, Content::Zeroes(part as usize))?;
            }
            at += part;
        }
        Ok(())
    }

    /// Zeroes the last block past the file's end, in the cache and so later on the disk, before
    /// the file grows to `offset` or beyond.
    pub(super) fn zero_end(&self, offset: u64) -> Result<()> {
        let (size, unit) = (self.size(), self.node().mount.units().unit());
        if offset <= size || size % unit == 0 {
            return Ok(());
        }
        self.zero_cached(size..offset.min(size.next_multiple_of(unit)))
    }

    pub(super) fn file_number(&self) -> u64 {
        u64::from(self.node().ino())
    }

    /// Writes to one page.
    fn write_page(&self, index: u64, within: usize, content: Content<'_>) -> Result<()> {
        let (mount, inode, writable) = self.to_change()?;
        let (rw_mount, units) = (mount.for_writing()?, mount.units());
        let cache = mount.contexts.cache();
        let begin = index * PAGE + within as u64;
        let blocks = units.blocks(begin..begin + content.len() as u64);
        let mask = units.mask(index, &blocks);
        let (mut tries, mut has_made_room) = (0, false);
        loop {
            let extents = inode.extents(&mount.volume)?;
            let mut pages = writable.pages();
            let promised = match self.promise(&pages, &extents, &blocks) {
                Ok(promised) => promised,
                Err(Error::NoSpace) if !has_made_room => {
                    // This releases unneeded promises, and blocks that wait for a commit.
                    drop(pages);
                    has_made_room = true;
                    Writeback::of(mount)?.make_room()?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let written = match content {
                Content::Data(data) => cache.write(self.file_number(), index, within, data),
                Content::Zeroes(bytes) => cache.zero(self.file_number(), index, within, bytes),
            };
            match written {
                Written::Done => {}
                Written::Filling(filling) => {
                    drop(pages);
                    self.wait_for(filling);
                    continue;
                }
                Written::Absent => {
                    drop(pages);
                    let claim = match cache.claim(self.file_number(), index) {
                        Claiming::Claimed(claim) => claim,
                        Claiming::Hit(_) | Claiming::Filling(_) => continue,
                        Claiming::Full if tries < TRIES => {
                            tries += 1;
                            cache.maintain(1, 64);
                            Writeback::of(mount)?.make_clean(inode)?;
                            continue;
                        }
                        Claiming::Full => return Err(no_memory()),
                    };
                    let made = self.make_page(index, within, content);
                    let page = match made {
                        Ok(Some(page)) => page,
                        Ok(None) if tries < TRIES => {
                            cache.abandon(claim);
                            tries += 1;
                            Writeback::of(mount)?.make_clean(inode)?;
                            continue;
                        }
                        failed => {
                            cache.abandon(claim);
                            return Err(failed.err().unwrap_or_else(no_memory));
                        }
                    };
                    pages = writable.pages();
                    if let Err(page) = cache.publish_dirty(claim, page) {
                        // The claim was invalidated meanwhile.
                        drop(pages);
                        cache.give_pages([page]);
                        continue;
                    }
                }
            }
            if let Some(promised) = promised {
                pages
                    .delayed
                    .extend(blocks.filter(|block| matches!(extents.at(*block).0, Blocks::Hole)));
                match &mut pages.reservation {
                    Some(there) => there.merge(promised),
                    there => *there = Some(promised),
                }
            }
            let first = pages.dirty.is_empty();
            if !pages.dirty.contains_key(&index) && !pages.in_flight.contains_key(&index) {
                rw_mount.more_dirty(1);
            }
            pages.make_dirty(index, mask, rw_mount.stamp());
            if first {
                pages.since_ns = mount.clock.now_ns();
            }
            if matches!(content, Content::Data(_)) {
                inode.note_modified(&mut pages);
                // The size is set before the page can be taken for writeback, which leaves out what
                // is past the end.
                let end = begin + content.len() as u64;
                if end > inode.size() {
                    inode.set_size(end);
                }
            }
            drop(pages);
            if first {
                rw_mount.keep(inode);
            }
            return Ok(());
        }
    }

    /// Promises space for those of `blocks` that are neither allocated nor promised. Returns `None`
    /// if there are none.
    fn promise(
        &self,
        pages: &Pages,
        extents: &Extents,
        blocks: &Range<u64>,
    ) -> Result<Option<Reservation>> {
        let missing = |block: &u64| {
            matches!(extents.at(*block).0, Blocks::Hole) && !pages.delayed.contains(block)
        };
        let missing = blocks.clone().filter(missing).count() as u64;
        if missing == 0 {
            return Ok(None);
        }
        if self.node().inode.last_snapshot().metadata.flags & flags::EXTENTS == 0 {
            let what =
                format!("giving blocks to a file with a block map (inode {})", self.node().ino());
            return Err(Unsupported { what, advice: "copy it: new files have extents" }.into());
        }
        Ok(Some(self.node().mount.for_writing()?.allocator.reserve(missing)?))
    }

    /// Waits for another reader of a page. If this takes long, the reader may be a task that this
    /// very thread would have to run, so the page is taken away from it.
    fn wait_for(&self, filling: Filling) {
        check_may_wait(Rank::PagesFilling);
        let mount = &*self.node().mount;
        let cache = mount.contexts.cache();
        for _ in 0..LOOKS {
            // A context that no thread holds may be reading it ahead.
            mount.contexts.each_left(|io| io.reap_ahead(cache, &mount.counts));
            if cache.wait(filling, LOOK_NS) {
                return;
            }
        }
        cache.drop_filling(filling);
    }

    /// Returns the content of page `index`, which is claimed, with `content` written to it. Returns
    /// `None` if there is no memory for it now.
    fn make_page(&self, index: u64, within: usize, content: Content<'_>) -> Result<Option<DmaBuf>> {
        let mount = &*self.node().mount;
        let cache = mount.contexts.cache();
        let mut taken = Vec::with_capacity(1);
        cache.take_pages(1, &mut taken);
        let Some(mut page) = taken.pop() else { return Ok(None) };
        page.set_len(PAGE_BYTES);
        let end = within + content.len();
        let there = self.size().saturating_sub(index * PAGE).min(PAGE) as usize;
        if within > 0 || end < there {
            // The extents are read after the claim. By then an earlier writeback of the page has
            // allocated its blocks.
            let read = self.read_page(index, &mut page[..there]);
            if let Err(error) = read {
                cache.give_pages([page]);
                return Err(error);
            }
        }
        page[there..].fill(0);
        match content {
            Content::Data(data) => page[within..end].copy_from_slice(data),
            Content::Zeroes(_) => page[within..end].fill(0),
        }
        Ok(Some(page))
    }

    /// Reads the first bytes of page `index` from the device.
    fn read_page(&self, index: u64, to: &mut [u8]) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        let mount = &*self.node().mount;
        let start = index * PAGE;
        let end = start + to.len() as u64;
        let extents = self.extents_of(start, end)?;
        let finder = self.finder(&extents);
        let mut io = mount.contexts.take_or_spare()?;
        io.fill(to, finder.pieces(start..end), mount.options.policy)
    }
}

fn no_memory() -> Error {
    Error::Resources("every page of the cache is in use".to_owned())
}
