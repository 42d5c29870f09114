//! Options and texts of `meantime fs`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use meantime_completion::Policy;

use super::fs_write::{
    CHANGE_AFTER, LnArgs, MKFS_ABOUT, MKFS_AFTER, MkdirArgs, MkfsArgs, MvArgs, PUT_ABOUT,
    PUT_AFTER, PutArgs, RmArgs, TruncateArgs,
};

/// Options of `fs`.
#[derive(Debug, Args)]
pub(crate) struct FsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: FsCommand,
}

/// What to do with a file system.
#[derive(Debug, Subcommand)]
pub(crate) enum FsCommand {
    /// List a directory
    #[command(after_long_help = LS_AFTER)]
    Ls(LsArgs),
    /// Write a file's contents to standard output
    #[command(after_long_help = CAT_AFTER)]
    Cat(CatArgs),
    /// Show what an inode says: type, mode, owner, size, times, attributes
    #[command(after_long_help = STAT_AFTER)]
    Stat(PlaceArgs),
    /// Copy a file, or with -r a directory, out of the file system
    #[command(long_about = GET_ABOUT, after_long_help = GET_AFTER)]
    Get(GetArgs),
    /// Show everything below a directory
    #[command(after_long_help = TREE_AFTER)]
    Tree(TreeArgs),
    /// Show how full the file system is
    #[command(after_long_help = DF_AFTER)]
    Df(PlaceArgs),
    /// Show what the superblock says, and what the journal held
    #[command(after_long_help = INFO_AFTER)]
    Info(PlaceArgs),
    /// Show where a file's data are on the device
    #[command(after_long_help = EXTENTS_AFTER)]
    Extents(PlaceArgs),
    /// Look for damage, and repair nothing
    #[command(long_about = CHECK_ABOUT, after_long_help = CHECK_AFTER)]
    Check(CheckArgs),
    /// Copy a file, or with -r a directory, into the file system
    #[command(long_about = PUT_ABOUT, after_long_help = PUT_AFTER)]
    Put(PutArgs),
    /// Remove a file, or with -r a directory
    #[command(after_long_help = CHANGE_AFTER)]
    Rm(RmArgs),
    /// Rename or move something
    #[command(after_long_help = CHANGE_AFTER)]
    Mv(MvArgs),
    /// Make a directory
    #[command(after_long_help = CHANGE_AFTER)]
    Mkdir(MkdirArgs),
    /// Make a link
    #[command(after_long_help = CHANGE_AFTER)]
    Ln(LnArgs),
    /// Set a file's size
    #[command(after_long_help = CHANGE_AFTER)]
    Truncate(TruncateArgs),
    /// Make an empty file system
    #[command(long_about = MKFS_ABOUT, after_long_help = MKFS_AFTER)]
    Mkfs(MkfsArgs),
}

/// How the file system is mounted.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// The file system's block that has the superblock to use: a backup, e.g. 32768
    #[arg(long, value_name = "BLOCK")]
    pub superblock: Option<u64>,
    /// Read on where a checksum is wrong: to rescue what can be
    #[arg(long)]
    pub ignore_checksums: bool,
    /// Memory of the page cache, e.g. 64M; at least 1M
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = bytes)]
    pub cache: usize,
    /// How reads wait for the device: poll, interrupt, adaptive, … (see `meantime bench --help`)
    /// [default: poll, or interrupt if the device cannot be polled]
    #[arg(long, value_name = "POLICY")]
    pub completion: Option<Policy>,
}

/// A size with a unit.
pub(super) fn bytes(text: &str) -> Result<usize, String> {
    let bytes = meantime_block::parse_bytes(text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes
        .filter(|bytes| *bytes >= 1 << 20)
        .ok_or_else(|| format!("{text:?} is no size from 1M on, e.g. 64M"))
}

/// Options of `stat`, `df`, `info` and `extents`.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// The device and the path in it, e.g. file:disk.img:/etc/passwd; without a path, the root
    /// directory
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// How to mount.
    #[command(flatten)]
    pub mount: MountArgs,
}

/// Options of `ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// The device and the path in it, e.g. file:disk.img:/etc
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// Mode, links, owner, group, size and time of change (UTC), too
    #[arg(short, long)]
    pub long: bool,
    /// Names that begin with a dot, too
    #[arg(short, long)]
    pub all: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// How to mount.
    #[command(flatten)]
    pub mount: MountArgs,
}

/// Options of `cat`.
#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// The device and the path in it, e.g. file:disk.img:/etc/passwd
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// How to mount.
    #[command(flatten)]
    pub mount: MountArgs,
}

/// Options of `get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The device and the path in it, e.g. file:disk.img:/home
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// Where to: a new name, or a directory that is there, to copy into
    #[arg(value_name = "TO", default_value = ".")]
    pub to: PathBuf,
    /// Copy a directory with everything below it
    #[arg(short, long)]
    pub recursive: bool,
    /// Replace files that are there already
    #[arg(short, long)]
    pub force: bool,
    /// How to mount.
    #[command(flatten)]
    pub mount: MountArgs,
}

/// Options of `tree`.
#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    /// The device and the path in it, e.g. file:disk.img:/etc
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// Names that begin with a dot, too
    #[arg(short, long)]
    pub all: bool,
    /// Go down at most this number of levels
    #[arg(short = 'L', long, value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    pub depth: Option<u32>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// How to mount.
    #[command(flatten)]
    pub mount: MountArgs,
}

/// Options of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The device, e.g. file:disk.img
    #[arg(value_name = "DEVICE")]
    pub location: OsString,
    /// Print JSON instead of a line for each defect
    #[arg(long)]
    pub json: bool,
    /// The file system's block that has the superblock to use: a backup, e.g. 32768
    #[arg(long, value_name = "BLOCK")]
    pub superblock: Option<u64>,
    /// How reads wait for the device: poll, interrupt, adaptive, … (see `meantime bench --help`)
    /// [default: poll, or interrupt if the device cannot be polled]
    #[arg(long, value_name = "POLICY")]
    pub completion: Option<Policy>,
}

/// `fs --help`, at the top.
pub(super) const ABOUT: &str = "\
Reads and changes ext4 file systems on any device, without the kernel's help and without root: an image file, an SSD that user space \
drives, one that another process serves.

What only reads (ls, cat, stat, get, tree, df, info, extents, check) never writes to the device. A journal that was not finished is replayed into memory then, so that what is \
shown is what a mount would show. What changes the file system (put, rm, mv, mkdir, ln, truncate) does so through the journal: after a crash it is in order, and holds each step \
or not. A file system that the kernel has mounted is refused.";

/// `fs --help`, at the bottom.
pub(super) const AFTER: &str = "\
LOCATIONS
  DEVICE:/PATH, where DEVICE is as everywhere (see `meantime --help`) and PATH begins with a slash. If the device's own name has a \":/\" in it, \
the file that is there decides.

    file:disk.img:/etc/passwd
    file:disk.img?model=zssd:/home
    kernel:/dev/nvme0n1p2:/var/log
    vfio:0000:01:00.0:/

DAMAGE
  Every checksum is checked when a structure is read, and a wrong one is an error that says which structure, inode and block; nothing is guessed. If the \
superblock itself is damaged, the error names a backup for --superblock. --ignore-checksums reads on regardless: what comes is then as good as the disk.

OUTPUT
  Text, or with --json one object. Names that are no UTF-8 are shown as nearly as can be, and in JSON stand beside as name_hex. \
Control characters are shown as ? on a terminal. Times are UTC, owners numbers.

EXAMPLES
  meantime fs ls -l file:disk.img:/
  meantime fs cat file:disk.img:/etc/passwd
  meantime fs get -r file:disk.img:/home rescued
  meantime fs info file:disk.img
  meantime fs check file:disk.img
  meantime fs put -r site file:disk.img:/srv/www
  meantime fs mkfs -L data file:new.img

EXIT STATUS
  0    done
  1    an error (one line on standard error): no such path, no ext4, damage, …
  2    the command line cannot be obeyed
  130  ended by SIGINT, 143 by SIGTERM
  check has its own: `meantime fs check --help`";

const LS_AFTER: &str = "\
OUTPUT
  A name a line, sorted by their bytes. With --json an object with device, path and entries: name, ino, type, and with --long what \
`stat` tells as well.

EXAMPLES
  meantime fs ls file:disk.img:/etc
  meantime fs ls -la 'file:disk.img?model=zssd:/'
  meantime fs ls -l --json kernel:/dev/sdb1:/home | jq '.entries[].size_bytes'

EXIT STATUS
  0 shown · 1 an error (one line on standard error) · 2 the command line cannot be obeyed · 130 Ctrl-C";

const CAT_AFTER: &str = "\
OUTPUT
  The file's bytes, and nothing else. After an error those before it have been written.

EXAMPLES
  meantime fs cat file:disk.img:/etc/passwd
  meantime fs cat file:disk.img:/usr/bin/env | sha256sum

EXIT STATUS
  0 all of it was written · 1 an error (one line on standard error) · 2 the command line cannot be obeyed · 130 Ctrl-C";

const STAT_AFTER: &str = "\
A symbolic link is shown itself, not what it leads to.

OUTPUT
  A line for each: file, size, blocks, inode, mode, owner, times, flags as lsattr has them, extended attributes. With --json one \
object with device, path, ino, type, mode, links, uid, gid, size_bytes, blocks_512, times in seconds with nanoseconds, target, attributes.

EXAMPLES
  meantime fs stat file:disk.img:/etc/passwd
  meantime fs stat --json file:disk.img:/

EXIT STATUS
  0 shown · 1 an error (one line on standard error) · 2 the command line cannot be obeyed · 130 Ctrl-C";

const GET_ABOUT: &str = "\
Copies a file, or with -r a directory and everything below it, out of the file system.

Kept are holes, modes, times, hard links among what is copied, symbolic links as they are, and extended attributes; owners and device files if this is run by root. \
What is there already is not overwritten without --force. Symbolic links in the destination are never followed, so that nothing is written outside of it, \
whatever the image holds.";

const GET_AFTER: &str = "\
TO
  A directory that is there is copied into, as by cp; anything else is the copy's name. Of the root directory the contents are copied.

OUTPUT
  How far it is, if standard error is a terminal; at the end one line on standard error: how much was copied. \
What could not be kept (owners without root, attributes that the destination has no room for) is a warning.

EXAMPLES
  meantime fs get file:disk.img:/etc/passwd .
  meantime fs get -r file:disk.img:/home rescued
  meantime fs get -r --ignore-checksums 'file:broken.img:/' rescued

EXIT STATUS
  0    everything was copied
  1    an error (a line on standard error for each file that could not be read); the rest was copied
  2    the command line cannot be obeyed
  130  ended by SIGINT, 143 by SIGTERM; what was begun is not complete";

const TREE_AFTER: &str = "\
OUTPUT
  A line for each name, links with their targets, and at the end how many directories and files. With --json an object with \
device, path, directories, files and entries: path, ino, type, target.

EXAMPLES
  meantime fs tree file:disk.img:/etc
  meantime fs tree -a -L 2 file:disk.img:/

EXIT STATUS
  0 shown · 1 an error (one line on standard error) · 2 the command line cannot be obeyed · 130 Ctrl-C";

const DF_AFTER: &str = "\
OUTPUT
  Size, used, available (without what is reserved for root) and inodes, as df shows them of a mounted one. With --json \
block_bytes, blocks, free_blocks, available_blocks, inodes, free_inodes.

EXAMPLES
  meantime fs df file:disk.img

EXIT STATUS
  0 shown · 1 an error (one line on standard error) · 2 the command line cannot be obeyed · 130 Ctrl-C";

const INFO_AFTER: &str = "\
OUTPUT
  A line for each: label, UUID, features as dumpe2fs has them, sizes, when it was made and written to, its state, and what the journal held that was not \
yet in its place. With --json one object with the same.

EXAMPLES
  meantime fs info file:disk.img
  meantime fs info --superblock 32768 file:disk.img

EXIT STATUS
  0 shown · 1 an error (one line on standard error) · 2 the command line cannot be obeyed · 130 Ctrl-C";

const EXTENTS_AFTER: &str = "\
OUTPUT
  A line for each stretch of the file: where it begins in the file and on the device, and how long it is, all in bytes; and what it is: data, unwritten (room \
that is set aside and reads as zeroes), hole, inline (in the inode). With --json an object with device, path, size_bytes and extents.

EXAMPLES
  meantime fs extents file:disk.img:/var/lib/db

EXIT STATUS
  0 shown · 1 an error (one line on standard error) · 2 the command line cannot be obeyed · 130 Ctrl-C";

const CHECK_ABOUT: &str = "\
Looks for damage in all that can be reached: every checksum, pointer, extent tree, block map, directory, hash tree, attribute block and quota file; whether the bitmaps \
say what is really in use, whether a block belongs to two owners or a directory has a name twice, link counts, block counts, sizes, features and the totals. Nothing is \
repaired, and nothing written.

A journal that was not finished is replayed into memory first, as a repair would do on the disk; what is then checked is what a mount would see.";

const CHECK_AFTER: &str = "\
OUTPUT
  A line for each defect: its kind, where it is (inode, path, block), and what is wrong. Then a line about what was looked at. With --json one object with \
device, clean, complete, findings (kind, what, ino, block, path) and counts of what was looked at: inodes, directories, files, symlinks, blocks.

EXAMPLES
  meantime fs check file:disk.img
  meantime fs check --json kernel:/dev/sdb1 | jq '.findings[].kind'

EXIT STATUS
  As those of `e2fsck -n`:
  0    no defect
  2    the command line cannot be obeyed
  4    defects were found, and left
  8    it could not be done: no such device, no ext4, a device error (one line on standard error)
  32   ended by a signal; what was found until then was printed";
