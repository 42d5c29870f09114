//! Which descriptors are ours.

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};

use super::{Description, Errno};

const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

/// One more than the highest number that a descriptor of ours can have.
pub const MAX_DESCRIPTORS: usize = CHUNK * CHUNKS;

type Chunk = Box<[ArcSwapOption<Description>]>;

/// Descriptors by number. A look-up takes no lock; a caller keeps the description it uses, also if
/// its last descriptor is closed meanwhile.
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

    /// What descriptor `fd` stands for, if it is ours. Negative numbers never are.
    #[inline]
    pub fn get(&self, fd: c_int) -> Option<Guard<Option<Arc<Description>>>> {
        let guard = self.slot(fd)?.load();
        guard.is_some().then_some(guard)
    }

    /// As [`get`](Self::get), to keep.
    pub fn get_full(&self, fd: c_int) -> Option<Arc<Description>> {
        self.slot(fd)?.load_full()
    }

    /// Whether `fd` is ours.
    #[inline]
    pub fn has(&self, fd: c_int) -> bool {
        self.get(fd).is_some()
    }

    /// From now on `fd` stands for `description`. What it stood for before is given back.
    ///
    /// # Panics
    /// For a number that [`check`](Self::check) refuses.
    pub fn set(&self, fd: c_int, description: Arc<Description>) -> Option<Arc<Description>> {
        let number = usize::try_from(fd).expect("a descriptor's number");
        let chunk = self.chunks[number / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| ArcSwapOption::empty()).collect());
        chunk[number % CHUNK].swap(Some(description))
    }

    /// Whether there is room for `fd`.
    ///
    /// # Errors
    /// EMFILE.
    pub fn check(fd: c_int) -> Result<(), Errno> {
        let fits = usize::try_from(fd).is_ok_and(|fd| fd < MAX_DESCRIPTORS);
        if fits { Ok(()) } else { Err(Errno(libc::EMFILE)) }
    }

    /// Removes `fd`; returns what it stood for, if it was ours.
    pub fn clear(&self, fd: c_int) -> Option<Arc<Description>> {
        let slot = self.slot(fd)?;
        // Nearly always it is not: one load.
        if slot.load().is_none() { None } else { slot.swap(None) }
    }

    /// Removes all.
    pub(super) fn clear_all(&self) {
        for slot in self.chunks.iter().filter_map(OnceLock::get).flatten() {
            slot.store(None);
        }
    }

    /// Calls `each` for every descriptor there is.
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
