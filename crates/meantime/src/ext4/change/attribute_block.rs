//! The block of an inode's extended attributes, when the inode goes.

use crate::ext4::alloc::Allocator;
use crate::ext4::format::checksum::crc32c;
use crate::ext4::format::edit::InodeEdit;
use crate::ext4::format::inode::ATTRIBUTES_MAGIC;
use crate::ext4::journal::Handle;
use crate::ext4::{Corruption, Defect, Error};

/// `h_refcount` and `h_checksum` of `struct ext4_xattr_header`.
const REFERENCES_AT: usize = 4;
const CHECKSUM_AT: usize = 16;

/// `inode` has no block of attributes any more: it is freed, unless other inodes have it too.
pub(super) fn release(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    inode: &mut InodeEdit,
) -> Result<(), Error> {
    let block = inode.attribute_block(handle.superblock());
    if block == 0 {
        return Ok(());
    }
    let wrong = Corruption::new(Defect::Attribute).in_inode(inode.ino()).in_block(block);
    let content = handle.block(block)?;
    let references = content[REFERENCES_AT..].first_chunk().map_or(0, |count| u32::from_le_bytes(*count));
    if !content.starts_with(&ATTRIBUTES_MAGIC) || references == 0 {
        return Err(wrong.into());
    }
    if references == 1 {
        allocator.free_blocks(handle, block..block + 1)?;
        handle.forget(block);
    } else {
        let superblock = handle.superblock();
        let (guarded, seed) = (superblock.has_checksums(), superblock.seed());
        let content = handle.edit(block)?;
        content[REFERENCES_AT..REFERENCES_AT + 4].copy_from_slice(&(references - 1).to_le_bytes());
        if guarded {
            content[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
            let right = crc32c(crc32c(seed, &block.to_le_bytes()), content);
            content[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&right.to_le_bytes());
        }
    }
    let superblock = handle.superblock();
    let blocks = inode.blocks(superblock).saturating_sub(1);
    inode.set_blocks(superblock, blocks);
    inode.set_attribute_block(0);
    Ok(())
}
