//! Hash functions and Diffie-Hellman groups, by the identifiers of NVMe Base 2.0 §8.13.5.1.

use openssl::bn::BigNum;
use openssl::dh::Dh;
use openssl::error::ErrorStack;
use openssl::hash::{MessageDigest, hash};
use openssl::pkey::{PKey, Params, Private};
use openssl::sign::Signer;
use zeroize::Zeroizing;

use crate::error::AuthError;

/// A hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Hash {
    /// SHA-256.
    Sha256 = 1,
    /// SHA-384.
    Sha384 = 2,
    /// SHA-512.
    Sha512 = 3,
}

impl Hash {
    /// All of them, the strongest first.
    pub const ALL: [Self; 3] = [Self::Sha512, Self::Sha384, Self::Sha256];

    /// Returns the function with this identifier.
    #[must_use]
    pub fn of(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| *hash as u8 == id)
    }

    /// Returns the length of its result in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    fn digest(self) -> MessageDigest {
        match self {
            Self::Sha256 => MessageDigest::sha256(),
            Self::Sha384 => MessageDigest::sha384(),
            Self::Sha512 => MessageDigest::sha512(),
        }
    }

    /// Returns the HMAC of `parts`, one after the other.
    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Result<Secret, ErrorStack> {
        let key = PKey::hmac(key)?;
        let mut signer = Signer::new(self.digest(), &key)?;
        parts.iter().try_for_each(|part| signer.update(part))?;
        Ok(Zeroizing::new(signer.sign_to_vec()?))
    }

    /// Returns the hash of `data`.
    pub(crate) fn hash(self, data: &[u8]) -> Result<Secret, ErrorStack> {
        Ok(Zeroizing::new(hash(self.digest(), data)?.to_vec()))
    }
}

/// Bytes that are zeroed when they are dropped.
pub(crate) type Secret = Zeroizing<Vec<u8>>;

/// A Diffie-Hellman group (RFC 7919, appendix A).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Group {
    /// None: who knows the messages can try keys.
    Null = 0,
    /// ffdhe2048.
    Ffdhe2048 = 1,
    /// ffdhe3072.
    Ffdhe3072 = 2,
    /// ffdhe4096.
    Ffdhe4096 = 3,
    /// ffdhe6144.
    Ffdhe6144 = 4,
    /// ffdhe8192.
    Ffdhe8192 = 5,
}

impl Group {
    /// All of them, in the order in which they are preferred: what is long takes a controller tens
    /// of milliseconds.
    pub const ALL: [Self; 6] = [
        Self::Ffdhe2048,
        Self::Ffdhe3072,
        Self::Ffdhe4096,
        Self::Ffdhe6144,
        Self::Ffdhe8192,
        Self::Null,
    ];

    /// Returns the group with this identifier.
    #[must_use]
    pub fn of(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|group| *group as u8 == id)
    }

    /// Returns the length of its numbers in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 384,
            Self::Ffdhe4096 => 512,
            Self::Ffdhe6144 => 768,
            Self::Ffdhe8192 => 1024,
        }
    }

    /// Returns the prime in hexadecimal digits, in lines.
    fn prime(self) -> &'static str {
        match self {
            Self::Null => "",
            Self::Ffdhe2048 => include_str!("groups/ffdhe2048.hex"),
            Self::Ffdhe3072 => include_str!("groups/ffdhe3072.hex"),
            Self::Ffdhe4096 => include_str!("groups/ffdhe4096.hex"),
            Self::Ffdhe6144 => include_str!("groups/ffdhe6144.hex"),
            Self::Ffdhe8192 => include_str!("groups/ffdhe8192.hex"),
        }
    }

    /// The prime p, the generator 2, and the order of its group, (p − 1) / 2.
    fn parameters(self) -> Result<Dh<Params>, ErrorStack> {
        let digits: String = self.prime().split_whitespace().collect();
        let prime = BigNum::from_hex_str(&digits)?;
        let mut order = BigNum::new()?;
        order.rshift1(&prime)?;
        Dh::from_params(prime, BigNum::from_u32(2)?, order)
    }

    /// Returns a new pair of numbers, or `None` for [`Group::Null`].
    pub(crate) fn pair(self) -> Result<Option<Pair>, ErrorStack> {
        if self == Self::Null {
            return Ok(None);
        }
        Ok(Some(Pair { group: self, dh: self.parameters()?.generate_key()? }))
    }
}

/// A secret number and the public one.
pub(crate) struct Pair {
    group: Group,
    dh: Dh<Private>,
}

impl Pair {
    /// Returns the public number, as long as the prime.
    pub(crate) fn public(&self) -> Result<Vec<u8>, ErrorStack> {
        self.dh.public_key().to_vec_padded(self.group.bytes() as i32)
    }

    /// Returns the secret that both sides share, as long as the prime, given the other side's public
    /// number.
    ///
    /// # Errors
    /// The number is not one of the group.
    pub(crate) fn shared(&self, other: &[u8]) -> Result<Secret, AuthError> {
        let bytes = self.group.bytes();
        if other.len() != bytes {
            return Err(AuthError::Message("the public number is not as long as the group's"));
        }
        // OpenSSL checks that it is in the group, and is none of the numbers that give a known
        // secret.
        let number = BigNum::from_slice(other)?;
        let short = Zeroizing::new(
            self.dh
                .compute_key(&number)
                .map_err(|_| AuthError::Message("the public number is not one of the group"))?,
        );
        let mut shared = Zeroizing::new(vec![0; bytes]);
        shared[bytes - short.len()..].copy_from_slice(&short);
        Ok(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_those_of_the_specification() {
        assert_eq!([1, 2, 3].map(Hash::of), [Hash::Sha256, Hash::Sha384, Hash::Sha512].map(Some));
        assert_eq!((Hash::of(0), Hash::of(4), Group::of(6)), (None, None, None));
        for group in Group::ALL {
            assert_eq!(Group::of(group as u8), Some(group));
        }
    }

    /// RFC 7919: each prime and its half are prime, and the prime begins and ends with 64 ones.
    #[test]
    fn groups_are_those_of_the_rfc() {
        let mut context = openssl::bn::BigNumContext::new().unwrap();
        for group in Group::ALL.into_iter().filter(|group| *group != Group::Null) {
            let parameters = group.parameters().unwrap();
            let prime = parameters.prime_p();
            let bytes = prime.to_vec();
            assert_eq!(bytes.len(), group.bytes());
            assert_eq!((&bytes[..8], &bytes[bytes.len() - 8..]), (&[0xFF; 8][..], &[0xFF; 8][..]));
            // The digits of e, which all begin with.
            assert_eq!(bytes[8..16], [0xAD, 0xF8, 0x54, 0x58, 0xA2, 0xBB, 0x4A, 0x9A]);
            if group.bytes() <= 384 {
                assert!(prime.is_prime(4, &mut context).unwrap(), "{group:?}");
                let order = parameters.prime_q().unwrap();
                assert!(order.is_prime(4, &mut context).unwrap(), "{group:?}");
            }
        }
    }

    #[test]
    fn both_sides_get_one_secret_of_full_length() {
        let (ours, theirs) =
            (Group::Ffdhe2048.pair().unwrap().unwrap(), Group::Ffdhe2048.pair().unwrap().unwrap());
        let shared = ours.shared(&theirs.public().unwrap()).unwrap();
        assert_eq!(shared, theirs.shared(&ours.public().unwrap()).unwrap());
        assert_eq!(shared.len(), 256);
        assert!(Group::Null.pair().unwrap().is_none());
    }

    /// With these the secret would be 0, 1 or −1, whoever asks.
    #[test]
    fn numbers_that_give_a_known_secret_are_refused() {
        let pair = Group::Ffdhe2048.pair().unwrap().unwrap();
        let parameters = Group::Ffdhe2048.parameters().unwrap();
        let mut last = parameters.prime_p().to_owned().unwrap();
        let prime = last.to_vec_padded(256).unwrap();
        last.sub_word(1).unwrap();
        let number = |value: u8| {
            let mut bytes = vec![0; 256];
            bytes[255] = value;
            bytes
        };
        for wrong in [number(0), number(1), last.to_vec_padded(256).unwrap(), prime] {
            assert!(pair.shared(&wrong).is_err());
        }
        for len in [0, 255, 257] {
            assert!(matches!(pair.shared(&vec![2; len]), Err(AuthError::Message(_))));
        }
    }
}
