//! Content in the inode (kernel documentation: `filesystems/ext4/inlinedata.rst`).

use super::inode::{ATTRIBUTES_MAGIC as MAGIC, Inode};
use crate::{Corruption, Defect};

/// Size of an attribute's entry without its name, in bytes.
const ENTRY_BYTES: usize = 16;
/// `e_name_index` of names that begin with `system.`.
const INDEX_SYSTEM: u8 = 7;

fn wrong(inode: &Inode) -> Corruption {
    Corruption::new(Defect::InlineData).in_inode(inode.ino())
}

/// The value of `system.data` among the attributes in an inode.
fn system_data(body: &[u8]) -> Option<&[u8]> {
    // Offsets of values count from the first entry.
    let entries = body.strip_prefix(&MAGIC)?;
    let mut at = 0;
    loop {
        let entry = entries.get(at..at + ENTRY_BYTES)?;
        if entry[..4] == [0; 4] {
            return None;
        }
        let half = |at: usize| usize::from(u16::from_le_bytes([entry[at], entry[at + 1]]));
        let word = |at: usize| {
            u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
        };
        let name = entries.get(at + ENTRY_BYTES..at + ENTRY_BYTES + usize::from(entry[0]))?;
        if entry[1] == INDEX_SYSTEM && name == b"data" {
            let (offset, bytes) = (half(2), usize::try_from(word(8)).ok()?);
            return if word(4) != 0 {
                None
            } else if bytes == 0 {
                Some(&[])
            } else {
                entries.get(offset..offset.checked_add(bytes)?)
            };
        }
        at += ENTRY_BYTES + name.len().next_multiple_of(4);
    }
}

impl Inode {
    /// The two parts of the room that inline data have: `i_block`, and the value of `system.data`.
    /// In a directory each holds entries of its own.
    ///
    /// # Errors
    /// [`Defect::InlineData`]: the attribute is not there.
    pub fn inline_parts(&self) -> Result<(&[u8], &[u8]), Corruption> {
        let rest = system_data(self.body_attributes()).ok_or_else(|| wrong(self))?;
        Ok((self.block_area(), rest))
    }

    /// The content of an inode that holds it itself, as long as its size.
    ///
    /// # Errors
    /// [`Defect::InlineData`]: it is not there, or longer than its room.
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
    use super::*;

    fn body(name: &[u8], index: u8, offset: u16, bytes: u32) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
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
