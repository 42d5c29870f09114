//! Uses of a disk: mounts, swap, devices made of it, programs.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::attribute::{DeviceNumber, attribute, device_number, link_name, names};
use super::disk::KernelDisk;
use super::loops::LoopFile;
use super::ops::Claim;
use super::process;
use super::sysfs::Sysfs;
use crate::mountinfo::{self, unescape};

/// The depth of stacked devices at which the search stops.
pub(super) const STACK_MAX: u32 = 16;

/// A use of a disk or a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskUse {
    /// The block device, e.g. `nvme0n1p2`, or the character device of a namespace or controller
    /// (`ng0n1`, `nvme0`).
    pub device: String,
    /// The kind of use.
    pub kind: UseKind,
}

/// The kind of use of a disk or a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UseKind {
    /// A file system on it is mounted.
    Mounted {
        /// The mount point.
        at: PathBuf,
        /// The process in whose mount namespace it is mounted, if not ours.
        seen_by: Option<String>,
    },
    /// The kernel swaps to it.
    Swap,
    /// Another block device, or the kernel's NVMe target, is made of it.
    Held {
        /// The user, e.g. `dm-0 (vg-root), mounted at /`.
        by: String,
    },
    /// An unknown user holds it exclusively.
    Exclusive,
    /// A process has it open.
    Open {
        /// The process.
        by: String,
    },
}

impl DiskUse {
    /// Whether it prevents taking the disk, even by force.
    pub fn forbids(&self) -> bool {
        !matches!(self.kind, UseKind::Open { .. })
    }
}

impl fmt::Display for DiskUse {
    /// `nvme0n1p1 is mounted at /data`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.device, self.kind)
    }
}

impl fmt::Display for UseKind {
    /// `mounted at /data`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { at, seen_by: None } => write!(f, "mounted at {}", at.display()),
            Self::Mounted { at, seen_by: Some(process) } => {
                write!(f, "mounted at {} for {process}", at.display())
            }
            Self::Swap => write!(f, "swap space"),
            Self::Held { by } => write!(f, "held by {by}"),
            Self::Exclusive => write!(f, "in exclusive use"),
            Self::Open { by } => write!(f, "open in {by}"),
        }
    }
}

struct Mount {
    number: Option<DeviceNumber>,
    /// For file systems with their own device number, such as btrfs.
    source: Option<String>,
    at: PathBuf,
    seen_by: Option<String>,
}

struct OpenFile {
    /// The last component of its path.
    name: String,
    pid: u32,
}

/// The mounts, swap and open files of the machine at one moment.
pub(super) struct Snapshot {
    mounts: Vec<Mount>,
    swaps: Vec<String>,
    open: Vec<OpenFile>,
    made_of: Vec<MadeOf>,
}

/// A device made of another, or of a file, that is not listed as its holder.
pub(super) struct MadeOf {
    /// The backing, by the kernel's name.
    name: PathBuf,
    /// The backing without a name, if this process may see it.
    file: Option<LoopFile>,
    /// E.g. `loop3`, `NVMe target nqn…`.
    pub by: String,
    /// Whether it is a loop device, which writes nothing by itself.
    pub is_loop: bool,
}

impl MadeOf {
    /// Whether the file with `meta` backs it.
    pub(super) fn is_of_file(&self, meta: &Metadata) -> bool {
        let file = (meta.dev(), meta.ino());
        match self.file {
            Some(beneath) => beneath.file == file,
            None => fs::metadata(&self.name).is_ok_and(|named| (named.dev(), named.ino()) == file),
        }
    }

    /// Whether block device `name` backs it.
    pub(super) fn is_of_device(
        &self,
        sysfs: &Sysfs,
        name: &str,
        number: Option<DeviceNumber>,
    ) -> bool {
        match self.file {
            Some(beneath) => beneath.device.is_some() && beneath.device == number,
            None => sysfs.node_name(&self.name).as_deref() == Some(name),
        }
    }

    /// Whether it has the same backing as `other`.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        match (self.file, other.file) {
            (Some(one), Some(other)) if one.device.is_some() => one.device == other.device,
            (Some(one), Some(other)) => one == other,
            _ => self.name == other.name,
        }
    }
}

impl Snapshot {
    pub(super) fn take(sysfs: &Sysfs) -> Self {
        let mut snapshot = Self::without_programs(sysfs);
        let own = std::process::id();
        for pid in process::all(sysfs).into_iter().filter(|pid| *pid != own) {
            snapshot.open.extend(open_files(&sysfs.proc.join(pid.to_string()).join("fd"), pid));
        }
        snapshot
    }

    /// A snapshot without the files that programs have open.
    pub(super) fn without_programs(sysfs: &Sysfs) -> Self {
        let mut snapshot = Self {
            mounts: Vec::new(),
            swaps: swaps(sysfs),
            open: Vec::new(),
            made_of: made_of(sysfs),
        };
        let mut namespaces = Vec::new();
        namespaces.extend(link_name(&sysfs.proc.join("self/ns/mnt")));
        snapshot.mounts.extend(mounts(sysfs, &sysfs.proc.join("self/mountinfo"), None));
        for pid in process::all(sysfs) {
            let dir = sysfs.proc.join(pid.to_string());
            // Only root sees the namespaces of other users' processes.
            if let Some(namespace) = link_name(&dir.join("ns/mnt"))
                && !namespaces.contains(&namespace)
            {
                namespaces.push(namespace);
                let seen_by = process::in_words(sysfs, pid);
                snapshot.mounts.extend(mounts(sysfs, &dir.join("mountinfo"), Some(seen_by)));
            }
        }
        snapshot
    }

    pub(super) fn made_of(&self) -> &[MadeOf] {
        &self.made_of
    }

    /// The uses of a controller, by the kernel's name, and of its disks.
    pub(super) fn uses(
        &self,
        sysfs: &Sysfs,
        controller: Option<&str>,
        disks: &[KernelDisk],
    ) -> Vec<DiskUse> {
        let mut uses = Vec::new();
        for disk in disks {
            self.uses_of_disk(sysfs, disk, &mut uses);
        }
        if let Some(controller) = controller {
            self.opens_of(sysfs, controller, &mut uses);
        }
        uses
    }

    fn uses_of_disk(&self, sysfs: &Sysfs, disk: &KernelDisk, uses: &mut Vec<DiskUse>) {
        let before = uses.len();
        let dir = sysfs.sys.join("class/block").join(&disk.name);
        let parts = disk.partitions.iter();
        let parts = parts.map(|part| (&part.name, part.number, dir.join(&part.name)));
        let whole = (&disk.name, disk.number, dir.clone());
        for (name, number, dir) in std::iter::once(whole).chain(parts) {
            self.uses_of_device(sysfs, name, number, &dir, uses);
            let made = self.made_of.iter().filter(|made| made.is_of_device(sysfs, name, number));
            uses.extend(made.map(|made| DiskUse {
                device: name.clone(),
                kind: UseKind::Held { by: made.by.clone() },
            }));
        }
        let explained = uses[before..].iter().any(DiskUse::forbids);
        if !explained && is_busy(sysfs.ops().claim(&sysfs.dev.join(&disk.name)).as_ref()) {
            uses.push(DiskUse { device: disk.name.clone(), kind: UseKind::Exclusive });
        }
        self.opens_of(sysfs, &disk.name, uses);
        for part in &disk.partitions {
            self.opens_of(sysfs, &part.name, uses);
        }
        // The character device of the namespace.
        self.opens_of(sysfs, &disk.name.replacen("nvme", "ng", 1), uses);
    }

    /// Mounts, swap and holders of a disk or a partition itself.
    pub(super) fn uses_of_device(
        &self,
        sysfs: &Sysfs,
        name: &str,
        number: Option<DeviceNumber>,
        dir: &Path,
        uses: &mut Vec<DiskUse>,
    ) {
        let mut add = |kind| uses.push(DiskUse { device: name.to_owned(), kind });
        for mount in self.mounts_of(name, number) {
            add(UseKind::Mounted { at: mount.at.clone(), seen_by: mount.seen_by.clone() });
        }
        if self.swaps.iter().any(|swap| swap == name) {
            add(UseKind::Swap);
        }
        for holder in names(&dir.join("holders")) {
            add(UseKind::Held { by: self.holder_in_words(sysfs, &holder, 0) });
        }
    }

    fn mounts_of<'a>(
        &'a self,
        name: &'a str,
        number: Option<DeviceNumber>,
    ) -> impl Iterator<Item = &'a Mount> {
        self.mounts.iter().filter(move |mount| {
            (number.is_some() && mount.number == number) || mount.source.as_deref() == Some(name)
        })
    }

    /// `dm-0 (vg-root), mounted at /`, followed by the devices made of that.
    fn holder_in_words(&self, sysfs: &Sysfs, holder: &str, depth: u32) -> String {
        let dir = sysfs.sys.join("class/block").join(holder);
        let mut words = holder.to_owned();
        if let Some(name) = attribute(&dir.join("dm/name")) {
            words += &format!(" ({name})");
        }
        let number = attribute(&dir.join("dev")).and_then(|text| device_number(&text));
        for mount in self.mounts_of(holder, number) {
            words += &format!(", mounted at {}", mount.at.display());
        }
        if self.swaps.iter().any(|swap| swap == holder) {
            words += ", swap space";
        }
        let above = if depth < STACK_MAX { names(&dir.join("holders")) } else { Vec::new() };
        for next in above {
            words += &format!(", held by {}", self.holder_in_words(sysfs, &next, depth + 1));
        }
        words
    }

    fn opens_of(&self, sysfs: &Sysfs, name: &str, uses: &mut Vec<DiskUse>) {
        let mut pids: Vec<u32> =
            self.open.iter().filter(|file| file.name == name).map(|file| file.pid).collect();
        pids.dedup();
        uses.extend(pids.into_iter().map(|pid| DiskUse {
            device: name.to_owned(),
            kind: UseKind::Open { by: process::in_words(sysfs, pid) },
        }));
    }

    /// The processes that have a device node open.
    pub(super) fn processes_with(&self, sysfs: &Sysfs, node: &Path) -> Vec<String> {
        let Some(name) = node.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
        let mut uses = Vec::new();
        // A group's node has a number as its name, which elsewhere than in /dev/vfio means other
        // things.
        let name = if name.starts_with("vfio") { name.to_owned() } else { format!("vfio/{name}") };
        self.opens_of(sysfs, &name, &mut uses);
        let by = uses.into_iter().filter_map(|one| match one.kind {
            UseKind::Open { by } => Some(by),
            _ => None,
        });
        by.collect()
    }
}

/// Holds each of `disks` exclusively, so that no use of one can begin until the claims are
/// dropped.
///
/// # Errors
/// Returns the disk that could not be claimed, and the reason.
pub(super) fn claim(
    sysfs: &Sysfs,
    disks: &[KernelDisk],
) -> Result<Vec<Claim>, (String, std::io::Error)> {
    let mut claims = Vec::new();
    for disk in disks {
        match sysfs.ops().claim(&sysfs.dev.join(&disk.name)) {
            Ok(claim) => claims.push(claim),
            // A namespace without a medium, or that has just disappeared.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENOMEDIUM)) => {}
            Err(error) => return Err((disk.name.clone(), error)),
        }
    }
    Ok(claims)
}

pub(super) fn is_busy(claimed: Result<&Claim, &std::io::Error>) -> bool {
    claimed.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
}

/// Parses `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).
fn mounts(sysfs: &Sysfs, path: &Path, seen_by: Option<String>) -> Vec<Mount> {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mounts = mountinfo::parse(&text).map(|entry| Mount {
        number: device_number(&entry.device),
        source: sysfs.node_name(&entry.source),
        at: entry.dir,
        seen_by: seen_by.clone(),
    });
    mounts.collect()
}

/// The block devices used for swap.
fn swaps(sysfs: &Sysfs) -> Vec<String> {
    swap_paths(sysfs).iter().filter_map(|path| sysfs.node_name(path)).collect()
}

/// Parses `/proc/swaps`: a header, then a line for each, its path first.
pub(super) fn swap_paths(sysfs: &Sysfs) -> Vec<PathBuf> {
    let text = fs::read_to_string(sysfs.proc.join("swaps")).unwrap_or_default();
    let paths = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    paths.map(unescape).collect()
}

/// Devices that are made of a block device or file without being listed as its holder: loop
/// devices, and namespaces of the kernel's NVMe target.
pub(super) fn made_of(sysfs: &Sysfs) -> Vec<MadeOf> {
    let mut made = Vec::new();
    for name in
        names(&sysfs.sys.join("class/block")).into_iter().filter(|name| name.starts_with("loop"))
    {
        let file = sysfs.sys.join("class/block").join(&name).join("loop/backing_file");
        // A file's name may contain any bytes.
        let Ok(mut bytes) = fs::read(&file) else { continue };
        bytes.pop_if(|byte| *byte == b'\n');
        let file = sysfs.ops().loop_file(&sysfs.dev.join(&name)).ok();
        made.push(MadeOf { name: OsString::from_vec(bytes).into(), file, by: name, is_loop: true });
    }
    let target = sysfs.sys.join("kernel/config/nvmet/subsystems");
    for subsystem in names(&target) {
        let namespaces = target.join(&subsystem).join("namespaces");
        for namespace in names(&namespaces) {
            let dir = namespaces.join(&namespace);
            if attribute(&dir.join("enable")).as_deref() != Some("1") {
                continue;
            }
            let by = format!("NVMe target {subsystem}");
            let path = attribute(&dir.join("device_path"));
            made.extend(path.map(|path| MadeOf {
                name: path.into(),
                file: None,
                by,
                is_loop: false,
            }));
        }
    }
    made
}

/// The files below `/dev` that a process has open. A container's `/dev` may be anywhere, so only
/// the end of the path counts.
fn open_files(dir: &Path, pid: u32) -> Vec<OpenFile> {
    let links = names(dir).into_iter().filter_map(|fd| fs::read_link(dir.join(fd)).ok());
    let files = links.filter_map(|path| {
        let (_, inside) = path.to_str()?.split_once("/dev/")?;
        let name = inside.strip_prefix("vfio/devices/").unwrap_or(inside);
        Some(OpenFile { name: name.to_owned(), pid })
    });
    files.collect()
}
