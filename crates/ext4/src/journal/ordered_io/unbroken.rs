//! The operations as they are in production. Each function keeps one rule, which its comment
//! names.

use std::ops::Range;

use super::super::block_writer::BlockWriter;
use super::super::handle::Handle;
use super::super::held::Held;
use super::super::log::{Log, LogRun};
use super::super::ordered::Ordered;
use super::super::sequence::Sequence;
use crate::Result;
use crate::io::{GroupCommit, IoContext};
use meantime_block::Request;
use meantime_ext4_format::edit::{InodeEdit, NodeEdit};
use meantime_ext4_format::journal::JournalFormat;
use meantime_hw::DmaBuf;

/// The event that a FLUSH has to precede.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// The commit block, or a fast commit (rule 3).
    Commit,
    /// A tail of the log past what was written in place (rule 6).
    Tail,
    /// The return of an `fsync` whose data were written in place (rule 18).
    Return,
}

/// Makes completed writes durable, before the event that `before` names (rules 3, 6 and 18).
///
/// # Errors
/// Fails if the device fails.
pub(crate) fn flush(io: &mut IoContext, _before: Before) -> Result<()> {
    Ok(io.flush()?)
}

/// Waits for all log writes of a transaction, before its commit block (rule 1).
///
/// # Errors
/// Returns the error of the first write that failed.
pub(in crate::journal) fn finish_log(writer: &mut BlockWriter, io: &mut IoContext) -> Result<()> {
    writer.finish(io)
}

/// Waits with `finish` for the caller's own data, before a commit that makes them reachable (rule
/// 2).
pub(in crate::journal) fn finish_data(finish: impl FnOnce()) {
    finish();
}

/// Waits for the data of a closed transaction, before its commit block (rule 2).
///
/// # Errors
/// Returns the error of the first write that failed.
pub(in crate::journal) fn wait_for_data(ordered: &Ordered, group: &GroupCommit) -> Result<()> {
    ordered.wait(group)
}

/// Returns whether all data that a fast commit would make reachable are on the device (rule 2).
pub(in crate::journal) fn data_are_written(ordered: &Ordered) -> bool {
    ordered.has_succeeded() == Some(true)
}

/// Returns the write of a commit block, with FUA if the device has a volatile cache (rule 3).
pub(in crate::journal) fn commit_block(lba: u64, buf: DmaBuf, volatile: bool) -> Request {
    Request { fua: volatile, ..Request::write(lba, buf) }
}

/// Sends blocks of a fast commit, with FUA if `fua` (rule 3).
///
/// # Errors
/// Fails if the context may not write, or the request is rejected.
pub(in crate::journal) fn send_fast(
    writer: &mut BlockWriter,
    io: &mut IoContext,
    place: u64,
    buf: DmaBuf,
    fua: bool,
) -> Result<()> {
    writer.send(io, place, buf, fua)
}

/// Writes `format`, the journal's superblock with a new tail, to block `superblock`, durably,
/// before the log after the old tail is overwritten (rule 7).
///
/// # Errors
/// Fails if the device fails.
pub(in crate::journal) fn write_tail(
    writer: &mut BlockWriter,
    io: &mut IoContext,
    format: &JournalFormat,
    superblock: u64,
) -> Result<()> {
    writer.write_durably(io, superblock, format.block())
}

/// Makes `to` a block of the log that revokes `blocks` (rule 9).
pub(in crate::journal) fn revoke(format: &JournalFormat, to: &mut [u8], tid: u32, blocks: &[u64]) {
    format.revoke(to, tid, blocks);
}

/// Makes the log begin as `format` says, with a transaction that fast commits continued. The same
/// write of the superblock (block `superblock`) stops the fast commits from counting (rule 16).
/// Then zeroes their first block (`head`), and lets later ones count.
///
/// # Errors
/// Fails if the device fails. It is unknown then what is durable.
pub(in crate::journal) fn supersede(
    writer: &mut BlockWriter,
    io: &mut IoContext,
    format: &mut JournalFormat,
    [superblock, head]: [u64; 2],
) -> Result<()> {
    format.set_fast_commits(false)?;
    writer.write_durably(io, superblock, format.block())?;
    writer.write_durably(io, head, &vec![0; format.block_bytes()])?;
    format.set_fast_commits(true)?;
    writer.write_durably(io, superblock, format.block())
}

/// Returns the empty log of a journal that lies in `runs`. It never wraps if fast commits are
/// enabled (rule 20). This decides the place of a block before it is sent.
pub(in crate::journal) fn log(format: &JournalFormat, runs: Vec<LogRun>) -> Log {
    Log::new(runs, format.log()).never_wraps(format.fast_commits().is_some())
}

/// Holds `blocks`, which transaction `sequence` freed, until it has committed (rule 8).
///
/// No write of the journal shows whether this rule is kept: a write of data to the reallocated
/// blocks breaks it. Only this function keeps the allocator from reusing them.
pub(in crate::journal) fn hold(held: &Held, blocks: Range<u64>, sequence: Sequence) {
    held.hold(blocks, sequence);
}

/// Returns the first range of the free `blocks` that may not be allocated now, as far as `handle`
/// knows; the others may be trimmed (rule 22).
pub(crate) fn first_not_reusable(handle: &Handle<'_>, blocks: Range<u64>) -> Option<Range<u64>> {
    handle.first_held_in(blocks)
}

/// Returns whether a fast commit may record the blocks of `inode`: all extents are in the inode
/// (rule 21).
///
/// The rule only decides what a fast commit leaves out, so it is kept where a change is recorded,
/// not where a fast commit is sent.
pub(crate) fn may_record_blocks(inode: &InodeEdit) -> bool {
    NodeEdit::of(&inode.block_area()[..]).is_ok_and(|root| root.depth() == 0)
}
