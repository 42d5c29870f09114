//! The cache for writers. Writers and writeback keep a list of a file's pages under a lock of the
//! file; under that lock a page becomes dirty, and its writeback begins.

use super::{FillDuty, Filling, Hit, LookUp, PageCache};
use meantime_hw::DmaBuf;

/// The result of a write to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The data were written, and the page is dirty.
    Done,
    /// Another reader is reading the page; see [`PageCache::wait`].
    Filling(Filling),
    /// The page is not in the cache; see [`PageCache::claim`] and [`PageCache::publish_dirty`].
    Absent,
}

impl PageCache {
    /// Writes `from` to page `index` of `file`, from byte `offset_bytes` on.
    ///
    /// # Panics
    /// Panics if the range exceeds the page.
    pub fn write(&self, file: u64, index: u64, offset_bytes: usize, from: &[u8]) -> Written {
        self.write_by(file, index, |cell| cell.copy_in(offset_bytes, from))
    }

    /// Zeroes `bytes` bytes of page `index` of `file`, from byte `offset_bytes` on.
    ///
    /// # Panics
    /// Panics if the range exceeds the page.
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
                // The page becomes dirty before its first byte is written, so that it is not
                // removed.
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

    /// Publishes a page that its claimant has made, newer than the device's, like
    /// [`publish`](Self::publish).
    ///
    /// # Errors
    /// Returns the page if it does not enter the cache. It is then the only copy of the data to be
    /// written.
    pub fn publish_dirty(&self, duty: FillDuty, page: DmaBuf) -> Result<Hit, DmaBuf> {
        let at = duty.redeem();
        self.published(at, self.table.publish_dirty(at, page))
    }

    /// Begins the writeback of page `index` of `file`, before the page is copied. If `again`, the
    /// page stays dirty, because it has more dirty data than are written now. Returns `None` if the
    /// page is not in the cache or is already under writeback.
    pub fn begin_page_writeback(&self, file: u64, index: u64, again: bool) -> Option<Hit> {
        match self.table.look_up(file, index) {
            LookUp::Hit(hit) if self.table.begin_writeback(hit.0, again) => Some(hit),
            _ => None,
        }
    }

    /// Ends the writeback of a page. If `again`, the writeback failed, and the page becomes dirty.
    pub fn end_page_writeback(&self, hit: Hit, again: bool) {
        self.table.end_writeback(hit.0, again);
    }

    /// Returns whether page `index` of `file` is dirty, and whether it is under writeback.
    pub fn writing_state(&self, file: u64, index: u64) -> (bool, bool) {
        match self.table.look_up(file, index) {
            LookUp::Hit(hit) => self.table.writing_state(hit.0).unwrap_or_default(),
            _ => (false, false),
        }
    }

    /// Removes page `index` of `file`, dirty or not, so what was written to it is lost. Returns
    /// false if the page is under writeback, and so stays.
    pub fn discard(&self, file: u64, index: u64) -> bool {
        if let Some((slot, page)) = self.table.discard(file, index) {
            super::lock(&self.pages).extend(page);
            super::lock(&self.slots).push(slot);
            return true;
        }
        !self.writing_state(file, index).1
    }
}
