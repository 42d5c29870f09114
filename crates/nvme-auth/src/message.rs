//! The messages (NVMe Base 2.0 §8.13.5.2 to §8.13.5.7).

use std::fmt;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::algorithm::{Group, Hash};
use crate::error::AuthError;

/// AUTH_TYPE: messages of all protocols, and those of DH-HMAC-CHAP.
const COMMON: u8 = 0;
const DH_HMAC_CHAP: u8 = 1;

/// AUTH_ID of each message.
mod id {
    pub(super) const NEGOTIATE: u8 = 0x00;
    pub(super) const CHALLENGE: u8 = 0x01;
    pub(super) const REPLY: u8 = 0x02;
    pub(super) const SUCCESS1: u8 = 0x03;
    pub(super) const SUCCESS2: u8 = 0x04;
    pub(super) const FAILURE2: u8 = 0xF0;
    pub(super) const FAILURE1: u8 = 0xF1;
}

/// The only protocol that is known, in a Negotiate.
const PROTOCOL: u8 = 1;
/// The identifiers that a protocol's descriptor has room for, of hashes and of groups each.
const LISTED: usize = 30;
/// Protocols of a Negotiate that are looked at.
const PROTOCOLS_MAX: usize = 8;

/// What each message begins with.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    auth_type: u8,
    auth_id: u8,
    reserved: U16,
    t_id: U16,
}

/// AUTH_Negotiate, before its protocols.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct NegotiateHead {
    header: Header,
    sc_c: u8,
    napd: u8,
}

/// The descriptor of DH-HMAC-CHAP in it.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Descriptor {
    auth_id: u8,
    reserved: u8,
    halen: u8,
    dhlen: u8,
    hashes: [u8; LISTED],
    groups: [u8; LISTED],
}

/// DH-HMAC-CHAP_Challenge, before the challenge and the public number.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ChallengeHead {
    header: Header,
    hl: u8,
    reserved: u8,
    hash: u8,
    group: u8,
    dhvlen: U16,
    sequence: U32,
}

/// DH-HMAC-CHAP_Reply, before the response, the challenge and the public number.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ReplyHead {
    header: Header,
    hl: u8,
    reserved: u8,
    cvalid: u8,
    reserved2: u8,
    dhvlen: U16,
    sequence: U32,
}

/// DH-HMAC-CHAP_Success1, before the response.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Success1Head {
    header: Header,
    hl: u8,
    reserved: u8,
    rvalid: u8,
    reserved2: [u8; 7],
}

/// DH-HMAC-CHAP_Success2.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Success2 {
    header: Header,
    reserved: [u8; 10],
}

/// AUTH_Failure1 and AUTH_Failure2.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FailureMessage {
    header: Header,
    code: u8,
    explanation: u8,
}

/// Why a side ends an exchange (the reason code explanation).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Failure {
    /// Authentication failed.
    Failed = 1,
    /// The protocol is not usable.
    ProtocolUnusable = 2,
    /// Secure channel concatenation does not match.
    ConcatenationMismatch = 3,
    /// The hash function is not usable.
    HashUnusable = 4,
    /// The group is not usable.
    GroupUnusable = 5,
    /// A message is wrong.
    IncorrectPayload = 6,
    /// A message is not the one that was expected.
    IncorrectMessage = 7,
}

impl Failure {
    const ALL: [Self; 7] = [
        Self::Failed,
        Self::ProtocolUnusable,
        Self::ConcatenationMismatch,
        Self::HashUnusable,
        Self::GroupUnusable,
        Self::IncorrectPayload,
        Self::IncorrectMessage,
    ];
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "authentication failed: it has another key for this name, or none",
            Self::ProtocolUnusable => "it does not use DH-HMAC-CHAP",
            Self::ConcatenationMismatch => {
                "it wants TLS after the authentication, or does not want it"
            }
            Self::HashUnusable => "it uses none of the hash functions",
            Self::GroupUnusable => "it uses none of the Diffie-Hellman groups",
            Self::IncorrectPayload => "it found a message wrong",
            Self::IncorrectMessage => "it expected another message",
        })
    }
}

/// A message that has been understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// What the host offers, in its order of preference; and whether it wants more than to be
    /// authenticated (SC_C).
    Negotiate {
        sc_c: u8,
        hashes: Vec<Hash>,
        groups: Vec<Group>,
    },
    Challenge {
        hash: Hash,
        group: Group,
        sequence: u32,
        challenge: Vec<u8>,
        public: Vec<u8>,
    },
    Reply {
        response: Vec<u8>,
        challenge: Option<(u32, Vec<u8>)>,
        public: Vec<u8>,
    },
    Success1 {
        response: Option<Vec<u8>>,
    },
    Success2,
    /// Either of the two.
    Failed(Failure),
}

/// Takes a structure off the beginning of `bytes`.
fn take<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<(T, &[u8]), AuthError> {
    T::read_from_prefix(bytes).map_err(|_| AuthError::Message("it is too short"))
}

/// Takes `len` bytes off the beginning of `bytes`.
fn split(bytes: &[u8], len: usize) -> Result<(&[u8], &[u8]), AuthError> {
    bytes.split_at_checked(len).ok_or(AuthError::Message("it is too short"))
}

/// Returns the length that the hash function of an exchange has; a message must have that.
fn checked_len(hl: u8, hash: Hash) -> Result<usize, AuthError> {
    match usize::from(hl) == hash.bytes() {
        true => Ok(hash.bytes()),
        false => Err(AuthError::Message("its hash has another length")),
    }
}

impl Message {
    /// Parses `bytes`, which may be followed by zeroes. Returns the transaction's identifier, too.
    /// `hash` and `group` are those of the exchange, once they are known.
    ///
    /// # Errors
    /// [`AuthError::Message`], or [`AuthError::Unusable`] for a choice that is not known.
    pub(crate) fn parse(
        bytes: &[u8],
        chosen: Option<(Hash, Group)>,
    ) -> Result<(u16, Self), AuthError> {
        let (header, _) = take::<Header>(bytes)?;
        let message = match (header.auth_type, header.auth_id) {
            (COMMON, id::NEGOTIATE) => Self::negotiate(bytes)?,
            (COMMON, id::FAILURE1 | id::FAILURE2) => {
                let (failure, _) = take::<FailureMessage>(bytes)?;
                let known = Failure::ALL.into_iter();
                let why = known.into_iter().find(|one| *one as u8 == failure.explanation);
                Self::Failed(why.unwrap_or(Failure::Failed))
            }
            (DH_HMAC_CHAP, id::CHALLENGE) => Self::challenge(bytes)?,
            (DH_HMAC_CHAP, id::REPLY) => Self::reply(bytes, chosen)?,
            (DH_HMAC_CHAP, id::SUCCESS1) => Self::success1(bytes, chosen)?,
            (DH_HMAC_CHAP, id::SUCCESS2) => {
                take::<Success2>(bytes)?;
                Self::Success2
            }
            _ => return Err(AuthError::Message("its type is unknown")),
        };
        Ok((header.t_id.get(), message))
    }

    fn negotiate(bytes: &[u8]) -> Result<Self, AuthError> {
        let (head, mut rest) = take::<NegotiateHead>(bytes)?;
        for _ in 0..usize::from(head.napd).min(PROTOCOLS_MAX) {
            let (descriptor, after) = take::<Descriptor>(rest)?;
            rest = after;
            if descriptor.auth_id != PROTOCOL {
                continue;
            }
            let hashes = descriptor.hashes.get(..descriptor.halen.into());
            let groups = descriptor.groups.get(..descriptor.dhlen.into());
            let (Some(hashes), Some(groups)) = (hashes, groups) else {
                return Err(AuthError::Message("it lists more than it has room for"));
            };
            return Ok(Self::Negotiate {
                sc_c: head.sc_c,
                hashes: hashes.iter().filter_map(|id| Hash::of(*id)).collect(),
                groups: groups.iter().filter_map(|id| Group::of(*id)).collect(),
            });
        }
        Ok(Self::Negotiate { sc_c: head.sc_c, hashes: Vec::new(), groups: Vec::new() })
    }

    fn challenge(bytes: &[u8]) -> Result<Self, AuthError> {
        let (head, rest) = take::<ChallengeHead>(bytes)?;
        let hash = Hash::of(head.hash)
            .ok_or_else(|| AuthError::Unusable(format!("hash function {}", head.hash)))?;
        let group = Group::of(head.group)
            .ok_or_else(|| AuthError::Unusable(format!("group {}", head.group)))?;
        let (challenge, rest) = split(rest, checked_len(head.hl, hash)?)?;
        if usize::from(head.dhvlen.get()) != group.bytes() {
            return Err(AuthError::Message("its public number is not as long as the group's"));
        }
        let (public, _) = split(rest, group.bytes())?;
        let (challenge, public) = (challenge.to_vec(), public.to_vec());
        Ok(Self::Challenge { hash, group, sequence: head.sequence.get(), challenge, public })
    }

    fn reply(bytes: &[u8], chosen: Option<(Hash, Group)>) -> Result<Self, AuthError> {
        let (hash, group) = chosen.ok_or(AuthError::Message("there was no challenge"))?;
        let (head, rest) = take::<ReplyHead>(bytes)?;
        let len = checked_len(head.hl, hash)?;
        let (response, rest) = split(rest, len)?;
        // There is room for the challenge even if it is not valid.
        let (challenge, rest) = split(rest, len)?;
        if usize::from(head.dhvlen.get()) != group.bytes() {
            return Err(AuthError::Message("its public number is not as long as the group's"));
        }
        let (public, _) = split(rest, group.bytes())?;
        let challenge = (head.cvalid != 0).then(|| (head.sequence.get(), challenge.to_vec()));
        Ok(Self::Reply { response: response.to_vec(), challenge, public: public.to_vec() })
    }

    fn success1(bytes: &[u8], chosen: Option<(Hash, Group)>) -> Result<Self, AuthError> {
        let (hash, _) = chosen.ok_or(AuthError::Message("there was no challenge"))?;
        let (head, rest) = take::<Success1Head>(bytes)?;
        if head.rvalid == 0 {
            return Ok(Self::Success1 { response: None });
        }
        let (response, _) = split(rest, checked_len(head.hl, hash)?)?;
        Ok(Self::Success1 { response: Some(response.to_vec()) })
    }

    /// Returns the message's bytes. `hash` is that of the exchange, for messages that have one;
    /// [`Failed`](Self::Failed) is AUTH_Failure2 of a host, or AUTH_Failure1 of a controller.
    pub(crate) fn bytes(&self, t_id: u16, hash: Hash, is_host: bool) -> Vec<u8> {
        let header = |auth_type, auth_id| Header {
            auth_type,
            auth_id,
            reserved: U16::ZERO,
            t_id: t_id.into(),
        };
        let hl = hash.bytes() as u8;
        match self {
            Self::Negotiate { sc_c, hashes, groups } => {
                let (halen, dhlen) = (hashes.len() as u8, groups.len() as u8);
                let mut descriptor = Descriptor {
                    auth_id: PROTOCOL,
                    reserved: 0,
                    halen,
                    dhlen,
                    hashes: [0; LISTED],
                    groups: [0; LISTED],
                };
                let lists = descriptor.hashes.iter_mut().zip(hashes);
                lists.for_each(|(to, hash)| *to = *hash as u8);
                let lists = descriptor.groups.iter_mut().zip(groups);
                lists.for_each(|(to, group)| *to = *group as u8);
                let header = header(COMMON, id::NEGOTIATE);
                let head = NegotiateHead { header, sc_c: *sc_c, napd: 1 };
                [head.as_bytes(), descriptor.as_bytes()].concat()
            }
            Self::Challenge { hash, group, sequence, challenge, public } => {
                let head = ChallengeHead {
                    header: header(DH_HMAC_CHAP, id::CHALLENGE),
                    hl,
                    reserved: 0,
                    hash: *hash as u8,
                    group: *group as u8,
                    dhvlen: (public.len() as u16).into(),
                    sequence: (*sequence).into(),
                };
                [head.as_bytes(), challenge, public].concat()
            }
            Self::Reply { response, challenge, public } => {
                let none = (0, vec![0; hash.bytes()]);
                let (sequence, value) = challenge.as_ref().unwrap_or(&none);
                let head = ReplyHead {
                    header: header(DH_HMAC_CHAP, id::REPLY),
                    hl,
                    cvalid: challenge.is_some().into(),
                    dhvlen: (public.len() as u16).into(),
                    sequence: (*sequence).into(),
                    ..ReplyHead::default()
                };
                [head.as_bytes(), response, value, public].concat()
            }
            Self::Success1 { response } => {
                let head = Success1Head {
                    header: header(DH_HMAC_CHAP, id::SUCCESS1),
                    hl,
                    rvalid: response.is_some().into(),
                    ..Success1Head::default()
                };
                let none = vec![0; hash.bytes()];
                [head.as_bytes(), response.as_ref().unwrap_or(&none)].concat()
            }
            Self::Success2 => {
                let header = header(DH_HMAC_CHAP, id::SUCCESS2);
                Success2 { header, ..Success2::default() }.as_bytes().to_vec()
            }
            Self::Failed(why) => {
                let auth_id = if is_host { id::FAILURE2 } else { id::FAILURE1 };
                let header = header(COMMON, auth_id);
                FailureMessage { header, code: 1, explanation: *why as u8 }.as_bytes().to_vec()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all() -> Vec<Message> {
        let (hash, group) = (Hash::Sha384, Group::Ffdhe2048);
        let (hashed, public) = (vec![7; hash.bytes()], vec![9; group.bytes()]);
        let challenge = Message::Challenge {
            hash,
            group,
            sequence: 0x0102_0304,
            challenge: hashed.clone(),
            public: public.clone(),
        };
        vec![
            Message::Negotiate { sc_c: 0, hashes: Hash::ALL.to_vec(), groups: Group::ALL.to_vec() },
            challenge,
            Message::Reply { response: hashed.clone(), challenge: None, public: public.clone() },
            Message::Reply {
                response: hashed.clone(),
                challenge: Some((5, hashed.clone())),
                public,
            },
            Message::Success1 { response: Some(hashed) },
            Message::Success1 { response: None },
            Message::Success2,
            Message::Failed(Failure::HashUnusable),
        ]
    }

    const CHOSEN: Option<(Hash, Group)> = Some((Hash::Sha384, Group::Ffdhe2048));

    #[test]
    fn what_is_written_is_read() {
        for message in all() {
            let bytes = message.bytes(0x1234, Hash::Sha384, true);
            assert_eq!(Message::parse(&bytes, CHOSEN), Ok((0x1234, message.clone())));
            // A buffer is longer than what it holds.
            let padded = [&bytes[..], &[0; 100]].concat();
            assert_eq!(Message::parse(&padded, CHOSEN), Ok((0x1234, message.clone())));
            // Without a response there may be no room for one.
            let needed =
                if message == (Message::Success1 { response: None }) { 16 } else { bytes.len() };
            for len in 0..needed {
                assert!(Message::parse(&bytes[..len], CHOSEN).is_err(), "{message:?} {len}");
            }
        }
    }

    /// Offsets by the figures of §8.13.5.
    #[test]
    fn fields_are_where_the_specification_has_them() {
        let lens: Vec<usize> =
            all().iter().map(|one| one.bytes(1, Hash::Sha384, false).len()).collect();
        assert_eq!(lens, [72, 16 + 48 + 256, 16 + 96 + 256, 16 + 96 + 256, 64, 64, 16, 8]);
        let bytes = all()[1].bytes(0x1234, Hash::Sha384, false);
        let head = [1, 1, 0, 0, 0x34, 0x12, 48, 0, 2, 1, 0, 1, 4, 3, 2, 1];
        assert_eq!(bytes[..16], head);
        let bytes = all()[0].bytes(1, Hash::Sha384, true);
        assert_eq!(bytes[..15], [0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 3, 6, 3, 2, 1]);
        assert_eq!(bytes[8 + 4 + 30..][..6], [1, 2, 3, 4, 5, 0]);
    }

    #[test]
    fn lists_and_lengths_that_lie_are_refused() {
        let mut negotiate = all()[0].bytes(1, Hash::Sha384, true);
        negotiate[10] = 31;
        assert!(Message::parse(&negotiate, None).is_err());
        let mut challenge = all()[1].bytes(1, Hash::Sha384, false);
        challenge[6] = 64;
        assert!(Message::parse(&challenge, None).is_err(), "HL is SHA-512's");
        challenge[6] = 48;
        challenge[10] = 1;
        assert!(Message::parse(&challenge, None).is_err(), "DHVLEN is 257");
        let reply = all()[2].bytes(1, Hash::Sha384, true);
        assert!(Message::parse(&reply, None).is_err(), "before a challenge");
        assert!(Message::parse(&reply, Some((Hash::Sha256, Group::Ffdhe2048))).is_err());
        assert!(Message::parse(&reply, Some((Hash::Sha384, Group::Null))).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, first in 0..2_u8, second in 0..6_u8) {
            let _ = Message::parse(&bytes, CHOSEN);
            let named = [&[first, second][..], &bytes].concat();
            let _ = Message::parse(&named, CHOSEN);
        }
    }
}
