//! What a host needs to authenticate itself, and one exchange of it (DH-HMAC-CHAP).
//!
//! Without the feature `auth` there are no credentials, and a target that asks for them is refused.

#[cfg(feature = "auth")]
use std::sync::Arc;

#[cfg(feature = "auth")]
use meantime_nvme_auth::{AuthError, HostExchange, Keys, Names, Offer, Step};
use meantime_nvme_spec::fabrics::authreq;
#[cfg(feature = "auth")]
use meantime_nvme_spec::sqe::Sqe;

use crate::connection::Connection;
use crate::dial::{Dialer, Until};
use crate::error::{FabricsError, Result};
use crate::memory::Memory;

/// The longest message of a controller that is read. The longest that there is has 1,104 bytes.
#[cfg(feature = "auth")]
const MESSAGE_BYTES: u32 = 4096;

/// The keys of the host and of the target's controllers.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "auth"), expect(missing_copy_implementations, reason = "with it, none"))]
pub struct Credentials {
    #[cfg(feature = "auth")]
    keys: Arc<Keys>,
    #[cfg(not(feature = "auth"))]
    never: std::convert::Infallible,
}

#[cfg(feature = "auth")]
impl From<Keys> for Credentials {
    fn from(keys: Keys) -> Self {
        Self { keys: Arc::new(keys) }
    }
}

impl Credentials {
    /// Returns whether the controller has to prove that it knows its key.
    #[cfg(feature = "auth")]
    pub(crate) fn check_controller(&self) -> bool {
        self.keys.controller.is_some()
    }

    /// The same without the feature: there are none.
    #[cfg(not(feature = "auth"))]
    pub(crate) fn check_controller(&self) -> bool {
        match self.never {}
    }
}

impl Dialer {
    /// Authenticates the host on queue `qid` and, if there is a key for that, the controller, where
    /// the target or the host demands it. `asked` is dword 0 of Connect's completion.
    ///
    /// # Errors
    /// The reason, and a remedy.
    pub(crate) fn authenticate(
        &self,
        connection: &mut Connection,
        memory: &Memory,
        qid: u16,
        asked: u32,
        until: Until,
    ) -> Result<()> {
        let unusable = |what: &str| FabricsError::Unsupported {
            address: self.address.authority(),
            what: what.to_owned(),
        };
        let is_asked = asked & (authreq::TRANSACTION | authreq::SECURE_CHANNEL) != 0;
        match &self.credentials {
            _ if asked & authreq::SECURE_CHANNEL != 0 => Err(unusable(
                "it asks for TLS after the authentication, which is not here yet: allow it plain TCP",
            )),
            None if !is_asked => Ok(()),
            // A host that checks the controller does so whatever that says.
            Some(credentials) if !is_asked && !credentials.check_controller() => Ok(()),
            None if cfg!(feature = "auth") => Err(unusable(
                "it asks for authentication (DH-HMAC-CHAP): give dhchap_keys=FILE, a file with a \
                 line NQN KEY for this host, or put the key into MEANTIME_DHCHAP_KEY or \
                 /etc/nvme/hostkey",
            )),
            None => Err(unusable(
                "it asks for authentication (DH-HMAC-CHAP), which this build leaves out (cargo \
                 feature auth)",
            )),
            Some(credentials) => self.exchange(credentials, connection, memory, qid, until),
        }
    }

    #[cfg(not(feature = "auth"))]
    fn exchange(
        &self,
        credentials: &Credentials,
        _: &mut Connection,
        _: &Memory,
        _: u16,
        _: Until,
    ) -> Result<()> {
        match credentials.never {}
    }

    #[cfg(feature = "auth")]
    fn exchange(
        &self,
        credentials: &Credentials,
        connection: &mut Connection,
        memory: &Memory,
        qid: u16,
        until: Until,
    ) -> Result<()> {
        let failed = |error: &AuthError| FabricsError::Authentication {
            address: self.address.authority(),
            host: self.host.nqn.clone(),
            why: error.to_string(),
        };
        let names = Names { host: self.host.nqn.clone(), subsystem: self.address.nqn.clone() };
        let keys = Keys::clone(&credentials.keys);
        let exchange = HostExchange::new(keys, names, Offer::default(), qid);
        let mut exchange = exchange.map_err(|error| failed(&error))?;
        let mut message = exchange.negotiate();
        let send = |connection: &mut Connection, message: &[u8]| {
            let sqe = Sqe::authentication_send(0, message.len() as u32);
            let what = "Authentication Send";
            self.execute_until(until, connection, memory, sqe, message, 0, what)
        };
        loop {
            send(connection, &message)?;
            let (sqe, what) =
                (Sqe::authentication_receive(0, MESSAGE_BYTES), "Authentication Receive");
            let (_, answer) =
                self.execute_until(until, connection, memory, sqe, &[], MESSAGE_BYTES, what)?;
            match exchange.take(&answer) {
                Ok(Step::Send(next)) => message = next,
                Ok(Step::Done(last)) => {
                    if let Some(last) = last {
                        send(connection, &last)?;
                    }
                    return Ok(());
                }
                Err(error) => {
                    if let Some(failure) = exchange.failure(&error) {
                        // The target may close the connection meanwhile.
                        let _ = send(connection, &failure);
                    }
                    return Err(failed(&error));
                }
            }
        }
    }
}
