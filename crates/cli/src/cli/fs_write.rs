//! Options and texts of what `meantime fs` changes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use meantime_completion::Policy;

use super::fs::bytes;

/// How a file system is mounted for writing.
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// Memory of the page cache, e.g. 64M; at least 1M
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = bytes)]
    pub cache: usize,
    /// How reads and writes wait for the device: poll, interrupt, adaptive, … (see
    /// `meantime bench --help`) [default: poll, or interrupt if the device cannot be polled]
    #[arg(long, value_name = "POLICY")]
    pub completion: Option<Policy>,
}

/// Options of `put`.
#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The file or directory to copy
    #[arg(value_name = "FROM")]
    pub from: PathBuf,
    /// The device and the path in it: a new name, or a directory that is there, to copy into
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// Copy a directory with everything below it
    #[arg(short, long)]
    pub recursive: bool,
    /// Replace files that are there already
    #[arg(short, long)]
    pub force: bool,
    /// How to mount.
    #[command(flatten)]
    pub mount: WriteArgs,
}

/// Options of `rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The device and the path in it, e.g. file:disk.img:/tmp/old
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// A directory, too, with everything below it
    #[arg(short, long)]
    pub recursive: bool,
    /// It need not be there
    #[arg(short, long)]
    pub force: bool,
    /// How to mount.
    #[command(flatten)]
    pub mount: WriteArgs,
}

/// Options of `mv`.
#[derive(Debug, Args)]
pub(crate) struct MvArgs {
    /// The device and the path in it, e.g. file:disk.img:/old
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// Its new path in the same file system, e.g. /new; a directory that is there is moved into
    #[arg(value_name = "/PATH")]
    pub to: PathBuf,
    /// Replace nothing that is there
    #[arg(short, long)]
    pub no_clobber: bool,
    /// How to mount.
    #[command(flatten)]
    pub mount: WriteArgs,
}

/// Options of `mkdir`.
#[derive(Debug, Args)]
pub(crate) struct MkdirArgs {
    /// The device and the path in it, e.g. file:disk.img:/new
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// The directories above it, too; it may be there already
    #[arg(short, long)]
    pub parents: bool,
    /// Permissions, in octal
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = mode)]
    pub mode: u16,
    /// How to mount.
    #[command(flatten)]
    pub mount: WriteArgs,
}

/// Options of `ln`.
#[derive(Debug, Args)]
pub(crate) struct LnArgs {
    /// What to lead to: a file's path in the same file system; with -s any text
    #[arg(value_name = "TARGET")]
    pub target: OsString,
    /// The device and the link's path in it, e.g. file:disk.img:/link
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// Make a symbolic link
    #[arg(short, long)]
    pub symbolic: bool,
    /// How to mount.
    #[command(flatten)]
    pub mount: WriteArgs,
}

/// Options of `truncate`.
#[derive(Debug, Args)]
pub(crate) struct TruncateArgs {
    /// The device and the path in it, e.g. file:disk.img:/var/log/messages
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// The new size, e.g. 0 or 10M: what is beyond it is lost, what is missing reads as zeroes
    #[arg(short, long, value_name = "BYTES", value_parser = size)]
    pub size: u64,
    /// Do nothing if there is no such file, instead of making it
    #[arg(short = 'c', long)]
    pub no_create: bool,
    /// How to mount.
    #[command(flatten)]
    pub mount: WriteArgs,
}

/// Options of `mkfs`.
#[derive(Debug, Args)]
pub(crate) struct MkfsArgs {
    /// The device, e.g. file:disk.img
    #[arg(value_name = "DEVICE")]
    pub device: String,
    /// Size of a block: 1K, 2K, 4K … 64K [default: 4K, or 1K below 512 MiB]
    #[arg(short, long, value_name = "BYTES", value_parser = size)]
    pub block_size: Option<u64>,
    /// Size of an inode: a power of two from 128
    #[arg(short = 'I', long, value_name = "BYTES", default_value = "256", value_parser = size)]
    pub inode_size: u64,
    /// One inode for every BYTES bytes [default: 16K, or 4K below 512 MiB, 32K from 4 TiB on]
    #[arg(short = 'i', long, value_name = "BYTES", value_parser = size)]
    pub bytes_per_inode: Option<u64>,
    /// Size of the journal, e.g. 64M [default: by the size of the file system]
    #[arg(short = 'J', long, value_name = "BYTES", value_parser = size)]
    pub journal_size: Option<u64>,
    /// Share of the blocks that only root gets, in percent
    #[arg(short = 'm', long, value_name = "PERCENT", default_value_t = 5)]
    pub reserved: u32,
    /// Its label: 16 bytes at most
    #[arg(short = 'L', long, value_name = "TEXT", default_value = "")]
    pub label: String,
    /// Its UUID [default: a random one]
    #[arg(short = 'U', long, value_name = "UUID", value_parser = uuid)]
    pub uuid: Option<[u8; 16]>,
    /// Features to have besides, or with ^ not to have: metadata_csum_seed, orphan_file, 64bit,
    /// fast_commit (room in the journal for short commits: not of files that get blocks and have
    /// more than four extents)
    #[arg(short = 'O', long, value_name = "FEATURE", value_delimiter = ',', value_parser = feature)]
    pub features: Vec<(Feature, bool)>,
    /// Zero all inode tables now, not when it is mounted
    #[arg(long)]
    pub zero: bool,
    /// Even if something is on the device
    #[arg(short, long)]
    pub force: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// A feature to switch on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    /// `metadata_csum_seed`
    ChecksumSeed,
    /// `orphan_file`
    OrphanFile,
    /// `fast_commit`
    FastCommit,
    /// `64bit`
    Bit64,
}

fn feature(text: &str) -> Result<(Feature, bool), String> {
    let (name, wanted) = match text.strip_prefix('^') {
        Some(name) => (name, false),
        None => (text, true),
    };
    let feature = match name {
        "metadata_csum_seed" => Feature::ChecksumSeed,
        "orphan_file" => Feature::OrphanFile,
        "fast_commit" => Feature::FastCommit,
        "64bit" => Feature::Bit64,
        _ => {
            return Err(format!(
                "{name:?} cannot be chosen: metadata_csum_seed, orphan_file, fast_commit and 64bit can"
            ));
        }
    };
    Ok((feature, wanted))
}

fn size(text: &str) -> Result<u64, String> {
    meantime_block::parse_bytes(text).ok_or_else(|| format!("{text:?} is no size, e.g. 64M"))
}

fn mode(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("{text:?} are no permissions in octal, e.g. 755"))
}

fn uuid(text: &str) -> Result<[u8; 16], String> {
    let wrong = || format!("{text:?} is no UUID, e.g. 00112233-4455-6677-8899-aabbccddeeff");
    let dashes = [8, 13, 18, 23];
    let in_place =
        text.bytes().enumerate().all(|(at, byte)| (byte == b'-') == dashes.contains(&at));
    if text.len() != 36 || !in_place {
        return Err(wrong());
    }
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(uuid)
}

pub(super) const PUT_ABOUT: &str = "\
Copies a file, or with -r a directory and everything below it, into the file system.

Kept are holes, modes, owners, times, hard links among what is copied, symbolic links as they are, devices, and extended attributes. What is there already is not \
overwritten without --force.";

pub(super) const PUT_AFTER: &str = "\
OUTPUT
  How far it is, if standard error is a terminal; at the end one line on standard error: how much was copied. All of it is durable then.

EXAMPLES
  meantime fs put notes.txt file:disk.img:/home
  meantime fs put -r site file:disk.img:/srv/www

EXIT STATUS
  0    everything was copied
  1    an error (a line on standard error for each file that could not be copied); the rest was copied
  2    the command line cannot be obeyed
  130  ended by SIGINT, 143 by SIGTERM; what was begun is not complete, the file system is in order";

pub(super) const CHANGE_AFTER: &str = "\
EXIT STATUS
  0 done, and durable · 1 an error (one line on standard error) · 2 the command line cannot be obeyed · 130 Ctrl-C";

pub(super) const MKFS_ABOUT: &str = "\
Makes an empty ext4 file system with the features that Debian 12 gives to new ones. What was on the device is lost.

A device that seems to hold something (a file system, a partition table, an encrypted volume, …) is refused without --force, one that is mounted always.";

pub(super) const MKFS_AFTER: &str = "\
OUTPUT
  A line about what was made. With --json an object with device, block_bytes, blocks, inodes, groups, journal_bytes, uuid.

EXAMPLES
  truncate -s 1G disk.img; meantime fs mkfs file:disk.img
  meantime fs mkfs -L backup -O metadata_csum_seed,orphan_file kernel:/dev/sdb1

EXIT STATUS
  0 made, and durable · 1 an error (one line on standard error) · 2 the command line cannot be obeyed";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_understood() {
        let bytes = uuid("00112233-4455-6677-8899-aabbccddeeff").unwrap();
        assert_eq!(bytes, std::array::from_fn(|at| at as u8 * 17));
        for wrong in
            ["", "00112233445566778899aabbccddeeff", "00112233-4455-6677-8899-aabbccddee-f"]
        {
            assert!(uuid(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            (mode("4755"), mode("8").is_err(), mode("17777").is_err()),
            (Ok(0o4755), true, true)
        );
        assert_eq!(feature("^64bit"), Ok((Feature::Bit64, false)));
        assert!(feature("bigalloc").is_err());
    }
}
