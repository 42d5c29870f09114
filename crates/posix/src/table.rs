//! The library's descriptors.

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};

use super::{Description, Errno};

const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

/// One more than the highest descriptor number supported.
pub const MAX_DESCRIPTORS: usize = CHUNK * CHUNKS;

type Chunk = Box<[ArcSwapOption<Description>]>;

/// Descriptors by number. A look-up takes no lock; a caller keeps its description even if the last
/// descriptor is closed meanwhile.
pub struct Table {
    chunks: Box<[OnceLock<Chunk>]>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect() }
    }

    #[inline]
    fn slot(&self, fd: c_int) -> Option<&ArcSwapOption<Description>> {
        let fd = usize::try_from(fd).ok()?;
        self.chunks.get(fd / CHUNK)?.get()?.get(fd % CHUNK)
    }

    /// The description of `fd`, if it is ours. Never for negative numbers.
    #[inline]
    pub fn get(&self, fd: c_int) -> Option<Guard<Option<Arc<Description>>>> {
        let guard = self.slot(fd)?.load();
        guard.is_some().then_some(guard)
    }

    /// As [`get`](Self::get), for keeping.
    pub fn get_full(&self, fd: c_int) -> Option<Arc<Description>> {
        self.slot(fd)?.load_full()
    }

    /// Whether `fd` is ours.
    #[inline]
    pub fn has(&self, fd: c_int) -> bool {
        self.get(fd).is_some()
    }

    /// Sets `fd` to `description`. Returns its former description.
    ///
    /// # Panics
    /// If [`check`](Self::check) refuses the number.
    pub fn set(&self, fd: c_int, description: Arc<Description>) -> Option<Arc<Description>> {
        let number = usize::try_from(fd).expect("a descriptor's number");
        let chunk = self.chunks[number / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| ArcSwapOption::empty()).collect());
        chunk[number % CHUNK].swap(Some(description))
    }

    /// Checks that there is room for `fd`.
    ///
    /// # Errors
    /// EMFILE.
    pub fn check(fd: c_int) -> Result<(), Errno> {
        let fits = usize::try_from(fd).is_ok_and(|fd| fd < MAX_DESCRIPTORS);
        if fits { Ok(()) } else { Err(Errno(libc::EMFILE)) }
    }

    /// Removes `fd`. Returns its description, if it was ours.
    pub fn clear(&self, fd: c_int) -> Option<Arc<Description>> {
        let slot = self.slot(fd)?;
        // Usually it is not ours: one load.
        if slot.load().is_none() { None } else { slot.swap(None) }
    }

    /// Removes all descriptors.
    pub(super) fn clear_all(&self) {
        for slot in self.chunks.iter().filter_map(OnceLock::get).flatten() {
            slot.store(None);
        }
    }

    /// Calls `each` for every descriptor.
    pub(super) fn for_each(&self, mut each: impl FnMut(c_int, &Arc<Description>)) {
        for (index, chunk) in self.chunks.iter().enumerate() {
            for (at, slot) in chunk.get().into_iter().flatten().enumerate() {
                if let Some(description) = &*slot.load() {
                    each((index * CHUNK + at) as c_int, description);
                }
            }
        }
    }
}
