//! Why a target could not be reached, or a connection ended.

use std::io;
use std::time::Duration;

use meantime_nvme_spec::fabrics::FabricsStatus;
use meantime_nvme_spec::status::Status;

/// Why a target cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricsError {
    /// The host's name has no address.
    #[error("{host} has no address ({source}): check the name, or give an address")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// The TCP connection could not be made.
    #[error("cannot connect to {address} ({source}): is a target listening there?")]
    Connect {
        /// The address.
        address: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The target did not answer in time.
    #[error(
        "{address} did not answer {what} within {} ms: is the target running there, and not stopped \
         or overloaded?",
        time.as_millis()
    )]
    Late {
        /// The address.
        address: String,
        /// What was asked.
        what: &'static str,
        /// The time waited.
        time: Duration,
    },
    /// The target refused.
    #[error("{address} refused {what}: {}", refusal(*status, host))]
    Refused {
        /// The address.
        address: String,
        /// What was refused.
        what: &'static str,
        /// Its status.
        status: Status,
        /// The NQN of this host.
        host: String,
    },
    /// There is no key for authentication, or it cannot be used.
    #[error("dhchap_keys: {why}")]
    Keys {
        /// Why.
        why: String,
    },
    /// The host and the target do not agree that each knows its key.
    #[error(
        "{address}: authentication as {host}: {why}: compare the keys on both sides (dhchap_keys=)"
    )]
    Authentication {
        /// The address.
        address: String,
        /// The NQN of this host.
        host: String,
        /// Why.
        why: String,
    },
    /// The connection ended.
    #[error("the connection to {address} ended: {why}")]
    Ended {
        /// The address.
        address: String,
        /// Why.
        why: String,
    },
    /// The target's answers show that it cannot be used.
    #[error("{address} cannot be used: {what}")]
    Unsupported {
        /// The address.
        address: String,
        /// What is wrong.
        what: String,
    },
    /// The host's identity cannot be read or kept.
    #[error("{path}: {what} ({source}): give hostnqn= and hostid=")]
    Identity {
        /// The file.
        path: String,
        /// What failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refused something.
    #[error("{what}: {source}")]
    Os {
        /// What was attempted.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A `Result` of this crate.
pub type Result<T> = std::result::Result<T, FabricsError>;

/// A status of a Fabrics command, with a remedy.
fn refusal(status: Status, host: &str) -> String {
    let code = u16::from(status.sct()) << 8 | u16::from(status.sc());
    let Ok(known) = FabricsStatus::try_from(code) else { return status.to_string() };
    let remedy = match known {
        FabricsStatus::ConnectInvalidParameters => {
            ": is the subsystem's NQN right, and may this host use it? (`meantime discover` lists \
             subsystems)"
        }
        FabricsStatus::ConnectInvalidHost => {
            return format!(
                "{known}: the target does not allow this host: add its NQN there ({host}), or give \
                 an allowed one by hostnqn="
            );
        }
        FabricsStatus::ConnectControllerBusy => ": it has no controller left; try later",
        FabricsStatus::AuthenticationRequired => {
            ": it asks for DH-HMAC-CHAP: give dhchap_keys=FILE"
        }
        _ => "",
    };
    format!("{known}{remedy}")
}
