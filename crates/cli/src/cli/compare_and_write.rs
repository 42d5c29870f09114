//! Options and texts of `meantime compare-and-write`.

use std::path::PathBuf;

use clap::Args;

/// Options of `compare-and-write`.
#[derive(Debug, Args)]
pub(crate) struct CompareAndWriteArgs {
    /// The device, e.g. vfio-user:/tmp/ssd.sock or file:disk.img
    #[arg(long, value_name = "URI")]
    pub device: String,
    /// The first logical block; the device's first is 0
    #[arg(long, value_name = "N")]
    pub lba: u64,
    /// What is expected to be there: a file of whole blocks, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub expect: PathBuf,
    /// What to write if it is there: a file of the same length, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub write: PathBuf,
    /// If something else is there, put it into FILE: what to expect the next time
    #[arg(long, value_name = "FILE")]
    pub found: Option<PathBuf>,
}

/// `compare-and-write --help`, at the top.
pub(super) const ABOUT: &str = "\
Writes blocks of a device if they hold what is expected, in one step: a fused Compare and Write of NVMe. Nothing that anybody else has the device do to \
these blocks comes between the two, so that programs and hosts that share a device can keep locks and counters on it.

How many blocks at once a device takes, `meantime info` shows (compare and write). Some have no such command, and the kernel's stack passes none on.";

/// `compare-and-write --help`, at the bottom.
pub(super) const AFTER: &str = "\
OUTPUT
  Nothing if the blocks were written. If something else was there, a line on standard error; with --found, what was read from there just after. It may have changed \
since: the next try finds out.

EXAMPLES
  Take a lock that is free while its block is all zeroes:
    head -c 512 /dev/zero > free
    printf %-512s \"$HOSTNAME\" > mine
    meantime compare-and-write --device vfio:0000:01:00.0 --lba 8 --expect free --write mine

  And give it back:
    meantime compare-and-write --device vfio:0000:01:00.0 --lba 8 --expect mine --write free

EXIT STATUS
  0    it was as expected, and the new data is written and durable
  1    an error (one line on standard error). If the device was asked already, the blocks may be
       written or not: read them
  2    the command line cannot be obeyed
  3    something else is there, and nothing was written
  130  ended by SIGINT, 143 by SIGTERM, before or after it was done";
