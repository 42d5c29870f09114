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
