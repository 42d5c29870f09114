//! Scatter Gather Lists (1.4 §4.4, 2.0 §4.1.2): the alternative to PRPs for describing where a
//! command's data is.
//!
//! A command's DPTR holds one descriptor of 16 bytes, SGL1. It is a data block, which is all of the
//! data, or it points to a segment: an array of descriptors, the last of which may point to the
//! next segment.
//!
//! ```text
//! byte  0  Address
//!       8  Length, in bytes
//!      12  reserved
//!      15  7:4 SGL Descriptor Type, 3:0 SGL Descriptor Sub Type
//! ```

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::bytes::Reserved;
use crate::sqe::Sqe;

/// PRP or SGL for Data Transfer, CDW0 15:14 (1.4 §4.2).
pub mod psdt {
    /// PRPs.
    pub const PRP: u8 = 0;
    /// An SGL; the metadata pointer is the address of a contiguous buffer.
    pub const SGL: u8 = 1;
}

codes! {
    /// SGL Descriptor Type (1.4 §4.4, figure "SGL Descriptor Type").
    SglKind(u8), "SGL descriptor type" {
        0x0 DataBlock "SGL Data Block descriptor",
        0x1 BitBucket "SGL Bit Bucket descriptor",
        0x2 Segment "SGL Segment descriptor",
        0x3 LastSegment "SGL Last Segment descriptor",
        0x4 KeyedDataBlock "Keyed SGL Data Block descriptor",
        0x5 TransportDataBlock "Transport SGL Data Block descriptor",
        0xf VendorSpecific "Vendor Specific descriptor",
    }
}

/// SGL Descriptor Sub Type (1.4 §4.4).
pub mod sub_type {
    /// The descriptor holds an address.
    pub const ADDRESS: u8 = 0;
}

/// SGLS of Identify Controller: SGL Support (1.4 §5.15.2.2).
pub mod sgls {
    /// The bits for whether SGLs are supported for I/O commands.
    pub const SUPPORT_MASK: u32 = 3;
    /// Supported, with no requirement on the alignment or granularity of data blocks.
    pub const SUPPORTED: u32 = 1;
    /// Supported; data blocks must be aligned to dwords and hold whole dwords.
    pub const SUPPORTED_DWORD_ALIGNED: u32 = 2;
    /// The address field may hold an offset.
    pub const OFFSETS: u32 = 1 << 20;
}

/// Bytes of a descriptor.
pub const DESCRIPTOR_SIZE: usize = 16;

wire! {
    /// An SGL descriptor as received: its type field may not hold a valid type.
    pub struct SglDescriptor, 16, Copy {
        /// Address of the data, or of the segment. Reserved in a bit bucket.
        0 pub address: U64,
        /// Length in bytes; of a segment, a multiple of 16 other than 0.
        8 pub length: U32,
        12 reserved_12: Reserved<3>,
        /// SGL Identifier: 7:4 type, 3:0 sub type.
        15 pub identifier: u8,
    }
}

impl SglDescriptor {
    /// A descriptor of `kind` that holds an address.
    #[must_use]
    pub fn new(kind: SglKind, address: u64, length: u32) -> Self {
        let mut descriptor = Self::default();
        descriptor.address.set(address);
        descriptor.length.set(length);
        descriptor.identifier = (kind as u8) << 4 | sub_type::ADDRESS;
        descriptor
    }

    /// `length` bytes of data at `address`.
    #[must_use]
    pub fn data_block(address: u64, length: u32) -> Self {
        Self::new(SglKind::DataBlock, address, length)
    }

    /// A segment of `descriptors` descriptors at `address`, whose last one points to a further
    /// segment.
    #[must_use]
    pub fn segment(address: u64, descriptors: u32) -> Self {
        Self::new(SglKind::Segment, address, descriptors * DESCRIPTOR_SIZE as u32)
    }

    /// The last segment: `descriptors` descriptors at `address`.
    #[must_use]
    pub fn last_segment(address: u64, descriptors: u32) -> Self {
        Self::new(SglKind::LastSegment, address, descriptors * DESCRIPTOR_SIZE as u32)
    }

    /// SGL Descriptor Type.
    ///
    /// # Errors
    /// Fails if it is reserved.
    pub fn kind(&self) -> Result<SglKind, crate::UnknownCode> {
        SglKind::try_from(self.identifier >> 4)
    }

    /// SGL Descriptor Sub Type, one of [`sub_type`] or specific to a transport.
    #[must_use]
    pub const fn sub_type(&self) -> u8 {
        self.identifier & 0xf
    }
}

impl Sqe {
    /// Makes `sgl1` the command's data pointer, and sets PSDT to [`psdt::SGL`].
    #[must_use]
    pub fn with_sgl(mut self, sgl1: SglDescriptor) -> Self {
        let words = <[[u8; 8]; 2]>::read_from_bytes(sgl1.as_bytes()).unwrap_or_default();
        self.prp1 = U64::from_bytes(words[0]);
        self.prp2 = U64::from_bytes(words[1]);
        self.cdw0 = U32::new(self.cdw0.get() & !(3 << 14) | u32::from(psdt::SGL) << 14);
        self
    }

    /// DPTR as an SGL descriptor; meaningful only if PSDT selects SGLs.
    #[must_use]
    pub fn sgl1(&self) -> SglDescriptor {
        let words = [self.prp1.to_bytes(), self.prp2.to_bytes()];
        SglDescriptor::read_from_bytes(words.as_bytes()).unwrap_or_default()
    }
}
