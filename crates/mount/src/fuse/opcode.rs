//! Kinds of requests (`enum fuse_opcode`).

macro_rules! opcodes {
    ($($(#[$what:meta])* $name:ident = $number:literal,)*) => {
        /// A kind of request (`enum fuse_opcode`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum Opcode {
            $($(#[$what])* $name = $number,)*
        }

        impl Opcode {
            /// Returns the kind with this number, or `None` if it is unknown.
            pub(crate) fn of(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1,
    /// Such a request is not answered.
    Forget = 2,
    GetAttr = 3,
    SetAttr = 4,
    ReadLink = 5,
    Symlink = 6,
    MkNod = 8,
    MkDir = 9,
    Unlink = 10,
    RmDir = 11,
    Rename = 12,
    Link = 13,
    Open = 14,
    Read = 15,
    Write = 16,
    StatFs = 17,
    Release = 18,
    Fsync = 20,
    SetXattr = 21,
    GetXattr = 22,
    ListXattr = 23,
    RemoveXattr = 24,
    Flush = 25,
    Init = 26,
    OpenDir = 27,
    ReadDir = 28,
    ReleaseDir = 29,
    FsyncDir = 30,
    GetLk = 31,
    SetLk = 32,
    SetLkW = 33,
    Access = 34,
    Create = 35,
    /// Such a request is not answered.
    Interrupt = 36,
    Bmap = 37,
    Destroy = 38,
    Ioctl = 39,
    Poll = 40,
    /// Such a request is not answered.
    NotifyReply = 41,
    /// Such a request is not answered.
    BatchForget = 42,
    Fallocate = 43,
    ReadDirPlus = 44,
    Rename2 = 45,
    Lseek = 46,
    CopyFileRange = 47,
    SetupMapping = 48,
    RemoveMapping = 49,
    SyncFs = 50,
    TmpFile = 51,
    Statx = 52,
}

impl Opcode {
    /// A number above the highest one of a kind.
    pub(crate) const NUMBERS: usize = Self::Statx as usize + 1;

    /// Returns whether the kernel waits for an answer.
    pub(crate) fn is_answered(self) -> bool {
        !matches!(self, Self::Forget | Self::BatchForget | Self::Interrupt | Self::NotifyReply)
    }
}
