//! Why a command fails. The failure is counted and recorded when the command ends.

use meantime_spec::status::{Status, StatusCode};

use super::complete::Outcome;
use super::{Controller, Refusal};

/// Why a command fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) status: Status,
    /// The rule that the host broke. `None` if the host is not at fault.
    rule: Option<&'static str>,
}

/// The result of a command, or of a step of it.
pub(super) type Checked<T = Outcome> = Result<T, Failure>;

/// The host broke `rule`: the command ends with `code` and Do Not Retry.
#[cold]
pub(super) fn refused(code: StatusCode, rule: &'static str) -> Failure {
    Failure { rule: Some(rule), ..Status::from_code(code).with_dnr().into() }
}

/// The host broke `rule` in a field of the entry.
#[cold]
pub(super) fn invalid_field(rule: &'static str) -> Failure {
    refused(StatusCode::InvalidFieldInCommand, rule)
}

#[cold]
pub(super) fn no_such_namespace() -> Failure {
    refused(StatusCode::InvalidNamespaceOrFormat, "no such namespace")
}

/// A failure that breaks no rule.
impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status, rule: None }
    }
}

impl From<StatusCode> for Failure {
    fn from(code: StatusCode) -> Self {
        Status::from_code(code).into()
    }
}

impl Controller {
    /// Ends command `cid` of queue `qid` with `failure`: counts and remembers the broken rule.
    #[cold]
    pub(super) fn fail(&mut self, qid: u16, cid: u16, Failure { status, rule }: Failure) -> Status {
        if let Some(reason) = rule {
            if status.is(StatusCode::DataTransferError) {
                self.counters.dma_errors.add(1);
            }
            self.counters.refused.add(1);
            tracing::debug!(qid, cid, %status, reason, "command refused");
            let (cid, status) = (Some(cid), Some(status));
            self.remember(Refusal { qid, cid, status, reason, tolerated: false });
        }
        status
    }
}
