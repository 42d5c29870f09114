//! Extended attributes, including access control lists.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::Ordering;

use meantime_ext4::{Errno, SetAttribute, SetMetadata};

use super::Server;
use super::answer::{Answer, Served};
use crate::fuse::Request;
use crate::fuse::flags::SETXATTR_ACL_KILL_SGID;
use crate::fuse::wire::{GetXattrIn, GetXattrOut, SetXattrIn};

const SET_GID: u16 = 0o2000;

impl Server {
    pub(super) fn setxattr(&self, request: &mut Request<'_>) -> Served {
        let asked: SetXattrIn = request.take()?;
        let name = request.name()?.as_bytes();
        let value = request.bytes(asked.size)?;
        let how = match asked.flags as i32 {
            0 => SetAttribute::Any,
            libc::XATTR_CREATE => SetAttribute::Create,
            libc::XATTR_REPLACE => SetAttribute::Replace,
            _ => return Err(Errno(libc::EINVAL)),
        };
        let node = self.node(request)?;
        self.fs.set_attribute(&node, name, value, how)?;
        if name == b"security.capability" {
            self.privileged.fetch_add(1, Ordering::Relaxed);
        }
        let mode = node.metadata().mode;
        if asked.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 && mode & SET_GID != 0 {
            let mode = Some(mode & 0o7777 & !SET_GID);
            self.fs.set_metadata(&node, &SetMetadata { mode, ..SetMetadata::default() })?;
        }
        self.changed()
    }

    pub(super) fn getxattr(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let asked: GetXattrIn = request.take()?;
        let name = request.name()?.as_bytes();
        put_fitting(&self.fs.attribute(&self.node(request)?, name)?, asked.size, answer)
    }

    pub(super) fn listxattr(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let asked: GetXattrIn = request.take()?;
        let mut names = Vec::new();
        for (name, _) in self.fs.attributes(&self.node(request)?)? {
            // As in ext4, these are listed only for callers that may read them.
            if request.header.uid != 0 && name.starts_with(b"trusted.") {
                continue;
            }
            names.extend_from_slice(&name);
            names.push(0);
        }
        put_fitting(&names, asked.size, answer)
    }

    pub(super) fn removexattr(&self, request: &mut Request<'_>) -> Served {
        let name = request.name()?.as_bytes();
        self.fs.remove_attribute(&self.node(request)?, name)?;
        self.changed()
    }
}

/// Answers with `bytes` if they fit into `room` bytes. If `room` is 0, answers only with their
/// number.
fn put_fitting(bytes: &[u8], room: u32, answer: &mut Answer) -> Result<(), Errno> {
    match room as usize {
        0 => answer.put_as(&GetXattrOut { size: bytes.len() as u32, padding: 0 }),
        room if room < bytes.len() => Err(Errno(libc::ERANGE)),
        _ => answer.put(bytes),
    }
}
