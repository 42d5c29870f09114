//! A namespace's generic character device (`/dev/ng0n1`): its driver takes NVMe commands by
//! io_uring, without the kernel's block layer above it.
//!
//! The kernel does not keep these commands off a namespace that is mounted. So its block device is
//! opened as well, exclusively where the namespace may be written, and that decides.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use meantime_hw::pci::{Sysfs, generic_disk};
use meantime_hw::uring::{identify, namespace_id};
use meantime_nvme_spec::identify::{IdentifyNamespace, cns};

use super::super::error::OpenError;
use super::super::options::{Access, may_not_write};
use super::super::uri::{KernelEngine, KernelUri};
use super::file::{Disk, KernelFile, block_bytes, open_file, why_not};
use super::namespace::{Namespace, PAGE_BYTES};

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
        // The medium is the same SSD as by its block device: figures of both may be compared.
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

/// Returns why the namespace could not be identified, and a remedy.
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
    use super::*;

    #[test]
    fn what_the_kernel_forbids_names_another_way() {
        let why = |errno| not_identified(&io::Error::from_raw_os_error(errno), "nvme0n1");
        assert!(why(libc::EACCES).contains("root") && why(libc::EACCES).contains("/dev/nvme0n1"));
        assert!(why(libc::EIO).contains("identify"));
    }
}
