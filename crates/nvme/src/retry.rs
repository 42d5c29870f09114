//! Which commands are repeated, when, and how often.
//!
//! # After a status
//!
//! A status with Do Not Retry is final. Of the others, these are repeated:
//!
//! | status | why |
//! |---|---|
//! | Data Transfer Error | an error on the way; the same command may get through |
//! | Transient Transport Error | an error on the way; the same command may get through |
//! | Internal Error | the controller's own fault; DNR says whether it persists |
//! | Command Interrupted | meant to be repeated: other work was more urgent (1.4 §4.6.1.2.1) |
//! | Commands Aborted due to Power Loss Notification | power may return, or the controller goes |
//! | Namespace Not Ready | DNR says whether it becomes ready |
//! | Internal Path Error, Controller Pathing Error | the path failed, not the command |
//! | Asymmetric Access Transition | the path failed, not the command |
//! | Command Aborted due to SQ Deletion | our recovery deleted the queue; the new one gets it |
//! | Command Abort Requested | our recovery aborted it after its deadline; repeated as if lost |
//!
//! These are not repeated, whatever DNR says:
//!
//! | status | why |
//! |---|---|
//! | media errors (Write Fault, …) | already retried internally; another try costs wear and time |
//! | errors in the command (opcode, field, CID, LBA, PRP, SGL) | it would fail again |
//! | Format or Sanitize In Progress | lasts for minutes; the caller should know |
//! | Reservation Conflict, Access Denied, Compare Failure | an answer, not an accident |
//! | Write Protected | an answer, not an accident |
//! | reserved and vendor specific ones | no specification says that a retry helps |
//!
//! All tries that the device has answered share one deadline; a pause that would end after it is
//! not started. A command that timed out, or that recovery took back because of another command,
//! gets a new deadline and counts as one repeat.
//!
//! A fused pair is never repeated: one of its commands alone is no pair, and if the first try was
//! executed, the second compare would fail because of it. Only a read shows whether the pair was
//! executed.
//!
//! # After a queue was deleted or the controller reset
//!
//! The device has then released every command, executed or not, and the caller has seen none of
//! them complete. Each kind can safely be executed twice:
//!
//! - *Read, Compare, Verify* change nothing.
//! - *Write, Write Zeroes, Deallocate, Write Uncorrectable* leave the same blocks with the same
//!   content however often they are executed. The second time may overwrite another command's write
//!   to the same blocks. Both were in flight together then, and NVMe does not order such commands
//!   (1.4 §6.3): a caller that needs an order waits for the first before it submits the second. The
//!   device keeps the buffer until the last try, so each try writes the same data.
//! - *Flush* covers writes completed before it was submitted. A Controller Reset keeps them (1.4
//!   §3.1.5, CC.EN), so a flush after it still covers them. If the controller was disabled
//!   otherwise, such as by a loss of power, its volatile cache may be lost: a flush that was in
//!   flight then fails, and is not repeated
//!   ([`CommandError::CacheLost`](super::CommandError::CacheLost)).

use meantime_nvme_spec::status::{Status, StatusCode};

/// The reaction to a status other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The command fails.
    Final,
    /// The command is repeated after a pause.
    Retry,
    /// The driver's own recovery ended the command: it is repeated with a new deadline.
    Requeue,
}

/// The reaction to `status`, which is not success.
pub fn verdict(status: Status) -> Verdict {
    use StatusCode::*;
    if status.dnr() {
        return Verdict::Final;
    }
    match status.code() {
        Ok(CommandAbortedByRequest | CommandAbortedSqDeletion) => Verdict::Requeue,
        Ok(
            DataTransferError
            | TransientTransportError
            | InternalError
            | CommandInterrupted
            | CommandsAbortedPowerLoss
            | NamespaceNotReady
            | InternalPathError
            | AsymmetricAccessTransition
            | ControllerPathingError,
        ) => Verdict::Retry,
        _ => Verdict::Final,
    }
}

/// The pause before the first retry if the controller gives none, in ns. Each further pause is four
/// times as long.
const FIRST_PAUSE_NS: u64 = 10_000;

/// The longest pause, in ns.
const LONGEST_PAUSE_NS: u64 = 100_000_000;

/// One unit of CRDT1 to CRDT3 (1.4 §5.15.2.1).
const CRDT_UNIT_NS: u64 = 100_000_000;

/// The number of retries, and their pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retries {
    /// The most times that a command is repeated.
    pub(crate) most: u8,
    /// Identify Controller's CRDT1 to CRDT3, in units of 100 ms.
    pub(crate) crdt: [u16; 3],
    /// Deadline of a command in ns, over all tries that the device has answered.
    pub(crate) timeout_ns: u64,
}

impl Retries {
    /// How long to wait before try `count` (from 1) after `status`, in ns (1.4 §4.6.1, CRD).
    pub(crate) fn pause_ns(&self, status: Status, count: u8) -> u64 {
        match status.crd() {
            0 => {
                let factor = 4u64.saturating_pow(u32::from(count.saturating_sub(1)));
                FIRST_PAUSE_NS.saturating_mul(factor).min(LONGEST_PAUSE_NS)
            }
            crd => u64::from(self.crdt[usize::from(crd) - 1]) * CRDT_UNIT_NS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn do_not_retry_is_final_whatever_the_code() {
        for &code in StatusCode::ALL {
            assert_eq!(verdict(Status::from_code(code).with_dnr()), Verdict::Final, "{code}");
        }
    }

    /// By number, as in the specification's table.
    #[test]
    fn these_and_no_others_are_repeated() {
        let repeated: Vec<u16> =
            (1..0x800).filter(|&bits| verdict(Status::from_bits(bits)) == Verdict::Retry).collect();
        assert_eq!(repeated, [0x004, 0x005, 0x006, 0x021, 0x022, 0x082, 0x300, 0x303, 0x360]);
        let put_back: Vec<u16> = (1..0x800)
            .filter(|&bits| verdict(Status::from_bits(bits)) == Verdict::Requeue)
            .collect();
        assert_eq!(put_back, [0x007, 0x008]);
    }

    #[test]
    fn pauses() {
        let retries = Retries { most: 4, crdt: [1, 20, 300], timeout_ns: 0 };
        let status = Status::from_code(StatusCode::CommandInterrupted);
        let pauses: Vec<u64> = (1..=4).map(|count| retries.pause_ns(status, count)).collect();
        assert_eq!(pauses, [10_000, 40_000, 160_000, 640_000]);
        assert_eq!(retries.pause_ns(status, u8::MAX), 100_000_000);
        let named: Vec<u64> =
            (1..=3).map(|crd| retries.pause_ns(status.with_crd(crd), 4)).collect();
        assert_eq!(named, [100_000_000, 2_000_000_000, 30_000_000_000]);
    }
}
