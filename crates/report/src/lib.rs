//! Shows results as text, JSON and pages.
//!
//! # What it is for
//! The command measures; this crate turns results into text, JSON and pages. It measures nothing
//! and depends on no other crate of the project.
//!
//! # What it promises
//! - Pages and pictures are written by the templates in `templates/`, which escape everything they
//!   show (`escape`). A page is one file: it loads nothing and runs nothing.
//! - A page of a run and a page of its JSON are the same.
//! - Percentiles come from the histogram's bins. Without bins, curves join the known percentiles
//!   and say so. Runs are compared only within one job, one device and one machine.
//!
//! # Parts, in reading order
//! ```text
//!   run/        the result of a run, and fio's forms of it: JSON, text, logs
//!   results/    a page, or a table, of the JSON of one run or several, ours or fio's
//!   compare/    runs before a change beside runs after it: intervals and verdicts
//!   waits/      ways to wait over a grid of devices: tables, JSON and a page
//!   picture/    figures beside others' figures: plots for pages and for a file, tables
//!   plot/       all plots, on pages and in pictures
//!   histogram    times by powers of two, in lines of text
//!   table, view, escape, figures, machine    tables, templates, their escaper, numbers, facts
//! ```

#![forbid(unsafe_code)]

pub mod compare;
pub mod escape;
pub mod figures;
pub mod histogram;
mod machine;
pub mod picture;
mod plot;
pub mod results;
pub mod run;
mod table;
pub mod view;
pub mod waits;
