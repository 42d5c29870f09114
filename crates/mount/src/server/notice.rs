//! Notices, which we send to the kernel without a request (`enum fuse_notify_code`).

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

/// Returns the notice that the attributes of `nodeid` changed.
pub(crate) fn attributes_changed(nodeid: u64) -> Vec<u8> {
    // An offset below 0 leaves the content as it is.
    notice(INVAL_INODE, &InvalInodeOut { ino: nodeid, off: -1, len: 0 }, &[])
}

/// Returns the notice that attributes and `len` bytes of content from `offset` changed.
pub(crate) fn content_changed(nodeid: u64, offset: u64, len: u64) -> Vec<u8> {
    // A length of 0 means up to the end; offsets beyond `i64::MAX` are capped.
    let most = i64::MAX as u64;
    let off = offset.min(most) as i64;
    let len = if len > most - off as u64 { 0 } else { len as i64 };
    notice(INVAL_INODE, &InvalInodeOut { ino: nodeid, off, len }, &[])
}

/// Returns the notice that `name` in the directory `parent` appeared, vanished or changed inode.
pub(crate) fn name_changed(parent: u64, name: &OsStr) -> Vec<u8> {
    let name = name.as_bytes();
    let entry = InvalEntryOut { parent, namelen: name.len() as u32, flags: 0 };
    // The kernel requires a NUL after the name, which `namelen` excludes.
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
