//! A FUSE server of files in memory, without a file system below it: the floor for a mount.
//!
//! It agrees with the kernel on the same features as a mount does, so what a mount takes more than
//! this is not the kernel's. One thread serves it. It knows what `scripts/bench-mount.sh` does, and
//! nothing else (feature `bare`).

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno as OsErrno;
use zerocopy::IntoBytes as _;

use crate::fuse::flags::{opened, set};
use crate::fuse::wire::{
    Attr, AttrOut, CreateIn, Dirent, EntryOut, InHeader, MkDirIn, OpenIn, OpenOut, OutHeader,
    ReadIn, SetAttrIn, StatFsOut, WriteIn, WriteOut,
};
use crate::fuse::{Malformed, Opcode, Request};
use crate::options::Options;
use crate::session::{self, PIECE_BYTES, SessionError};

/// How long the kernel keeps names and attributes, in seconds: a day, as by default.
const KEPT_S: u64 = 86_400;

/// A file or a directory.
#[derive(Default)]
struct Inode {
    mode: u32,
    content: Vec<u8>,
    /// The names of a directory, in the order of their numbers, which listings go by.
    names: BTreeMap<u64, (OsString, u64)>,
    numbers: HashMap<OsString, u64>,
}

/// A server, mounted.
pub struct BareServer {
    device: OwnedFd,
    inodes: Vec<Inode>,
    names_made: u64,
}

/// An errno of Linux.
type Failed = i32;

impl From<Malformed> for io::Error {
    fn from(_: Malformed) -> Self {
        io::ErrorKind::InvalidData.into()
    }
}

impl BareServer {
    /// Mounts at `dir`.
    ///
    /// # Errors
    /// The errors of a mount.
    pub fn new(dir: &Path) -> Result<Self, SessionError> {
        let options = Options { source: "bare".to_owned(), ..Options::default() };
        let device = session::mount(&session::check_directory(dir, false)?, &options)?;
        session::agree(&device, 1)?;
        let root = Inode { mode: libc::S_IFDIR | 0o755, ..Inode::default() };
        // Node numbers are the indices of inodes. There is no number 0.
        Ok(Self { device, inodes: vec![Inode::default(), root], names_made: 0 })
    }

    /// Serves requests until the mount ends.
    ///
    /// # Errors
    /// The errors of /dev/fuse.
    pub fn serve(&mut self) -> io::Result<()> {
        let mut bytes = vec![0; PIECE_BYTES + (16 << 10)];
        loop {
            match rustix::io::read(self.device.as_fd(), &mut bytes[..]) {
                Ok(0) | Err(OsErrno::NODEV) => return Ok(()),
                Ok(len) => self.handle(Request::new(&bytes[..len])?)?,
                Err(OsErrno::INTR | OsErrno::NOENT | OsErrno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn handle(&mut self, mut request: Request<'_>) -> io::Result<()> {
        let InHeader { unique, opcode, .. } = request.header;
        let opcode = Opcode::of(opcode);
        if opcode.is_some_and(|opcode| !opcode.is_answered()) {
            return Ok(());
        }
        let mut answer = Vec::new();
        let (error, content) = match (opcode, request.header.nodeid as usize) {
            // Content goes to the kernel from where it is.
            (Some(Opcode::Read), at) => {
                let read: ReadIn = request.take()?;
                let content = &self.inodes[at].content;
                let from = content.len().min(read.offset as usize);
                (0, &content[from..content.len().min(from + read.size as usize)])
            }
            (opcode, _) => match self.serve_one(opcode, &mut request, &mut answer)? {
                Ok(()) => (0, &[][..]),
                Err(errno) => {
                    answer.clear();
                    (-errno, &[][..])
                }
            },
        };
        let len = (size_of::<OutHeader>() + answer.len() + content.len()) as u32;
        let header = OutHeader { len, error, unique };
        let parts = [header.as_bytes(), &answer, content].map(IoSlice::new);
        // An error means that the mount has ended.
        let _ = rustix::io::writev(self.device.as_fd(), &parts);
        Ok(())
    }

    fn serve_one(
        &mut self,
        opcode: Option<Opcode>,
        request: &mut Request<'_>,
        answer: &mut Vec<u8>,
    ) -> io::Result<Result<(), Failed>> {
        let at = request.header.nodeid as usize;
        match opcode {
            Some(Opcode::Lookup) => match self.inodes[at].numbers.get(request.name()?) {
                Some(number) => {
                    let found = self.inodes[at].names[number].1;
                    answer.extend(self.entry(found).as_bytes());
                }
                None => {
                    let none = EntryOut { entry_valid: KEPT_S, ..EntryOut::default() };
                    answer.extend(none.as_bytes());
                }
            },
            Some(Opcode::GetAttr) => answer.extend(self.attributes(at as u64).as_bytes()),
            Some(Opcode::SetAttr) => {
                let asked: SetAttrIn = request.take()?;
                if asked.valid & set::SIZE != 0 {
                    self.inodes[at].content.resize(asked.size as usize, 0);
                }
                if asked.valid & set::MODE != 0 {
                    self.inodes[at].mode = asked.mode;
                }
                answer.extend(self.attributes(at as u64).as_bytes());
            }
            Some(Opcode::MkDir) => {
                let make: MkDirIn = request.take()?;
                let made = self.add(at, request, libc::S_IFDIR | make.mode)?;
                answer.extend(self.entry(made).as_bytes());
            }
            Some(Opcode::Create) => {
                let create: CreateIn = request.take()?;
                let made = self.add(at, request, create.mode)?;
                answer.extend(self.entry(made).as_bytes());
                answer.extend(open(create.flags).as_bytes());
            }
            Some(Opcode::Open | Opcode::OpenDir) => {
                let asked: OpenIn = request.take()?;
                if asked.flags as i32 & libc::O_TRUNC != 0 {
                    self.inodes[at].content.clear();
                }
                answer.extend(open(asked.flags).as_bytes());
            }
            Some(Opcode::Unlink | Opcode::RmDir) => {
                let name = request.name()?;
                let Some(number) = self.inodes[at].numbers.remove(name) else {
                    return Ok(Err(libc::ENOENT));
                };
                if let Some((_, removed)) = self.inodes[at].names.remove(&number) {
                    self.inodes[removed as usize] = Inode::default();
                }
            }
            Some(Opcode::Write) => {
                let write: WriteIn = request.take()?;
                let (data, from) = (request.bytes(write.size)?, write.offset as usize);
                let content = &mut self.inodes[at].content;
                content.resize(content.len().max(from + data.len()), 0);
                content[from..from + data.len()].copy_from_slice(data);
                answer.extend(WriteOut { size: write.size, padding: 0 }.as_bytes());
            }
            Some(Opcode::ReadDir) => self.list(at, &request.take()?, answer, false),
            Some(Opcode::ReadDirPlus) => self.list(at, &request.take()?, answer, true),
            Some(Opcode::StatFs) => {
                let all =
                    StatFsOut { bsize: 4096, frsize: 4096, namelen: 255, ..StatFsOut::default() };
                answer.extend(all.as_bytes());
            }
            Some(
                Opcode::Release
                | Opcode::ReleaseDir
                | Opcode::Fsync
                | Opcode::FsyncDir
                | Opcode::Flush
                | Opcode::Destroy,
            ) => {}
            _ => return Ok(Err(libc::ENOSYS)),
        }
        Ok(Ok(()))
    }

    /// Adds an inode by the name of `request` to the directory `at`.
    fn add(&mut self, at: usize, request: &mut Request<'_>, mode: u32) -> io::Result<u64> {
        let (name, made) = (request.name()?.to_owned(), self.inodes.len() as u64);
        self.inodes.push(Inode { mode, ..Inode::default() });
        self.names_made += 1;
        self.inodes[at].numbers.insert(name.clone(), self.names_made);
        self.inodes[at].names.insert(self.names_made, (name, made));
        Ok(made)
    }

    fn list(&self, at: usize, asked: &ReadIn, answer: &mut Vec<u8>, plus: bool) {
        for (number, (name, ino)) in self.inodes[at].names.range(asked.offset + 1..) {
            let (name, before) = (name.as_bytes(), answer.len());
            if plus {
                answer.extend(self.entry(*ino).as_bytes());
            }
            let kind = self.inodes[*ino as usize].mode >> 12;
            let namelen = name.len() as u32;
            answer.extend(Dirent { ino: *ino, off: *number, namelen, kind }.as_bytes());
            answer.extend(name);
            answer.resize(answer.len().next_multiple_of(8), 0);
            if answer.len() > asked.size as usize {
                return answer.truncate(before);
            }
        }
    }

    fn attr(&self, ino: u64) -> Attr {
        let Inode { mode, content, .. } = &self.inodes[ino as usize];
        let (size, nlink) = (content.len() as u64, 1);
        Attr { ino, size, blocks: size / 512, mode: *mode, nlink, blksize: 4096, ..Attr::default() }
    }

    fn attributes(&self, ino: u64) -> AttrOut {
        AttrOut { attr_valid: KEPT_S, attr: self.attr(ino), ..AttrOut::default() }
    }

    fn entry(&self, nodeid: u64) -> EntryOut {
        let (entry_valid, attr_valid) = (KEPT_S, KEPT_S);
        EntryOut { nodeid, entry_valid, attr_valid, attr: self.attr(nodeid), ..EntryOut::default() }
    }
}

/// Returns the answer to an open with `flags`, as a mount gives it.
fn open(flags: u32) -> OpenOut {
    let how = match flags as i32 & libc::O_DIRECT {
        0 => opened::KEEP_CACHE,
        _ => opened::DIRECT_IO | opened::PARALLEL_DIRECT_WRITES,
    };
    OpenOut { fh: 0, open_flags: how | opened::NOFLUSH, padding: 0 }
}
