//! Writes past the page cache, and the wait for clean pages that direct reads need.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::back::Writeback;
use crate::cache::PAGE;
use crate::error::{Error, Result};
use crate::file::File;
use crate::inode::extents::Extents;
use crate::inode::writable::Writable;
use crate::io::target::{Location, Piece};
use crate::io::{IoContext, write_set};
use meantime_block::{Request, RequestError};
use meantime_completion::Policy;
use meantime_process::lock::RwLockReadGuard;

/// Attempts of a reader to find no dirty page before it locks writers out.
const TRIES: u32 = 16;

impl File {
    /// Writes `data` from byte `offset` on to the device: directly where the file has written
    /// blocks, otherwise through the cache. The caller has the content locked.
    pub(super) fn write_direct(
        &self,
        data: &[u8],
        offset: u64,
        policy: Option<Policy>,
    ) -> Result<usize> {
        let (mount, inode, writable) = self.to_change()?;
        let (rw_mount, back) = (mount.for_writing()?, Writeback::of(mount)?);
        let end = offset + data.len() as u64;
        let pages = offset / PAGE..end.div_ceil(PAGE);
        let block_bytes = u64::from(mount.contexts.info().block_bytes);
        if offset.is_multiple_of(block_bytes)
            && end.is_multiple_of(block_bytes)
            && end <= self.size()
        {
            // No page of the range is dirty afterwards, and only the holder of the content lock
            // could dirty one.
            back.write_back_and_wait(inode, pages.clone())?;
            let extents = self.extents_of(offset, end)?;
            let place = |piece: Piece| match piece.place {
                Location::Device(place) => Some((place, piece.len)),
                Location::Zero | Location::Memory(..) => None,
            };
            let places = self.finder(&extents).pieces(offset..end).map(place);
            if let Some(places) = places.collect::<Option<Vec<_>>>() {
                let (cache, file) = (mount.contexts.cache(), self.file_number());
                cache.invalidate(file, pages.clone());
                let written = {
                    let mut io = mount.contexts.take_or_spare()?;
                    write_places(&mut io, data, &places, policy)
                };
                // A concurrent reader may have cached the old data.
                cache.invalidate(file, pages);
                // Rule 18: the next `fsync` flushes these writes.
                writable
                    .flush_needed
                    .fetch_max(mount.contexts.flushes().note_write(), Ordering::AcqRel);
                inode.note_modified(&mut writable.pages());
                rw_mount.keep(inode);
                return written.map(|()| data.len());
            }
        }
        let written = self.write_cached(data, offset)?;
        back.write_back_and_wait(inode, pages)?;
        Ok(written)
    }

    /// Returns the extents of the bytes `range` when none of its pages is newer than the disk.
    /// While the guard is held, this stays so for the blocks that they have.
    pub(crate) fn clean_extents<'a>(
        &self,
        writable: &'a Writable,
        range: Range<u64>,
    ) -> Result<(RwLockReadGuard<'a, ()>, Arc<Extents>)> {
        let node = self.node();
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        let (back, mut tries) = (Writeback::of(&node.mount)?, 0);
        loop {
            // On the last attempt no thread can make a page dirty.
            let _content = (tries >= TRIES).then(|| writable.lock_content());
            back.write_back_and_wait(&node.inode, pages.clone())?;
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

/// Writes `data` to `places`, runs of bytes of the device, in order, and waits for the writes.
fn write_places(
    io: &mut IoContext,
    data: &[u8],
    places: &[(u64, usize)],
    policy: Option<Policy>,
) -> Result<()> {
    let (mut rest, mut result) = (data, Ok(()));
    for (place, bytes) in places {
        let mut sent = 0;
        while sent < *bytes && result.is_ok() {
            let part = &rest[..bytes - sent];
            result = write_some(io, part, place + sent as u64, policy).map(|len| {
                sent += len;
                rest = &rest[len..];
            });
        }
    }
    while let Some(oldest) = complete_oldest(io) {
        result = result.and(oldest);
    }
    result
}

/// Sends a request that writes the first part of `data` to byte `place` of the device, when a
/// buffer is free. Returns the length of the part in bytes.
fn write_some(
    io: &mut IoContext,
    data: &[u8],
    place: u64,
    policy: Option<Policy>,
) -> Result<usize> {
    let mut buf = loop {
        io.may_write()?;
        match io.take_buffer()? {
            Some(buf) => break buf,
            // A completed request frees a buffer.
            None => complete_oldest(io)
                .unwrap_or_else(|| Err(Error::Resources("no buffer came back".to_owned())))?,
        }
    };
    let len = buf.capacity().min(data.len());
    buf.set_len(len);
    buf.copy_from_slice(&data[..len]);
    let mut request = Request::write(place / u64::from(io.block_bytes), buf);
    request.policy = policy;
    io.submit(write_set, request, 0..len as u64).map_err(|(rejected, _)| {
        io.give_buffer(rejected.request.buf);
        Error::from(RequestError::from(rejected.error))
    })?;
    Ok(len)
}

/// Waits for the oldest request. Returns `None` if there is none.
fn complete_oldest(io: &mut IoContext) -> Option<Result<()>> {
    let (done, _) = io.wait_oldest(write_set)?;
    io.give_buffer(done.buf);
    Some(done.result.map_err(Error::from_io))
}
