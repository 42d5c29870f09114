//! The content of a call, and the messages of the two sides before the first call.

/// The operation that a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// Reads `len` bytes at `offset`. The reply's `result` is how many there were.
    Read = 1,
    /// Writes `len` bytes at `offset`, or at the end ([`APPEND`]). The reply's `end` is where they
    /// ended.
    Write = 2,
    /// Makes data, and with it all metadata that reading them needs, durable.
    SyncData = 3,
    /// Makes data and all metadata durable.
    SyncAll = 4,
    /// Sets the size to `offset`.
    Truncate = 5,
    /// Returns the [`Attributes`] as data.
    Attributes = 6,
    /// Leaves the file to the kernel's cache. All calls on it take the FUSE path from now on.
    Leave = 7,
}

impl Op {
    /// Returns the operation with this number.
    pub fn of(number: u32) -> Option<Self> {
        use Op::{Attributes, Leave, Read, SyncAll, SyncData, Truncate, Write};
        let all = [Read, Write, SyncData, SyncAll, Truncate, Attributes, Leave];
        all.into_iter().find(|op| *op as u32 == number)
    }
}

/// This flag says that the file is open with `O_DIRECT`.
pub const DIRECT: u32 = 1 << 0;
/// This flag asks to write at the end of the file.
pub const APPEND: u32 = 1 << 1;
/// This flag asks that the data are durable before the reply (`O_DSYNC`).
pub const DSYNC: u32 = 1 << 2;
/// This flag asks that data and all metadata are durable before the reply (`O_SYNC`).
pub const SYNC: u32 = 1 << 3;
/// This flag asks to wait for the device by polling (`RWF_HIPRI`).
pub const HIPRI: u32 = 1 << 4;
/// All flags of a request.
pub const FLAGS: u32 = DIRECT | APPEND | DSYNC | SYNC | HIPRI;

/// A call's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub op: Op,
    /// The flags, such as [`DIRECT`].
    pub flags: u32,
    /// The open file, by the number in [`Taken`].
    pub handle: u64,
    /// How often the file had been closed when the client checked ([`closings`](crate::closings)).
    /// The owner refuses the call if the file was closed since. So a call of a process that has
    /// died is not executed after its end.
    pub closings: u64,
    /// A position in the file, in bytes.
    pub offset: u64,
    /// The number of bytes of data, at most [`DATA_BYTES`](crate::DATA_BYTES).
    pub len: u32,
}

/// Whether the owner executed a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// The owner executed the call, and the reply's `result` is the outcome.
    Done = 0,
    /// The owner did not execute the call, since the kernel caches the file. The call has to go
    /// through the kernel.
    Long = 1,
    /// The owner did not execute the call, since it does not know the handle (any more), or the
    /// file was closed since.
    Stale = 2,
    /// The owner did not execute the call, and has left the file to the kernel. The exchange took
    /// longer than reading the data, and all of the file fits into the owner's memory. Data near
    /// those of the call will probably be read as well.
    Left = 3,
    /// The owner executed the call, and the file has another size. Some programs have it open
    /// without having taken it, so the client makes the kernel ask for the size before it returns.
    Resized = 4,
}

impl Status {
    /// Returns the status with this number.
    pub fn of(number: u32) -> Option<Self> {
        let all = [Self::Done, Self::Long, Self::Stale, Self::Left, Self::Resized];
        all.into_iter().find(|status| *status as u32 == number)
    }
}

/// A call's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// Whether the call was executed.
    pub status: Status,
    /// A number of bytes, or a negated errno.
    pub result: i64,
    /// Where a write ended, in bytes from the file's beginning.
    pub end: u64,
}

impl Reply {
    /// Returns a reply without a result.
    pub const fn without(status: Status) -> Self {
        Self { status, result: 0, end: 0 }
    }

    /// Returns the reply to a call that was executed, with this outcome.
    pub const fn done(result: i64, end: u64) -> Self {
        Self { status: Status::Done, result, end }
    }
}

/// The fields of a file's `stat` that the owner knows, as data of a reply. Each field is as in
/// `struct stat`, in the machine's byte order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "the manual page stat(3type) describes them")]
pub struct Attributes {
    pub ino: u64,
    pub size: u64,
    /// The number of blocks, in units of 512 bytes.
    pub blocks: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub atime_nsec: u32,
    pub mtime_nsec: u32,
    pub ctime_nsec: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub blksize: u32,
}

impl Attributes {
    /// Its size in bytes.
    pub const BYTES: usize = size_of::<Self>();

    /// Returns the bytes.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        for field in [self.ino, self.size, self.blocks] {
            put(&field.to_ne_bytes());
        }
        for field in [self.atime, self.mtime, self.ctime] {
            put(&field.to_ne_bytes());
        }
        let nanoseconds = [self.atime_nsec, self.mtime_nsec, self.ctime_nsec];
        let rest = [self.mode, self.nlink, self.uid, self.gid, self.blksize];
        for field in nanoseconds.into_iter().chain(rest) {
            put(&field.to_ne_bytes());
        }
        bytes
    }

    /// Returns the attributes that `bytes` hold.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Self {
            ino: long(0),
            size: long(8),
            blocks: long(16),
            atime: long(24) as i64,
            mtime: long(32) as i64,
            ctime: long(40) as i64,
            atime_nsec: word(48),
            mtime_nsec: word(52),
            ctime_nsec: word(56),
            mode: word(60),
            nlink: word(64),
            uid: word(68),
            gid: word(72),
            blksize: word(76),
        }
    }
}

const _: () = assert!(Attributes::BYTES == 80);

/// A connection's secret. Its client returns it by ioctl, so the owner knows which connection the
/// caller of the ioctl has.
pub type Nonce = [u8; 16];

/// The ioctl on an open file by which a client asks for its handle: `_IOWR('m', 0x4d, [u8; 32])`.
/// The bytes are a [`Nonce`] and 16 zeros, and the answer is a [`Taken`]. It is only for
/// descriptors that are known to be of the mount. EBUSY says that the kernel caches the file.
/// EALREADY says the same for the reason of [`Status::Left`].
pub const TAKE: u32 = 0xc020_6d4d;

/// The ioctl on any open file or directory of a mount that makes everything durable:
/// `_IO('m', 0x4e)`. It stands for syncfs(2), which FUSE does not pass on.
pub const SYNCFS: u32 = 0x6d4e;

/// The size up to which a file is small, in bytes. The kernel reads a small file by one request, so
/// a client does not take one that it only reads through the cache.
pub const SMALL_FILE_BYTES: u64 = 64 << 10;

/// The answer to [`TAKE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The open file's number in calls of this connection.
    pub handle: u64,
    /// The file's word among the [`closings`](crate::closings).
    pub word: u32,
    /// That word's value before the answer.
    pub closings: u64,
}

impl Taken {
    /// Returns the bytes of the answer.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.handle.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.closings.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.word.to_ne_bytes());
        bytes
    }

    /// Returns the answer that `bytes` hold.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Self { handle: long(0), closings: long(8), word: long(16) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_they_went() {
        let taken = Taken { handle: 1 << 40, word: 7, closings: u64::MAX };
        assert_eq!(Taken::from_bytes(&taken.to_bytes()), taken);
        let told = Attributes {
            ino: 1,
            size: 2,
            blocks: 3,
            atime: -4,
            mtime: 5,
            ctime: 6,
            atime_nsec: 7,
            mtime_nsec: 8,
            ctime_nsec: 9,
            mode: 10,
            nlink: 11,
            uid: 12,
            gid: 13,
            blksize: 14,
        };
        assert_eq!(Attributes::from_bytes(&told.to_bytes()), told);
    }

    #[test]
    fn unknown_numbers_are_refused() {
        assert_eq!((Op::of(0), Op::of(8), Op::of(u32::MAX)), (None, None, None));
        assert_eq!(Op::of(Op::Attributes as u32), Some(Op::Attributes));
        assert_eq!((Status::of(5), Status::of(4)), (None, Some(Status::Resized)));
    }
}
