//! Plots as SVG, for all pages and pictures: axes and ticks, grid and labels, looks and legends.
//!
//! A plot has classes only, takes its colours from the pages' style sheet and follows the reader's
//! theme.

mod axis;
mod chart;
mod element;
mod look;
mod points;

pub(crate) use axis::{Axis, Scale, Tick, short};
pub(crate) use chart::{
    ACROSS, Chart, Distribution, HEIGHT, Share, UP, WIDTH, block, distributions,
};
pub(crate) use element::{Element, line, text, text_width};
pub(crate) use look::{Style, swatch};
pub(crate) use points::Point;
