//! What pages are made of: tables and figures.

use askama::Template;

use crate::plot::Element;

/// A table of figures: a row a way to wait, perhaps in groups.
#[derive(Debug, Clone, Default, Template)]
#[template(path = "table.html")]
pub(crate) struct Table {
    /// What it is, for readers who cannot see it.
    pub label: String,
    /// The heading of the rows' names.
    pub first: &'static str,
    /// The other columns.
    pub heads: Vec<Head>,
    /// The rows.
    pub groups: Vec<Group>,
}

/// A column's heading, with its unit below it and a sentence that shows when a mouse points at it.
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
    /// It is not the table's first one.
    pub is_another: bool,
}

/// A row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub class: &'static str,
    /// How it is drawn in plots.
    pub swatch: Option<Element>,
    pub name: String,
    /// Marks behind the name, with their words.
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
    /// Across the page; the panels have names then.
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

/// Samples of what is drawn, and what each is.
#[derive(Debug, Clone, Default, Template)]
#[template(path = "legend.html")]
pub(crate) struct Legend {
    pub entries: Vec<(Element, String)>,
}

/// The page of a template. (Writing to a string does not fail, unless a template means it to.)
pub(crate) fn page(template: &impl Template) -> String {
    template.render().unwrap_or_else(|error| format!("cannot write the page: {error}\n"))
}
