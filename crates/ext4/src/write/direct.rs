//! Writes past the page cache.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::cache::PAGE_BYTES;
use super::super::error::Error;
use super::super::file::File;
use super::super::lanes::Lane;
use super::super::live::Live;
use super::super::read::cached::PAGE;
use super::super::read::place::{Blocks, Extents};
use meantime_block::{BlockChannel, Request, RequestError, SubmitError, Ticket};
use meantime_completion::Policy;
use meantime_process::lock::RwLockReadGuard;

/// How often a reader tries to find nothing dirty, before it keeps writers off.
const TRIES: u32 = 16;

impl File {
    /// Writes `data` from byte `offset` on, to the device: as it is where the file has blocks with
    /// data already, and else through the cache. The caller is the file's writer.
    pub(super) fn write_direct(
        &self,
        data: &[u8],
        offset: u64,
        policy: Option<Policy>,
    ) -> Result<usize, Error> {
        let node = self.node();
        let (mount, known) = (&*node.mount, &node.known);
        let writer = mount.writer()?;
        let live = known.live.as_ref().ok_or(Error::ReadOnly)?;
        let end = offset + data.len() as u64;
        let pages = offset / PAGE..end.div_ceil(PAGE_BYTES as u64);
        let block_bytes = u64::from(mount.lanes.info().block_bytes);
        if offset.is_multiple_of(block_bytes)
            && end.is_multiple_of(block_bytes)
            && end <= self.size()
        {
            // Nothing is dirty then, and nothing becomes so: that is for the writer alone.
            mount.settle_all(known, pages.clone())?;
            let extents = self.extents_of(offset, end)?;
            if let Some(places) = places(&extents, offset..end, mount.block_shift) {
                let (cache, file) = (mount.lanes.cache(), self.file_number());
                cache.invalidate(file, pages.clone());
                let written = {
                    let mut lane = mount.lanes.take_leaf()?;
                    write_places(&mut lane, data, &places, policy)
                };
                // Who read them meanwhile has what was there before, perhaps.
                cache.invalidate(file, pages);
                live.landed.fetch_max(mount.lanes.flushes().landed(), Ordering::AcqRel);
                known.note_modified(&mut live.pages());
                writer.keep(known);
                return written.map(|()| data.len());
            }
        }
        let written = self.write_cached(data, offset)?;
        mount.settle(known, pages)?;
        Ok(written)
    }

    /// The extents of the bytes `range`, none of whose pages is newer than the disk; and that stays
    /// so for blocks that they have.
    pub(crate) fn settled_extents<'a>(
        &self,
        live: &'a Live,
        range: Range<u64>,
    ) -> Result<(RwLockReadGuard<'a, ()>, Arc<Extents>), Error> {
        let node = self.node();
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        let mut tries = 0;
        loop {
            // Then it is the last turn: nobody makes anything dirty.
            let _writer = (tries >= TRIES).then(|| live.write());
            match tries >= TRIES {
                true => node.mount.settle_all(&node.known, pages.clone())?,
                false => node.mount.settle(&node.known, pages.clone())?,
            }
            let guard = live.keep_blocks();
            let extents = self.extents_of(range.start, range.end)?;
            let there = live.pages();
            let newer = there.dirty.range(pages.clone()).next().is_some()
                || there.in_flight.range(pages.clone()).next().is_some();
            if !newer || tries >= TRIES {
                return Ok((guard, extents));
            }
            tries += 1;
        }
    }
}

/// Where the bytes `range` are on the device, in stretches of so many bytes; `None`: some of them
/// are not, or hold no data.
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

/// Writes `data` to `places`, one after another, and waits for it.
fn write_places(
    lane: &mut Lane,
    data: &[u8],
    places: &[(u64, usize)],
    policy: Option<Policy>,
) -> Result<(), Error> {
    let block_bytes = u64::from(lane.block_bytes);
    let (mut tickets, mut failed) = (VecDeque::new(), None);
    let mut rest = data;
    for (place, bytes) in places {
        let mut sent = 0;
        while sent < *bytes && failed.is_none() {
            if let Err(error) = lane.may_write() {
                failed = Some(error);
                break;
            }
            let mut buf = match lane.take_bounce() {
                Ok(Some(buf)) => buf,
                Ok(None) if !tickets.is_empty() => {
                    land(lane, &mut tickets, &mut failed);
                    continue;
                }
                Ok(None) => return Err(Error::Resources("no buffer came back".to_owned())),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            };
            let len = buf.capacity().min(bytes - sent);
            buf.set_len(len);
            buf.copy_from_slice(&rest[..len]);
            let mut request = Request::write((place + sent as u64) / block_bytes, buf);
            request.policy = policy;
            match lane.submit(request) {
                Ok(ticket) => {
                    tickets.push_back(ticket);
                    sent += len;
                    rest = &rest[len..];
                }
                Err(rejected) => {
                    if let Some(buf) = rejected.request.buf {
                        lane.give_bounce(buf);
                    }
                    if matches!(rejected.error, SubmitError::Full { .. }) && !tickets.is_empty() {
                        land(lane, &mut tickets, &mut failed);
                    } else {
                        failed = Some(RequestError::from(rejected.error).into());
                    }
                }
            }
        }
    }
    while !tickets.is_empty() {
        land(lane, &mut tickets, &mut failed);
    }
    failed.map_or(Ok(()), Err)
}

/// Waits for the oldest request.
fn land(lane: &mut Lane, tickets: &mut VecDeque<Ticket>, failed: &mut Option<Error>) {
    let Some(ticket) = tickets.pop_front() else { return };
    let done = lane.channel.wait(ticket);
    match done.buf {
        Some(buf) => lane.give_bounce(buf),
        None => lane.lose_bounce(),
    }
    if let Err(error) = done.result {
        failed.get_or_insert(Error::from_io(error));
    }
}
