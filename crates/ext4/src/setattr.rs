//! Changes several attributes of an inode together.

use super::error::{Error, Result};
use super::fs::FileSystem;
use super::inode::Node;
use super::inode::attributes::Attributes;
use super::inode::setattr::SetMetadata;
use super::options::OpenOptions;
use meantime_ext4_format::Metadata;

impl FileSystem {
    /// Applies the changes in `set` to `node`, in one step and without an open file. Returns the
    /// new metadata.
    ///
    /// # Errors
    /// The errors of `truncate(2)`, `chown(2)`, `chmod(2)` and `utimensat(2)`. Nothing has then
    /// changed, unless freeing blocks failed after the size was changed.
    pub fn set_metadata(&self, node: &Node, set: &SetMetadata) -> Result<Metadata> {
        let Node { mount, inode } = node;
        let rw_mount = mount.for_writing()?;
        let writable = inode.writable.as_ref().ok_or(Error::ReadOnly)?;
        if let Some(bytes) = set.size {
            let options = OpenOptions { write: true, ..OpenOptions::default() };
            self.open_node_with(node, &options)?.set_len_with(bytes, Some(set))?;
        } else if *set != SetMetadata::default() {
            Attributes { rw_mount, inode, writable }.set(set)?;
        }
        Ok(node.metadata())
    }
}
