//! Authentication of hosts (DH-HMAC-CHAP), by the keys that the target was given.
//!
//! Without the feature `auth` no host has to authenticate itself.

use meantime_nvme_spec::fabrics::{FabricsStatus, authreq};
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::{Status, StatusCode};

use super::connection::{InCapsule, Queue};
use super::engine::{Engine, dnr};
use super::options::TargetOptions;

/// The longest message of a host. The longest that there is has 1,168 bytes.
#[cfg(feature = "auth")]
const MESSAGE_BYTES: u32 = 4096;

/// What a connection has proven.
#[derive(Default)]
pub(super) struct Authentication {
    /// Whether its host has to authenticate itself before it does anything else.
    is_needed: bool,
    #[cfg(feature = "auth")]
    exchange: Option<Box<meantime_nvme_auth::ControllerExchange>>,
}

impl Authentication {
    /// Returns whether a queue of `hostnqn` has to be authenticated.
    pub(super) fn of(options: &TargetOptions) -> Self {
        Self { is_needed: options.demands_authentication(), ..Self::default() }
    }

    /// Returns whether the host still has to authenticate itself.
    #[inline(always)]
    pub(super) fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// Returns AUTHREQ of Connect's completion.
    pub(super) fn asked(&self) -> u32 {
        if self.is_needed { authreq::TRANSACTION } else { 0 }
    }
}

/// Returns the status of a command before authentication.
pub(super) fn required() -> Status {
    Status::from_bits(FabricsStatus::AuthenticationRequired as u16).with_dnr()
}

impl Engine {
    /// Executes Authentication Send, whose data is in its capsule.
    pub(super) fn authentication_send(
        &mut self,
        index: usize,
        queue: Queue,
        sqe: &Sqe,
        data: Option<InCapsule>,
    ) {
        let status = self.take_message(index, queue, sqe, data);
        self.drop_data(data);
        self.respond(index, sqe.cid(), status, 0);
    }

    #[cfg(not(feature = "auth"))]
    fn take_message(&mut self, _: usize, _: Queue, _: &Sqe, _: Option<InCapsule>) -> Status {
        dnr(StatusCode::InvalidCommandOpcode)
    }

    /// Executes Authentication Receive.
    #[cfg(not(feature = "auth"))]
    pub(super) fn authentication_receive(&mut self, index: usize, sqe: &Sqe) {
        self.respond(index, sqe.cid(), dnr(StatusCode::InvalidCommandOpcode), 0);
    }

    #[cfg(feature = "auth")]
    fn take_message(
        &mut self,
        index: usize,
        queue: Queue,
        sqe: &Sqe,
        data: Option<InCapsule>,
    ) -> Status {
        use meantime_nvme_auth::{ControllerExchange, Names, Offer, Outcome};

        let len = sqe.authentication_bytes();
        let is_whole = data.is_some_and(|data| data.len == len) && len <= MESSAGE_BYTES;
        if !sqe.is_nvme_authentication() || !is_whole {
            return dnr(StatusCode::InvalidFieldInCommand);
        }
        let (Some(data), Some(association)) = (data, &self.associations[queue.association]) else {
            return dnr(StatusCode::InvalidFieldInCommand);
        };
        let host = association.hostnqn.clone();
        let Some(keys) = self.options.keys_of(&host).cloned() else {
            // Nothing is asked of this host.
            return dnr(StatusCode::InvalidCommandOpcode);
        };
        let Some(conn) = &mut self.conns[index] else { return dnr(StatusCode::InternalError) };
        let authentication = &mut conn.authentication;
        let is_over = authentication.exchange.as_ref().map(|exchange| exchange.outcome());
        match is_over {
            // A host may authenticate itself again. One that has failed has to connect again.
            None | Some(Outcome::Authenticated) => {
                let subsystem = match association.is_discovery {
                    true => meantime_nvme_spec::fabrics::DISCOVERY_NQN.to_owned(),
                    false => self.options.nqn.clone(),
                };
                let names = Names { host: host.clone(), subsystem };
                let exchange = ControllerExchange::new(keys, names, Offer::default());
                authentication.exchange = Some(Box::new(exchange));
            }
            Some(Outcome::Failed) => return dnr(StatusCode::CommandSequenceError),
            Some(Outcome::Pending) => {}
        }
        let Some(exchange) = &mut authentication.exchange else {
            return dnr(StatusCode::InternalError);
        };
        let bytes = self.backend.machine().data(usize::from(data.slot), 0..len as usize);
        match exchange.take(bytes) {
            Ok(()) => {
                if exchange.outcome() == Outcome::Authenticated {
                    authentication.is_needed = false;
                }
            }
            Err(error) => {
                // Also if it was authenticated before.
                authentication.is_needed = true;
                self.counters.authentications_failed.add(1);
                self.refusals.add(host, format!("authentication: {error}"));
            }
        }
        Status::SUCCESS
    }

    /// Executes Authentication Receive.
    #[cfg(feature = "auth")]
    pub(super) fn authentication_receive(&mut self, index: usize, sqe: &Sqe) {
        let len = sqe.authentication_bytes();
        let exchange = self.conns[index].as_mut();
        let exchange = exchange.and_then(|conn| conn.authentication.exchange.as_mut());
        let message = exchange.and_then(|exchange| exchange.message());
        let status = match message {
            _ if !sqe.is_nvme_authentication() => dnr(StatusCode::InvalidFieldInCommand),
            Some(message) if message.len() <= len as usize && len <= MESSAGE_BYTES => {
                return self.answer_with(index, sqe, &message, 0, len.into());
            }
            Some(_) => dnr(StatusCode::InvalidFieldInCommand),
            None => dnr(StatusCode::CommandSequenceError),
        };
        self.respond(index, sqe.cid(), status, 0);
    }
}
