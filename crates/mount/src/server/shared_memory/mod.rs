//! The shared-memory path: reads, writes and fsyncs of programs by shared memory, past the kernel,
//! on the descriptors that the kernel gave them.
//!
//! # How a program gets there
//! A program's interception library connects to our socket, and gets a secret number. It shows the
//! number by an ioctl on an open file of the mount ([`TAKE`](meantime_shm_rpc::message::TAKE)). The
//! ioctl proves that the program has the descriptor, and returns the open file's handle in this
//! connection. Calls then come by lines, one for each of the program's threads, and a thread of
//! ours serves each line.
//!
//! # What holds
//! - Either the kernel's page cache has a file's content, or programs take the shared-memory path
//!   to it ([`gate`]).
//! - A handle always means the same open file, and ends with it.
//! - Each `close` of an open file is counted before it returns
//!   ([`closings`](meantime_shm_rpc::closings)), so a program does not use the handle of a
//!   descriptor that it closed.
//! - While a file is [`SharedMemory`](gate::Mode::SharedMemory) the kernel caches no attributes of
//!   it.
//! - Only processes of our own user are served. A process that breaks the protocol loses its
//!   connection.
//!
//! docs/shared-memory-path.md argues for these.

mod calls;
mod connection;
pub(crate) mod gate;
mod left_files;
mod listen;
mod memory;
#[cfg(test)]
mod model;
pub(super) mod sharing;
mod words;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use meantime_process::lock::{Mutex, Rank};
use meantime_shm_rpc::message::{Nonce, Taken};
use meantime_shm_rpc::socket;

use self::connection::Connection;
use self::gate::{Gate, Mode};
use self::left_files::LeftFiles;
use self::memory::Memory;
use self::sharing::Sharing;
use self::words::Words;
use super::counts::CallCounts;
use super::handles::OpenFile;
use super::lock::locked;
use super::throttled::ThrottledMessage;

/// The maximum number of lines.
const LINES_MAX: u32 = 256;

/// A mount's shared-memory path.
pub(crate) struct SharedPath {
    socket: OwnedFd,
    words: Arc<Words>,
    left_files: Arc<LeftFiles>,
    gates: Mutex<HashMap<u32, Weak<Gate>>>,
    /// Whether a gate was ever taken. Without one, none is looked up.
    taken: AtomicBool,
    connections: Mutex<HashMap<Nonce, Arc<Connection>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lines: AtomicU32,
    memory: Arc<Memory>,
    is_ended: AtomicBool,
    pub(crate) counts: Arc<CallCounts>,
    messages: Messages,
}

/// Messages that programs can cause in a loop.
struct Messages {
    /// A connection was refused.
    refused: ThrottledMessage,
    /// No connection could be accepted.
    not_accepted: ThrottledMessage,
    /// A line could not be made.
    no_line: ThrottledMessage,
    /// The lines have as much memory as they may.
    no_memory: ThrottledMessage,
}

/// The reason why an open file is not taken. All calls on it then go through the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// There is no such connection.
    Nobody,
    /// The kernel caches its content.
    Cached,
    /// The kernel caches its content, because that is faster and all of the file could be in our
    /// memory.
    Left,
    /// No word is left for its closings.
    NoRoom,
}

impl SharedPath {
    /// Listens under `name`. `memory` is the number of bytes that all lines may have, or `None` for
    /// a quarter of `cache`, the size of our page cache.
    pub(crate) fn new(name: &str, memory: Option<u64>, cache: u64) -> io::Result<Self> {
        let counts = Arc::default();
        Ok(Self {
            socket: socket::listen(name)?,
            words: Arc::new(Words::new()?),
            left_files: Arc::new(LeftFiles::default()),
            gates: Mutex::new(Rank::Served, HashMap::new()),
            taken: AtomicBool::new(false),
            connections: Mutex::new(Rank::Served, HashMap::new()),
            threads: Mutex::new(Rank::Served, Vec::new()),
            lines: AtomicU32::new(0),
            memory: Arc::new(Memory::new(memory, cache, &counts)),
            is_ended: AtomicBool::new(false),
            counts,
            messages: Messages {
                refused: ThrottledMessage::new(),
                not_accepted: ThrottledMessage::new(),
                no_line: ThrottledMessage::new(),
                no_memory: ThrottledMessage::new(),
            },
        })
    }

    /// Returns the state of a file of inode `ino` that is being opened with `flags` of open(2).
    pub(crate) fn opened(&self, ino: u32, flags: i32) -> Sharing {
        let gate = {
            let mut gates = locked(&self.gates);
            match gates.get(&ino).and_then(Weak::upgrade) {
                Some(gate) => gate,
                None => {
                    if gates.len() >= 64 && gates.len() == gates.capacity() {
                        gates.retain(|_, gate| gate.strong_count() > 0);
                    }
                    let gate = Arc::new(Gate::new());
                    gates.insert(ino, Arc::downgrade(&gate));
                    gate
                }
            }
        };
        Sharing::new(gate, ino, &self.left_files, flags)
    }

    /// Returns whether inode `ino` is open.
    pub(crate) fn is_open(&self, ino: u32) -> bool {
        locked(&self.gates).get(&ino).is_some_and(|gate| gate.strong_count() > 0)
    }

    /// Returns whether calls of the shared-memory path may have changed inode `ino` since it was
    /// opened, so that the kernel must not keep its attributes.
    pub(crate) fn was_taken(&self, ino: u32) -> bool {
        if !self.taken.load(Ordering::SeqCst) {
            return false;
        }
        let gate = locked(&self.gates).get(&ino).and_then(Weak::upgrade);
        gate.is_some_and(|gate| gate.was_taken())
    }

    /// Lets the client of the connection `nonce` take `open`. Also returns the gate, if the kernel
    /// has to drop the file's content before the client gets the answer. `fits` says that all of it
    /// could be in our memory.
    pub(crate) fn take(
        &self,
        open: &Arc<OpenFile>,
        nonce: &Nonce,
        fits: bool,
    ) -> Result<(Taken, Mode), NotTaken> {
        let connection = locked(&self.connections).get(nonce).cloned();
        let (connection, sharing) =
            connection.zip(open.sharing.as_ref()).ok_or(NotTaken::Nobody)?;
        if sharing.gate.is_fresh()
            && self.left_files.take(sharing.ino, sharing.only_reads)
            && sharing.gate.leave_if_fresh(fits)
        {
            return Err(if fits { NotTaken::Left } else { NotTaken::Cached });
        }
        // This is set before the mode changes, so that attributes that are sent from now on are not
        // kept.
        self.taken.store(true, Ordering::SeqCst);
        let mode = sharing.gate.take();
        if mode == Mode::Long {
            let is_left = sharing.gate.is_left();
            return Err(if is_left { NotTaken::Left } else { NotTaken::Cached });
        }
        if sharing.word.get().is_none() {
            let word = Words::take(&self.words, sharing.ino.into()).ok_or(NotTaken::NoRoom)?;
            if sharing.word.set(word).is_ok() {
                sharing.taken();
            }
        }
        let word = sharing.word.get().ok_or(NotTaken::NoRoom)?;
        let closings = word.count();
        let this = Arc::downgrade(&connection);
        let known = {
            let mut handles = locked(&sharing.handles);
            handles.retain(|(of, _)| of.strong_count() > 0);
            handles.iter().find(|(of, _)| of.ptr_eq(&this)).map(|(_, handle)| *handle)
        };
        // If two threads take it at the same time, each gets a handle.
        let handle = known.unwrap_or_else(|| connection.add(open));
        if known.is_none() {
            locked(&sharing.handles).push((this, handle));
        }
        Ok((Taken { handle, word: word.number, closings }, mode))
    }

    /// Ends all connections, after the calls in progress, and waits for their threads.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        loop {
            let connections: Vec<_> = locked(&self.connections).values().cloned().collect();
            connections.iter().for_each(|connection| connection.end());
            let Some(thread) = locked(&self.threads).pop() else { break };
            let _ = thread.join();
        }
        let all = &self.messages;
        all.refused
            .end(|times| tracing::warn!(times, "programs could not take the shared-memory path"));
        all.not_accepted.end(|times| tracing::warn!(times, "no program could be accepted"));
        all.no_line.end(|times| tracing::warn!(times, "there was no line for a program"));
        all.no_memory.end(|times| {
            tracing::warn!(times, "calls went through the kernel (--shared-memory-limit)");
        });
    }

    /// Logs that there is no memory for a line, or for a call.
    fn say_no_memory(&self) {
        let limit = self.memory.limit();
        self.messages.no_memory.log_if_due(|times| {
            tracing::warn!(
                limit,
                times,
                "programs use as much shared memory as they may: others go through the kernel \
                 (--shared-memory-limit)"
            );
        });
    }

    fn closings(&self) -> &OwnedFd {
        self.words.closings().for_clients()
    }

    /// Counts one more line, unless there are too many.
    fn add_line(&self) -> bool {
        let added = self.lines.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |lines| {
            (lines < LINES_MAX).then_some(lines + 1)
        });
        added.is_ok()
    }

    fn remove_line(&self) {
        self.lines.fetch_sub(1, Ordering::SeqCst);
    }
}
