//! What the tests of several crates share. Unit tests cannot use it: they would have two copies of
//! their crate's types. What those share stays in a crate's feature `testing`.
#![allow(missing_docs, reason = "what the tests call says what it does by its name")]

pub mod alloc;
pub mod by_hand;
pub mod damage;
mod driver;
pub mod e2fs;
pub mod filled;
pub mod host;
pub mod image;
pub mod lab;
pub mod port;
pub mod process;
pub mod rig;
mod rng;
pub mod served;

pub use driver::{device, quick, quick_once, stepped};
pub use rng::{Rng, setting};
