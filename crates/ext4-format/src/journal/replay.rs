//! Makes three passes over the log, as `e2fsck` and the kernel do (`do_one_pass` in their
//! `recovery.c`), for the end of the log, the revoked blocks, and the copies.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::layout::{
    COMMIT, DESCRIPTOR, MAGIC, REVOKE, Superblock, TAG_ESCAPED, commit_seconds,
    whole_checksum_is_right,
};
use super::log::{Control, Cursor, Log};
use super::recovery::Recovery;
use crate::checksum::crc32_be;
use crate::error::{Corruption, Defect, Result};

/// Returns whether transaction `a` is later than `b`, where numbers wrap around.
fn is_later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// The end of the log.
#[derive(Default)]
struct End {
    /// The first uncommitted transaction.
    sequence: u32,
    lost: Option<u32>,
}

/// The first pass: finds the last transaction with a commit block.
fn scan(log: &impl Log, superblock: &Superblock) -> Result<End> {
    let mut cursor = Cursor::new(superblock);
    let mut sequence = superblock.sequence;
    let mut ended: Option<u32> = None;
    let mut last_seconds = 0;
    // A block with a wrong checksum may be left from an earlier round of the log. The time in its
    // commit block decides.
    let mut suspect = None;
    let mut whole = !0;
    while let Some(Control { index, kind, block }) = cursor.next_of(log, sequence)? {
        if matches!(kind, DESCRIPTOR | REVOKE) && !superblock.tail_is_right(&block) {
            suspect.get_or_insert(index);
        }
        match kind {
            DESCRIPTOR => {
                let count = superblock.tags(&block).count();
                if superblock.whole_checksums && ended.is_none() {
                    whole = crc32_be(whole, &block);
                    for _ in 0..count {
                        let Some(index) = cursor.step() else { break };
                        whole = crc32_be(whole, &log.block(index)?);
                    }
                } else if cursor.skip(count).is_none() {
                    break;
                }
            }
            REVOKE => {}
            COMMIT => {
                let seconds = commit_seconds(&block);
                let is_stale = seconds < last_seconds;
                if let Some(index) = suspect.take() {
                    if is_stale {
                        break;
                    }
                    log.wrong_checksum(index)?;
                }
                if let (Some(ended), true) =
                    (ended, superblock.whole_checksums || superblock.async_commit)
                {
                    // There is a commit after the transaction with missing blocks, so that one was
                    // not an interrupted commit.
                    return Ok(End { sequence: ended, lost: Some(ended) });
                }
                let whole_is_right =
                    !superblock.whole_checksums || whole_checksum_is_right(&block, whole);
                if !whole_is_right || !superblock.commit_is_right(&block) {
                    if is_stale {
                        break;
                    }
                    if !superblock.async_commit {
                        return Ok(End { sequence, lost: Some(sequence) });
                    }
                    ended = Some(sequence);
                }
                whole = !0;
                last_seconds = seconds;
                sequence = sequence.wrapping_add(1);
            }
            _ => break,
        }
    }
    Ok(End { sequence: ended.unwrap_or(sequence), lost: None })
}

/// The second pass: finds, for each revoked block, the last transaction that revoked it.
fn revocations(log: &impl Log, superblock: &Superblock, end: u32) -> Result<HashMap<u64, u32>> {
    let mut revoked: HashMap<u64, u32> = HashMap::new();
    let mut cursor = Cursor::new(superblock);
    let mut sequence = superblock.sequence;
    while is_later(end, sequence) {
        let Some(Control { index, kind, block }) = cursor.next_of(log, sequence)? else { break };
        match kind {
            DESCRIPTOR => {
                let Some(()) = cursor.skip(superblock.tags(&block).count()) else { break };
            }
            COMMIT => sequence = sequence.wrapping_add(1),
            REVOKE => {
                if !superblock.tail_is_right(&block) {
                    log.wrong_checksum(index)?;
                }
                let records = superblock.revoked(&block).ok_or_else(|| log.malformed(index))?;
                for number in records {
                    let last = revoked.entry(number).or_insert(sequence);
                    if is_later(sequence, *last) {
                        *last = sequence;
                    }
                }
            }
            _ => break,
        }
    }
    Ok(revoked)
}

/// Returns the result of all passes, without fast commits. The file system has `fs_blocks` blocks.
pub(super) fn replay(log: &impl Log, superblock: &Superblock, fs_blocks: u64) -> Result<Recovery> {
    let end = scan(log, superblock)?;
    let revoked = revocations(log, superblock, end.sequence)?;
    let mut overlay = BTreeMap::new();
    let mut cursor = Cursor::new(superblock);
    let mut sequence = superblock.sequence;
    while is_later(end.sequence, sequence) {
        let Some(Control { index: descriptor, kind, block }) = cursor.next_of(log, sequence)?
        else {
            break;
        };
        match kind {
            DESCRIPTOR => {
                for tag in superblock.tags(&block) {
                    let Some(index) = cursor.step() else { return Err(log.malformed(descriptor)) };
                    if revoked.get(&tag.block).is_some_and(|last| !is_later(sequence, *last)) {
                        continue;
                    }
                    if tag.block >= fs_blocks {
                        return Err(log.malformed(descriptor));
                    }
                    let copy = log.block(index)?;
                    if !superblock.copy_is_right(&tag, sequence, &copy) {
                        log.wrong_checksum(index)?;
                        continue;
                    }
                    overlay.insert(tag.block, unescaped(copy, tag.flags));
                }
            }
            COMMIT => sequence = sequence.wrapping_add(1),
            REVOKE => {}
            _ => break,
        }
    }
    if sequence != end.sequence {
        return Err(Corruption::new(Defect::JournalBlock).into());
    }
    Ok(Recovery {
        overlay,
        transactions: sequence.wrapping_sub(superblock.sequence),
        revoked: revoked.len(),
        lost: end.lost,
        end: Some(sequence),
        ..Recovery::default()
    })
}

/// Returns a copy with its original first bytes.
fn unescaped(copy: Arc<[u8]>, flags: u32) -> Arc<[u8]> {
    if flags & TAG_ESCAPED == 0 {
        return copy;
    }
    let mut block = copy.to_vec();
    if let Some(magic) = block.first_chunk_mut() {
        *magic = MAGIC.to_be_bytes();
    }
    block.into()
}
