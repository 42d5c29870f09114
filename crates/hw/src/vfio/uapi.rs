//! The kernel's VFIO and IOMMUFD interfaces: numbers and structures of `linux/vfio.h` and
//! `linux/iommufd.h`.
//!
//! Each structure begins with its own size, so a kernel of any version uses the fields that it
//! knows.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `_IO(';', number)`: both interfaces encode no direction and no size.
const fn io(number: u32) -> u32 {
    (b';' as u32) << 8 | number
}

/// The number of an ioctl whose argument is a structure that begins with its size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sized(pub(super) u32);

/// The number of an ioctl whose argument is a number, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plain(pub(super) u32);

/// The version of the interface, without an argument.
pub(super) const GET_API_VERSION: Plain = Plain(io(100));
/// Whether the container has an extension, e.g. [`TYPE1V2_IOMMU`].
pub(super) const CHECK_EXTENSION: Plain = Plain(io(101));
/// Sets the kind of IOMMU of a container.
pub(super) const SET_IOMMU: Plain = Plain(io(102));
/// [`GroupStatus`].
pub(super) const GROUP_GET_STATUS: Sized = Sized(io(103));
/// Puts a group into a container; the argument points to the container's descriptor.
pub(super) const GROUP_SET_CONTAINER: u32 = io(104);
/// A descriptor for a device of the group; the argument points to its name.
pub(super) const GROUP_GET_DEVICE_FD: u32 = io(106);
/// [`DeviceInfo`].
pub(super) const DEVICE_GET_INFO: Sized = Sized(io(107));
/// [`RegionInfo`], with capabilities after it.
pub(super) const DEVICE_GET_REGION_INFO: Sized = Sized(io(108));
/// [`IrqInfo`].
pub(super) const DEVICE_GET_IRQ_INFO: Sized = Sized(io(109));
/// [`IrqSet`], with descriptors after it.
pub(super) const DEVICE_SET_IRQS: Sized = Sized(io(110));
/// [`IommuInfo`], with capabilities after it.
pub(super) const IOMMU_GET_INFO: Sized = Sized(io(112));
/// [`DmaMap`].
pub(super) const IOMMU_MAP_DMA: Sized = Sized(io(113));
/// [`DmaUnmap`].
pub(super) const IOMMU_UNMAP_DMA: Sized = Sized(io(114));
/// [`BindIommufd`].
pub(super) const DEVICE_BIND_IOMMUFD: Sized = Sized(io(118));
/// [`AttachIommufd`].
pub(super) const DEVICE_ATTACH_IOMMUFD_PT: Sized = Sized(io(119));
/// [`IoasAlloc`].
pub(super) const IOAS_ALLOC: Sized = Sized(io(0x81));
/// [`IoasIovaRanges`], which points to an array.
pub(super) const IOAS_IOVA_RANGES: u32 = io(0x84);
/// [`IoasMap`].
pub(super) const IOAS_MAP: Sized = Sized(io(0x85));
/// [`IoasUnmap`].
pub(super) const IOAS_UNMAP: Sized = Sized(io(0x86));

/// The version that [`GET_API_VERSION`] gives.
pub(super) const API_VERSION: u32 = 0;
/// The second version of the type 1 IOMMU: mappings are only undone as they were made.
pub(super) const TYPE1V2_IOMMU: usize = 3;

/// Every device of the group is bound to VFIO or to nothing.
pub(super) const GROUP_VIABLE: u32 = 1;
/// The device can be reset.
pub(super) const DEVICE_RESETS: u32 = 1;
/// The device is a PCI device.
pub(super) const DEVICE_PCI: u32 = 1 << 1;
/// The region can be read.
pub(super) const REGION_READ: u32 = 1;
/// The region can be written.
pub(super) const REGION_WRITE: u32 = 1 << 1;
/// The region, or areas of it, can be mapped.
pub(super) const REGION_MMAP: u32 = 1 << 2;
/// Vectors are allocated when the first one is set; no more afterwards.
pub(super) const IRQ_NORESIZE: u32 = 1 << 3;
/// The data are descriptors of eventfds; −1 for none.
pub(super) const IRQ_SET_EVENTFD: u32 = 1 << 2;
/// The call sets the eventfds of interrupts.
pub(super) const IRQ_SET_TRIGGER: u32 = 1 << 5;
/// The device may read the mapping (the type 1 IOMMU).
pub(super) const DMA_READ: u32 = 1;
/// The device may write the mapping (the type 1 IOMMU).
pub(super) const DMA_WRITE: u32 = 1 << 1;
/// The mapping is at the given address.
pub(super) const IOAS_FIXED_IOVA: u32 = 1;
/// The device may write the mapping.
pub(super) const IOAS_WRITEABLE: u32 = 1 << 1;
/// The device may read the mapping.
pub(super) const IOAS_READABLE: u32 = 1 << 2;

/// Capability of [`RegionInfo`]: the areas that can be mapped.
pub(super) const REGION_CAP_SPARSE_MMAP: u16 = 1;
/// Capability of [`IommuInfo`]: the I/O virtual addresses that can be used.
pub(super) const IOMMU_CAP_IOVA_RANGE: u16 = 1;
/// Capability of [`IommuInfo`]: the number of further mappings possible.
pub(super) const IOMMU_CAP_DMA_AVAIL: u16 = 3;

/// Index of the region of BAR0.
pub(super) const BAR0_REGION: u32 = 0;
/// Index of the region of the configuration space.
pub(super) const CONFIG_REGION: u32 = 7;
/// Index of the MSI-X interrupts.
pub(super) const MSIX_IRQ: u32 = 2;
/// Index of the interrupt for errors on the bus.
pub(super) const ERR_IRQ: u32 = 3;
/// Index of the interrupt by which the kernel requests the device.
pub(super) const REQ_IRQ: u32 = 4;

macro_rules! wire {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $kind,)* }
        const _: () = assert!(size_of::<$name>() == $size);
        #[allow(dead_code)]
        impl $name {
            /// The structure's own size, for its first field.
            pub(super) const BYTES: u32 = $size;
        }
    };
}

wire!(
    /// `struct vfio_group_status`.
    GroupStatus, 8 { argsz: u32, flags: u32, }
);
wire!(
    /// `struct vfio_device_info`.
    DeviceInfo, 20 { argsz: u32, flags: u32, num_regions: u32, num_irqs: u32, cap_offset: u32, }
);
wire!(
    /// `struct vfio_region_info`.
    RegionInfo, 32 { argsz: u32, flags: u32, index: u32, cap_offset: u32, size: u64, offset: u64, }
);
wire!(
    /// `struct vfio_irq_info`.
    IrqInfo, 16 { argsz: u32, flags: u32, index: u32, count: u32, }
);
wire!(
    /// `struct vfio_irq_set`, without its data.
    IrqSet, 20 { argsz: u32, flags: u32, index: u32, start: u32, count: u32, }
);
wire!(
    /// `struct vfio_iommu_type1_info`, with the padding at its end.
    IommuInfo, 24 { argsz: u32, flags: u32, iova_pgsizes: u64, cap_offset: u32, pad: u32, }
);
wire!(
    /// `struct vfio_iommu_type1_dma_map`.
    DmaMap, 32 { argsz: u32, flags: u32, vaddr: u64, iova: u64, size: u64, }
);
wire!(
    /// `struct vfio_iommu_type1_dma_unmap`.
    DmaUnmap, 24 { argsz: u32, flags: u32, iova: u64, size: u64, }
);
wire!(
    /// `struct vfio_device_bind_iommufd`.
    BindIommufd, 16 { argsz: u32, flags: u32, iommufd: i32, out_devid: u32, }
);
wire!(
    /// `struct vfio_device_attach_iommufd_pt`, as of its first version.
    AttachIommufd, 12 { argsz: u32, flags: u32, pt_id: u32, }
);
wire!(
    /// `struct iommu_ioas_alloc`.
    IoasAlloc, 12 { size: u32, flags: u32, out_ioas_id: u32, }
);
wire!(
    /// `struct iommu_ioas_iova_ranges`.
    IoasIovaRanges, 32 {
        size: u32, ioas_id: u32, num_iovas: u32, reserved: u32,
        allowed_iovas: u64, out_iova_alignment: u64,
    }
);
wire!(
    /// `struct iommu_ioas_map`.
    IoasMap, 40 {
        size: u32, flags: u32, ioas_id: u32, reserved: u32, user_va: u64, length: u64, iova: u64,
    }
);
wire!(
    /// `struct iommu_ioas_unmap`.
    IoasUnmap, 24 { size: u32, ioas_id: u32, iova: u64, length: u64, }
);
wire!(
    /// `struct vfio_iova_range` and `struct iommu_iova_range`: both ends are inclusive.
    IovaRange, 16 { first: u64, last: u64, }
);
wire!(
    /// `struct vfio_info_cap_header`.
    CapHeader, 8 { id: u16, version: u16, next: u32, }
);
wire!(
    /// `struct vfio_region_sparse_mmap_area`.
    SparseArea, 16 { offset: u64, size: u64, }
);

/// The capability `id` in the answer `info` of an ioctl, whose chain begins at byte `first`: the
/// data after its header. An invalid offset ends the chain.
pub(super) fn capability(info: &[u8], first: u32, id: u16) -> Option<&[u8]> {
    let mut at = first as usize;
    // Each header takes 8 bytes, so a longer chain has a loop.
    for _ in 0..info.len() / size_of::<CapHeader>() {
        if at == 0 {
            return None;
        }
        let (header, rest) = CapHeader::read_from_prefix(info.get(at..)?).ok()?;
        if header.id == id {
            return Some(rest);
        }
        at = header.next as usize;
    }
    None
}

/// The array of a capability that begins with its length and four reserved bytes:
/// [`REGION_CAP_SPARSE_MMAP`] and [`IOMMU_CAP_IOVA_RANGE`]. Items beyond the end are skipped.
pub(super) fn array_of<T: FromBytes>(capability: &[u8]) -> Vec<T> {
    let Some((count, rest)) = capability.split_first_chunk::<4>() else { return Vec::new() };
    let count = u32::from_ne_bytes(*count) as usize;
    let items = rest.get(4..).unwrap_or_default().chunks_exact(size_of::<T>());
    items.take(count).filter_map(|bytes| T::read_from_bytes(bytes).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked out by hand from the headers: ';' is 3Bh; VFIO_BASE is 100 = 64h; IOMMUFD_CMD_BASE is
    /// 80h.
    #[test]
    fn numbers_are_those_of_the_headers() {
        assert_eq!((GET_API_VERSION.0, CHECK_EXTENSION.0, SET_IOMMU.0), (0x3b64, 0x3b65, 0x3b66));
        assert_eq!(
            (GROUP_GET_STATUS.0, GROUP_SET_CONTAINER, GROUP_GET_DEVICE_FD),
            (0x3b67, 0x3b68, 0x3b6a)
        );
        assert_eq!((DEVICE_GET_INFO.0, DEVICE_GET_REGION_INFO.0), (0x3b6b, 0x3b6c));
        assert_eq!((DEVICE_GET_IRQ_INFO.0, DEVICE_SET_IRQS.0), (0x3b6d, 0x3b6e));
        assert_eq!(
            (IOMMU_GET_INFO.0, IOMMU_MAP_DMA.0, IOMMU_UNMAP_DMA.0),
            (0x3b70, 0x3b71, 0x3b72)
        );
        assert_eq!((DEVICE_BIND_IOMMUFD.0, DEVICE_ATTACH_IOMMUFD_PT.0), (0x3b76, 0x3b77));
        assert_eq!((IOAS_ALLOC.0, IOAS_IOVA_RANGES), (0x3b81, 0x3b84));
        assert_eq!((IOAS_MAP.0, IOAS_UNMAP.0), (0x3b85, 0x3b86));
    }

    #[test]
    fn fields_are_where_the_headers_have_them() {
        use std::mem::offset_of;
        assert_eq!((offset_of!(RegionInfo, size), offset_of!(RegionInfo, offset)), (16, 24));
        assert_eq!(
            (offset_of!(IommuInfo, iova_pgsizes), offset_of!(IommuInfo, cap_offset)),
            (8, 16)
        );
        assert_eq!(
            (offset_of!(DmaMap, vaddr), offset_of!(DmaMap, iova), offset_of!(DmaMap, size)),
            (8, 16, 24)
        );
        assert_eq!((offset_of!(DmaUnmap, iova), offset_of!(DmaUnmap, size)), (8, 16));
        assert_eq!((offset_of!(IoasMap, user_va), offset_of!(IoasMap, iova)), (16, 32));
        assert_eq!((offset_of!(IoasUnmap, iova), offset_of!(IoasUnmap, length)), (8, 16));
        assert_eq!(offset_of!(IoasIovaRanges, allowed_iovas), 16);
    }

    /// An IOMMU's answer from a kernel: 24 bytes of header, then DMA_AVAIL, then the ranges.
    fn answer() -> Vec<u8> {
        let mut bytes = IommuInfo { argsz: 88, flags: 3, cap_offset: 24, ..Default::default() }
            .as_bytes()
            .to_vec();
        bytes.extend(CapHeader { id: 3, version: 1, next: 40 }.as_bytes());
        bytes.extend([0xff, 0xff, 0, 0, 0, 0, 0, 0]);
        bytes.extend(CapHeader { id: 1, version: 1, next: 0 }.as_bytes());
        bytes.extend([2, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(IovaRange { first: 0, last: 0xfedf_ffff }.as_bytes());
        bytes.extend(IovaRange { first: 0xfef0_0000, last: (1 << 39) - 1 }.as_bytes());
        bytes
    }

    #[test]
    fn capabilities_are_found_in_their_chain() {
        let bytes = answer();
        let ranges: Vec<IovaRange> =
            array_of(capability(&bytes, 24, IOMMU_CAP_IOVA_RANGE).unwrap());
        let ends: Vec<_> = ranges.iter().map(|range| (range.first, range.last)).collect();
        assert_eq!(ends, [(0, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)]);
        assert_eq!(capability(&bytes, 24, IOMMU_CAP_DMA_AVAIL).unwrap()[..4], [0xff, 0xff, 0, 0]);
        assert!(capability(&bytes, 24, 9).is_none());
        assert!(capability(&bytes, 0, IOMMU_CAP_IOVA_RANGE).is_none());
    }

    #[test]
    fn broken_chains_end() {
        let mut bytes = answer();
        // A loop.
        bytes[28..32].copy_from_slice(&24u32.to_ne_bytes());
        assert!(capability(&bytes, 24, IOMMU_CAP_IOVA_RANGE).is_none());
        // Beyond the end, and into the last bytes.
        assert!(capability(&bytes, 1 << 20, 1).is_none());
        assert!(capability(&bytes, bytes.len() as u32 - 3, 1).is_none());
        // A length beyond the data.
        assert_eq!(array_of::<IovaRange>(&[200, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]).len(), 0);
        assert_eq!(array_of::<IovaRange>(&[1]).len(), 0);
    }
}
