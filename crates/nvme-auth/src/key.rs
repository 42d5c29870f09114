//! Keys as people write them (NVMe Base 2.0 §8.13.5.8), and files of them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crc_fast::{CrcAlgorithm, checksum};
use openssl::base64;
use zeroize::Zeroizing;

use crate::algorithm::{Hash, Secret};
use crate::error::AuthError;

/// What a key begins with.
const PREFIX: &str = "DHHC-1:";
/// What a key is hashed with, beside its owner's name.
const SALT: &[u8] = b"NVMe-over-Fabrics";
/// The longest file of keys.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A secret of a host or of a controller.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    secret: Secret,
    /// What the secret is hashed with, with its owner's name, before it is used.
    hash: Option<Hash>,
}

/// It does not show the secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// Why a key or a file of keys cannot be used. It never has a key in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It has another form.
    #[error("no key of the form DHHC-1:00:BASE64: (`nvme gen-dhchap-key` makes one)")]
    Form,
    /// The number after the form is none that is known.
    #[error("a key whose hash is {0:?}; 00 to 03 are known")]
    Hash(String),
    /// A key has another length.
    #[error("a key of {0} bytes; it has 32, 48 or 64, and a checksum of 4")]
    Length(usize),
    /// A letter is wrong, or missing.
    #[error("a key whose checksum is wrong: was it copied as a whole?")]
    Checksum,
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Others may read the file.
    #[error("{0}: users other than its owner may read it (chmod 600)")]
    Mode(String),
    /// A line of the file.
    #[error("{path}, line {line}: {problem}")]
    Line {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
}

impl Key {
    /// Parses a key in its interchange format.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let rest = text.trim().strip_prefix(PREFIX).ok_or(KeyError::Form)?;
        let rest = rest.strip_suffix(':').ok_or(KeyError::Form)?;
        let (hash, encoded) = rest.split_once(':').ok_or(KeyError::Form)?;
        let hash = match hash {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            other => return Err(KeyError::Hash(other.chars().take(4).collect())),
        };
        let is_encoded = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
        if encoded.len() > 100 || !encoded.chars().all(is_encoded) {
            return Err(KeyError::Form);
        }
        let mut secret = Zeroizing::new(base64::decode_block(encoded).map_err(|_| KeyError::Form)?);
        let Some(len) = secret.len().checked_sub(4).filter(|len| [32, 48, 64].contains(len)) else {
            return Err(KeyError::Length(secret.len()));
        };
        let crc = checksum(CrcAlgorithm::Crc32IsoHdlc, &secret[..len]) as u32;
        if secret[len..] != crc.to_le_bytes() {
            return Err(KeyError::Checksum);
        }
        secret.truncate(len);
        Ok(Self { secret, hash })
    }

    /// Returns the key that is used for `nqn`, its owner's name.
    pub(crate) fn of(&self, nqn: &str) -> Result<Secret, AuthError> {
        match self.hash {
            None => Ok(self.secret.clone()),
            Some(hash) => Ok(hash.hmac(&self.secret, &[nqn.as_bytes(), SALT])?),
        }
    }
}

/// The keys of one host: its own, and that of the controllers that it talks to, if it is to check
/// them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// What the host proves that it knows.
    pub host: Key,
    /// What the controller has to prove that it knows.
    pub controller: Option<Key>,
}

impl Keys {
    /// Reads the keys of all hosts from a file: in each line the NQN of a host, its key, and
    /// perhaps the controller's, with blanks between. Lines that begin with `#` are comments.
    ///
    /// # Errors
    /// The file cannot be read, others may read it, or it has no such lines.
    pub fn read(path: &Path) -> Result<Vec<(String, Self)>, KeyError> {
        let name = path.display().to_string();
        let failed = |source| KeyError::Read { path: name.clone(), source };
        let mut file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_file() && metadata.mode() & 0o077 != 0 {
            return Err(KeyError::Mode(name));
        }
        let mut text = Zeroizing::new(String::new());
        let mut part = file.by_ref().take(FILE_BYTES_MAX + 1);
        part.read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        Self::parse_file(&text, &name)
    }

    fn parse_file(text: &str, path: &str) -> Result<Vec<(String, Self)>, KeyError> {
        let mut all: Vec<(String, Self)> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let problem =
                |problem: String| KeyError::Line { path: path.to_owned(), line: at + 1, problem };
            let words: Vec<&str> = line.split_whitespace().collect();
            let (nqn, host, controller) = match words[..] {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [nqn, host] => (nqn, host, None),
                [nqn, host, controller] => (nqn, host, Some(controller)),
                _ => return Err(problem("no NQN KEY, nor NQN KEY CONTROLLER-KEY".to_owned())),
            };
            if nqn.starts_with(PREFIX) {
                return Err(problem("no NQN before the key".to_owned()));
            }
            if all.iter().any(|(known, _)| known == nqn) {
                return Err(problem(format!("{nqn} has a line before")));
            }
            let key = |text| Key::parse(text).map_err(|error| problem(error.to_string()));
            let controller = controller.map(key).transpose()?;
            all.push((nqn.to_owned(), Self { host: key(host)?, controller }));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key in its interchange format.
    fn written(hash: &str, secret: &[u8]) -> String {
        let crc = checksum(CrcAlgorithm::Crc32IsoHdlc, secret) as u32;
        let all = [secret, &crc.to_le_bytes()].concat();
        format!("DHHC-1:{hash}:{}:", base64::encode_block(&all))
    }

    #[test]
    fn keys_of_each_length_are_read() {
        for len in [32, 48, 64] {
            let secret: Vec<u8> = (0..len).collect();
            for (text, hash) in [
                ("00", None),
                ("01", Some(Hash::Sha256)),
                ("02", Some(Hash::Sha384)),
                ("03", Some(Hash::Sha512)),
            ] {
                let key = Key::parse(&written(text, &secret)).unwrap();
                assert_eq!((&key.secret[..], key.hash), (&secret[..], hash));
            }
        }
    }

    /// The checksum is zlib's `crc32` of the bytes 0 to 31, least significant byte first.
    #[test]
    fn the_checksum_is_little_endian() {
        let text = written("00", &(0..32).collect::<Vec<u8>>());
        assert_eq!(text, "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:");
    }

    #[test]
    fn a_key_without_a_hash_is_used_as_it_is_and_another_with_its_owners_name() {
        let secret: Vec<u8> = (0..32).collect();
        let plain = Key::parse(&written("00", &secret)).unwrap();
        assert_eq!(plain.of("nqn.x").unwrap()[..], secret[..]);
        let hashed = Key::parse(&written("02", &secret)).unwrap();
        let (one, other) = (hashed.of("nqn.x").unwrap(), hashed.of("nqn.y").unwrap());
        assert!(one.len() == 48 && one != other);
    }

    #[test]
    fn what_is_no_key_is_called_that_without_showing_it() {
        let right = written("01", &[7; 32]);
        let wrong = [
            String::new(),
            "DHHC-1:".to_owned(),
            "DHHC-1:00".to_owned(),
            right.replace("DHHC-1", "DHHC-2"),
            right.replace(":01:", ":04:"),
            right.replace(":01:", ":1:"),
            right[..right.len() - 1].to_owned(),
            right.replace("Bwc", "BwC"),
            right.replace("Bwc", "Bw\u{e9}"),
            written("00", &[7; 31]),
            written("00", &[7; 65]),
            format!("DHHC-1:00:{}:", "A".repeat(1 << 20)),
        ];
        for text in wrong {
            let error = Key::parse(&text).unwrap_err().to_string();
            assert!(!error.contains("Bwc"), "{error}");
        }
        assert!(!format!("{:?}", Key::parse(&right).unwrap()).contains('7'));
    }

    #[test]
    fn a_file_has_a_line_for_each_host() {
        let (one, two) = (written("00", &[1; 32]), written("01", &[2; 48]));
        let text = format!("# keys\n\nnqn.a {one}\n nqn.b\t{one}  {two} \n");
        let all = Keys::parse_file(&text, "f").unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].0.as_str(), &all[0].1.controller), ("nqn.a", &None));
        assert_eq!((all[1].0.as_str(), all[1].1.controller.is_some()), ("nqn.b", true));
        for (wrong, says) in [
            (format!("nqn.a {one}\nnqn.a {two}"), "f, line 2: nqn.a has a line before"),
            (format!("nqn.a {one} {two} x"), "f, line 1: no NQN KEY"),
            (one.clone(), "f, line 1: no NQN"),
            (format!("{one} {two}"), "f, line 1: no NQN before the key"),
            ("nqn.a DHHC-1:00:AAAA:".to_owned(), "f, line 1: a key of 3 bytes"),
        ] {
            let error = Keys::parse_file(&wrong, "f").unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
