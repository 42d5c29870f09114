//! Rules of `docs/ordering.md` that tests take away, to see that they notice.

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
}

#[cfg(feature = "broken-rules")]
mod switch {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Rule;

    static BROKEN: AtomicU32 = AtomicU32::new(0);

    /// From now on every journal of this process breaks `rule`; `None`: none.
    pub fn break_rule(rule: Option<Rule>) {
        BROKEN.store(rule.map_or(0, |rule| rule as u32), Ordering::Relaxed);
    }

    pub(crate) fn is_broken(rule: Rule) -> bool {
        BROKEN.load(Ordering::Relaxed) == rule as u32
    }
}

#[cfg(feature = "broken-rules")]
pub use switch::break_rule;
#[cfg(feature = "broken-rules")]
pub(crate) use switch::is_broken;

/// Whether `rule` is not kept.
#[cfg(not(feature = "broken-rules"))]
#[inline(always)]
pub(crate) const fn is_broken(_: Rule) -> bool {
    false
}
