//! The keys. The entry of each is the source of parsing, `--help` and docs/fio.md.
//!
//! An entry is a [`key`] with its [`kind`] of value. Those of the implemented keys are in [`io`],
//! [`course`] and [`cpu`], by subject, and together in the [`table`], which writes the lists of
//! `--help` and of the manual; fio's keys that are accepted without effect or refused are in
//! [`fios`]. [`set`] looks a key up.

mod course;
mod cpu;
pub(super) mod fios;
mod io;
pub(super) mod key;
mod kind;
mod nearest;
mod set;
pub(super) mod table;

pub(super) use table::find;

pub use set::{Ignored, Note, known_key, may_stand_alone};
pub use table::{KeyOption, options, subjects};
