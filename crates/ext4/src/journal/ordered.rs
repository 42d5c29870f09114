//! Data that have to be on the device before a transaction commits, because the blocks that it
//! makes reachable must not expose their old content (rule 2 of `docs/ordering.md`).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::io::GroupCommit;
use crate::{Error, Result};
use meantime_hw::futex::Futex;
use meantime_process::lock::{Mutex, Rank, check_may_wait};

/// Polls before a waiter sleeps.
const LOOKS: u32 = 2_000;

/// Polls of a caller that need not wait.
const LOOKS_RUNNING: u32 = 100;

/// The longest sleep between two polls, in ns.
const NAP_NS: u64 = 100_000_000;

/// How long a commit waits while no token ends. It is longer than the time that any device is given
/// for all its retries. A token ends when it is dropped, so only a thread that is stuck with one
/// can cause this.
const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);

/// The data that a transaction waits for.
#[derive(Debug)]
pub(super) struct Ordered {
    under_way: AtomicU32,
    /// Whether there were any data, which a volatile cache may still have.
    unflushed: AtomicBool,
    failed: Mutex<Option<Error>>,
    /// Advances when no data are in flight any more.
    none_left: Futex,
}

impl Default for Ordered {
    fn default() -> Self {
        Self {
            under_way: AtomicU32::new(0),
            unflushed: AtomicBool::new(false),
            failed: Mutex::new(Rank::OrderedFailure, None),
            none_left: Futex::default(),
        }
    }
}

/// Some data of a transaction, from the change that allocated their blocks until they are on the
/// device. The transaction does not commit before.
///
/// While a thread has a token, it waits for nothing but the device, and so for no lock that a
/// committing thread may have. Therefore it takes its channel by `IoContexts::take_or_spare`, unless it
/// already has one.
#[must_use = "the transaction waits for it"]
#[derive(Debug)]
pub struct OrderedToken {
    ordered: Arc<Ordered>,
    ended: bool,
}

impl Ordered {
    /// Returns a token for further data.
    pub(super) fn token(self: &Arc<Self>) -> OrderedToken {
        // The addition is relaxed, because the transaction is open and its lock is held.
        self.under_way.fetch_add(1, Ordering::Relaxed);
        OrderedToken { ordered: Arc::clone(self), ended: false }
    }

    /// Returns whether no data are in flight.
    pub(super) fn is_done(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    /// Returns whether there were any data, which a volatile cache may have. Meaningful when none
    /// are in flight.
    pub(super) fn is_unflushed(&self) -> bool {
        self.unflushed.load(Ordering::Relaxed)
    }

    /// Returns whether all data were written successfully, or `None` if some are in flight.
    pub(super) fn has_succeeded(&self) -> Option<bool> {
        self.is_done().then(|| self.failed.lock().unwrap_or_else(PoisonError::into_inner).is_none())
    }

    /// Waits until no data of a closed transaction are in flight.
    ///
    /// # Errors
    /// Returns the error of the first write that failed, or [`Error::Resources`] if no token ends
    /// for `LONGEST_WAIT`.
    pub(super) fn wait(&self, group: &GroupCommit) -> Result<()> {
        check_may_wait(Rank::OrderedData);
        self.wait_at_most(group, LONGEST_WAIT)
    }

    /// Waits briefly until no data are in flight, in a transaction that may get more.
    pub(super) fn wait_a_little(&self, group: &GroupCommit) {
        let _ = (1..=LOOKS_RUNNING).find(|look| {
            let done = self.is_done();
            if !done {
                group.pause(*look);
            }
            done
        });
    }

    fn wait_at_most(&self, group: &GroupCommit, longest: Duration) -> Result<()> {
        let mut looks = 0;
        let mut left = (0, Instant::now());
        while !self.is_done() {
            if looks < LOOKS {
                looks += 1;
                group.pause(looks);
                continue;
            }
            let word = self.none_left.get();
            if !self.is_done() {
                self.none_left.wait(word, NAP_NS);
            }
            let under_way = self.under_way.load(Ordering::Acquire);
            if left.0 != under_way {
                left = (under_way, Instant::now());
            } else if under_way > 0 && left.1.elapsed() >= longest {
                let what = format!("data of a transaction ({under_way} writes) never ended");
                return Err(Error::Resources(what));
            }
        }
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.clone().map_or(Ok(()), Err)
    }

    fn end(&self, result: Result<()>) {
        if let Err(error) = result {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
        self.unflushed.store(true, Ordering::Relaxed);
        // Release: a thread that sees the count also sees the result stored above.
        if self.under_way.fetch_sub(1, Ordering::Release) == 1 {
            self.none_left.advance();
        }
    }
}

impl OrderedToken {
    /// Ends the data. They are on the device, or their write failed and the transaction does not
    /// commit.
    pub fn end(mut self, result: Result<()>) {
        self.ended = true;
        self.ordered.end(result);
    }
}

impl Drop for OrderedToken {
    fn drop(&mut self) {
        if !self.ended {
            self.ordered.end(Err(Error::Invalid("data of a transaction were never written")));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
