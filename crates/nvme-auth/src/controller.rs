//! One exchange of a controller.

use openssl::rand::rand_bytes;

use crate::algorithm::{Group, Hash, Pair};
use crate::error::AuthError;
use crate::key::Keys;
use crate::message::{Failure, Message};
use crate::names::Names;
use crate::response::{Challenge, Side, is_right};

/// The algorithms that a side uses, in its order of preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Hash functions, at least one.
    pub hashes: Vec<Hash>,
    /// Groups, at least one.
    pub groups: Vec<Group>,
}

impl Default for Offer {
    /// All of them.
    fn default() -> Self {
        Self { hashes: Hash::ALL.to_vec(), groups: Group::ALL.to_vec() }
    }
}

/// How far an exchange is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is going on.
    Pending,
    /// The host is authenticated, and has authenticated the controller if it wanted to.
    Authenticated,
    /// It has failed. The queue may not be used.
    Failed,
}

/// What was sent with the challenge.
struct Asked {
    hash: Hash,
    group: Group,
    value: Vec<u8>,
    sequence: u32,
    pair: Option<Pair>,
}

enum State {
    /// The host begins.
    Fresh,
    /// The host asks for the challenge, or has it.
    Challenged(Asked),
    /// The host has to send Success2 or Failure2, since it wanted to authenticate the controller.
    Proven {
        hash: Hash,
        group: Group,
    },
    Ended(Outcome),
}

/// One exchange of a controller.
pub struct ControllerExchange {
    keys: Keys,
    names: Names,
    offer: Offer,
    t_id: u16,
    state: State,
    /// The message for the next Authentication Receive.
    next: Option<Vec<u8>>,
}

impl ControllerExchange {
    /// Begins an exchange with a host whose keys are `keys`.
    #[must_use]
    pub fn new(keys: Keys, names: Names, offer: Offer) -> Self {
        Self { keys, names, offer, t_id: 0, state: State::Fresh, next: None }
    }

    /// Returns how far it is.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self.state {
            State::Ended(outcome) => outcome,
            _ => Outcome::Pending,
        }
    }

    /// Returns the message for the host, once.
    pub fn message(&mut self) -> Option<Vec<u8>> {
        self.next.take()
    }

    /// Takes a message of the host.
    ///
    /// # Errors
    /// Why the exchange is over now. [`message`](Self::message) returns what tells the host, unless
    /// that has ended it.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), AuthError> {
        let taken = self.take_message(bytes);
        if let Err(error) = &taken {
            self.state = State::Ended(Outcome::Failed);
            let failure = Message::Failed(error.failure());
            let by_us = !matches!(error, AuthError::Ended(_));
            self.next = by_us.then(|| failure.bytes(self.t_id, Hash::Sha256, false));
        }
        taken
    }

    fn take_message(&mut self, bytes: &[u8]) -> Result<(), AuthError> {
        let state = std::mem::replace(&mut self.state, State::Ended(Outcome::Failed));
        if self.next.is_some() {
            return Err(AuthError::Message("the one before was not fetched"));
        }
        let chosen = match &state {
            State::Challenged(asked) => Some((asked.hash, asked.group)),
            State::Proven { hash, group } => Some((*hash, *group)),
            _ => None,
        };
        let (t_id, message) = Message::parse(bytes, chosen)?;
        if let State::Fresh = state {
            self.t_id = t_id;
        }
        if let Message::Failed(failure) = message {
            return Err(AuthError::Ended(failure));
        }
        if t_id != self.t_id {
            return Err(AuthError::Message("it is of another exchange"));
        }
        match (state, message) {
            (State::Fresh, Message::Negotiate { sc_c, hashes, groups }) => {
                if sc_c != 0 {
                    return Err(AuthError::Ended(Failure::ConcatenationMismatch));
                }
                self.challenge(&hashes, &groups)
            }
            (State::Challenged(asked), Message::Reply { response, challenge, public }) => {
                self.check(&asked, &response, challenge, &public)
            }
            (State::Proven { .. }, Message::Success2) => {
                self.state = State::Ended(Outcome::Authenticated);
                Ok(())
            }
            _ => Err(AuthError::Message("another one was expected")),
        }
    }

    fn challenge(&mut self, hashes: &[Hash], groups: &[Group]) -> Result<(), AuthError> {
        let hash = self.offer.hashes.iter().find(|hash| hashes.contains(hash));
        let group = self.offer.groups.iter().find(|group| groups.contains(group));
        let hash = *hash.ok_or_else(|| AuthError::Unusable("other hash functions".to_owned()))?;
        let group = *group.ok_or_else(|| AuthError::Unusable("other groups".to_owned()))?;
        let (mut value, mut sequence) = (vec![0; hash.bytes()], [0; 4]);
        rand_bytes(&mut value)?;
        rand_bytes(&mut sequence)?;
        let sequence = u32::from_ne_bytes(sequence).max(1);
        let pair = group.pair()?;
        let public = pair.as_ref().map_or(Ok(Vec::new()), |pair| pair.public())?;
        let challenge = value.clone();
        let message = Message::Challenge { hash, group, sequence, challenge, public };
        self.next = Some(message.bytes(self.t_id, hash, false));
        self.state = State::Challenged(Asked { hash, group, value, sequence, pair });
        Ok(())
    }

    fn check(
        &mut self,
        asked: &Asked,
        response: &[u8],
        challenge: Option<(u32, Vec<u8>)>,
        public: &[u8],
    ) -> Result<(), AuthError> {
        let Asked { hash, group, value, sequence, pair } = asked;
        let shared = pair.as_ref().map(|pair| pair.shared(public)).transpose()?;
        let shared = shared.as_ref().map(|shared| &shared[..]);
        let (hash, sequence, t_id) = (*hash, *sequence, self.t_id);
        let ours = Challenge { hash, value, sequence, t_id, sc_c: 0, shared };
        let expected = ours.response(Side::Host, &self.keys.host, &self.names)?;
        if !is_right(&expected, response) {
            return Err(AuthError::WrongResponse);
        }
        let response = match (challenge, &self.keys.controller) {
            (None, _) => None,
            (Some((sequence, value)), Some(key)) => {
                let theirs = Challenge { value: &value, sequence, ..ours };
                Some(theirs.response(Side::Controller, key, &self.names)?.to_vec())
            }
            (Some(_), None) => {
                return Err(AuthError::Unusable(
                    "a proof of a controller without a key".to_owned(),
                ));
            }
        };
        self.state = match response {
            Some(_) => State::Proven { hash, group: *group },
            None => State::Ended(Outcome::Authenticated),
        };
        self.next = Some(Message::Success1 { response }.bytes(self.t_id, hash, false));
        Ok(())
    }
}
