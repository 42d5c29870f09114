//! The address space of devices: a container of type 1 with its group, or an I/O address space of
//! IOMMUFD.
//!
//! Each device has an address space of its own, so that none can access another's buffers and
//! addresses need no coordination. Only devices of one IOMMU group share one, since a group can
//! only be in one container. Each of them then has a *window* of it.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::error::{Result, VfioError};
use super::ioctl;
use super::nodes::DeviceNodes;
use super::uapi::{self, IovaRange};
use crate::pci::PciAddress;

/// `/dev/vfio/vfio`: a new container each time it is opened.
const CONTAINER_NODE: &str = "/dev/vfio/vfio";
/// `/dev/iommu`: IOMMUFD.
const IOMMU_NODE: &str = "/dev/iommu";

/// The MSI window and other platform reservations are below 4 GiB; 32-bit mistakes land there too.
const USUAL_FIRST_IOVA: u64 = 1 << 32;
/// Mappings consist of huge pages.
const ALIGN: u64 = 2 << 20;
/// Size of a device's window: a 39-bit IOMMU has room for seven.
const WINDOW_BYTES: u64 = 1 << 36;

/// VFIO's default limit of mappings, for kernels that do not report it.
const USUAL_MAX_REGIONS: u32 = 65_535;

pub(super) struct AddressSpace {
    group: u32,
    kind: Kind,
    /// The device of each window.
    windows: Mutex<Vec<Option<PciAddress>>>,
}

/// A device in its address space.
pub(super) struct Entered {
    pub(super) space: Arc<AddressSpace>,
    pub(super) device: OwnedFd,
    /// The window's number, for its return.
    pub(super) window: usize,
    /// The window's first and last address.
    pub(super) first: u64,
    pub(super) last: u64,
}

enum Kind {
    /// The group must be open as long as the container is used.
    Type1 { container: OwnedFd, group: OwnedFd },
    /// The I/O address space `ioas` of an IOMMUFD.
    Iommufd { iommu: OwnedFd, ioas: u32, device_node: PathBuf },
}

/// The address spaces in use in this process.
static SPACES: Mutex<Vec<Weak<AddressSpace>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The state is consistent between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AddressSpace {
    /// Adds the device at `place` to an address space: that of its group if this process has one
    /// already.
    pub(super) fn enter(nodes: &DeviceNodes) -> Result<Entered> {
        let address = nodes.address;
        // Locked throughout, so that two devices of a group opened concurrently share one.
        let mut spaces = lock(&SPACES);
        spaces.retain(|space| space.strong_count() > 0);
        let known =
            spaces.iter().filter_map(Weak::upgrade).find(|space| space.group == nodes.group.number);
        let space = match known {
            Some(space) if lock(&space.windows).contains(&Some(address)) => {
                return Err(VfioError::OpenHere);
            }
            Some(space) => space,
            None => {
                // `bind --owner` changes the owner of the group's node, which exists on every
                // kernel that was not built without it.
                let kind = match &nodes.device_node {
                    Some(node) if !nodes.group_node.exists() => iommufd(node, nodes)?,
                    _ => type1(nodes)?,
                };
                let space = Arc::new(Self {
                    group: nodes.group.number,
                    kind,
                    windows: Mutex::new(Vec::new()),
                });
                spaces.push(Arc::downgrade(&space));
                space
            }
        };
        let device = space.device(nodes)?;
        // After the device was added, which may restrict the addresses.
        let (window, first, last) = space.take_window(address)?;
        Ok(Entered { space, device, window, first, last })
    }

    fn device(&self, nodes: &DeviceNodes) -> Result<OwnedFd> {
        let failed = |source: io::Error| match source.raw_os_error() {
            Some(libc::EBUSY) => VfioError::InUse { path: nodes.group_node.clone() },
            _ => VfioError::Os { what: "the kernel does not hand over the device", source },
        };
        match &self.kind {
            Kind::Type1 { group, .. } => {
                let name = CString::new(nodes.address.to_string())
                    .map_err(|error| failed(error.into()))?;
                ioctl::device_fd(group.as_fd(), &name).map_err(failed)
            }
            Kind::Iommufd { iommu, ioas, device_node } => {
                let node = nodes.device_node.as_ref().unwrap_or(device_node);
                let device = open(node, nodes.address)?;
                let mut bind = uapi::BindIommufd {
                    argsz: uapi::BindIommufd::BYTES,
                    iommufd: iommu.as_raw_fd(),
                    ..Default::default()
                };
                ioctl::structure(device.as_fd(), uapi::DEVICE_BIND_IOMMUFD, &mut bind)
                    .map_err(failed)?;
                let mut attach = uapi::AttachIommufd {
                    argsz: uapi::AttachIommufd::BYTES,
                    flags: 0,
                    pt_id: *ioas,
                };
                ioctl::structure(device.as_fd(), uapi::DEVICE_ATTACH_IOMMUFD_PT, &mut attach)
                    .map_err(refused)?;
                Ok(device)
            }
        }
    }

    /// Allocates a window for `address`: its number, and its first and last address.
    fn take_window(&self, address: PciAddress) -> Result<(usize, u64, u64)> {
        let ranges = self.ranges();
        let mut windows = lock(&self.windows);
        let free = windows.iter().position(Option::is_none).unwrap_or(windows.len());
        let (first, last) = window(&ranges, free).ok_or(VfioError::Lacks {
            what: "addresses for one more device of this IOMMU group",
        })?;
        if free == windows.len() {
            windows.push(None);
        }
        windows[free] = Some(address);
        Ok((free, first, last))
    }

    /// Frees the window, which must have no mappings.
    pub(super) fn free_window(&self, window: usize) {
        if let Some(holder) = lock(&self.windows).get_mut(window) {
            *holder = None;
        }
    }

    /// The addresses that the IOMMU translates. Empty if the kernel does not report them (before
    /// Linux 5.4).
    fn ranges(&self) -> Vec<IovaRange> {
        match &self.kind {
            Kind::Type1 { .. } => {
                self.type1_info(uapi::IOMMU_CAP_IOVA_RANGE, uapi::array_of).unwrap_or_default()
            }
            Kind::Iommufd { iommu, ioas, .. } => {
                ioctl::iova_ranges(iommu.as_fd(), *ioas).unwrap_or_default()
            }
        }
    }

    /// The number of further mappings possible.
    pub(super) fn mappings_left(&self) -> u32 {
        let left =
            |capability: &[u8]| capability.first_chunk::<4>().map(|left| u32::from_ne_bytes(*left));
        self.type1_info(uapi::IOMMU_CAP_DMA_AVAIL, left).flatten().unwrap_or(USUAL_MAX_REGIONS)
    }

    fn type1_info<T>(&self, capability: u16, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let Kind::Type1 { container, .. } = &self.kind else { return None };
        let question = uapi::IommuInfo { argsz: uapi::IommuInfo::BYTES, ..Default::default() };
        let question = zerocopy::IntoBytes::as_bytes(&question);
        let answer = ioctl::answer(container.as_fd(), uapi::IOMMU_GET_INFO, question).ok()?;
        let info: uapi::IommuInfo = zerocopy::FromBytes::read_from_prefix(&answer).ok()?.0;
        uapi::capability(&answer, info.cap_offset, capability).map(read)
    }

    /// Maps `bytes` at `vaddr` of this process for the devices, at `iova`. The pages are pinned,
    /// and count as locked memory.
    pub(super) fn map(&self, iova: u64, vaddr: u64, bytes: u64) -> io::Result<()> {
        match &self.kind {
            Kind::Type1 { container, .. } => {
                let flags = uapi::DMA_READ | uapi::DMA_WRITE;
                let mut map =
                    uapi::DmaMap { argsz: uapi::DmaMap::BYTES, flags, vaddr, iova, size: bytes };
                ioctl::structure(container.as_fd(), uapi::IOMMU_MAP_DMA, &mut map)?;
            }
            Kind::Iommufd { iommu, ioas, .. } => {
                let mut map = uapi::IoasMap {
                    size: uapi::IoasMap::BYTES,
                    flags: uapi::IOAS_FIXED_IOVA | uapi::IOAS_READABLE | uapi::IOAS_WRITEABLE,
                    ioas_id: *ioas,
                    user_va: vaddr,
                    length: bytes,
                    iova,
                    ..Default::default()
                };
                ioctl::structure(iommu.as_fd(), uapi::IOAS_MAP, &mut map)?;
            }
        }
        Ok(())
    }

    /// Undoes [`AddressSpace::map`]. After `Ok` no device of the group can access the memory: the
    /// kernel has removed the translation and waited for the IOMMU's invalidation.
    pub(super) fn unmap(&self, iova: u64, bytes: u64) -> io::Result<()> {
        let undone = match &self.kind {
            Kind::Type1 { container, .. } => {
                let argsz = uapi::DmaUnmap::BYTES;
                let mut unmap = uapi::DmaUnmap { argsz, flags: 0, iova, size: bytes };
                ioctl::structure(container.as_fd(), uapi::IOMMU_UNMAP_DMA, &mut unmap)?;
                unmap.size
            }
            Kind::Iommufd { iommu, ioas, .. } => {
                let size = uapi::IoasUnmap::BYTES;
                let mut unmap = uapi::IoasUnmap { size, ioas_id: *ioas, iova, length: bytes };
                ioctl::structure(iommu.as_fd(), uapi::IOAS_UNMAP, &mut unmap)?;
                unmap.length
            }
        };
        // The kernel returns the number of unmapped bytes; if fewer, the device could still access
        // a part.
        if undone == bytes { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

/// The `index`th window of the largest of `ranges`, above 4 GiB if there is room: its first and
/// last address.
fn window(ranges: &[IovaRange], index: usize) -> Option<(u64, u64)> {
    let everything = [IovaRange { first: 0, last: (1 << 39) - 1 }];
    let ranges = if ranges.is_empty() { &everything } else { ranges };
    let valid = ranges.iter().filter(|range| range.first < range.last);
    let range = valid.max_by_key(|range| range.last - range.first)?;
    let roomy = range.last > USUAL_FIRST_IOVA + ALIGN;
    let base = if roomy { range.first.max(USUAL_FIRST_IOVA) } else { range.first };
    let base = base.checked_next_multiple_of(ALIGN)?;
    let first = base.checked_add((index as u64).checked_mul(WINDOW_BYTES)?)?;
    let last = range.last.min(first.saturating_add(WINDOW_BYTES - 1));
    // A window must have room for a mapping.
    (first < last && last - first >= 8 * ALIGN).then_some((first, last))
}

/// Opens one of VFIO's nodes, for reading and writing.
fn open(path: &Path, address: PciAddress) -> Result<OwnedFd> {
    let path_of = || path.to_owned();
    let opened = File::options().read(true).write(true).open(path);
    opened.map(OwnedFd::from).map_err(|source| match (source.kind(), source.raw_os_error()) {
        (io::ErrorKind::PermissionDenied, _) => VfioError::Permission { address, path: path_of() },
        (_, Some(libc::EBUSY)) => VfioError::InUse { path: path_of() },
        _ => VfioError::NoVfio { path: path_of(), source },
    })
}

/// The error when the kernel refuses to attach an IOMMU.
fn refused(source: io::Error) -> VfioError {
    match source.raw_os_error() {
        Some(libc::EPERM) => VfioError::UnsafeInterrupts,
        _ => VfioError::Os { what: "the kernel does not attach the device to the IOMMU", source },
    }
}

fn type1(nodes: &DeviceNodes) -> Result<Kind> {
    let container = open(Path::new(CONTAINER_NODE), nodes.address)?;
    let version = ioctl::plain(container.as_fd(), uapi::GET_API_VERSION, 0)
        .map_err(VfioError::os("VFIO has no version"))?;
    if version != uapi::API_VERSION {
        return Err(VfioError::Lacks { what: "the version of its interface that we speak (0)" });
    }
    let has = ioctl::plain(container.as_fd(), uapi::CHECK_EXTENSION, uapi::TYPE1V2_IOMMU);
    if !matches!(has, Ok(1..)) {
        return Err(VfioError::Lacks { what: "the type 1 IOMMU: `modprobe vfio_iommu_type1`" });
    }
    let group = open(&nodes.group_node, nodes.address)?;
    let mut status = uapi::GroupStatus { argsz: uapi::GroupStatus::BYTES, flags: 0 };
    ioctl::structure(group.as_fd(), uapi::GROUP_GET_STATUS, &mut status)
        .map_err(VfioError::os("the IOMMU group has no status"))?;
    if status.flags & uapi::GROUP_VIABLE == 0 {
        let (group, others) = (nodes.group.number, nodes.others_in_the_way());
        return Err(VfioError::GroupNotViable { group, others });
    }
    ioctl::set_container(group.as_fd(), container.as_fd()).map_err(|source| {
        match source.raw_os_error() {
            Some(libc::EBUSY) => VfioError::InUse { path: nodes.group_node.clone() },
            _ => refused(source),
        }
    })?;
    ioctl::plain(container.as_fd(), uapi::SET_IOMMU, uapi::TYPE1V2_IOMMU).map_err(refused)?;
    Ok(Kind::Type1 { container, group })
}

fn iommufd(device_node: &Path, nodes: &DeviceNodes) -> Result<Kind> {
    let iommu = open(Path::new(IOMMU_NODE), nodes.address)?;
    let mut ioas = uapi::IoasAlloc { size: uapi::IoasAlloc::BYTES, ..Default::default() };
    ioctl::structure(iommu.as_fd(), uapi::IOAS_ALLOC, &mut ioas)
        .map_err(VfioError::os("IOMMUFD gives no address space"))?;
    Ok(Kind::Iommufd { iommu, ioas: ioas.out_ioas_id, device_node: device_node.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn ranges(ends: &[(u64, u64)]) -> Vec<IovaRange> {
        ends.iter().map(|&(first, last)| IovaRange { first, last }).collect()
    }

    /// As with Intel's 39-bit IOMMU: everything but the MSI window.
    #[test]
    fn windows_are_above_4_gib_and_apart() {
        let x86 = ranges(&[(0, 0xfedf_ffff), (0xfef0_0000, 512 * GIB - 1)]);
        assert_eq!(window(&x86, 0), Some((4 * GIB, 68 * GIB - 1)));
        assert_eq!(window(&x86, 1), Some((68 * GIB, 132 * GIB - 1)));
        assert_eq!(window(&x86, 7), Some((452 * GIB, 512 * GIB - 1)));
        assert_eq!(window(&x86, 8), None);
        assert_eq!(window(&x86, usize::MAX), None);
    }

    #[test]
    fn a_small_address_space_is_used_as_it_is() {
        assert_eq!(window(&ranges(&[(0x1000, 2 * GIB - 1)]), 0), Some((2 << 20, 2 * GIB - 1)));
        assert_eq!(window(&ranges(&[(0x1000, 2 * GIB - 1)]), 1), None);
        // The whole 64-bit range, and an empty one.
        assert_eq!(window(&ranges(&[(0, u64::MAX)]), 0), Some((4 * GIB, 68 * GIB - 1)));
        assert_eq!(window(&ranges(&[(u64::MAX - 1, u64::MAX)]), 0), None);
        assert_eq!(window(&ranges(&[(5, 5)]), 0), None);
        // A kernel that does not report it.
        assert_eq!(window(&[], 0), Some((4 * GIB, 68 * GIB - 1)));
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let address = "0000:01:00.0".parse().unwrap();
        let missing = open(Path::new("/dev/vfio-which-is-not/1"), address).unwrap_err().to_string();
        assert!(
            missing.contains("/dev/vfio-which-is-not/1") && missing.contains("modprobe"),
            "{missing}"
        );
    }
}
