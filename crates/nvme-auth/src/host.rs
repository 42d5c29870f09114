//! One exchange of a host.

use openssl::rand::rand_bytes;

use crate::algorithm::{Group, Hash, Secret};
use crate::controller::Offer;
use crate::error::AuthError;
use crate::key::Keys;
use crate::message::Message;
use crate::names::Names;
use crate::response::{Challenge, Side, is_right};

/// What a host does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It sends this, and then asks for the next message.
    Send(Vec<u8>),
    /// It sends this, if there is something, and is done.
    Done(Option<Vec<u8>>),
}

enum State {
    /// The host has offered algorithms.
    Offered,
    /// It has sent its response. If it checks the controller, this is what that has to send.
    Replied {
        hash: Hash,
        group: Group,
        expected: Option<Secret>,
    },
    Ended,
}

/// One exchange of a host, which begins with [`HostExchange::negotiate`].
pub struct HostExchange {
    keys: Keys,
    names: Names,
    offer: Offer,
    t_id: u16,
    sequence: u32,
    state: State,
}

impl HostExchange {
    /// Begins an exchange. `t_id` differs from those of other exchanges of the same association.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn new(keys: Keys, names: Names, offer: Offer, t_id: u16) -> Result<Self, AuthError> {
        let mut sequence = [0; 4];
        rand_bytes(&mut sequence)?;
        // 0 stands for none.
        let sequence = u32::from_ne_bytes(sequence).max(1);
        Ok(Self { keys, names, offer, t_id, sequence, state: State::Offered })
    }

    /// Returns the first message.
    #[must_use]
    pub fn negotiate(&self) -> Vec<u8> {
        let Offer { hashes, groups } = self.offer.clone();
        Message::Negotiate { sc_c: 0, hashes, groups }.bytes(self.t_id, Hash::Sha256, true)
    }

    /// Takes a message of the controller, and returns what to do next.
    ///
    /// # Errors
    /// The exchange is over. [`HostExchange::failure`] returns what to send.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Step, AuthError> {
        let state = std::mem::replace(&mut self.state, State::Ended);
        let chosen = match &state {
            State::Replied { hash, group, .. } => Some((*hash, *group)),
            _ => None,
        };
        let (t_id, message) = Message::parse(bytes, chosen)?;
        if let Message::Failed(failure) = message {
            return Err(AuthError::Ended(failure));
        }
        if t_id != self.t_id {
            return Err(AuthError::Message("it is of another exchange"));
        }
        match (state, message) {
            (State::Offered, Message::Challenge { hash, group, sequence, challenge, public }) => {
                self.reply(hash, group, sequence, &challenge, &public).map(Step::Send)
            }
            (State::Replied { hash, expected, .. }, Message::Success1 { response }) => {
                let Some(expected) = expected else { return Ok(Step::Done(None)) };
                if !response.is_some_and(|response| is_right(&expected, &response)) {
                    return Err(AuthError::WrongResponse);
                }
                Ok(Step::Done(Some(Message::Success2.bytes(self.t_id, hash, true))))
            }
            _ => Err(AuthError::Message("another one was expected")),
        }
    }

    fn reply(
        &mut self,
        hash: Hash,
        group: Group,
        sequence: u32,
        value: &[u8],
        public: &[u8],
    ) -> Result<Vec<u8>, AuthError> {
        // Somebody between the two might have changed the offer.
        if !self.offer.hashes.contains(&hash) || !self.offer.groups.contains(&group) {
            return Err(AuthError::Unusable(format!(
                "{hash:?} with {group:?}, which was not offered"
            )));
        }
        if sequence == 0 {
            return Err(AuthError::Message("its sequence number is 0"));
        }
        let pair = group.pair()?;
        let shared = pair.as_ref().map(|pair| pair.shared(public)).transpose()?;
        let ours = pair.as_ref().map_or(Ok(Vec::new()), |pair| pair.public())?;
        let shared = shared.as_ref().map(|shared| &shared[..]);
        let challenge = Challenge { hash, value, sequence, t_id: self.t_id, sc_c: 0, shared };
        let response = challenge.response(Side::Host, &self.keys.host, &self.names)?.to_vec();
        let (mut expected, mut own) = (None, None);
        if let Some(key) = &self.keys.controller {
            let mut value = vec![0; hash.bytes()];
            rand_bytes(&mut value)?;
            let challenge = Challenge { value: &value, sequence: self.sequence, ..challenge };
            expected = Some(challenge.response(Side::Controller, key, &self.names)?);
            own = Some((self.sequence, value));
        }
        self.state = State::Replied { hash, group, expected };
        let reply = Message::Reply { response, challenge: own, public: ours };
        Ok(reply.bytes(self.t_id, hash, true))
    }

    /// Returns the message that tells the controller of `error`, or `None` if it has ended the
    /// exchange itself.
    #[must_use]
    pub fn failure(&self, error: &AuthError) -> Option<Vec<u8>> {
        let by_us = !matches!(error, AuthError::Ended(_));
        let message = Message::Failed(error.failure());
        by_us.then(|| message.bytes(self.t_id, Hash::Sha256, true))
    }
}
