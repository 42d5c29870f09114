//! The options for serving an SSD over NVMe/TCP, and the errors.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use meantime_nvme_spec::fabrics::{DISCOVERY_NQN, is_nqn};

use super::faults::NetFaults;
use crate::error::SsdError;

/// The NQN of the subsystem, unless another is given.
pub const DEFAULT_NQN: &str = "nqn.2026-01.io.meantime:ssd";

/// The options for serving an SSD.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TargetOptions {
    /// The address at which to listen. Port 0 selects any port.
    pub addr: SocketAddr,
    /// The NQN of the subsystem.
    pub nqn: String,
    /// The NQNs of the hosts that may connect. If there are none, any host may.
    pub hosts: Vec<String>,
    /// The keys of hosts by their NQNs. If there are any, only these hosts may connect, and have to
    /// authenticate themselves (DH-HMAC-CHAP), also for the discovery service.
    #[cfg(feature = "auth")]
    pub keys: Vec<(String, meantime_nvme_auth::Keys)>,
    /// The maximum number of connections at once.
    pub max_connections: usize,
    /// The maximum number of I/O queues of a host.
    pub max_queues: u16,
    /// Faults of the network.
    pub net_faults: NetFaults,
}

impl Default for TargetOptions {
    /// Returns the options for any port of the loopback address, and any host.
    fn default() -> Self {
        Self {
            addr: (Ipv4Addr::LOCALHOST, 0).into(),
            nqn: DEFAULT_NQN.to_owned(),
            hosts: Vec::new(),
            #[cfg(feature = "auth")]
            keys: Vec::new(),
            max_connections: 1024,
            max_queues: 128,
            net_faults: NetFaults::NONE,
        }
    }
}

/// The reason why a target could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The SSD could not be made.
    #[error(transparent)]
    Ssd(#[from] SsdError),
    /// A setting of the target is invalid.
    #[error("{field} {value:?}: {problem}")]
    Option {
        /// The setting.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The system refuses to listen.
    #[error("cannot listen at {addr}: {source}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

impl TargetOptions {
    /// Returns whether hosts have to authenticate themselves.
    #[cfg(feature = "auth")]
    pub(super) fn demands_authentication(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The same without the feature: they do not.
    #[cfg(not(feature = "auth"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(super) fn demands_authentication(&self) -> bool {
        false
    }

    /// Returns the keys of a host.
    #[cfg(feature = "auth")]
    pub(super) fn keys_of(&self, host: &str) -> Option<&meantime_nvme_auth::Keys> {
        self.keys.iter().find(|(nqn, _)| nqn == host).map(|(_, keys)| keys)
    }

    /// Returns whether `host` may connect, as far as its name goes; or why not.
    pub(super) fn admits(&self, host: &str, is_discovery: bool) -> Result<(), &'static str> {
        #[cfg(feature = "auth")]
        if self.demands_authentication() && self.keys_of(host).is_none() {
            return Err("there is no key for it (--dhchap-keys)");
        }
        let is_listed = self.hosts.is_empty() || self.hosts.iter().any(|one| one == host);
        if is_discovery || is_listed {
            Ok(())
        } else {
            Err("it is not among the hosts that may connect (--host)")
        }
    }

    /// Refuses invalid options.
    pub(super) fn check(&self) -> Result<(), TargetError> {
        let wrong = |field, value: &str, problem| {
            Err(TargetError::Option { field, value: value.to_owned(), problem })
        };
        let nqns = [("NQN", &self.nqn)].into_iter();
        for (field, nqn) in nqns.chain(self.hosts.iter().map(|host| ("host NQN", host))) {
            if !is_nqn(nqn) {
                return wrong(field, nqn, "1 to 223 printable characters without a blank");
            }
        }
        if self.nqn == DISCOVERY_NQN {
            return wrong("NQN", &self.nqn, "is that of the discovery service; choose another");
        }
        if self.max_connections == 0 || self.max_queues == 0 {
            return wrong("limit", "0", "no host could use it");
        }
        Ok(())
    }
}
