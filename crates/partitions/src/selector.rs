//! Which partition a user wants.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What is percent-encoded: all but the unreserved characters of RFC 3986 §2.3.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How a user names a partition: `2`, `label:NAME` or `uuid:UUID`, percent-encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// By its number.
    Number(u32),
    /// By its name in a GPT.
    Label(String),
    /// By its GUID, or by what Linux calls PARTUUID.
    Uuid(String),
}

/// A text that names no partition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} names no partition: give its number (2), its label (label:NAME) or its UUID \
     (uuid:UUID); write other characters than letters, digits and -._~ as %XX"
)]
pub struct SelectorError {
    /// The text.
    pub text: String,
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let error = || SelectorError { text: text.to_owned() };
        let decoded = |value: &str| {
            let value = percent_decode_str(value).decode_utf8().ok()?.into_owned();
            (!value.is_empty()).then_some(value)
        };
        if let Some(label) = text.strip_prefix("label:") {
            return decoded(label).map(Self::Label).ok_or_else(error);
        }
        if let Some(uuid) = text.strip_prefix("uuid:") {
            return decoded(uuid).map(Self::Uuid).ok_or_else(error);
        }
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| is_number && *number > 0);
        number.map(Self::Number).ok_or_else(error)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Label(label) => write!(f, "label:{}", utf8_percent_encode(label, ENCODED)),
            Self::Uuid(uuid) => write!(f, "uuid:{}", utf8_percent_encode(uuid, ENCODED)),
        }
    }
}
