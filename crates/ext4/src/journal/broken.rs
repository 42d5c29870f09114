//! The log device of tests: it breaks one rule of `docs/ordering.md`, so that tests show that they
//! notice. Each function stands for the one of [`log_device`] with its name.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Sequence;
use super::block_writer::BlockWriter;
use super::handle::Handle;
use super::held::Held;
use super::log::{Log, LogRun};
use super::log_device;
pub(crate) use super::log_device::Before;
use super::ordered::Ordered;
use crate::Error;
use crate::io::{GroupCommit, IoContext};
use meantime_block::Request;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::journal::JournalFormat;
use meantime_hw::DmaBuf;

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Rule {
    /// Everything of a transaction is in the log before its commit block (1).
    LogFirst = 1,
    /// Data are on the device before the commit block (2).
    DataFirst,
    /// A FLUSH before the commit block (3).
    FlushFirst,
    /// The commit block is written with FUA (3).
    Fua,
    /// Blocks are home, and flushed, before the tail moves past them (6).
    HomeBeforeTail,
    /// A durable tail before the log is written again (7).
    TailBeforeReuse,
    /// What is freed is held until the commit (8).
    Held,
    /// What is freed is revoked (9).
    Revoke,
    /// Fast commits do not count any more at the moment when their transaction does (16).
    Supersede,
    /// Data in place have a FLUSH before `fsync` returns (18).
    FlushData,
    /// The log does not go round where there are fast commits (20).
    Straight,
    /// Where the blocks of a file are is said only as long as the inode has all of it (21).
    TreeInInode,
    /// What waits for a commit is not trimmed (22).
    Trim,
}

static BROKEN: AtomicU32 = AtomicU32::new(0);

/// From now on every journal of this process breaks `rule`; `None`: none.
pub fn break_rule(rule: Option<Rule>) {
    BROKEN.store(rule.map_or(0, |rule| rule as u32), Ordering::Relaxed);
}

fn is_broken(rule: Rule) -> bool {
    BROKEN.load(Ordering::Relaxed) == rule as u32
}

/// Without the FLUSH.
pub(crate) fn flush(io: &mut IoContext, before: Before) -> Result<(), Error> {
    let rule = match before {
        Before::Commit => Rule::FlushFirst,
        Before::Tail => Rule::HomeBeforeTail,
        Before::Return => Rule::FlushData,
    };
    if is_broken(rule) { Ok(()) } else { log_device::flush(io, before) }
}

/// Without waiting.
pub(super) fn finish_log(writer: &mut BlockWriter, io: &mut IoContext) -> Result<(), Error> {
    if is_broken(Rule::LogFirst) { Ok(()) } else { log_device::finish_log(writer, io) }
}

/// Without waiting.
pub(crate) fn finish_data(finish: impl FnOnce()) {
    if !is_broken(Rule::DataFirst) {
        log_device::finish_data(finish);
    }
}

/// Without waiting.
pub(super) fn wait_for_data(ordered: &Ordered, group: &GroupCommit) -> Result<(), Error> {
    if is_broken(Rule::DataFirst) { Ok(()) } else { log_device::wait_for_data(ordered, group) }
}

/// Always.
pub(super) fn has_data(ordered: &Ordered) -> bool {
    is_broken(Rule::DataFirst) || log_device::has_data(ordered)
}

/// Without FUA.
pub(super) fn commit_block(lba: u64, buf: DmaBuf, volatile: bool) -> Request {
    log_device::commit_block(lba, buf, volatile && !is_broken(Rule::Fua))
}

/// Without FUA.
pub(super) fn send_fast(
    writer: &mut BlockWriter,
    io: &mut IoContext,
    place: u64,
    buf: DmaBuf,
    fua: bool,
) -> Result<(), Error> {
    log_device::send_fast(writer, io, place, buf, fua && !is_broken(Rule::Fua))
}

/// Not at all.
pub(super) fn write_tail(
    writer: &mut BlockWriter,
    io: &mut IoContext,
    format: &JournalFormat,
    home: u64,
    fua: bool,
) -> Result<(), Error> {
    if is_broken(Rule::TailBeforeReuse) {
        return Ok(());
    }
    log_device::write_tail(writer, io, format, home, fua)
}

/// A block that revokes nothing.
pub(super) fn revoke(format: &JournalFormat, to: &mut [u8], tid: u32, blocks: &[u64]) {
    log_device::revoke(format, to, tid, if is_broken(Rule::Revoke) { &[] } else { blocks });
}

/// The fast commits go on counting.
pub(super) fn supersede(
    writer: &mut BlockWriter,
    io: &mut IoContext,
    format: &mut JournalFormat,
    [home, head]: [u64; 2],
    fua: bool,
) -> Result<(), Error> {
    if is_broken(Rule::Supersede) {
        return log_device::write_tail(writer, io, format, home, fua);
    }
    log_device::supersede(writer, io, format, [home, head], fua)
}

/// It goes round.
pub(super) fn log(format: &JournalFormat, runs: Vec<LogRun>) -> Log {
    let log = log_device::log(format, runs);
    if is_broken(Rule::Straight) { log.straight(false) } else { log }
}

/// Not held.
pub(super) fn hold(held: &Held, blocks: Range<u64>, sequence: Sequence) {
    if !is_broken(Rule::Held) {
        log_device::hold(held, blocks, sequence);
    }
}

/// None waits.
pub(crate) fn first_not_reusable(handle: &Handle<'_>, blocks: Range<u64>) -> Option<Range<u64>> {
    if is_broken(Rule::Trim) { None } else { log_device::first_not_reusable(handle, blocks) }
}

/// Always.
pub(crate) fn may_say_blocks(inode: &InodeEdit) -> bool {
    is_broken(Rule::TreeInInode) || log_device::may_say_blocks(inode)
}
