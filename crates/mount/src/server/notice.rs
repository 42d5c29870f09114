//! Notices: what the kernel is told without having asked (`enum fuse_notify_code`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use zerocopy::{Immutable, IntoBytes};

use crate::fuse::wire::{InvalEntryOut, InvalInodeOut, OutHeader};

const INVAL_INODE: i32 = 2;
const INVAL_ENTRY: i32 = 3;

fn notice(code: i32, body: &(impl IntoBytes + Immutable), rest: &[u8]) -> Vec<u8> {
    let body = body.as_bytes();
    let len = (size_of::<OutHeader>() + body.len() + rest.len()) as u32;
    let header = OutHeader { len, error: code, unique: 0 };
    [header.as_bytes(), body, rest].concat()
}

/// The attributes of `nodeid` have changed.
pub(crate) fn attributes_changed(nodeid: u64) -> Vec<u8> {
    // An offset below 0 leaves the content as it is.
    notice(INVAL_INODE, &InvalInodeOut { ino: nodeid, off: -1, len: 0 }, &[])
}

/// The attributes of `nodeid` have changed, and `len` bytes of its content from `offset` on.
pub(crate) fn content_changed(nodeid: u64, offset: u64, len: u64) -> Vec<u8> {
    // A length of 0 means all the rest; what no file can have is cut off.
    let most = i64::MAX as u64;
    let off = offset.min(most) as i64;
    let len = if len > most - off as u64 { 0 } else { len as i64 };
    notice(INVAL_INODE, &InvalInodeOut { ino: nodeid, off, len }, &[])
}

/// `name` in the directory `parent` has appeared, gone, or leads elsewhere.
pub(crate) fn name_changed(parent: u64, name: &OsStr) -> Vec<u8> {
    let name = name.as_bytes();
    let entry = InvalEntryOut { parent, namelen: name.len() as u32, flags: 0 };
    // The kernel wants the end of the name, and does not count it.
    notice(INVAL_ENTRY, &entry, &[name, b"\0"].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_no_file_has_mean_all_the_rest() {
        let told = |offset, len| {
            let bytes = content_changed(7, offset, len);
            let field = |at| i64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
            assert_eq!((bytes.len(), field(16)), (40, 7));
            (field(24), field(32))
        };
        assert_eq!(told(4096, 100), (4096, 100));
        assert_eq!(told(4096, u64::MAX), (4096, 0));
        assert_eq!(told(u64::MAX, 1), (i64::MAX, 0));
    }
}
