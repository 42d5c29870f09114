//! What the tests of several crates share. Unit tests cannot use it: they would have two copies of
//! their crate's types. What those share stays in a crate's feature `testing`.
#![allow(missing_docs, reason = "what the tests call says what it does by its name")]

pub mod by_hand;
pub mod host;
pub mod process;
pub mod served;
