//! Runs fio's job files: which blocks, what data, at what rate, and in which order.
//!
//! `meantime bench` measures devices with fio's jobs. This crate reads the jobs, runs them and
//! counts. The command reads its arguments, shows the results and writes the files.
//!
//! # What it owns
//!
//! - **Jobs.** [`job`] reads job files and options into [`job::Job`], by one table of keys
//!   (`job/keys`): an entry has a key's names, its kind of value and its range, default, field,
//!   what it applies to and one line of help. Errors, `--help` and docs/fio.md come from it.
//! - **I/Os.** A source (`source`) chooses them, pass by pass: [`pattern`] in order or each block
//!   once at random; [`varied`] with varying sizes, or places that come again; `replay` as a trace
//!   says; `trim` deallocates; `verify` writes data that it can check, and checks it.
//! - **Pace.** `shape` decides when an I/O is submitted and what comes between: flushes, pauses,
//!   rates, batches.
//! - **The loop.** [`engine`] keeps a number of I/Os in flight on a channel and measures their
//!   times.
//! - **The run.** [`run`] opens devices, checks jobs against them and gives each device and policy
//!   its turns. It returns results of the crate meantime-report.
//!
//! # What it promises
//!
//! - Reading a job does no I/O and does not panic, whatever the text. It reports all errors at
//!   once, each with its line.
//! - The loop is generic over channel, source and recorder: nothing on its path is dispatched
//!   dynamically, and it allocates nothing.
//! - A run prints nothing. It calls a [`run::Progress`] between turns. Other threads look at its
//!   I/Os by a [`run::Watch`], if the caller wants that. A flag that the caller sets ends it with
//!   what was measured.
//! - Equal seeds give equal I/Os, so all devices and policies of a job do the same.
//! - Each block is visited once before any is visited again, unless the job sets another order.
//!
//! # Its parts, in reading order
//!
//! [`job`] → [`plan`] (a job with its devices and policies) → [`pattern`] and `source` → [`varied`]
//! → `replay`, `trim`, `verify` and `digest` (checksums) → `shape` → [`engine`] and `record` → [`run`]. Beside them are
//! [`competitor`], the work of a competing program, and [`memory`], the machine's amount of memory.

#![forbid(unsafe_code)]

pub mod competitor;
mod digest;
pub mod engine;
pub mod job;
pub mod memory;
pub mod pattern;
pub mod plan;
mod record;
mod replay;
pub mod run;
mod shape;
mod source;
mod trim;
pub mod varied;
mod verify;
