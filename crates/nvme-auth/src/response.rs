//! What each side proves (NVMe Base 2.0 §8.13.5.4 and §8.13.5.5).

use crate::algorithm::{Hash, Secret};
use crate::error::AuthError;
use crate::key::Key;
use crate::names::Names;

/// Who proves something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Host,
    Controller,
}

/// A challenge, as both sides know it.
pub(crate) struct Challenge<'a> {
    pub(crate) hash: Hash,
    pub(crate) value: &'a [u8],
    pub(crate) sequence: u32,
    pub(crate) t_id: u16,
    /// SC_C of the negotiation.
    pub(crate) sc_c: u8,
    /// The secret of the Diffie-Hellman group, if there is one.
    pub(crate) shared: Option<&'a [u8]>,
}

impl Challenge<'_> {
    /// Returns the response of `side`, whose key is `key`.
    pub(crate) fn response(
        &self,
        side: Side,
        key: &Key,
        names: &Names,
    ) -> Result<Secret, AuthError> {
        let Self { hash, value, sequence, t_id, sc_c, shared } = *self;
        let (host, subsystem) = (names.host.as_bytes(), names.subsystem.as_bytes());
        // With a group, the challenge is augmented by what only these two know.
        let augmented = match shared {
            Some(shared) => Some(hash.hmac(&hash.hash(shared)?, &[value])?),
            None => None,
        };
        let value = augmented.as_ref().map_or(value, |augmented| augmented);
        let (key, words, first, second, sc_c) = match side {
            Side::Host => (key.of(&names.host)?, &b"HostHost"[..], host, subsystem, sc_c),
            Side::Controller => (key.of(&names.subsystem)?, &b"Controller"[..], subsystem, host, 0),
        };
        let (sequence, t_id) = (sequence.to_le_bytes(), t_id.to_le_bytes());
        let parts = [value, &sequence, &t_id, &[sc_c], words, first, &[0], second];
        Ok(hash.hmac(&key, &parts)?)
    }
}

/// Compares what a side has sent with what it should have sent, in constant time.
pub(crate) fn is_right(expected: &[u8], response: &[u8]) -> bool {
    expected.len() == response.len() && openssl::memcmp::eq(expected, response)
}
