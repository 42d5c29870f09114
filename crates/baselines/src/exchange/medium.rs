//! The server's medium.

#![expect(unsafe_code)]

use meantime_hw::pages::Pages;
use meantime_hw::{DmaLimits, HwError};

/// Memory of the kind that software SSDs have, each word of which holds its own place.
pub(super) struct Medium {
    pages: Pages,
    bytes: usize,
}

impl Medium {
    pub(super) fn new(bytes: u64) -> Result<Self, HwError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut pages = Pages::map(bytes, &DmaLimits::default())?;
        for (index, word) in words_mut(&mut pages).iter_mut().enumerate() {
            *word = (index as u64 * 8).to_le();
        }
        Ok(Self { pages, bytes })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has at least `bytes` initialised bytes, and lives as long as `self`.
        // After `new` nobody writes to it.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().as_ptr(), self.bytes) }
    }
}

fn words_mut(pages: &mut Pages) -> &mut [u64] {
    let words = pages.len() / 8;
    // SAFETY: a mapping of `len` zeroed bytes, aligned to 2 MiB, that only `pages` refers to, which
    // is borrowed.
    unsafe { std::slice::from_raw_parts_mut(pages.as_ptr().cast().as_ptr(), words) }
}
