//! Lists that Identify returns.

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::Reserved;

/// Namespace List (1.4 §4, 2.0 §4.5): up to 1024 identifiers in ascending order, ended by a zero.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ActiveNamespaceList {
    /// The identifiers; unused ones zero.
    pub nsid: [U32; 1024],
}

const _: () = assert!(size_of::<ActiveNamespaceList>() == 4096);

impl ActiveNamespaceList {
    /// The identifiers before the first zero.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.nsid.iter().map(|nsid| nsid.get()).take_while(|&nsid| nsid != 0)
    }
}

impl Default for ActiveNamespaceList {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Controller List (1.4 §4, 2.0 §4.5): up to 2047 identifiers in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ControllerList {
    /// Number of Identifiers.
    pub count: U16,
    /// The identifiers.
    pub cntlid: [U16; 2047],
}

const _: () =
    assert!(size_of::<ControllerList>() == 4096 && offset_of!(ControllerList, cntlid) == 2);

impl ControllerList {
    /// The identifiers that count; no more than there is room for, whatever the count says.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.cntlid.iter().take(self.count.get().into()).map(|cntlid| cntlid.get())
    }
}

impl Default for ControllerList {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Namespace Identifier Type (1.4 §5.15.2), and the length each must have.
pub mod nidt {
    /// IEEE Extended Unique Identifier, 8 bytes.
    pub const EUI64: u8 = 1;
    /// Namespace Globally Unique Identifier, 16 bytes.
    pub const NGUID: u8 = 2;
    /// Namespace UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// Command Set Identifier, 1 byte (2.0).
    pub const CSI: u8 = 4;
}

/// The head of a Namespace Identification Descriptor (1.4 §5.15.2); the identifier follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NamespaceIdDescriptor {
    /// Namespace Identifier Type, one of [`nidt`].
    pub nidt: u8,
    /// Namespace Identifier Length in bytes; zero ends the list.
    pub nidl: u8,
    reserved_2: Reserved<2>,
}

const _: () = {
    assert!(size_of::<NamespaceIdDescriptor>() == 4);
    assert!(
        offset_of!(NamespaceIdDescriptor, nidt) == 0
            && offset_of!(NamespaceIdDescriptor, nidl) == 1
    );
};

impl NamespaceIdDescriptor {
    /// The head of a descriptor.
    #[must_use]
    pub fn new(nidt: u8, nidl: u8) -> Self {
        Self { nidt, nidl, ..Self::new_zeroed() }
    }
}

/// Walks a Namespace Identification Descriptor list: type and identifier of each. Ends at a zero
/// length, at the end of the data, or at a descriptor that reaches beyond it.
#[derive(Clone, Debug)]
pub struct NamespaceIdDescriptors<'a> {
    rest: &'a [u8],
}

impl<'a> NamespaceIdDescriptors<'a> {
    /// Over the 4096 bytes that Identify returned.
    #[must_use]
    pub const fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }
}

impl<'a> Iterator for NamespaceIdDescriptors<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = NamespaceIdDescriptor::read_from_prefix(self.rest).ok()?;
        if head.nidl == 0 {
            return None;
        }
        let (id, rest) = rest.split_at_checked(head.nidl.into())?;
        self.rest = rest;
        Some((head.nidt, id))
    }
}
