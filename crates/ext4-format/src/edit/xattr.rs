//! Edits of extended attribute lists (kernel: `fs/ext4/xattr.c`; e2fsprogs:
//! `lib/ext2fs/ext_attr.c`).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use super::super::superblock::Superblock;
use super::super::xattr::{
    Attribute, BLOCK_HEADER_BYTES, BlockHeader, ENTRY_BYTES, MAGIC, RawAttribute, RawEntry, Value,
    block_checksum, in_block, in_inode, references,
};
use crate::error::Defect;

/// Size of the zeroes that end a list.
const END_BYTES: usize = 4;
/// Alignment of names and values.
const ALIGNMENT: usize = 4;

/// An attribute with owned bytes.
type Kept = Attribute<Vec<u8>>;

impl Kept {
    fn of(raw: &RawAttribute<'_>) -> Self {
        let value = match raw.value {
            Value::Here(value) => Value::Here(value.to_vec()),
            Value::Inode { ino, bytes } => Value::Inode { ino, bytes },
        };
        Self { index: raw.index, name: raw.name.to_vec(), value, hash: raw.hash }
    }

    fn is(&self, index: u8, name: &[u8]) -> bool {
        self.index == index && self.name == name
    }

    fn entry_bytes(&self) -> usize {
        (ENTRY_BYTES + self.name.len()).next_multiple_of(ALIGNMENT)
    }

    /// Returns the room taken by its value, in bytes.
    fn value_bytes(&self) -> usize {
        match &self.value {
            Value::Here(value) => value.len().next_multiple_of(ALIGNMENT),
            Value::Inode { .. } => 0,
        }
    }

    /// Returns its sort key in a block.
    fn order(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), &self.name)
    }
}

/// The error for a list that has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// The attributes of an inode's body, or of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttributeList(Vec<Kept>);

/// Returns the hash of name and `value` (`ext4_xattr_hash_entry`), with unsigned bytes, as in all
/// kernels since 6.2.
fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    let hash = name.iter().fold(0_u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte));
    value.chunks(ALIGNMENT).fold(hash, |hash, chunk| {
        let mut word = [0; ALIGNMENT];
        word[..chunk.len()].copy_from_slice(chunk);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

impl AttributeList {
    /// Parses the attributes after an inode's fields.
    ///
    /// # Errors
    /// [`Defect::Attribute`].
    pub fn in_inode(body: &[u8]) -> Result<Self, Defect> {
        Ok(Self(in_inode(body)?.iter().map(Kept::of).collect()))
    }

    /// Parses the attributes in a block. Returns them with the block's reference count.
    ///
    /// # Errors
    /// [`Defect::Attribute`].
    pub fn in_block(block: &[u8]) -> Result<(Self, u32), Defect> {
        let list = Self(in_block(block)?.iter().map(Kept::of).collect());
        Ok((list, references(block).ok_or(Defect::Attribute)?))
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether any value is in a separate inode.
    pub fn has_value_inodes(&self) -> bool {
        self.0.iter().any(|attribute| matches!(attribute.value, Value::Inode { .. }))
    }

    /// Returns the value of attribute `name`.
    pub fn find(&self, index: u8, name: &[u8]) -> Option<&Value<Vec<u8>>> {
        self.0.iter().find(|attribute| attribute.is(index, name)).map(|found| &found.value)
    }

    /// Sets the value of attribute `name`. A new attribute comes last.
    pub fn put(&mut self, index: u8, name: &[u8], value: &[u8]) {
        let found = self.0.iter_mut().find(|attribute| attribute.is(index, name));
        let new = Kept { index, name: name.into(), value: Value::Here(value.into()), hash: 0 };
        match found {
            Some(attribute) => *attribute = new,
            None => self.0.push(new),
        }
    }

    /// Removes attribute `name`. Returns whether it existed.
    pub fn take(&mut self, index: u8, name: &[u8]) -> bool {
        let before = self.0.len();
        self.0.retain(|attribute| !attribute.is(index, name));
        self.0.len() < before
    }

    /// Writes entries from `names_at` of `area` on, and values from its end backwards. Zeroes the
    /// rest.
    fn write(&self, area: &mut [u8], names_at: usize) -> Result<(), Full> {
        let names_bytes: usize = self.0.iter().map(Kept::entry_bytes).sum();
        let values_bytes: usize = self.0.iter().map(Kept::value_bytes).sum();
        if names_at + names_bytes + END_BYTES + values_bytes > area.len() {
            return Err(Full);
        }
        let Some(room) = area.get_mut(names_at..) else { return Err(Full) };
        room.fill(0);
        // Values are aligned to 4 from the beginning, and so is the end of an inode's body.
        let (mut at, mut end) = (names_at, area.len() / ALIGNMENT * ALIGNMENT);
        for attribute in &self.0 {
            let (offset, inum, bytes) = match &attribute.value {
                Value::Here(value) if value.is_empty() => (0, 0, 0),
                Value::Here(value) => {
                    end -= attribute.value_bytes();
                    area[end..end + value.len()].copy_from_slice(value);
                    (end as u16, 0, value.len() as u32)
                }
                Value::Inode { ino, bytes } => (0, *ino, *bytes as u32),
            };
            let entry = RawEntry {
                name_len: attribute.name.len() as u8,
                name_index: attribute.index,
                value_offs: U16::new(offset),
                value_inum: U32::new(inum),
                value_size: U32::new(bytes),
                hash: U32::new(attribute.hash),
            };
            area[at..at + ENTRY_BYTES].copy_from_slice(entry.as_bytes());
            area[at + ENTRY_BYTES..at + ENTRY_BYTES + attribute.name.len()]
                .copy_from_slice(&attribute.name);
            at += attribute.entry_bytes();
        }
        Ok(())
    }

    /// Writes them after an inode's fields.
    ///
    /// # Errors
    /// [`Full`] if there is no room. `body` is then unchanged.
    pub fn write_to_inode(&mut self, body: &mut [u8]) -> Result<(), Full> {
        if self.is_empty() {
            body.fill(0);
            return Ok(());
        }
        for attribute in &mut self.0 {
            // In an inode only values in separate inodes have a hash.
            if matches!(attribute.value, Value::Here(_)) {
                attribute.hash = 0;
            }
        }
        let (magic, area) = body.split_at_mut_checked(size_of_val(&MAGIC)).ok_or(Full)?;
        self.write(area, 0)?;
        magic.copy_from_slice(&MAGIC.to_le_bytes());
        Ok(())
    }

    /// Writes them to block `number`, with reference count `references` and its checksum.
    ///
    /// # Errors
    /// [`Full`] if there is no room. `block` is then unchanged.
    pub fn write_to_block(
        &mut self,
        superblock: &Superblock,
        number: u64,
        references: u32,
        block: &mut [u8],
    ) -> Result<(), Full> {
        self.0.sort_by(|one, other| one.order().cmp(&other.order()));
        for attribute in &mut self.0 {
            if let (Value::Here(value), 0) = (&attribute.value, attribute.hash) {
                attribute.hash = entry_hash(&attribute.name, value);
            }
        }
        self.write(block, BLOCK_HEADER_BYTES)?;
        let hashes = self.0.iter().map(|attribute| attribute.hash);
        // If any attribute has no hash, the block cannot be shared.
        let hash = if hashes.clone().any(|hash| hash == 0) {
            0
        } else {
            hashes.fold(0_u32, |hash, each| hash.rotate_left(16) ^ each)
        };
        let header = BlockHeader {
            magic: U32::new(MAGIC),
            refcount: U32::new(references),
            blocks: U32::new(1),
            hash: U32::new(hash),
            ..BlockHeader::default()
        };
        block[..BLOCK_HEADER_BYTES].copy_from_slice(header.as_bytes());
        seal(superblock, number, block);
        Ok(())
    }
}

/// Sets the reference count of the sound attribute block `number`.
pub fn set_references(superblock: &Superblock, number: u64, references: u32, block: &mut [u8]) {
    let Ok((header, _)) = BlockHeader::mut_from_prefix(block) else { return };
    header.refcount = U32::new(references);
    seal(superblock, number, block);
}

fn seal(superblock: &Superblock, number: u64, block: &mut [u8]) {
    if !superblock.has_checksums() {
        return;
    }
    let sum = block_checksum(block, number, superblock.seed());
    if let Ok((header, _)) = BlockHeader::mut_from_prefix(block) {
        header.checksum = U32::new(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_kernel() {
        // This applies the kernel's rule by hand: each letter after a rotation by 5, each word of
        // the value after one by 16.
        assert_eq!(entry_hash(b"ab", b""), u32::from(b'a') << 5 ^ u32::from(b'b'));
        assert_eq!(
            entry_hash(b"a", b"\x01\0\0\x80\x02"),
            (0x61_u32 << 16 ^ 0x8000_0001).rotate_left(16) ^ 2
        );
    }

    #[test]
    fn a_list_must_fit_its_room() {
        let mut list = AttributeList::default();
        list.put(1, b"name", &[7; 60]);
        // The block needs the magic number, an entry of 20 bytes, the end, and the value.
        let needed = 4 + 20 + 4 + 60;
        let mut body = vec![0xFF; needed - 4];
        assert_eq!(list.write_to_inode(&mut body), Err(Full));
        assert_eq!(body, vec![0xFF; needed - 4]);
        let mut body = vec![0xFF; needed];
        list.write_to_inode(&mut body).unwrap();
        assert_eq!(AttributeList::in_inode(&body).unwrap(), list);
        list.take(1, b"name");
        list.write_to_inode(&mut body).unwrap();
        assert_eq!(body, vec![0; needed]);
    }

    #[test]
    fn a_block_is_in_order_and_sealed() {
        let superblock = super::super::super::superblock::tests::example();
        let mut list = AttributeList::default();
        for (index, name) in [(6, &b"selinux"[..]), (1, b"bb"), (1, b"a"), (1, b"ab")] {
            list.put(index, name, name);
        }
        list.put(1, b"empty", b"");
        let mut block = vec![0xFF; 1024];
        list.write_to_block(&superblock, 99, 3, &mut block).unwrap();
        let (found, references) = AttributeList::in_block(&block).unwrap();
        assert_eq!((&found, references), (&list, 3));
        let names: Vec<_> = found.0.iter().map(|attribute| attribute.name.as_slice()).collect();
        assert_eq!(names, [&b"a"[..], b"ab", b"bb", b"empty", b"selinux"]);
        set_references(&superblock, 99, 2, &mut block);
        assert_eq!(AttributeList::in_block(&block).unwrap().1, 2);
    }
}
