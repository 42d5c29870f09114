//! The result of a command, which is its completion or the reason why it fails. A failure is
//! counted and recorded when the command ends.

use meantime_nvme_spec::status::{Status, StatusCode};

/// The result of executing a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) status: Status,
    pub(super) dw0: u32,
}

impl Outcome {
    pub(super) const OK: Self = Self { status: Status::SUCCESS, dw0: 0 };

    pub(super) fn dw0(dw0: u32) -> Self {
        Self { dw0, ..Self::OK }
    }
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        Self { status, dw0: 0 }
    }
}

/// The reason why a command fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) status: Status,
    /// The rule that the host broke, or `None` if the host is not at fault.
    pub(super) rule: Option<&'static str>,
}

/// The result of a command, or of a step of it.
pub(super) type Checked<T = Outcome> = Result<T, Failure>;

/// Returns the failure of a command for which the host broke `rule`. It ends with `code` and Do Not
/// Retry.
#[cold]
pub(super) fn refused(code: StatusCode, rule: &'static str) -> Failure {
    Failure { rule: Some(rule), ..Status::from_code(code).with_dnr().into() }
}

/// Returns the failure of a command for which the host broke `rule` in a field of the entry.
#[cold]
pub(super) fn invalid_field(rule: &'static str) -> Failure {
    refused(StatusCode::InvalidFieldInCommand, rule)
}

/// Fails if `wrong`, because the command breaks `rule`.
#[inline]
pub(super) fn refuse_if(wrong: bool, code: StatusCode, rule: &'static str) -> Checked<()> {
    if wrong { Err(refused(code, rule)) } else { Ok(()) }
}

/// Fails if `wrong`, because a field breaks `rule`.
pub(super) fn invalid_if(wrong: bool, rule: &'static str) -> Checked<()> {
    refuse_if(wrong, StatusCode::InvalidFieldInCommand, rule)
}

#[cold]
pub(super) fn no_such_namespace() -> Failure {
    refused(StatusCode::InvalidNamespaceOrFormat, "no such namespace")
}

/// Converts a status to a failure that breaks no rule.
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
