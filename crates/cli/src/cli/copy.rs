//! Options and texts of `meantime copy`.

use clap::Args;

/// Options of `copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// The device to read, e.g. file:disk.img, or - for standard input
    #[arg(value_name = "FROM")]
    pub from: String,
    /// The device to write, or - for standard output
    #[arg(value_name = "TO")]
    pub to: String,
}

/// `copy --help`, at the top.
pub(super) const ABOUT: &str = "\
Copies all of a device's data to another device, or from or to a pipe: a whole namespace from its first block to its last, in order.

What is on TO is overwritten from its first block on; what of it is beyond the data stays as it is. At the end the device is flushed, so that the data \
survives a power cut.";

/// `copy --help`, at the bottom.
pub(super) const AFTER: &str = "\
OUTPUT
  One line on standard error: how much was copied, and how fast. With TO - the data is on standard output, and nothing else.

EXAMPLES
  The checksum of a whole namespace:
    meantime copy file:disk.img - | sha256sum

  A copy of it, and back:
    meantime copy file:disk.img - | zstd > disk.zst
    zstd -dc disk.zst | meantime copy - file:disk.img

EXIT STATUS
  0    everything was copied, and is durable
  1    an error (one line on standard error); TO may hold a part of the data
  2    the command line cannot be obeyed
  130  ended by SIGINT, 143 by SIGTERM; TO may hold a part of the data";
