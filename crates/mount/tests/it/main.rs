//! Mounts in the kernel, as programs see them.

mod beside;
mod coherence;
mod content;
mod databases;
mod ends;
mod kept;
mod names;
mod programs;
mod reserved;
mod rights;
mod served;
mod short;
mod suites;
#[path = "../way/mod.rs"]
mod way;
