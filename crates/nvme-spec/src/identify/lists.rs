//! Lists that Identify returns.

use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use crate::bytes::Reserved;

wire! {
    /// Namespace List (1.4 §4, 2.0 §4.5): up to 1024 identifiers in ascending order, ended by a
    /// zero.
    pub struct ActiveNamespaceList, 4096 {
        /// The identifiers; unused ones zero.
        0 pub nsid: [U32; 1024],
    }
}

impl ActiveNamespaceList {
    /// The identifiers before the first zero.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.nsid.iter().map(|nsid| nsid.get()).take_while(|&nsid| nsid != 0)
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
}

wire! {
    /// The head of a Namespace Identification Descriptor (1.4 §5.15.2); the identifier follows.
    pub struct NamespaceIdDescriptor, 4, Copy {
        /// Namespace Identifier Type, one of [`nidt`].
        0 pub nidt: u8,
        /// Namespace Identifier Length in bytes; zero ends the list.
        1 pub nidl: u8,
        2 reserved_2: Reserved<2>,
    }
}

impl NamespaceIdDescriptor {
    /// The head of a descriptor.
    #[must_use]
    pub fn new(nidt: u8, nidl: u8) -> Self {
        Self { nidt, nidl, ..Self::default() }
    }
}

/// Walks a Namespace Identification Descriptor list: type and identifier of each. Ends at a zero
/// length, at the end of the data, or at a descriptor that reaches beyond it.
#[derive(Clone, Debug)]
pub struct NamespaceIdDescriptors<'a> {
    rest: &'a [u8],
}

impl<'a> NamespaceIdDescriptors<'a> {
    /// Walks the 4096 bytes that Identify returned.
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
