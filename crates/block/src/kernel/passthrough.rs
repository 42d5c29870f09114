//! A namespace's generic character device (`/dev/ng0n1`): its driver takes NVMe commands by
//! io_uring, without the kernel's block layer above it.
//!
//! Nothing in the kernel keeps these commands off a namespace that is mounted. So its block device
//! is opened as well, exclusively where the namespace may be written, and decides about that.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use meantime_hw::pci::{Sysfs, generic_disk};
use meantime_hw::uring::{UringIo, UringOp, identify, namespace_id};
use meantime_spec::identify::{IdentifyNamespace, cns};
use meantime_spec::opcode::io as command;
use meantime_spec::sqe::Sqe;

use super::super::error::OpenError;
use super::super::options::{Access, may_not_write};
use super::super::uri::{KernelEngine, KernelUri};
use super::file::{Disk, KernelFile, block_bytes, open_file, why_not};

/// The kernel's page size: at worst each page of a buffer is a segment of its own.
const PAGE_BYTES: u64 = 4096;
/// The most logical blocks of a command: NLB has 16 bits, and is 0's based (1.4 §6.9).
const NLB_MAX: u64 = 1 << 16;
/// What the kernel's interfaces count in 32 bits stays far below that.
const TRANSFER_MAX_BYTES: u64 = 1 << 30;

/// What commands to a namespace need to know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Namespace {
    nsid: u32,
    /// log2 of the size of the namespace's own blocks.
    lba_shift: u8,
    /// The most data of one command; a multiple of the channel's block size.
    pub(super) command_bytes: u32,
}

impl Namespace {
    /// The command for `io`, of [`Self::command_bytes`] at most, but for its data.
    pub(super) fn command(self, io: &UringIo) -> Sqe {
        let Self { nsid, lba_shift, .. } = self;
        let transfer = |opcode, fua| {
            let (slba, blocks) = (io.offset_bytes >> lba_shift, io.bytes >> lba_shift);
            debug_assert!((1..=NLB_MAX).contains(&blocks));
            Sqe::transfer(opcode, 0, nsid, slba, (blocks - 1) as u16, 0, 0, fua)
        };
        match io.op {
            UringOp::Read => transfer(command::READ, false),
            UringOp::Write { dsync } => transfer(command::WRITE, dsync),
            // The channel refuses ranges without data.
            UringOp::Fdatasync | UringOp::Fallocate { .. } => Sqe::flush(0, nsid),
        }
    }

    /// Checks what Identify says of a namespace. Returns it with its size in bytes and its block
    /// size; the error is the reason.
    fn new(nsid: u32, raw: &IdentifyNamespace) -> Result<(Self, u64, u32), String> {
        let format = raw.lba_format_in_use();
        let Some(lba_bytes) = format.and_then(|format| format.block_bytes()) else {
            return Err(format!("its LBA format is none (FLBAS {:#x})", raw.flbas));
        };
        let metadata_bytes = format.map_or(0, |format| format.ms.get());
        if metadata_bytes != 0 {
            return Err(format!(
                "it is formatted with {metadata_bytes} bytes of metadata a block, which this would \
                 have to transfer, too: use its block device"
            ));
        }
        let lba_shift = lba_bytes.trailing_zeros() as u8;
        let blocks = raw.nsze.get();
        if blocks > i64::MAX as u64 >> lba_shift {
            return Err(format!("its size is {blocks} blocks"));
        }
        Ok((Self { nsid, lba_shift, command_bytes: 0 }, blocks << lba_shift, lba_bytes))
    }

    /// The same with the most data that one command may have: limited by what the queue takes, in
    /// KiB and in segments, in whole blocks of `block_bytes`.
    fn limited(self, hardware_kib: u64, segments: u64, block_bytes: u32) -> Self {
        // A buffer that does not begin with a page touches one more.
        let most = (hardware_kib << 10).min(segments.saturating_sub(1) * PAGE_BYTES);
        let most = most.min(NLB_MAX << self.lba_shift).min(TRANSFER_MAX_BYTES);
        let block_bytes = u64::from(block_bytes);
        let command_bytes = (most - most % block_bytes).max(block_bytes) as u32;
        Self { command_bytes, ..self }
    }
}

/// Whether `path` is where the kernel would have a namespace's character device.
pub(super) fn is_name(path: &Path) -> bool {
    let name = path.strip_prefix("/dev").ok().and_then(Path::to_str);
    let numbers = name.and_then(|name| name.strip_prefix("ng")?.split_once('n'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    numbers.is_some_and(|(instance, namespace)| is_number(instance) && is_number(namespace))
}

/// Why there is no device of that name, and what to use.
pub(super) const ABSENT: &str = "there is no such device: the kernel's NVMe driver makes one for \
    each of its namespaces since Linux 5.13, and takes I/O by it since 5.19; use the namespace's \
    block device, e.g. kernel:/dev/nvme0n1";

/// Opens the character device `path`, whose number is `rdev`.
pub(super) fn open(
    uri: &str,
    path: &Path,
    rdev: u64,
    options: &KernelUri,
    access: Access,
) -> Result<KernelFile, OpenError> {
    let failed = |what: &str, source: io::Error| {
        let (uri, what) = (uri.to_owned(), what.to_owned());
        OpenError::Kernel { uri, what, source }
    };
    let wrong = |what: &str| failed(what, io::ErrorKind::InvalidInput.into());
    let Some(name) = generic_disk(&Sysfs::default(), rdev) else {
        return Err(wrong(
            "it is neither a file nor a block device, nor the character device of an NVMe \
             namespace (e.g. /dev/ng0n1)",
        ));
    };
    if options.engine == KernelEngine::Preadv2 {
        return Err(wrong("passthrough is io_uring's: leave engine=preadv2 out"));
    }
    if !options.direct {
        return Err(wrong("passthrough has no page cache: leave direct=0 out"));
    }
    let Some(disk) = Disk::named(&name) else {
        return Err(wrong(&format!(
            "there is no block device {name} of this namespace: its command set or format is not \
             one of the kernel's block layer"
        )));
    };
    let (guard, mut read_only) = guard(&Path::new("/dev").join(&name), &disk, access);
    let file = match open_node(path, read_only.is_none()) {
        Err(error) if read_only.is_none() && may_not_write(&error).is_some() => {
            read_only = may_not_write(&error).map(str::to_owned);
            open_node(path, false)
        }
        opened => opened,
    }
    .map_err(|error| failed(why_not(&error, false, false), error))?;
    if let (Access::ReadWrite, Some(why)) = (access, &read_only) {
        return Err(OpenError::ReadOnly { uri: uri.to_owned(), why: why.clone() });
    }
    let (nsid, raw) = namespace_id(file.as_fd())
        .and_then(|nsid| {
            Ok((nsid, identify::<IdentifyNamespace>(file.as_fd(), nsid, cns::NAMESPACE)?))
        })
        .map_err(|error| failed(&not_identified(&error, &name), error))?;
    let (namespace, bytes, lba_bytes) = Namespace::new(nsid, &raw).map_err(|what| wrong(&what))?;
    let block_bytes =
        block_bytes(options.lba_bytes, bytes, lba_bytes).map_err(|what| wrong(&what))?;
    let limit = |name: &str| disk.queue_file(name).and_then(|text| text.parse().ok());
    let hardware_kib = limit("max_hw_sectors_kb").unwrap_or(PAGE_BYTES >> 10);
    let segments = limit("max_segments").unwrap_or(2);
    Ok(KernelFile {
        fd: Arc::new(file.into()),
        bytes,
        block_bytes,
        read_only,
        is_device: true,
        // The same SSD as by its block device: figures of both may be compared.
        medium: disk.to_string(),
        disk: Some(disk),
        created: None,
        namespace: Some(namespace.limited(hardware_kib, segments, block_bytes)),
        guard,
    })
}

/// Opens the namespace's block device, and returns the reason if the namespace must not be written.
fn guard(node: &Path, disk: &Disk, access: Access) -> (Option<File>, Option<String>) {
    let is_disk = |file: &File| {
        let number = file.metadata().map(|meta| meta.rdev()).ok();
        number.is_some_and(|number| Disk::of(number).as_ref() == Some(disk))
    };
    match open_file(node, false, true, access == Access::Read) {
        Ok((file, read_only)) if is_disk(&file) => (Some(file), read_only),
        _ if access == Access::Read => (None, Some("it was opened for reading only".to_owned())),
        other => {
            let error = other.err().map_or_else(|| "it is another".to_owned(), |e| e.to_string());
            let why = format!(
                "its block device {} cannot be opened, which would keep other users off ({error}); \
                 it was opened for reading only",
                node.display()
            );
            (None, Some(why))
        }
    }
}

fn open_node(path: &Path, writes: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(writes).open(path)
}

/// Why the namespace could not be identified, and a remedy.
fn not_identified(error: &io::Error, disk: &str) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "the kernel takes NVMe commands from root only (CAP_SYS_ADMIN), before Linux 6.2 \
             whoever may open the device: become root, or use kernel:/dev/{disk}"
        ),
        _ => "cannot identify the namespace".to_owned(),
    }
}

impl Disk {
    /// The disk of this name.
    fn named(name: &str) -> Option<Self> {
        Self::at(std::fs::canonicalize(PathBuf::from("/sys/class/block").join(name)).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use meantime_spec::identify::LbaFormat;
    use meantime_spec::sqe::CDW12_FUA;

    use super::*;

    fn identified(lbads: u8) -> IdentifyNamespace {
        let mut raw = IdentifyNamespace::default();
        raw.nsze = 1024.into();
        raw.lbaf[0] = LbaFormat::new(lbads);
        raw
    }

    #[test]
    fn commands_count_in_the_namespaces_own_blocks() {
        let (namespace, bytes, lba_bytes) = Namespace::new(7, &identified(12)).unwrap();
        assert_eq!((bytes, lba_bytes), (1024 << 12, 4096));
        let io = |op| UringIo { op, offset_bytes: 5 << 12, bytes: 3 << 12, ..UringIo::default() };
        let read = namespace.command(&io(UringOp::Read));
        assert_eq!(read, Sqe::read(0, 7, 5, 3, 0, 0));
        let write = namespace.command(&io(UringOp::Write { dsync: true }));
        assert_eq!(write, Sqe::write(0, 7, 5, 3, 0, 0, true));
        assert_ne!(write.cdw12.get() & CDW12_FUA, 0);
        let write = namespace.command(&io(UringOp::Write { dsync: false }));
        assert_eq!(write, Sqe::write(0, 7, 5, 3, 0, 0, false));
        assert_eq!(namespace.command(&UringIo::default()), Sqe::flush(0, 7));
    }

    #[test]
    fn a_command_has_as_much_as_every_limit_permits() {
        let (namespace, ..) = Namespace::new(1, &identified(9)).unwrap();
        let most = |kib, segments, block| namespace.limited(kib, segments, block).command_bytes;
        assert_eq!(most(128, 127, 512), 128 << 10);
        assert_eq!(most(2048, 127, 512), 126 * 4096);
        assert_eq!(most(510, 200, 4096), 508 << 10);
        assert_eq!(most(1 << 40, 1 << 40, 512), (1 << 16) * 512);
        assert_eq!(most(0, 0, 4096), 4096);
    }

    #[test]
    fn a_format_that_it_cannot_do_says_why() {
        let why = |raw: &IdentifyNamespace| Namespace::new(1, raw).unwrap_err();
        let mut raw = identified(9);
        raw.lbaf[0].ms = 8.into();
        assert!(why(&raw).contains("8 bytes of metadata"));
        assert!(why(&identified(0)).contains("LBA format"));
        raw.nsze = u64::MAX.into();
        raw.lbaf[0].ms = 0.into();
        assert!(why(&raw).contains("size"));
    }

    #[test]
    fn names_are_the_kernels() {
        for (path, is) in [
            ("/dev/ng0n1", true),
            ("/dev/ng12n34", true),
            ("/dev/ng0", false),
            ("/dev/ngn1", false),
            ("/dev/ng0n1p1", false),
            ("/dev/nvme0n1", false),
            ("/tmp/ng0n1", false),
        ] {
            assert_eq!(is_name(Path::new(path)), is, "{path}");
        }
    }

    #[test]
    fn what_the_kernel_forbids_names_another_way() {
        let why = |errno| not_identified(&io::Error::from_raw_os_error(errno), "nvme0n1");
        assert!(why(libc::EACCES).contains("root") && why(libc::EACCES).contains("/dev/nvme0n1"));
        assert!(why(libc::EIO).contains("identify"));
    }
}
