//! What was measured, and how it is shown.
//!
//! - [`run`]: the result of a run, and fio's forms of it: JSON, text, logs, a table.
//! - [`results`]: a page, or a table, of the JSON of one run or several, ours or fio's.
//! - [`waits`]: ways to wait over a grid of devices: tables, JSON and a page.
//! - [`plot`]: all plots, on pages and in pictures.
//!
//! Pages and pictures are written by the templates in `templates/`, which escape everything they
//! show. A page is one file: it loads nothing and runs nothing.

#![forbid(unsafe_code)]

mod escape;
pub mod figures;
pub mod plot;
pub mod results;
pub mod run;
mod view;
pub mod waits;
