//! Options of what `meantime fs` changes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use meantime_completion::Policy;
use meantime_ext4::format::mkfs::MakeOptions;

use super::fs::bytes;

/// How a file system is mounted for writing.
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// Memory of the page cache, e.g. 64M; at least 1M
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = bytes)]
    pub cache: usize,
    /// How reads and writes wait for the device: poll, interrupt, adaptive, … (see
    /// `meantime bench --help`) [default: adaptive]
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

/// A feature to switch on or off: its name, and what switches it.
pub(crate) type Feature = (&'static str, fn(&mut MakeOptions, bool));

/// The features that can be chosen.
pub(crate) const FEATURES: [Feature; 4] = [
    ("metadata_csum_seed", |options, wanted| options.checksum_seed = wanted),
    ("orphan_file", |options, wanted| options.orphan_file = wanted),
    ("fast_commit", |options, wanted| options.fast_commit = wanted),
    ("64bit", |options, wanted| options.bit64 = wanted),
];

fn feature(text: &str) -> Result<(Feature, bool), String> {
    let name = text.strip_prefix('^').unwrap_or(text);
    let feature = FEATURES.into_iter().find(|(known, _)| *known == name).ok_or_else(|| {
        let all = FEATURES.map(|(known, _)| known).join(", ");
        format!("{name:?} cannot be chosen: {all} can")
    })?;
    Ok((feature, name == text))
}

fn size(text: &str) -> Result<u64, String> {
    meantime_block::parse_bytes(text).ok_or_else(|| format!("{text:?} is no size, e.g. 64M"))
}

fn mode(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("{text:?} are no permissions in octal, e.g. 755"))
}

fn uuid(text: &str) -> Result<[u8; 16], String> {
    let in_place = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    let number = u128::from_str_radix(&text.replace('-', ""), 16).ok();
    let number = number.filter(|_| text.len() == 36 && text.bytes().enumerate().all(in_place));
    number
        .map(u128::to_be_bytes)
        .ok_or_else(|| format!("{text:?} is no UUID, e.g. 00112233-4455-6677-8899-aabbccddeeff"))
}

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
        let (mut options, bit64) =
            (MakeOptions::new([0; 32], meantime_ext4::Timestamp::default()), feature("^64bit"));
        options.bit64 = true;
        let ((name, switch), wanted) = bit64.unwrap();
        switch(&mut options, wanted);
        assert_eq!((name, options.bit64), ("64bit", false));
        assert!(feature("bigalloc").is_err());
    }
}
