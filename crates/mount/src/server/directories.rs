//! Lists the names in open directories.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, PoisonError};

use meantime_ext4::{Entry, Errno, Node};
use zerocopy::IntoBytes as _;

use super::Server;
use super::answer::{Answer, Served};
use super::handles::{OpenDirectory, Opened};
use crate::fuse::Request;
use crate::fuse::wire::{Dirent, EntryOut, OpenIn, OpenOut, ReadIn};

/// Alignment of directory entries (`FUSE_REC_ALIGN`).
const ALIGNED: usize = size_of::<u64>();

impl Server {
    pub(super) fn opendir(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let open: OpenIn = request.take()?;
        let node = self.node(request)?;
        let names = match open.flags as i32 & libc::O_NOATIME {
            0 => self.fs.entries(&node)?,
            _ => self.fs.entries_unnoted(&node)?,
        };
        let fh = self.handles.add(Opened::Directory(Arc::new(OpenDirectory::new(names))));
        answer.put_as(&OpenOut { fh, ..OpenOut::default() })
    }

    /// Lists names. With `plus`, it also returns the result of a look-up of each name.
    pub(super) fn readdir(
        &self,
        request: &mut Request<'_>,
        answer: &mut Answer,
        plus: bool,
    ) -> Served {
        let asked: ReadIn = request.take()?;
        let room = asked.size as usize;
        let directory = self.handles.directory(asked.fh)?;
        // After a panic in another thread, the request's offset positions the listing anew.
        let mut listing = directory.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if listing.at != asked.offset {
            listing.names.seek(asked.offset);
            (listing.at, listing.left) = (asked.offset, None);
        }
        loop {
            let next = match listing.left.take() {
                Some(left) => Ok(left),
                None if plus => match listing.names.next_with_node() {
                    Some(next) => next,
                    None => break,
                },
                None => match listing.names.next() {
                    Some(next) => next.map(|entry| (entry, None)),
                    None => break,
                },
            };
            let (entry, node) = match next {
                Ok(next) => next,
                // The request is answered with the entries before the failure. The next request
                // meets the failure again.
                Err(_) if answer.len() > 0 => {
                    let at = listing.at;
                    listing.names.seek(at);
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            if answer.len() + needed(&entry, plus) > room {
                listing.left = Some((entry, node));
                break;
            }
            if plus {
                self.put_entry(node.as_ref(), answer)?;
            }
            put_name(&entry, answer)?;
            listing.at = entry.cookie;
        }
        if answer.len() == 0 && listing.left.is_some() {
            // There is not even room for one name.
            return Err(Errno(libc::EINVAL));
        }
        Ok(())
    }

    /// Adds the entry of `node`, which counts as a look-up, before its name.
    fn put_entry(&self, node: Option<&Node>, answer: &mut Answer) -> Result<(), Errno> {
        match node {
            Some(node) => {
                self.lookups.count(node);
                answer.put_as(&self.entry(node))
            }
            None => answer.put_as(&EntryOut::default()),
        }
    }
}

/// Returns the bytes that `entry` takes.
fn needed(entry: &Entry, plus: bool) -> usize {
    let told = if plus { size_of::<EntryOut>() } else { 0 };
    told + (size_of::<Dirent>() + entry.name.len()).next_multiple_of(ALIGNED)
}

fn put_name(entry: &Entry, answer: &mut Answer) -> Result<(), Errno> {
    let name = entry.name.as_bytes();
    let dirent = Dirent {
        ino: u64::from(entry.ino),
        off: entry.cookie,
        namelen: name.len() as u32,
        // `DT_*` is the type of a mode.
        kind: entry.file_type.map_or(0, |file_type| file_type as u32),
    };
    answer.put(dirent.as_bytes())?;
    answer.put(name)?;
    let end = name.len().next_multiple_of(ALIGNED);
    answer.put(&[0; ALIGNED][..end - name.len()])
}
