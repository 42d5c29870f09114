//! Plots as SVG, for all pages and pictures: axes and ticks, grid and labels, looks and legends.
//!
//! A plot has classes only, takes its colours from the pages' style sheet and follows the reader's
//! theme.

mod axis;
mod chart;
mod look;
mod mark;
mod points;

pub(crate) use axis::{Axis, Scale, Tick, short};
pub(crate) use chart::{ACROSS, Chart, Distribution, HEIGHT, Share, UP, WIDTH, distributions};
pub(crate) use look::Style;
pub(crate) use mark::{Mark, block, line, text, text_width};
pub(crate) use points::Point;
