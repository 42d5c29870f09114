//! Why an exchange has failed.

use crate::message::Failure;

/// Why an exchange has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The other side ended it.
    #[error("the other side ended the authentication: {0}")]
    Ended(Failure),
    /// The other side did not prove that it knows its key.
    #[error("the other side does not know the key")]
    WrongResponse,
    /// The other side wants what this side does not accept.
    #[error("the other side wants {0}")]
    Unusable(String),
    /// A message that cannot be understood, or is not this step's.
    #[error("a wrong message of the other side: {0}")]
    Message(&'static str),
    /// The cryptographic library failed.
    #[error("cryptography failed: {0}")]
    Library(String),
}

impl From<openssl::error::ErrorStack> for AuthError {
    fn from(error: openssl::error::ErrorStack) -> Self {
        Self::Library(error.to_string())
    }
}

impl AuthError {
    /// Returns what the other side is told.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Ended(failure) => *failure,
            Self::Unusable(_) => Failure::HashUnusable,
            Self::Message(_) => Failure::IncorrectPayload,
            Self::WrongResponse | Self::Library(_) => Failure::Failed,
        }
    }
}
