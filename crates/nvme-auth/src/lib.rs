//! In-band authentication of NVMe over Fabrics: DH-HMAC-CHAP (NVMe Base 2.0 §8.13.5).
//!
//! # What it is for
//! A host proves to a controller that it knows the host's key, and if it likes, has the controller
//! prove that it knows its own. No key is sent. With a Diffie-Hellman group, who records the
//! messages and learns a key later cannot check guesses by them.
//!
//! # What it owns
//! The keys, and the state of one exchange for each side: [`HostExchange`] and
//! [`ControllerExchange`]. They take and make messages as bytes. What carries these (Authentication
//! Send and Receive), and when, is the caller's.
//!
//! # What it promises
//! - A message is taken only in its turn, with the transaction's identifier, and once.
//! - Lengths and identifiers of the other side are checked before anything is computed from them. An
//!   exchange has a bounded number of steps, each of bounded time.
//! - Keys, responses and secrets are compared in constant time, and zeroed when they are dropped.
//!   No message, log or debugging text has them.
//! - Cryptography is OpenSSL's: hashes, HMAC, Diffie-Hellman, random numbers.
//!
//! # Parts, in reading order
//! ```text
//!   key          DHHC-1:… and what is computed with it; the file of keys
//!   algorithm    hashes and groups by their identifiers
//!   names        what the two sides are called
//!   message      the messages, as bytes
//!   response     what each side proves
//!   host         one exchange of a host
//!   controller   one exchange of a controller
//!   error        why one has failed
//! ```

#![forbid(unsafe_code)]

mod algorithm;
mod controller;
mod error;
mod host;
mod key;
mod message;
mod names;
mod response;

pub use algorithm::{Group, Hash};
pub use controller::{ControllerExchange, Offer, Outcome};
pub use error::AuthError;
pub use host::{HostExchange, Step};
pub use key::{Key, KeyError, Keys};
pub use message::Failure;
pub use names::Names;
