//! A file or device of the kernel, and its properties.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, StatxFlags, statx};

use super::super::error::OpenError;
use super::super::options::{Access, Created, may_not_write};
use super::super::uri::KernelUri;
use super::namespace::{self, Namespace};
use meantime_hw::pci::{Sysfs, in_use};

/// An open file.
#[derive(Debug)]
pub(super) struct KernelFile {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) bytes: u64,
    pub(super) block_bytes: u32,
    /// The reason why it must not be written, if there is one.
    pub(super) read_only: Option<String>,
    /// Whether it is a block device.
    pub(super) is_device: bool,
    /// The underlying disk, by its name in sysfs.
    pub(super) disk: Option<Disk>,
    /// A description in a few words.
    pub(super) medium: String,
    /// The path, if opening created the file.
    pub(super) created: Option<PathBuf>,
    /// The properties that NVMe commands to it need, if it is a namespace's character device.
    pub(super) namespace: Option<Namespace>,
    /// The namespace's block device, open so that nothing else takes it.
    #[expect(dead_code)]
    pub(super) guard: Option<File>,
}

/// A disk in sysfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    name: String,
    queue: PathBuf,
}

impl KernelFile {
    /// Opens `path`, whose metadata is `there`. A file that the kernel has mounted or otherwise
    /// uses is opened read-only, as is one that the process may not write.
    pub(super) fn open(
        uri: &str,
        path: &Path,
        there: io::Result<Metadata>,
        options: &KernelUri,
        access: Access,
    ) -> Result<Self, OpenError> {
        let failed = |what: &str, source: io::Error| {
            let (uri, what) = (uri.to_owned(), what.to_owned());
            OpenError::Kernel { uri, what, source }
        };
        let wrong = |what: &str| failed(what, io::ErrorKind::InvalidInput.into());
        let is_device = there.as_ref().is_ok_and(|meta| meta.file_type().is_block_device());
        if there.as_ref().is_ok_and(|meta| !is_device && !meta.is_file()) {
            return Err(wrong("it is neither a file nor a block device"));
        }
        let is_new = there.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if is_new && namespace::is_name(path) {
            return Err(failed(namespace::ABSENT, io::ErrorKind::NotFound.into()));
        }
        // The file is removed again unless opening succeeds.
        let created = Created(match options.create_bytes {
            Some(bytes) if is_new => {
                create(path, bytes).map_err(|error| failed("cannot create it", error))?;
                Some(path.to_owned())
            }
            _ => None,
        });
        // A new file has to be filled.
        let reads_only = access == Access::Read && !is_new;
        let (file, mut read_only) = open_file(path, options.direct, is_device, reads_only)
            .map_err(|error| {
                failed(why_not(&error, options.direct, is_new && !path.starts_with("/dev")), error)
            })?;
        let no_size = |error| failed("cannot ask for its size", error);
        let meta = file.metadata().map_err(no_size)?;
        if let (Some(bytes), false, false) = (options.create_bytes, is_new, is_device)
            && bytes != meta.len()
        {
            let what = format!(
                "it has {} bytes, not create={bytes}: leave create out, or remove the file",
                meta.len()
            );
            return Err(failed(&what, io::ErrorKind::AlreadyExists.into()));
        }
        // A software SSD locks its medium; readers may share it.
        if !is_device && rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
            let who = meantime_process::locks::holders_of(path);
            let who = who.unwrap_or_else(|| "another process".to_owned());
            read_only = Some(format!(
                "{who} has it as the medium of a software SSD, and it was opened for reading only"
            ));
        }
        if let (Access::ReadWrite, Some(why)) = (access, &read_only) {
            return Err(OpenError::ReadOnly { uri: uri.to_owned(), why: why.clone() });
        }
        let (bytes, least_bytes) = match is_device {
            true => device_sizes(&file).map_err(no_size)?,
            false => (meta.len(), file_alignment(&file, options.direct)),
        };
        let block_bytes =
            block_bytes(options.lba_bytes, bytes, least_bytes).map_err(|what| wrong(&what))?;
        let disk = Disk::of(if is_device { meta.rdev() } else { meta.dev() });
        let medium = medium(&file, is_device, disk.as_ref(), options.direct);
        let (fd, created) = (Arc::new(file.into()), created.keep());
        let (namespace, guard) = (None, None);
        Ok(Self {
            fd,
            bytes,
            block_bytes,
            read_only,
            is_device,
            disk,
            medium,
            created,
            namespace,
            guard,
        })
    }

    /// Whether opening it created it.
    pub(super) fn was_created(&self) -> bool {
        self.created.is_some()
    }

    /// Whether it is a namespace of the kernel's NVMe driver, or a partition of one.
    pub(super) fn is_nvme(&self) -> bool {
        self.is_device && self.disk.as_ref().is_some_and(|disk| disk.name.starts_with("nvme"))
    }

    /// The most data that the kernel's driver puts into a command, in bytes.
    pub(super) fn max_command_bytes(&self) -> u64 {
        let kib = self.disk.as_ref().and_then(|disk| disk.queue_file("max_hw_sectors_kb"));
        kib.and_then(|kib| kib.parse().ok()).map_or(u64::MAX, |kib: u64| kib << 10)
    }

    /// Checks that the kernel can poll for its I/O. The error has the reason and a remedy.
    pub(super) fn can_poll(&self, direct: bool) -> Result<(), String> {
        if !direct {
            return Err("the page cache is not polled: leave direct=0 out".to_owned());
        }
        let Some(disk) = &self.disk else {
            return Err("there is no disk beneath this file system that could be polled".to_owned());
        };
        if disk.queue_file("io_poll").as_deref() == Some("1") {
            return Ok(());
        }
        Err(disk.how_to_poll())
    }

    /// Whether a part of the `bytes` from `offset_bytes` was never written. The file system answers
    /// reads of such a part without the disk.
    pub(super) fn has_holes(&self, offset_bytes: u64, bytes: u64) -> bool {
        if self.is_device {
            return false;
        }
        // A page of a preallocated part that was read once counts as written, as long as it is
        // cached.
        let _ = rustix::fs::fadvise(
            &self.fd,
            offset_bytes,
            std::num::NonZeroU64::new(bytes),
            rustix::fs::Advice::DontNeed,
        );
        let hole = rustix::fs::seek(&self.fd, rustix::fs::SeekFrom::Hole(offset_bytes));
        let end_bytes = offset_bytes.saturating_add(bytes).min(self.bytes);
        hole.is_ok_and(|at_bytes| at_bytes < end_bytes)
    }

    /// Whether completed writes may be lost by a power cut until they are flushed.
    pub(super) fn has_volatile_cache(&self) -> bool {
        let disk = self.disk.as_ref().and_then(|disk| disk.queue_file("write_cache"));
        !self.is_device || disk.is_none_or(|kind| kind != "write through")
    }
}

/// Creates a file with its blocks allocated: a measurement on a hole would measure the file system.
fn create(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let allocated = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes);
    let sized = match allocated {
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes),
        other => other.map_err(Into::into),
    };
    sized.inspect_err(|_| drop(std::fs::remove_file(path)))
}

/// Opens the file. Returns also the reason if it cannot be written. `reads_only` says that it need
/// not be.
pub(super) fn open_file(
    path: &Path,
    direct: bool,
    is_device: bool,
    reads_only: bool,
) -> io::Result<(File, Option<String>)> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let read = |why: &str| {
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        Ok((file, Some(why.to_owned())))
    };
    if reads_only {
        return read("it was opened for reading only");
    }
    if let Some(why) = in_use(&Sysfs::default(), path) {
        return read(&why);
    }
    // O_EXCL on a block device makes the kernel check whether it is in use: by a mount, swap, RAID,
    // or another program.
    let exclusive = if is_device { libc::O_EXCL } else { 0 };
    let mut writing = OpenOptions::new();
    writing.read(true).write(true).custom_flags(flags | exclusive);
    match writing.open(path) {
        Ok(file) => Ok((file, None)),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            read("it is mounted or otherwise in use, and was opened for reading only")
        }
        Err(error) => read(may_not_write(&error).ok_or(error)?),
    }
}

/// Returns why opening failed, and a remedy.
pub(super) fn why_not(error: &io::Error, direct: bool, is_new: bool) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EINVAL) if direct => {
            "its file system has no direct I/O (O_DIRECT): say direct=0 to measure its page cache, \
             or use another file"
        }
        Some(libc::ENOENT) if is_new => "there is no such file; create=SIZE makes it",
        Some(libc::ENOENT) => "there is no such device; `meantime devices` lists those of NVMe",
        Some(libc::EACCES | libc::EPERM) => {
            "this process may not read it; become root, or a member of its group"
        }
        _ => "cannot open it",
    }
}

/// The logical block size of a file or device of `bytes` that takes I/O in units of `least_bytes`.
/// `asked` is the URI's value.
pub(super) fn block_bytes(asked: Option<u32>, bytes: u64, least_bytes: u32) -> Result<u32, String> {
    let block_bytes = asked.unwrap_or(least_bytes);
    if block_bytes < least_bytes {
        return Err(format!(
            "lba={block_bytes}: it takes direct I/O in units of {least_bytes} bytes"
        ));
    }
    // The last bytes would be inaccessible.
    if asked.is_some() && !bytes.is_multiple_of(block_bytes.into()) {
        return Err(format!(
            "lba={block_bytes}: its size, {bytes} bytes, is no multiple of that: leave lba out"
        ));
    }
    if bytes < block_bytes.into() {
        return Err(format!(
            "it holds {bytes} bytes, less than a block of {block_bytes}; make it larger \
             (create=SIZE)"
        ));
    }
    Ok(block_bytes)
}

/// Size and logical block size of a block device.
fn device_sizes(file: &File) -> io::Result<(u64, u32)> {
    use std::io::Seek as _;
    let bytes = (&*file).seek(io::SeekFrom::End(0))?;
    let block_bytes = rustix::fs::ioctl_blksszget(file)?;
    Ok((bytes, block_bytes))
}

/// The unit of direct I/O on a file.
fn file_alignment(file: &File, direct: bool) -> u32 {
    const SECTOR_BYTES: u32 = 512;
    if !direct {
        return SECTOR_BYTES;
    }
    let asked = statx(file.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    asked.map_or(SECTOR_BYTES, |statx| statx.stx_dio_offset_align.max(SECTOR_BYTES))
}

impl Disk {
    /// The disk with this device number, or the disk of that partition.
    pub(super) fn of(device: u64) -> Option<Self> {
        let link =
            format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let mut path = std::fs::canonicalize(link).ok()?;
        if !path.join("queue").is_dir() {
            path.pop();
        }
        Self::at(path)
    }

    /// The disk of this directory in sysfs.
    pub(super) fn at(path: PathBuf) -> Option<Self> {
        let queue = path.join("queue");
        let name = path.file_name()?.to_str()?.to_owned();
        queue.is_dir().then_some(Self { name, queue })
    }

    pub(super) fn queue_file(&self, name: &str) -> Option<String> {
        Some(std::fs::read_to_string(self.queue.join(name)).ok()?.trim().to_owned())
    }

    /// The module parameter that gives the disk poll queues.
    fn how_to_poll(&self) -> String {
        let name = &self.name;
        let parameter = match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
            _ if name.starts_with("nvme") => "nvme.poll_queues=N",
            "nullb" => "null_blk.poll_queues=N",
            _ if name.starts_with("vd") => "virtio_blk.poll_queues=N",
            _ => {
                return format!(
                    "{name} has no queues to poll, and its driver makes none (EOPNOTSUPP)"
                );
            }
        };
        format!(
            "{name} has no queues to poll (EOPNOTSUPP): load its driver with {parameter}, e.g. on \
             the kernel's command line"
        )
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read =
            |path: PathBuf| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let beside = self.queue.with_file_name("device");
        let kind = match self.name.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "loop" => {
                let backing = read(self.queue.with_file_name("loop").join("backing_file"));
                Some(format!("loop device on {}", backing.as_deref().unwrap_or("nothing")))
            }
            "zram" => Some("compressed memory".to_owned()),
            "nullb" => Some("null block device".to_owned()),
            _ if self.name.starts_with("vd") => Some("virtio disk".to_owned()),
            _ => read(beside.join("model")),
        };
        match kind {
            Some(kind) => write!(f, "{kind} {}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A short description: the disk, and the layers above it.
fn medium(file: &File, is_device: bool, disk: Option<&Disk>, direct: bool) -> String {
    let disk = disk.map_or_else(|| "memory or a network".to_owned(), Disk::to_string);
    let cache = if direct { "" } else { ", through the page cache" };
    if is_device {
        return format!("{disk}{cache}");
    }
    let kind = rustix::fs::fstatfs(file).map_or(0, |stat| stat.f_type as u32);
    // These are the magic numbers of statfs(2).
    let file_system = match kind {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => return format!("file in memory (tmpfs){cache}"),
        0x794c_7630 => "overlayfs",
        _ => "a file system",
    };
    format!("file in {file_system} on {disk}{cache}")
}
