//! The vfio-user protocol: a PCI function served by one process to another over a Unix socket
//! (specification version 0.0, as QEMU's docs/interop/vfio-user.rst and libvfio-user have it).
//!
//! Every message is a [`Header`] and the structures of its command; descriptors accompany it
//! (SCM_RIGHTS). Fields are in the byte order of the host, which both ends share. This project
//! supports little-endian hosts.

use zerocopy::little_endian::{U16, U32, U64};

/// Version of the protocol: major.
pub const VERSION_MAJOR: u16 = 0;
/// Version of the protocol: minor, the highest that is supported.
pub const VERSION_MINOR: u16 = 1;

/// Descriptors that go with one message, unless the version handshake says otherwise.
pub const DEFAULT_MAX_MSG_FDS: u32 = 1;
/// Data of a message that reads or writes a region or DMA memory, in bytes, unless the version
/// handshake says otherwise.
pub const DEFAULT_MAX_DATA_XFER_BYTES: u32 = 1 << 20;

codes! {
    /// The command of a message.
    Command(u16), "vfio-user command" {
        1 Version "VERSION",
        2 DmaMap "DMA_MAP",
        3 DmaUnmap "DMA_UNMAP",
        4 DeviceGetInfo "DEVICE_GET_INFO",
        5 DeviceGetRegionInfo "DEVICE_GET_REGION_INFO",
        6 DeviceGetRegionIoFds "DEVICE_GET_REGION_IO_FDS",
        7 DeviceGetIrqInfo "DEVICE_GET_IRQ_INFO",
        8 DeviceSetIrqs "DEVICE_SET_IRQS",
        9 RegionRead "REGION_READ",
        10 RegionWrite "REGION_WRITE",
        11 DmaRead "DMA_READ",
        12 DmaWrite "DMA_WRITE",
        13 DeviceReset "DEVICE_RESET",
        15 RegionWriteMulti "REGION_WRITE_MULTI",
        16 DeviceFeature "DEVICE_FEATURE",
        17 MigDataRead "MIG_DATA_READ",
        18 MigDataWrite "MIG_DATA_WRITE",
    }
}

bitfields! {
    /// Flags of a message.
    Flags(u32) {
        /// 0: a command; 1: a reply.
        [3:0] kind with_kind: u8,
        /// The command expects no reply.
        [4] no_reply with_no_reply: bool,
        /// The command failed; [`Header::error`] of the reply is the reason.
        [5] error with_error: bool,
    }
}

/// [`Flags::kind`] of a command.
pub const KIND_COMMAND: u8 = 0;
/// [`Flags::kind`] of a reply.
pub const KIND_REPLY: u8 = 1;

wire! {
    /// What every message begins with.
    pub struct Header, 16, Copy {
        /// Chosen by the sender of a command, repeated in its reply.
        0 pub id: U16,
        /// A [`Command`].
        2 pub command: U16,
        /// Bytes of the whole message, this header included.
        4 pub bytes: U32,
        /// [`Flags`].
        8 pub flags: U32,
        /// An errno, in a reply with [`Flags::error`]; otherwise 0.
        12 pub error: U32,
    }
    /// VERSION, before a text of JSON that ends with a NUL.
    pub struct Version, 4, Copy {
        /// Major version: versions that differ in it are incompatible.
        0 pub major: U16,
        /// Minor version: both sides use the lower of the two.
        2 pub minor: U16,
    }
    /// DMA_MAP; the memory's file goes with it. Without a file, only messages can reach the memory.
    pub struct DmaMap, 32, Copy {
        /// Bytes of this structure.
        0 pub argsz: U32,
        /// [`dma::READABLE`] and [`dma::WRITABLE`].
        4 pub flags: U32,
        /// Where in the file the memory begins.
        8 pub offset: U64,
        /// First I/O virtual address.
        16 pub iova: U64,
        /// Length in bytes.
        24 pub len: U64,
    }
    /// DMA_UNMAP, and its reply.
    pub struct DmaUnmap, 24, Copy {
        /// Bytes of this structure, and of what the reply may add.
        0 pub argsz: U32,
        /// [`dma::DIRTY_BITMAP`] and [`dma::ALL`].
        4 pub flags: U32,
        /// First I/O virtual address.
        8 pub iova: U64,
        /// Length in bytes.
        16 pub len: U64,
    }
    /// DEVICE_GET_INFO and its reply.
    pub struct DeviceInfo, 16, Copy {
        /// Bytes that the sender accepts; in the reply, bytes that are available.
        0 pub argsz: U32,
        /// [`device::RESET`] and [`device::PCI`].
        4 pub flags: U32,
        /// How many regions there are.
        8 pub regions: U32,
        /// How many kinds of interrupts there are.
        12 pub irqs: U32,
    }
    /// DEVICE_GET_REGION_INFO and its reply, which a list of capabilities may follow.
    pub struct RegionInfo, 32, Copy {
        /// Bytes that the sender accepts; in the reply, bytes available, capabilities included.
        0 pub argsz: U32,
        /// Flags: [`region::READ`] and the like.
        4 pub flags: U32,
        /// Which region.
        8 pub index: U32,
        /// Where the first capability begins, from the start of this structure; 0: there is none.
        12 pub cap_offset: U32,
        /// Size of the region in bytes; 0: there is no such region.
        16 pub size: U64,
        /// Where in the file that goes with the reply the region begins.
        24 pub offset: U64,
    }
    /// The head of every capability of a region.
    pub struct CapabilityHeader, 8, Copy {
        /// E.g. [`region::CAP_SPARSE_MMAP`].
        0 pub id: U16,
        /// Version: 1.
        2 pub version: U16,
        /// Where the next begins, from the start of the [`RegionInfo`]; 0 marks the last one.
        4 pub next: U32,
    }
    /// The capability that lists the areas of a region that can be mapped; `areas` of
    /// [`SparseArea`] follow.
    pub struct SparseMmap, 16, Copy {
        /// What every capability begins with.
        0 pub header: CapabilityHeader,
        /// How many areas follow.
        8 pub areas: U32,
        /// Reserved.
        12 pub reserved: U32,
    }
    /// An area of a region that can be mapped.
    pub struct SparseArea, 16, Copy {
        /// Where in the region it begins.
        0 pub offset: U64,
        /// Length in bytes.
        8 pub len: U64,
    }
    /// DEVICE_GET_IRQ_INFO and its reply.
    pub struct IrqInfo, 16, Copy {
        /// Bytes of this structure.
        0 pub argsz: U32,
        /// Flags: [`irq::INFO_EVENTFD`] and the like.
        4 pub flags: U32,
        /// Which kind of interrupt, e.g. [`irq::MSIX`].
        8 pub index: U32,
        /// How many there are.
        12 pub count: U32,
    }
    /// DEVICE_SET_IRQS; eventfds go with it, or data follow.
    pub struct SetIrqs, 20, Copy {
        /// Bytes of this structure and of what follows.
        0 pub argsz: U32,
        /// Flags: [`irq::SET_DATA_EVENTFD`] and the like.
        4 pub flags: U32,
        /// Which kind of interrupt.
        8 pub index: U32,
        /// The first interrupt.
        12 pub start: U32,
        /// The number of interrupts.
        16 pub count: U32,
    }
    /// REGION_READ and REGION_WRITE, and their replies; the data follow in the command that writes
    /// and in the reply to the one that reads.
    pub struct RegionAccess, 16, Copy {
        /// The offset in the region.
        0 pub offset: U64,
        /// Which region.
        8 pub region: U32,
        /// How many bytes.
        12 pub count: U32,
    }
    /// DMA_READ and DMA_WRITE, and their replies; the data follow as in [`RegionAccess`].
    pub struct DmaAccess, 16, Copy {
        /// I/O virtual address.
        0 pub iova: U64,
        /// How many bytes.
        8 pub count: U64,
    }
}

/// Flags of DMA_MAP and DMA_UNMAP.
pub mod dma {
    /// The device may read the memory.
    pub const READABLE: u32 = 1 << 0;
    /// The device may write the memory.
    pub const WRITABLE: u32 = 1 << 1;
    /// DMA_UNMAP: the reply has to contain which pages were written.
    pub const DIRTY_BITMAP: u32 = 1 << 0;
    /// DMA_UNMAP: everything; address and length are 0.
    pub const ALL: u32 = 1 << 1;
}

/// Flags of DEVICE_GET_INFO.
pub mod device {
    /// DEVICE_RESET is possible.
    pub const RESET: u32 = 1 << 0;
    /// It is a PCI function.
    pub const PCI: u32 = 1 << 1;
}

/// Regions of a PCI function (VFIO_PCI_*_REGION_INDEX) and their flags.
pub mod region {
    /// BAR 0; the others follow it.
    pub const BAR0: u32 = 0;
    /// BAR 5.
    pub const BAR5: u32 = 5;
    /// Expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// The number of regions.
    pub const COUNT: u32 = 9;

    /// The region can be read.
    pub const READ: u32 = 1 << 0;
    /// The region can be written.
    pub const WRITE: u32 = 1 << 1;
    /// The region can be mapped.
    pub const MMAP: u32 = 1 << 2;
    /// Capabilities follow the structure.
    pub const CAPS: u32 = 1 << 3;

    /// The capability that lists the areas that can be mapped, if not all of the region can.
    pub const CAP_SPARSE_MMAP: u16 = 1;
}

/// Interrupts of a PCI function (VFIO_PCI_*_IRQ_INDEX) and their flags.
pub mod irq {
    /// MSI.
    pub const MSI: u32 = 1;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// Errors.
    pub const ERR: u32 = 3;
    /// The number of kinds of interrupts.
    pub const COUNT: u32 = 5;

    /// Flag of DEVICE_GET_IRQ_INFO: the interrupt can signal an eventfd.
    pub const INFO_EVENTFD: u32 = 1 << 0;

    /// Flag of DEVICE_SET_IRQS: no data accompany the message.
    pub const SET_DATA_NONE: u32 = 1 << 0;
    /// One byte for each interrupt follows.
    pub const SET_DATA_BOOL: u32 = 1 << 1;
    /// Eventfds accompany the message.
    pub const SET_DATA_EVENTFD: u32 = 1 << 2;
    /// The interrupts are to be masked.
    pub const SET_ACTION_MASK: u32 = 1 << 3;
    /// The interrupts are to be unmasked.
    pub const SET_ACTION_UNMASK: u32 = 1 << 4;
    /// The interrupts are to be set up, or triggered.
    pub const SET_ACTION_TRIGGER: u32 = 1 << 5;
}
