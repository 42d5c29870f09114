//! The [`unbroken`] operations, of which one breaks its rule of `docs/ordering.md`: the tests must
//! notice. Each function replaces the unbroken function with the same name.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::block_writer::BlockWriter;
use super::super::handle::Handle;
use super::super::held::Held;
use super::super::log::{Log, LogRun};
use super::super::ordered::Ordered;
use super::super::sequence::Sequence;
use super::unbroken;
pub(crate) use super::unbroken::Before;
use crate::Result;
use crate::io::{GroupCommit, IoContext};
use meantime_block::Request;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::journal::JournalFormat;
use meantime_hw::DmaBuf;

/// A rule that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Rule {
    /// All blocks of a transaction are in the log before its commit block (1).
    LogFirst = 1,
    /// Data are on the device before the commit block (2).
    DataFirst,
    /// A FLUSH precedes the commit block (3).
    FlushFirst,
    /// The commit block is written with FUA (3).
    Fua,
    /// Blocks are written in place and flushed before the tail moves past them (6).
    InPlaceBeforeTail,
    /// A tail is durable before the log after the old one is overwritten (7).
    TailBeforeReuse,
    /// Freed blocks are held until the commit (8).
    Held,
    /// Freed metadata blocks are revoked (9).
    Revoke,
    /// Fast commits stop counting at the moment at which their transaction starts to (16).
    Supersede,
    /// Data written in place are flushed before `fsync` returns (18).
    FlushData,
    /// The log does not wrap while fast commits are enabled (20).
    Straight,
    /// Extents are described only while the inode holds all of them (21).
    TreeInInode,
    /// Blocks that wait for a commit are not trimmed (22).
    Trim,
}

static BROKEN: AtomicU32 = AtomicU32::new(0);

/// Makes every journal of this process break `rule` from now on; `None` breaks none.
pub fn break_rule(rule: Option<Rule>) {
    BROKEN.store(rule.map_or(0, |rule| rule as u32), Ordering::Relaxed);
}

fn is_broken(rule: Rule) -> bool {
    BROKEN.load(Ordering::Relaxed) == rule as u32
}

/// Skips the FLUSH.
pub(crate) fn flush(io: &mut IoContext, before: Before) -> Result<()> {
    let rule = match before {
        Before::Commit => Rule::FlushFirst,
        Before::Tail => Rule::InPlaceBeforeTail,
        Before::Return => Rule::FlushData,
    };
    if is_broken(rule) { Ok(()) } else { unbroken::flush(io, before) }
}

/// Does not wait for the log writes.
pub(in crate::journal) fn finish_log(writer: &mut BlockWriter, io: &mut IoContext) -> Result<()> {
    if is_broken(Rule::LogFirst) { Ok(()) } else { unbroken::finish_log(writer, io) }
}

/// Does not wait for the caller's data.
pub(in crate::journal) fn finish_data(finish: impl FnOnce()) {
    if !is_broken(Rule::DataFirst) {
        unbroken::finish_data(finish);
    }
}

/// Does not wait for the transaction's data.
pub(in crate::journal) fn wait_for_data(ordered: &Ordered, group: &GroupCommit) -> Result<()> {
    if is_broken(Rule::DataFirst) { Ok(()) } else { unbroken::wait_for_data(ordered, group) }
}

/// Returns true even if data are in flight.
pub(in crate::journal) fn data_are_written(ordered: &Ordered) -> bool {
    is_broken(Rule::DataFirst) || unbroken::data_are_written(ordered)
}

/// Leaves out FUA.
pub(in crate::journal) fn commit_block(lba: u64, buf: DmaBuf, volatile: bool) -> Request {
    unbroken::commit_block(lba, buf, volatile && !is_broken(Rule::Fua))
}

/// Leaves out FUA.
pub(in crate::journal) fn send_fast(
    writer: &mut BlockWriter,
    io: &mut IoContext,
    place: u64,
    buf: DmaBuf,
    fua: bool,
) -> Result<()> {
    unbroken::send_fast(writer, io, place, buf, fua && !is_broken(Rule::Fua))
}

/// Writes no tail.
pub(in crate::journal) fn write_tail(
    writer: &mut BlockWriter,
    io: &mut IoContext,
    format: &JournalFormat,
    superblock: u64,
) -> Result<()> {
    if is_broken(Rule::TailBeforeReuse) {
        return Ok(());
    }
    unbroken::write_tail(writer, io, format, superblock)
}

/// Writes a block that revokes nothing.
pub(in crate::journal) fn revoke(format: &JournalFormat, to: &mut [u8], tid: u32, blocks: &[u64]) {
    unbroken::revoke(format, to, tid, if is_broken(Rule::Revoke) { &[] } else { blocks });
}

/// Lets the fast commits continue to count.
pub(in crate::journal) fn supersede(
    writer: &mut BlockWriter,
    io: &mut IoContext,
    format: &mut JournalFormat,
    [superblock, head]: [u64; 2],
) -> Result<()> {
    if is_broken(Rule::Supersede) {
        return unbroken::write_tail(writer, io, format, superblock);
    }
    unbroken::supersede(writer, io, format, [superblock, head])
}

/// Lets the log wrap.
pub(in crate::journal) fn log(format: &JournalFormat, runs: Vec<LogRun>) -> Log {
    let log = unbroken::log(format, runs);
    if is_broken(Rule::Straight) { log.never_wraps(false) } else { log }
}

/// Does not hold the blocks.
pub(in crate::journal) fn hold(held: &Held, blocks: Range<u64>, sequence: Sequence) {
    if !is_broken(Rule::Held) {
        unbroken::hold(held, blocks, sequence);
    }
}

/// Reports all blocks as reusable.
pub(crate) fn first_not_reusable(handle: &Handle<'_>, blocks: Range<u64>) -> Option<Range<u64>> {
    if is_broken(Rule::Trim) { None } else { unbroken::first_not_reusable(handle, blocks) }
}

/// Returns true even if the extents are not all in the inode.
pub(crate) fn may_record_blocks(inode: &InodeEdit) -> bool {
    is_broken(Rule::TreeInInode) || unbroken::may_record_blocks(inode)
}
