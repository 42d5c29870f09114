//! Writes past the page cache, and the wait for clean pages that direct reads need.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cache::PAGE;
use crate::error::Error;
use crate::file::File;
use crate::inode::extents::{Blocks, Extents};
use crate::inode::writable::Writable;
use crate::io::{IoContext, write_set};
use meantime_block::{Request, RequestError};
use meantime_completion::Policy;
use meantime_process::lock::RwLockReadGuard;

/// Attempts of a reader to find no dirty page before it locks writers out.
const TRIES: u32 = 16;

impl File {
    /// Writes `data` from byte `offset` on to the device: directly where the file has written
    /// blocks, otherwise through the cache. The caller is the file's writer.
    pub(super) fn write_direct(
        &self,
        data: &[u8],
        offset: u64,
        policy: Option<Policy>,
    ) -> Result<usize, Error> {
        let node = self.node();
        let (mount, inode) = (&*node.mount, &node.inode);
        let writer = mount.for_writing()?;
        let writable = inode.writable.as_ref().ok_or(Error::ReadOnly)?;
        let end = offset + data.len() as u64;
        let pages = offset / PAGE..end.div_ceil(PAGE);
        let block_bytes = u64::from(mount.contexts.info().block_bytes);
        if offset.is_multiple_of(block_bytes)
            && end.is_multiple_of(block_bytes)
            && end <= self.size()
        {
            // No page of the range is dirty afterwards, and only the writer could dirty one.
            mount.settle_all(inode, pages.clone())?;
            let extents = self.extents_of(offset, end)?;
            if let Some(places) = places(&extents, offset..end, mount.block_shift) {
                let (cache, file) = (mount.contexts.cache(), self.file_number());
                cache.invalidate(file, pages.clone());
                let written = {
                    let mut io = mount.contexts.take_leaf()?;
                    write_places(&mut io, data, &places, policy)
                };
                // A concurrent reader may have cached the old data.
                cache.invalidate(file, pages);
                writable.landed.fetch_max(mount.contexts.flushes().note_write(), Ordering::AcqRel);
                inode.note_modified(&mut writable.pages());
                writer.keep(inode);
                return written.map(|()| data.len());
            }
        }
        let written = self.write_cached(data, offset)?;
        mount.settle(inode, pages)?;
        Ok(written)
    }

    /// Returns the extents of the bytes `range` when none of its pages is newer than the disk.
    /// While the guard is held, this stays so for the blocks that they have.
    pub(crate) fn settled_extents<'a>(
        &self,
        writable: &'a Writable,
        range: Range<u64>,
    ) -> Result<(RwLockReadGuard<'a, ()>, Arc<Extents>), Error> {
        let node = self.node();
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        let mut tries = 0;
        loop {
            // On the last attempt no thread can make a page dirty.
            let _writer = (tries >= TRIES).then(|| writable.lock_content());
            match tries >= TRIES {
                true => node.mount.settle_all(&node.inode, pages.clone())?,
                false => node.mount.settle(&node.inode, pages.clone())?,
            }
            let guard = writable.keep_blocks();
            let extents = self.extents_of(range.start, range.end)?;
            let there = writable.pages();
            let newer = there.dirty.range(pages.clone()).next().is_some()
                || there.in_flight.range(pages.clone()).next().is_some();
            if !newer || tries >= TRIES {
                return Ok((guard, extents));
            }
            tries += 1;
        }
    }
}

/// Returns where the bytes `range` are on the device, as runs (first byte, length in bytes);
/// `None`: some have no written block.
fn places(extents: &Extents, range: Range<u64>, shift: u32) -> Option<Vec<(u64, usize)>> {
    let mut places = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let (Blocks::Written(physical), count) = extents.at(at >> shift) else { return None };
        let inside = at & ((1 << shift) - 1);
        let bytes = ((count << shift) - inside).min(range.end - at);
        places.push(((physical << shift) + inside, bytes as usize));
        at += bytes;
    }
    Some(places)
}

/// Writes `data` to `places`, in order, and waits for the writes.
fn write_places(
    io: &mut IoContext,
    data: &[u8],
    places: &[(u64, usize)],
    policy: Option<Policy>,
) -> Result<(), Error> {
    let block_bytes = u64::from(io.block_bytes);
    let mut failed = None;
    let mut rest = data;
    for (place, bytes) in places {
        let mut sent = 0;
        while sent < *bytes && failed.is_none() {
            match write_some(io, &rest[..bytes - sent], (place + sent as u64) / block_bytes, policy)
            {
                Ok(Some(len)) => {
                    sent += len;
                    rest = &rest[len..];
                }
                // A completed request frees a buffer.
                Ok(None) => match complete_oldest(io) {
                    Some(result) => failed = result.err(),
                    None => failed = Some(Error::Resources("no buffer came back".to_owned())),
                },
                Err(error) => failed = Some(error),
            }
        }
    }
    while let Some(result) = complete_oldest(io) {
        failed = failed.or(result.err());
    }
    failed.map_or(Ok(()), Err)
}

/// Sends a request that writes the first part of `data` to block `lba` of the device. Returns the
/// length of the part in bytes; `None`: no buffer is free.
fn write_some(
    io: &mut IoContext,
    data: &[u8],
    lba: u64,
    policy: Option<Policy>,
) -> Result<Option<usize>, Error> {
    io.may_write()?;
    let Some(mut buf) = io.take_buffer()? else { return Ok(None) };
    let len = buf.capacity().min(data.len());
    buf.set_len(len);
    buf.copy_from_slice(&data[..len]);
    let mut request = Request::write(lba, buf);
    request.policy = policy;
    io.submit(write_set, request, 0..len as u64).map_err(|(rejected, _)| {
        io.give_buffer(rejected.request.buf);
        Error::from(RequestError::from(rejected.error))
    })?;
    Ok(Some(len))
}

/// Waits for the oldest request; `None`: there is none.
fn complete_oldest(io: &mut IoContext) -> Option<Result<(), Error>> {
    let (done, _) = io.next(write_set)?;
    io.give_buffer(done.buf);
    Some(done.result.map_err(Error::from_io))
}
