//! Extended attributes as bytes (kernel documentation: `filesystems/ext4/attributes.rst`;
//! `struct ext2_ext_attr_entry`).

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use super::checksum::{crc32c, crc32c_without};
use crate::error::Defect;

/// The magic number of attributes, in an inode and in a block (`EXT4_XATTR_MAGIC`).
pub(super) const MAGIC: u32 = 0xea02_0000;
/// The longest value (`XATTR_SIZE_MAX` of the kernel), in bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

on_disk! {
    /// The header of a block of attributes (`struct ext4_xattr_header`).
    pub(super) struct BlockHeader, 32 {
        0 magic: U32,
        4 refcount: U32,
        8 blocks: U32,
        12 hash: U32,
        16 checksum: U32,
        20 reserved: [U32; 3],
    }
    /// The part before an attribute's name (`struct ext4_xattr_entry`).
    pub(super) struct RawEntry, 16 {
        0 name_len: u8,
        1 name_index: u8,
        2 value_offs: U16,
        4 value_inum: U32,
        8 value_size: U32,
        12 hash: U32,
    }
}

pub(super) const BLOCK_HEADER_BYTES: usize = size_of::<BlockHeader>();
pub(super) const ENTRY_BYTES: usize = size_of::<RawEntry>();
/// The place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<B> {
    /// The value is in the same block or inode.
    Here(B),
    /// The value is in a separate inode (feature `ea_inode`).
    Inode {
        /// Its number.
        ino: u32,
        /// Length of the value, in bytes.
        bytes: usize,
    },
}

/// An attribute, whose bytes `B` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<B> {
    /// The prefix of its name (`EXT4_XATTR_INDEX_*`).
    pub index: u8,
    /// The rest of its name.
    pub name: B,
    /// Its value.
    pub value: Value<B>,
    /// The hash of name and value (`e_hash`), or 0 if it is absent, as in inodes.
    pub hash: u32,
}

/// A checked attribute, whose name and value lie within their block or inode.
pub type RawAttribute<'a> = Attribute<&'a [u8]>;

impl RawAttribute<'_> {
    /// Returns its full name as `listxattr` does, or `None` for hidden ones (inline data,
    /// encryption contexts).
    pub fn full_name(&self) -> Option<Vec<u8>> {
        let prefix: &[u8] = match self.index {
            1 => b"user.",
            2 => b"system.posix_acl_access",
            3 => b"system.posix_acl_default",
            4 => b"trusted.",
            6 => b"security.",
            7 if self.name != b"data" => b"system.",
            8 => b"system.richacl",
            _ => return None,
        };
        // The name of an ACL is its prefix; any rest is ignored.
        let rest = if matches!(self.index, 2 | 3 | 8) { &[][..] } else { self.name };
        Some([prefix, rest].concat())
    }

    /// Returns whether the value is an ACL, which `getxattr` returns in another format.
    pub fn is_acl(&self) -> bool {
        matches!(self.index, 2 | 3)
    }
}

/// Returns the attributes after an inode's fields. The list is empty if there is no magic number.
///
/// # Errors
/// [`Defect::Attribute`].
pub fn in_inode(body: &[u8]) -> Result<Vec<RawAttribute<'_>>, Defect> {
    match U32::ref_from_prefix(body) {
        Ok((magic, rest)) if magic.get() == MAGIC => list(rest, 0),
        _ => Ok(Vec::new()),
    }
}

/// Returns the attributes in a block.
///
/// # Errors
/// [`Defect::Attribute`].
pub fn in_block(block: &[u8]) -> Result<Vec<RawAttribute<'_>>, Defect> {
    let (header, _) = BlockHeader::ref_from_prefix(block).map_err(|_| Defect::Attribute)?;
    if header.magic.get() != MAGIC || header.blocks.get() != 1 {
        return Err(Defect::Attribute);
    }
    list(block, BLOCK_HEADER_BYTES)
}

/// Returns the reference count of this attribute block.
pub(super) fn references(block: &[u8]) -> Option<u32> {
    BlockHeader::ref_from_prefix(block).ok().map(|(header, _)| header.refcount.get())
}

/// Returns whether the checksum of an attribute block is right (`ext4_xattr_block_csum_verify`).
/// `seed` is the file system's.
pub fn block_checksum_is_right(block: &[u8], number: u64, seed: u32) -> bool {
    let Ok((header, _)) = BlockHeader::ref_from_prefix(block) else { return false };
    block_checksum(block, number, seed) == header.checksum.get()
}

/// Returns the correct checksum of attribute block `number`, which has at least a header.
pub(super) fn block_checksum(block: &[u8], number: u64, seed: u32) -> u32 {
    crc32c_without(crc32c(seed, &number.to_le_bytes()), block, &[16], 4)
}

/// Returns the entries of `area` from byte `at` on, up to four zeroes (`ext4_xattr_check_entries`).
/// Offsets of values count from the start of the area.
fn list(area: &[u8], mut at: usize) -> Result<Vec<RawAttribute<'_>>, Defect> {
    let mut raw = Vec::new();
    let names_end = loop {
        let rest = area.get(at..).ok_or(Defect::Attribute)?;
        let first = rest.get(..4).ok_or(Defect::Attribute)?;
        if first == [0; 4] {
            break at + 4;
        }
        let (entry, after) = RawEntry::ref_from_prefix(rest).map_err(|_| Defect::Attribute)?;
        let name = after.get(..usize::from(entry.name_len)).ok_or(Defect::Attribute)?;
        if name.contains(&0) {
            return Err(Defect::Attribute);
        }
        raw.push((entry, name));
        at += (ENTRY_BYTES + name.len()).next_multiple_of(4);
    };
    // Values do not overlap, so their total length is bounded, and a malformed list cannot use more
    // memory.
    let mut left_bytes = area.len() - names_end;
    let value = |entry: &RawEntry, left_bytes: &mut usize| {
        let bytes = usize::try_from(entry.value_size.get()).ok()?;
        match entry.value_inum.get() {
            0 if bytes == 0 => Some(Value::Here(&[][..])),
            0 => {
                *left_bytes = left_bytes.checked_sub(bytes)?;
                let from = usize::from(entry.value_offs.get());
                let value = area.get(from..from.checked_add(bytes)?)?;
                (from >= names_end).then_some(Value::Here(value))
            }
            ino => (bytes <= VALUE_BYTES_MAX).then_some(Value::Inode { ino, bytes }),
        }
    };
    let attribute = |(entry, name): (&RawEntry, _)| {
        let value = value(entry, &mut left_bytes).ok_or(Defect::Attribute)?;
        Ok(RawAttribute { index: entry.name_index, name, value, hash: entry.hash.get() })
    };
    raw.into_iter().map(attribute).collect()
}

/// Returns the hash of a value in a separate inode, which is stored in that inode's access time
/// (`ext4_xattr_inode_hash`).
pub fn value_hash(value: &[u8], seed: u32) -> u32 {
    crc32c(seed, value)
}

/// Converts an ACL from ext4's format (`fs/ext4/acl.h`), where only entries of named users and
/// groups have an identifier, to that of `getxattr` (`linux/posix_acl_xattr.h`). Returns `None` if
/// it has no entries, and so counts as absent.
///
/// # Errors
/// [`Defect::Attribute`].
pub fn acl_from_disk(stored: &[u8]) -> Result<Option<Vec<u8>>, Defect> {
    const STORED_VERSION: [u8; 4] = 1_u32.to_le_bytes();
    const GIVEN_VERSION: [u8; 4] = 2_u32.to_le_bytes();
    const NOBODY: [u8; 4] = u32::MAX.to_le_bytes();
    let mut rest = stored.strip_prefix(&STORED_VERSION).ok_or(Defect::Attribute)?;
    let mut acl = GIVEN_VERSION.to_vec();
    while let [tag, tag_high, _, _, ..] = *rest {
        let (entry, after) = rest.split_at(4);
        acl.extend(entry);
        rest = match u16::from_le_bytes([tag, tag_high]) {
            // ACL_USER, ACL_GROUP
            0x02 | 0x08 => {
                let (id, after) = after.split_at_checked(4).ok_or(Defect::Attribute)?;
                acl.extend(id);
                after
            }
            // ACL_USER_OBJ, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER
            0x01 | 0x04 | 0x10 | 0x20 => {
                acl.extend(NOBODY);
                after
            }
            _ => return Err(Defect::Attribute),
        };
    }
    match (rest.is_empty(), acl.len() > GIVEN_VERSION.len()) {
        (false, _) => Err(Defect::Attribute),
        (true, has_entries) => Ok(has_entries.then_some(acl)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(area: &mut Vec<u8>, index: u8, name: &[u8], offset: u16, inum: u32, bytes: u32) {
        area.extend([u8::try_from(name.len()).unwrap(), index]);
        area.extend(offset.to_le_bytes());
        area.extend(inum.to_le_bytes());
        area.extend(bytes.to_le_bytes());
        area.extend([0; 4]);
        area.extend(name);
        area.resize(area.len().next_multiple_of(4), 0);
    }

    fn body() -> Vec<u8> {
        let mut body = MAGIC.to_le_bytes().to_vec();
        put(&mut body, 1, b"colour", 88, 0, 4);
        put(&mut body, 7, b"data", 84, 0, 3);
        put(&mut body, 6, b"big", 0, 55, 5000);
        body.resize(4 + 84, 0);
        body.extend(b"abc\0blue");
        body
    }

    #[test]
    fn attributes_in_an_inode() {
        let body = body();
        let found = in_inode(&body).unwrap();
        assert_eq!(
            found[0],
            RawAttribute { index: 1, name: b"colour", value: Value::Here(b"blue"), hash: 0 }
        );
        assert_eq!(found[0].full_name().unwrap(), b"user.colour");
        assert_eq!(found[1].value, Value::Here(&b"abc"[..]));
        assert_eq!(found[1].full_name(), None);
        assert_eq!(found[2].value, Value::Inode { ino: 55, bytes: 5000 });
        assert_eq!(found[2].full_name().unwrap(), b"security.big");
        assert_eq!(in_inode(&[0; 96]), Ok(Vec::new()));
        assert_eq!(in_inode(&[]), Ok(Vec::new()));
    }

    #[test]
    fn invalid_attributes_are_refused() {
        // The cases are: a name with a NUL; a value before the end of the names, beyond the area,
        // or too long; a list without an end.
        for (at, bytes) in [
            (22, &[0][..]),
            (6, &[8, 0]),
            (6, &[90, 0]),
            (12, &[9, 0]),
            (12, &[0xff, 0xff, 0xff, 0xff]),
        ] {
            let mut body = body();
            body[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(in_inode(&body), Err(Defect::Attribute), "byte {at}");
        }
        let body = body();
        assert_eq!(in_inode(&body[..40]), Err(Defect::Attribute));
        assert_eq!(in_inode(&body[..5]), Err(Defect::Attribute));
        // The values overlap. Each is within bounds, and their total length is beyond the block.
        let mut block = vec![0; 32];
        block[..4].copy_from_slice(&MAGIC.to_le_bytes());
        block[8] = 1;
        for _ in 0..4 {
            put(&mut block, 1, b"n", 500, 0, 500);
        }
        block.resize(1024, 0);
        assert_eq!(in_block(&block), Err(Defect::Attribute));
        block[8] = 2;
        assert_eq!(in_block(&block), Err(Defect::Attribute));
    }

    #[test]
    fn acls_are_given_with_an_identifier_each() {
        let stored = [
            &[1, 0, 0, 0][..],
            &[1, 0, 6, 0],
            &[2, 0, 4, 0, 0xe8, 3, 0, 0],
            &[4, 0, 4, 0],
            &[0x10, 0, 4, 0],
            &[0x20, 0, 4, 0],
        ];
        let given = [
            &[2, 0, 0, 0][..],
            &[1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff],
            &[2, 0, 4, 0, 0xe8, 3, 0, 0],
            &[4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff],
            &[0x10, 0, 4, 0, 0xff, 0xff, 0xff, 0xff],
            &[0x20, 0, 4, 0, 0xff, 0xff, 0xff, 0xff],
        ];
        assert_eq!(acl_from_disk(&stored.concat()), Ok(Some(given.concat())));
        assert_eq!(acl_from_disk(&[1, 0, 0, 0]), Ok(None));
        for bad in [
            &[][..],
            &[2, 0, 0, 0],
            &[1, 0, 0, 0, 1],
            &[1, 0, 0, 0, 3, 0, 0, 0],
            &[1, 0, 0, 0, 2, 0, 4, 0, 1],
        ] {
            assert_eq!(acl_from_disk(bad), Err(Defect::Attribute), "{bad:?}");
        }
    }
}
