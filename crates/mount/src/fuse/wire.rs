//! The structures of `fuse.h`. All numbers are in native byte order, because kernel and server
//! share a machine.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! structures {
    ($($(#[$what:meta])* $name:ident of $bytes:literal bytes { $($field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$what])*
            #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
            #[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
            #[repr(C)]
            pub(crate) struct $name {
                $(pub(crate) $field: $kind,)*
            }

            const _: () = assert!(size_of::<$name>() == $bytes);
        )*
    };
}

structures! {
    /// `fuse_in_header`.
    InHeader of 40 bytes {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        total_extlen: u16,
        padding: u16,
    }

    /// `fuse_out_header`.
    OutHeader of 16 bytes {
        len: u32,
        error: i32,
        unique: u64,
    }

    /// `fuse_attr`.
    Attr of 88 bytes {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }

    /// `fuse_entry_out`.
    EntryOut of 128 bytes {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }

    /// `fuse_forget_in`.
    ForgetIn of 8 bytes {
        nlookup: u64,
    }

    /// `fuse_forget_one`.
    ForgetOne of 16 bytes {
        nodeid: u64,
        nlookup: u64,
    }

    /// `fuse_batch_forget_in`.
    BatchForgetIn of 8 bytes {
        count: u32,
        dummy: u32,
    }

    /// `fuse_attr_out`.
    AttrOut of 104 bytes {
        attr_valid: u64,
        attr_valid_nsec: u32,
        dummy: u32,
        attr: Attr,
    }

    /// `fuse_mknod_in`.
    MkNodIn of 16 bytes {
        mode: u32,
        rdev: u32,
        umask: u32,
        padding: u32,
    }

    /// `fuse_mkdir_in`.
    MkDirIn of 8 bytes {
        mode: u32,
        umask: u32,
    }

    /// `fuse_rename_in`.
    RenameIn of 8 bytes {
        newdir: u64,
    }

    /// `fuse_rename2_in`.
    Rename2In of 16 bytes {
        newdir: u64,
        flags: u32,
        padding: u32,
    }

    /// `fuse_link_in`.
    LinkIn of 8 bytes {
        oldnodeid: u64,
    }

    /// `fuse_setattr_in`.
    SetAttrIn of 88 bytes {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }

    /// `fuse_open_in`.
    OpenIn of 8 bytes {
        flags: u32,
        open_flags: u32,
    }

    /// `fuse_create_in`.
    CreateIn of 16 bytes {
        flags: u32,
        mode: u32,
        umask: u32,
        open_flags: u32,
    }

    /// `fuse_open_out`.
    OpenOut of 16 bytes {
        fh: u64,
        open_flags: u32,
        padding: u32,
    }

    /// `fuse_release_in`.
    ReleaseIn of 24 bytes {
        fh: u64,
        flags: u32,
        release_flags: u32,
        lock_owner: u64,
    }

    /// `fuse_flush_in`.
    FlushIn of 24 bytes {
        fh: u64,
        unused: u32,
        padding: u32,
        lock_owner: u64,
    }

    /// `fuse_read_in`.
    ReadIn of 40 bytes {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    /// `fuse_write_in`.
    WriteIn of 40 bytes {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    /// `fuse_write_out`.
    WriteOut of 8 bytes {
        size: u32,
        padding: u32,
    }

    /// `fuse_kstatfs`, which is all of `fuse_statfs_out`.
    StatFsOut of 80 bytes {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }

    /// `fuse_fsync_in`.
    FsyncIn of 16 bytes {
        fh: u64,
        fsync_flags: u32,
        padding: u32,
    }

    /// `fuse_setxattr_in`. Without `FUSE_SETXATTR_EXT`, a request has only its first half.
    SetXattrIn of 16 bytes {
        size: u32,
        flags: u32,
        setxattr_flags: u32,
        padding: u32,
    }

    /// That first half (`FUSE_COMPAT_SETXATTR_IN_SIZE`).
    SetXattrShortIn of 8 bytes {
        size: u32,
        flags: u32,
    }

    /// `fuse_getxattr_in`.
    GetXattrIn of 8 bytes {
        size: u32,
        padding: u32,
    }

    /// `fuse_getxattr_out`.
    GetXattrOut of 8 bytes {
        size: u32,
        padding: u32,
    }

    /// `fuse_init_in` up to `flags`. `flags2` and later fields came with 7.36.
    InitIn of 16 bytes {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
    }

    /// `fuse_init_out`.
    InitOut of 64 bytes {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        unused: [u32; 7],
    }

    /// `fuse_ioctl_in`.
    IoctlIn of 32 bytes {
        fh: u64,
        flags: u32,
        cmd: u32,
        arg: u64,
        in_size: u32,
        out_size: u32,
    }

    /// `fuse_ioctl_out`.
    IoctlOut of 16 bytes {
        result: i32,
        flags: u32,
        in_iovs: u32,
        out_iovs: u32,
    }

    /// `fuse_fallocate_in`.
    FallocateIn of 32 bytes {
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
        padding: u32,
    }

    /// `fuse_dirent`, before its name.
    Dirent of 24 bytes {
        ino: u64,
        off: u64,
        namelen: u32,
        kind: u32,
    }

    /// `fuse_lseek_in`.
    LseekIn of 24 bytes {
        fh: u64,
        offset: u64,
        whence: u32,
        padding: u32,
    }

    /// `fuse_lseek_out`.
    LseekOut of 8 bytes {
        offset: u64,
    }

    /// `fuse_copy_file_range_in`.
    CopyFileRangeIn of 56 bytes {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }

    /// `fuse_statx_in`.
    StatxIn of 24 bytes {
        getattr_flags: u32,
        reserved: u32,
        fh: u64,
        sx_flags: u32,
        sx_mask: u32,
    }

    /// `fuse_sx_time`.
    StatxTime of 16 bytes {
        tv_sec: i64,
        tv_nsec: u32,
        reserved: i32,
    }

    /// `fuse_statx`.
    Statx of 256 bytes {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: StatxTime,
        btime: StatxTime,
        ctime: StatxTime,
        mtime: StatxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }

    /// `fuse_statx_out`.
    StatxOut of 288 bytes {
        attr_valid: u64,
        attr_valid_nsec: u32,
        flags: u32,
        spare: [u64; 2],
        stat: Statx,
    }

    /// `fuse_notify_inval_inode_out`.
    InvalInodeOut of 24 bytes {
        ino: u64,
        off: i64,
        len: i64,
    }

    /// `fuse_notify_inval_entry_out`. The name follows.
    InvalEntryOut of 16 bytes {
        parent: u64,
        namelen: u32,
        flags: u32,
    }

    /// `struct fsxattr` of `include/uapi/linux/fs.h` (FS_IOC_FSGETXATTR).
    FsXattr of 28 bytes {
        xflags: u32,
        extsize: u32,
        nextents: u32,
        projid: u32,
        cowextsize: u32,
        pad: [u8; 8],
    }

    /// `struct fstrim_range` of the same header (FITRIM).
    FstrimRange of 24 bytes {
        start: u64,
        len: u64,
        minlen: u64,
    }
}

/// Offsets of answer fields that follow fields of odd sizes.
const _: () = {
    assert!(std::mem::offset_of!(EntryOut, attr) == 40);
    assert!(std::mem::offset_of!(AttrOut, attr) == 16);
    assert!(std::mem::offset_of!(Statx, ino) == 32);
    assert!(std::mem::offset_of!(Statx, rdev_major) == 128);
    assert!(std::mem::offset_of!(StatxOut, stat) == 32);
    assert!(std::mem::offset_of!(InitOut, flags2) == 32);
};
