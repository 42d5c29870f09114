//! The extended attributes and symbolic link targets of inodes.

use std::sync::Arc;

use super::extent_map::RunState;
use super::inode::{Inode, flags};
use super::source::Source;
use super::volume::Volume;
use super::xattr::{
    RawAttribute, Value, acl_from_disk, block_checksum_is_right, in_block, in_inode, value_hash,
};
use crate::FileType;
use crate::error::{Corruption, Defect, Error, Result};

/// The longest target of a symbolic link, in bytes (`PATH_MAX` without its NUL).
const LINK_BYTES_MAX: u64 = 4095;
/// The maximum number of bytes of one inode's values held at once. Values in separate inodes can be
/// shared, and a forged list could name the same one thousands of times.
const ALL_VALUES_BYTES_MAX: usize = 16 << 20;

/// An extended attribute: its full name (`user.x`), and its value.
pub type Attribute = (Vec<u8>, Vec<u8>);

impl<S: Source> Volume<S> {
    /// Returns the extended attributes of `inode`: full names (`user.x`) and values as returned by
    /// `getxattr`, in the order of `listxattr`, which is those in the inode, then those in its
    /// attribute block. Inline data and encryption contexts are not included.
    ///
    /// # Errors
    /// Damage, or an error of the source.
    pub fn attributes(&self, inode: &Inode) -> Result<Vec<Attribute>> {
        let mut left_bytes = ALL_VALUES_BYTES_MAX;
        let mut found = Vec::new();
        let mut add = |raw: Vec<RawAttribute<'_>>, block: Option<u64>| {
            for attribute in raw {
                let Some(name) = attribute.full_name() else { continue };
                let bad = || located(Defect::Attribute, inode, block);
                let stored = match attribute.value {
                    Value::Here(value) => value.to_vec(),
                    Value::Inode { ino, bytes } => {
                        left_bytes = left_bytes.checked_sub(bytes).ok_or_else(bad)?;
                        self.value_inode(inode, ino, bytes)?
                    }
                };
                if !attribute.is_acl() {
                    found.push((name, stored));
                } else if let Some(acl) = acl_from_disk(&stored).map_err(|_| bad())? {
                    found.push((name, acl));
                }
            }
            Ok::<_, Error>(())
        };
        let raw =
            in_inode(inode.body_attributes()).map_err(|defect| located(defect, inode, None))?;
        add(raw, None)?;
        let number = inode.attribute_block();
        if number != 0 {
            let block = self.attribute_block(inode.ino(), number)?;
            let raw = in_block(&block).map_err(|defect| located(defect, inode, Some(number)))?;
            add(raw, Some(number))?;
        }
        Ok(found)
    }

    /// Reads attribute block `number` of inode `ino`, and verifies its checksum.
    ///
    /// # Errors
    /// [`Defect::BlockPointer`], [`Defect::AttributeChecksum`], or an error of the source.
    pub fn attribute_block(&self, ino: u32, number: u64) -> Result<Arc<[u8]>> {
        let wrong = |defect| Corruption::new(defect).in_inode(ino).in_block(number);
        if !self.superblock().holds(number, 1) {
            return Err(wrong(Defect::BlockPointer).into());
        }
        let block = self.block(number)?;
        let superblock = self.superblock();
        let right = !superblock.has_checksums()
            || block_checksum_is_right(&block, number, superblock.seed());
        self.verify(right, || wrong(Defect::AttributeChecksum))?;
        Ok(block)
    }

    /// Reads the value of `bytes` bytes in inode `ino`, for an attribute of `owner` (kernel:
    /// `ext4_xattr_inode_get`).
    fn value_inode(&self, owner: &Inode, ino: u32, bytes: usize) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        let metadata = inode.metadata();
        if !inode.has(flags::EA_INODE) || inode.is_free() || metadata.size != bytes as u64 {
            return Err(located(Defect::Attribute, &inode, None));
        }
        let value = self.content(&inode, bytes)?;
        // The hash is stored in a time field. Lustre's inodes have no hash, and store their owner's
        // number in another time field.
        let hash = metadata.accessed.seconds as u32;
        let is_lustre = metadata.modified.seconds as u32 == owner.ino()
            && metadata.generation == owner.metadata().generation;
        if hash != value_hash(&value, self.superblock().seed()) && !is_lustre {
            let wrong = || Corruption::at(Defect::AttributeChecksum, ino, None);
            self.verify(false, wrong)?;
        }
        Ok(value)
    }

    /// Reads the first `bytes` bytes of `inode`'s blocks. Missing ones are zeroes.
    fn content(&self, inode: &Inode, bytes: usize) -> Result<Vec<u8>> {
        let mut content = Vec::with_capacity(bytes);
        let mut logical = 0;
        while content.len() < bytes {
            let run = self.run_at(inode, logical)?;
            let block_bytes = self.superblock().block_bytes() as usize;
            let part_bytes = block_bytes.min(bytes - content.len());
            if run.state == RunState::Written {
                let block = self.block(run.physical)?;
                content.extend_from_slice(block.get(..part_bytes).unwrap_or_default());
            } else {
                content.resize(content.len() + part_bytes, 0);
            }
            logical += 1;
        }
        content.truncate(bytes);
        Ok(content)
    }

    /// The target of symbolic link `inode`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not a symbolic link; damage, or an error of the source.
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        if inode.file_type() != FileType::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        inode.check_supported()?;
        let bad = || located(Defect::SymbolicLink, inode, None);
        let size = inode.size();
        // The kernel requires room for a NUL in the block.
        if size == 0 || size > LINK_BYTES_MAX || size >= u64::from(self.superblock().block_bytes())
        {
            return Err(bad());
        }
        let bytes = size as usize;
        let text = if inode.is_inline() {
            inode.inline_data()?
        } else if inode.is_fast_symlink() {
            inode.block_area().get(..bytes).ok_or_else(bad)?.to_vec()
        } else {
            self.content(inode, bytes)?
        };
        if text.len() != bytes || text.contains(&0) { Err(bad()) } else { Ok(text) }
    }

    /// Checks that symbolic link `inode` has a target that [`read_link`](Self::read_link) returns,
    /// and that a NUL follows it, at which the kernel stops.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not a symbolic link; [`Defect::SymbolicLink`] if no NUL follows
    /// the target; other damage, or an error of the source.
    pub fn whole_link(&self, inode: &Inode) -> Result<()> {
        let bytes = self.read_link(inode)?.len();
        let ends = match inode {
            _ if inode.is_inline() => true,
            _ if inode.is_fast_symlink() => inode.block_area().get(bytes) == Some(&0),
            _ => self.content(inode, bytes + 1)?.last() == Some(&0),
        };
        if ends { Ok(()) } else { Err(located(Defect::SymbolicLink, inode, None)) }
    }
}

fn located(defect: Defect, inode: &Inode, block: Option<u64>) -> Error {
    Corruption::at(defect, inode.ino(), block).into()
}
