//! Plots as SVG, for all pages and pictures: axes and ticks, grid and labels, looks and legends.
//!
//! A plot on a page has classes only, takes its colours from the page's style sheet and follows the
//! reader's theme. A picture that is a file of its own gets them by [`standalone`].

mod axis;
mod chart;
mod element;
mod frame;
mod look;
mod points;
mod standalone;

pub use axis::{Axis, Scale, Tick};
pub use element::{Element, curve, line, text};
pub use frame::{Frame, Side, text_width};
pub use look::{COLOURS, PALETTE, looks};
pub use standalone::{Ink, standalone};

pub(crate) use axis::short;
pub(crate) use chart::{ACROSS, Chart, Distribution, Share, UP, block, distributions};
pub(crate) use look::{Style, swatch};
pub(crate) use points::Point;
