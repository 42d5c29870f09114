//! A program's connection, and the files that it has taken.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, Weak};
use std::thread::JoinHandle;

use meantime_process::lock::{Mutex, Rank, RwLock};
use meantime_shm_rpc::message::Nonce;
use meantime_shm_rpc::owner::End;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::server::handles::OpenFile;

/// A connection with a program.
pub(crate) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) nonce: Nonce,
    files: RwLock<Files>,
    pub(super) lines: Mutex<Vec<(Arc<End>, JoinHandle<()>)>>,
}

/// The open files that the program has taken, by handle.
#[derive(Default)]
struct Files {
    slots: Vec<(u32, Weak<OpenFile>)>,
    /// The slot at which the next search for a closed file begins.
    next: usize,
}

/// The number of slots that are searched for a free one, before one is added.
const LOOKS: usize = 8;

impl Files {
    /// Adds `open`. The upper half of a handle changes with each use of its slot.
    fn add(&mut self, open: &Arc<OpenFile>) -> u64 {
        for _ in 0..LOOKS.min(self.slots.len()) {
            let at = self.next % self.slots.len();
            self.next = at + 1;
            let (generation, file) = &mut self.slots[at];
            // After its last generation a slot stays unused.
            if file.strong_count() == 0 && *generation < u32::MAX {
                *generation += 1;
                *file = Arc::downgrade(open);
                return u64::from(*generation) << 32 | at as u64;
            }
        }
        self.slots.push((0, Arc::downgrade(open)));
        self.slots.len() as u64 - 1
    }

    fn get(&self, handle: u64) -> Option<Arc<OpenFile>> {
        let (generation, file) = self.slots.get(handle as u32 as usize)?;
        if u64::from(*generation) == handle >> 32 { file.upgrade() } else { None }
    }
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let mut nonce = [0; 16];
        getrandom(&mut nonce, GetRandomFlags::empty())?;
        Ok(Self {
            socket,
            nonce,
            files: RwLock::new(Rank::Served, Files::default()),
            lines: Mutex::new(Rank::Served, Vec::new()),
        })
    }

    /// Adds `open`, and returns its handle.
    pub(super) fn add(&self, open: &Arc<OpenFile>) -> u64 {
        self.files.write().unwrap_or_else(PoisonError::into_inner).add(open)
    }

    pub(super) fn file(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(handle)
    }

    /// Ends the connection. Its [`serve`](Self::serve) returns after the calls in progress.
    pub(super) fn end(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use meantime_ext4::{FileSystem, MountOptions, OpenOptions};
    use meantime_testkit::{e2fs, image};

    use super::*;

    fn open(fs: &FileSystem) -> Arc<OpenFile> {
        let options = OpenOptions { read: true, ..OpenOptions::default() };
        let node = fs.root().unwrap();
        let file = fs.open_node_with(&node, &options);
        Arc::new(OpenFile::new(file.unwrap(), &options, false))
    }

    #[test]
    fn a_handle_is_of_one_open_file_for_ever() {
        if !e2fs::tools() {
            return;
        }
        let scratch = image::scratch();
        let path = image::mkfs(scratch.path(), "image", "16M", &[]);
        let fs = image::mount(&path, &MountOptions::default());
        let mut files = Files::default();
        let first = open(&fs);
        let handle = files.add(&first);
        assert!(Arc::ptr_eq(&files.get(handle).unwrap(), &first));
        drop(first);
        assert!(files.get(handle).is_none(), "closed");
        let second = open(&fs);
        let other = files.add(&second);
        assert_eq!(files.slots.len(), 1, "the slot is used again");
        assert!(files.get(handle).is_none() && files.get(other).is_some());
        for unknown in [1, u64::MAX, other + 1, other + (1 << 32)] {
            assert!(files.get(unknown).is_none());
        }
    }
}
