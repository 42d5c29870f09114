//! The cache as writers use it. Whoever writes to a file's pages, and whoever writes them back,
//! keeps a list of them, under a lock of the file's: under it a page becomes dirty, and its
//! writeback begins.

use super::{Claim, Filling, Hit, LookUp, PageCache};
use meantime_hw::DmaBuf;

/// What became of a write to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is in the page, which is dirty.
    Done,
    /// Somebody is reading the page: [`PageCache::wait`].
    Filling(Filling),
    /// It is not there: [`PageCache::claim`], and [`PageCache::publish_dirty`].
    Absent,
}

impl PageCache {
    /// Writes `from` to page `index` of `file`, from byte `offset_bytes` on.
    ///
    /// # Panics
    /// Beyond the end of the page.
    pub fn write(&self, file: u64, index: u64, offset_bytes: usize, from: &[u8]) -> Written {
        self.write_by(file, index, |cell| cell.copy_in(offset_bytes, from))
    }

    /// Zeroes `bytes` bytes of page `index` of `file`, from byte `offset_bytes` on.
    ///
    /// # Panics
    /// Beyond the end of the page.
    pub fn zero(&self, file: u64, index: u64, offset_bytes: usize, bytes: usize) -> Written {
        self.write_by(file, index, |cell| cell.zero(offset_bytes, bytes))
    }

    fn write_by(
        &self,
        file: u64,
        index: u64,
        write: impl Fn(&meantime_hw::PageCell) -> bool,
    ) -> Written {
        loop {
            match self.table.look_up(file, index) {
                LookUp::Filling(filling) => return Written::Filling(filling),
                LookUp::Absent => return Written::Absent,
                // Before the first byte is written, so that nobody takes it away.
                LookUp::Hit(Hit(at)) => {
                    if self.table.make_dirty(at) {
                        let written = write(self.table.place(at));
                        assert!(written, "one writer at a time, and a dirty page stays");
                        return Written::Done;
                    }
                }
            }
        }
    }

    /// The claimed page was made by its claimant, and is newer than the device's: as
    /// [`publish`](Self::publish).
    ///
    /// # Errors
    /// The page, if it does not go into the cache: what was to be written is in it alone.
    pub fn publish_dirty(&self, claim: Claim, page: DmaBuf) -> Result<Hit, DmaBuf> {
        let at = claim.redeem();
        self.published(at, self.table.publish_dirty(at, page))
    }

    /// Page `index` of `file` is about to be copied for the device; `None`: it is not there, or is
    /// under writeback already. `again`: it stays dirty, since there is more in it than what is
    /// written now.
    pub fn begin_writeback(&self, file: u64, index: u64, again: bool) -> Option<Hit> {
        match self.table.look_up(file, index) {
            LookUp::Hit(hit) if self.table.begin_writeback(hit.0, again) => Some(hit),
            _ => None,
        }
    }

    /// The page is on the device; or it is not, and is dirty `again`.
    pub fn end_writeback(&self, hit: Hit, again: bool) {
        self.table.end_writeback(hit.0, again);
    }

    /// Whether page `index` of `file` is there and dirty, and whether it is under writeback.
    pub fn writing_state(&self, file: u64, index: u64) -> (bool, bool) {
        match self.table.look_up(file, index) {
            LookUp::Hit(hit) => self.table.writing_state(hit.0).unwrap_or_default(),
            _ => (false, false),
        }
    }

    /// Forgets page `index` of `file`, dirty or not: what was written to it is gone. False: it is
    /// under writeback, and stays.
    pub fn discard(&self, file: u64, index: u64) -> bool {
        if let Some((slot, page)) = self.table.discard(file, index) {
            super::lock(&self.pages).extend(page);
            super::lock(&self.slots).push(slot);
            return true;
        }
        !self.writing_state(file, index).1
    }
}
