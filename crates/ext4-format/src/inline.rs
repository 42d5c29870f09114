//! Content in the inode (kernel documentation: `filesystems/ext4/inlinedata.rst`).

use super::inode::Inode;
use super::xattr::{RawAttribute, Value, in_inode};
use crate::{Corruption, Defect};

/// `e_name_index` of names that begin with `system.`.
const INDEX_SYSTEM: u8 = 7;

fn wrong(inode: &Inode) -> Corruption {
    Corruption::new(Defect::InlineData).in_inode(inode.ino())
}

/// Returns the value of `system.data` among the attributes in an inode.
fn system_data(body: &[u8]) -> Option<&[u8]> {
    let attributes = in_inode(body).ok()?;
    let is_data = |found: &&RawAttribute<'_>| found.index == INDEX_SYSTEM && found.name == b"data";
    match attributes.iter().find(is_data)?.value {
        Value::Here(value) => Some(value),
        Value::Inode { .. } => None,
    }
}

impl Inode {
    /// Returns the two parts of the room for inline data: `i_block`, and the value of
    /// `system.data`. In a directory each holds separate entries.
    ///
    /// # Errors
    /// [`Defect::InlineData`] if the attribute is missing.
    pub fn inline_parts(&self) -> Result<(&[u8], &[u8]), Corruption> {
        let rest = system_data(self.body_attributes()).ok_or_else(|| wrong(self))?;
        Ok((self.block_area(), rest))
    }

    /// Returns the content of an inode with inline data, cut to its size.
    ///
    /// # Errors
    /// [`Defect::InlineData`] if it is missing, or longer than its room.
    pub fn inline_data(&self) -> Result<Vec<u8>, Corruption> {
        let (first, rest) = self.inline_parts()?;
        let size = usize::try_from(self.size()).unwrap_or(usize::MAX);
        if size > first.len() + rest.len() {
            return Err(wrong(self));
        }
        Ok(first.iter().chain(rest).copied().take(size).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::inode::ATTRIBUTES_MAGIC;
    use super::*;

    fn body(name: &[u8], index: u8, offset: u16, bytes: u32) -> Vec<u8> {
        let mut body = ATTRIBUTES_MAGIC.to_vec();
        body.extend([u8::try_from(name.len()).unwrap(), index]);
        body.extend(offset.to_le_bytes());
        body.extend([0; 4]);
        body.extend(bytes.to_le_bytes());
        body.extend([0; 4]);
        body.extend(name);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend([0; 4]);
        body.extend(b"inline content..");
        body
    }

    #[test]
    fn the_value_is_found_and_bounded() {
        let at = 16 + 4 + 4;
        assert_eq!(system_data(&body(b"data", INDEX_SYSTEM, at, 14)).unwrap(), b"inline content");
        assert_eq!(system_data(&body(b"data", INDEX_SYSTEM, 0, 0)).unwrap(), b"");
        assert_eq!(system_data(&body(b"data", 1, at, 14)), None);
        assert_eq!(system_data(&body(b"date", INDEX_SYSTEM, at, 14)), None);
        assert_eq!(system_data(&body(b"data", INDEX_SYSTEM, at, 17)), None);
        assert_eq!(system_data(&body(b"data", INDEX_SYSTEM, u16::MAX, u32::MAX)), None);
        assert_eq!(system_data(&[]), None);
        let whole = body(b"other", INDEX_SYSTEM, at, 1);
        for cut in 0..whole.len() {
            assert_eq!(system_data(&whole[..cut]), None);
        }
    }
}
