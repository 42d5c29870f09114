//! The parts of pages: tables and figures.

use askama::Template;

use crate::plot::Element;

/// A table of figures: a row for each policy, optionally in groups.
#[derive(Debug, Clone, Default, Template)]
#[template(path = "table.html")]
pub(crate) struct Table {
    /// Its description for readers who cannot see it.
    pub label: String,
    /// The heading of the rows' names.
    pub first: &'static str,
    /// The other columns.
    pub heads: Vec<Head>,
    /// The rows.
    pub groups: Vec<Group>,
}

/// A column's heading, with its unit below it and a tooltip.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    pub text: String,
    pub unit: &'static str,
    pub explained: &'static str,
}

/// Rows that belong together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    /// A line above them.
    pub device: Option<Device>,
    pub rows: Vec<Row>,
}

/// The device of the rows below.
#[derive(Debug, Clone, Default)]
pub(crate) struct Device {
    pub name: String,
    pub asides: Vec<String>,
    /// Whether it is not the table's first device.
    pub is_another: bool,
}

/// A row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub class: &'static str,
    /// Its sample from the plots.
    pub swatch: Option<Element>,
    pub name: String,
    /// Marks behind the name, with their tooltips.
    pub notes: Vec<(&'static str, &'static str)>,
    pub cells: Vec<Cell>,
}

/// A figure in a row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    pub class: &'static str,
    /// The length of a bar below it, in percent of the longest.
    pub bar: Option<String>,
    pub text: String,
    pub unit: String,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

/// Plots side by side, with a sentence on how to read them.
#[derive(Debug, Clone, Default, Template)]
#[template(path = "figure.html")]
pub(crate) struct Figure {
    /// Spans the page; the panels then have names.
    pub wide: bool,
    pub title: &'static str,
    pub how: String,
    pub panels: Vec<Panel>,
}

/// A plot with its name and its legend.
#[derive(Debug, Clone, Default)]
pub(crate) struct Panel {
    pub name: String,
    pub legend: Legend,
    pub plot: Element,
}

/// Samples of the curves, with their names.
#[derive(Debug, Clone, Default, Template)]
#[template(path = "legend.html")]
pub(crate) struct Legend {
    pub entries: Vec<(Element, String)>,
}

/// Renders the page of a template. (Writing to a string does not fail, unless a template does so on
/// purpose.)
pub(crate) fn page(template: &impl Template) -> String {
    template.render().unwrap_or_else(|error| format!("cannot write the page: {error}\n"))
}
