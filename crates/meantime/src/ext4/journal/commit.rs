//! Commits: a transaction into the log, and its commit block when everything it depends on is on the device.

use super::Sequence;
use super::running::Journal;
use crate::ext4::Error;
use crate::ext4::lanes::Lane;

/// The caller's own requests, on the channel that a commit is made with: they are under way while the journal's are.
///
/// What fails among them is their owner's to know, and its transaction's by the [token](super::OrderedToken).
pub(in crate::ext4) trait Follow {
    /// Waits until all of them have ended, and ends their tokens.
    fn finish(&mut self, lane: &mut Lane);
}

/// No requests.
impl Follow for () {
    fn finish(&mut self, _: &mut Lane) {}
}

impl Journal {
    /// Makes everything up to transaction `upto` durable, and waits for the caller's own `data` (in any case: none of them is under way when this
    /// returns).
    ///
    /// # Errors
    /// The device; an earlier failure of the journal. What was not durable before may be or not be, then; nothing can be changed any more.
    pub(in crate::ext4) fn commit(
        &self,
        upto: Sequence,
        lane: &mut Lane,
        data: &mut impl Follow,
    ) -> Result<(), Error> {
        data.finish(lane);
        self.usable()?;
        let mut open = self.opened();
        if open.running.sequence <= upto {
            open.close();
        }
        while let Some(transaction) = open.closed.pop_front_if(|oldest| oldest.sequence <= upto) {
            transaction.ordered.wait()?;
            self.held.release(transaction.sequence);
        }
        Ok(())
    }
}
