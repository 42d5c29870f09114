//! Remembers files for which the shared-memory path did not pay when they were last open, or which
//! the kernel read.
//!
//! A program that opens one of them only to read leaves it to the kernel at once. Otherwise the
//! kernel would drop what it kept of the file each time that it is opened, and get all of it again.

use std::collections::HashMap;

use meantime_process::lock::{Mutex, Rank};

use crate::server::lock::locked;

/// The maximum number of files that are remembered.
const FILES_MAX: usize = 4096;
/// How often a file is left to the kernel before the shared-memory path is tried again.
const TIMES: u8 = 16;

/// How often each of these files, by inode number, is still left to the kernel.
pub(super) struct LeftFiles(Mutex<HashMap<u32, u8>>);

impl Default for LeftFiles {
    fn default() -> Self {
        Self(Mutex::new(Rank::Served, HashMap::new()))
    }
}

impl LeftFiles {
    /// Remembers the inode `ino`.
    pub(super) fn add(&self, ino: u32) {
        let mut files = locked(&self.0);
        if files.len() >= FILES_MAX && !files.contains_key(&ino) {
            files.clear();
        }
        files.entry(ino).or_insert(TIMES);
    }

    /// Returns whether a program that takes inode `ino` has to leave it to the kernel. `only_reads`
    /// says that the program can do nothing but read, and not past a cache.
    pub(super) fn take(&self, ino: u32, only_reads: bool) -> bool {
        let mut files = locked(&self.0);
        let Some(times) = files.get_mut(&ino) else { return false };
        if !only_reads || *times == 0 {
            files.remove(&ino);
            return false;
        }
        *times -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_left_some_times_to_those_who_only_read_it() {
        let left_files = LeftFiles::default();
        assert!(!left_files.take(7, true));
        left_files.add(7);
        assert!((0..TIMES).all(|_| left_files.take(7, true)) && !left_files.take(7, true));
        left_files.add(7);
        assert!(!left_files.take(7, false) && !left_files.take(7, true));
        (0..FILES_MAX as u32 * 3).for_each(|ino| left_files.add(ino));
        assert!(locked(&left_files.0).len() <= FILES_MAX);
    }
}
