//! Options and texts of `meantime run`.

use std::ffi::OsString;

use clap::Args;
use meantime_completion::Policy;

/// Options of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The device with the ext4 file system, e.g. file:disk.img
    #[arg(long, value_name = "URI", long_help = DEVICE)]
    pub device: String,
    /// The directory at which the program finds the file system
    #[arg(long, value_name = "DIRECTORY", default_value = meantime_posix::DEFAULT_MOUNT_POINT, long_help = AT)]
    pub at: OsString,
    /// Memory for the page cache of each process, e.g. 64M [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = cache_bytes)]
    pub cache: Option<usize>,
    /// How reads wait for the device (see `meantime bench --help`) [default: poll]
    #[arg(long, value_name = "POLICY")]
    pub completion: Option<Policy>,
    /// The program, and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub program: Vec<OsString>,
}

const LEAST_CACHE_BYTES: u64 = 1 << 20;

fn cache_bytes(text: &str) -> Result<usize, String> {
    let bytes = meantime_block::parse_bytes(text).filter(|bytes| *bytes >= LEAST_CACHE_BYTES);
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| format!("{text:?} is no size of at least 1M; e.g. 64M"))
}

const DEVICE: &str = "\
The device with the ext4 file system: file:disk.img, kernel:/dev/nvme0n1, vfio:0000:01:00.0, vfio-user:/run/ssd.sock (see `meantime bench --help`).

An image (file:) is opened for reading only and shared (ro=1), so that each process of the program can have it. vfio: and vfio-user: \
have one user at a time: there, one process of the program can use the file system.";

const AT: &str = "\
The directory at which the program finds the file system: an absolute path. It need not exist; if it does, what is in it is out of sight.";

/// `run --help`, at the top.
pub(super) const ABOUT: &str = "\
Runs a program, which finds the ext4 file system of a device at a directory, read by Meantime instead of the kernel.

The program need not be changed or built anew: a library that is loaded into it (LD_PRELOAD) takes its calls of the C library for paths \
below the directory; all other paths and files are the kernel's, as ever. The programs that it starts are served as well. Files can be \
read: whatever would write fails with \"Read-only file system\".";

/// `run --help`, at the bottom.
pub(super) const AFTER: &str = "\
WHAT IS SERVED
  Opening, reading (also with O_DIRECT; RWF_HIPRI polls, RWF_NOWAIT takes what is cached), mapping, directories, links, stat, \
extended attributes, locks for reading, streams (fopen). Mapped files are read when they are mapped.

  Not reached are programs that are linked statically or make system calls of their own (Go), setuid programs, and I/O by io_uring. A file of the \
directory that is handed on to a program by execve, such as standard input by a shell's <, cannot be read there: give its name instead. \
Programs on the file system cannot be executed. A child that is made by _Fork or clone, not by fork, gets an input/output error.

  What the library opens for itself has descriptors at the top of the program's limit (ulimit -n, 4096 at most); to the program they are not open.

OUTPUT
  The program's own. What Meantime has to say before it begins is one line on standard error.

EXAMPLES
  meantime run --device file:disk.img -- ls -l /mnt/meantime
  meantime run --device file:disk.img --at /data -- sqlite3 -readonly /data/my.db .tables
  meantime run --device 'file:disk.img?model=optane' -- fio --name=r --ioengine=psync --rw=randread --readonly --filename=/mnt/meantime/f

EXIT STATUS
  The program's. 1 if the file system cannot be mounted, 2 if the command line cannot be obeyed, 126 if the program cannot be executed, 127 if it is not there.";
