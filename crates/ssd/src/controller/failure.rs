//! Why a command fails. The failure is counted and recorded when the command ends.

use meantime_spec::log::ErrorLogEntry;
use meantime_spec::sqe::Sqe;
use meantime_spec::status::{Status, StatusCode};

use super::complete::Outcome;
use super::{Controller, Refusal};

/// Why a command fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) status: Status,
    /// The rule that the host broke. `None` if the host is not at fault.
    rule: Option<&'static str>,
    /// The faulty parameter, as the Error Information log encodes it.
    pub(super) location: Option<u16>,
    /// The first block that met the error.
    pub(super) lba: Option<u64>,
}

/// The result of a command, or of a step of it.
pub(super) type Checked<T = Outcome> = Result<T, Failure>;

/// The host broke `rule`: the command ends with `code` and Do Not Retry.
#[cold]
pub(super) fn refused(code: StatusCode, rule: &'static str) -> Failure {
    Failure { rule: Some(rule), ..Status::from_code(code).with_dnr().into() }
}

/// The host broke `rule` in the parameter that begins at `bit` of `byte` of the entry.
#[cold]
pub(super) fn invalid_field(byte: u8, bit: u8, rule: &'static str) -> Failure {
    refused(StatusCode::InvalidFieldInCommand, rule).at(byte, bit)
}

#[cold]
pub(super) fn no_such_namespace() -> Failure {
    refused(StatusCode::InvalidNamespaceOrFormat, "no such namespace")
}

impl Failure {
    /// The faulty parameter begins at `bit` of `byte` of the entry.
    pub(super) fn at(self, byte: u8, bit: u8) -> Self {
        Self { location: Some(ErrorLogEntry::location(byte, bit)), ..self }
    }

    /// `lba` is the first block that met the error.
    pub(super) fn at_lba(self, lba: u64) -> Self {
        Self { lba: Some(lba), ..self }
    }
}

/// A failure that breaks no rule.
impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status, rule: None, location: None, lba: None }
    }
}

impl From<StatusCode> for Failure {
    fn from(code: StatusCode) -> Self {
        Status::from_code(code).into()
    }
}

impl Controller {
    /// Ends the command `sqe` of queue `qid` with `failure`: counts and remembers it, and keeps its
    /// details for the Error Information log.
    #[cold]
    pub(super) fn fail(&mut self, qid: u16, sqe: &Sqe, failure: Failure) -> Status {
        if failure.rule.is_some() && failure.status.is(StatusCode::DataTransferError) {
            self.counters.dma_errors.add(1);
        }
        self.errors.note(qid, sqe, &failure);
        self.refuse(qid, sqe.cid(), failure)
    }

    /// As `fail`, for a command without details to keep.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        qid: u16,
        cid: u16,
        Failure { status, rule, .. }: Failure,
    ) -> Status {
        if let Some(reason) = rule {
            self.counters.refused.add(1);
            tracing::debug!(qid, cid, %status, reason, "command refused");
            let (cid, status) = (Some(cid), Some(status));
            self.remember(Refusal { qid, cid, status, reason, tolerated: false });
        }
        status
    }
}
