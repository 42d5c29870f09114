//! Tables of figures, for pages and for terminals.

use std::ops::Range;

use askama::Template;
use comfy_table::{Cell as TextCell, CellAlignment, Table as Text};
use itertools::Itertools as _;

use crate::figures::{self, none, wrapped};
use crate::plot::Mark;

/// A line only below the header.
const PRESET: &str = "     ═             ";

/// A column: its name, and what it shows of a `T`.
pub(crate) struct Column<T> {
    head: Head,
    figure: fn(&T) -> Option<Cell>,
    best: Option<Best>,
    has_bars: bool,
}

/// Which of two figures is better: `f64::min` or `f64::max`.
type Best = fn(f64, f64) -> f64;

/// The meaning of each heading with its unit, one per line.
const EXPLAINED: &str = include_str!("../templates/headings.txt");

/// Returns a column. It is in a table only if one of its rows has a figure for it.
pub(crate) fn column<T>(
    heading: &'static str,
    unit: &'static str,
    figure: fn(&T) -> Option<Cell>,
) -> Column<T> {
    let name = format!("{heading} {unit}");
    let mut lines = EXPLAINED.lines().filter_map(|line| line.split_once(": "));
    let explained = lines.find(|(known, _)| *known == name.trim_end());
    let explained = explained.map_or("", |(_, explained)| explained);
    let head =
        Head { text: heading.to_owned(), unit: unit.to_owned(), explained, has_spreads: false };
    Column { head, figure, best: None, has_bars: false }
}

impl<T> Column<T> {
    /// Shows the best figure of each group in bold.
    pub(crate) fn best(self, best: Best) -> Self {
        Self { best: Some(best), ..self }
    }

    /// Draws bars below the figures.
    pub(crate) fn bars(self) -> Self {
        Self { has_bars: true, ..self }
    }
}

/// A table of figures, with rows in groups.
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
    pub unit: String,
    /// Whether figures below it have a spread.
    pub has_spreads: bool,
    pub explained: &'static str,
}

/// Rows that belong together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    /// A line above them.
    pub title: Option<Title>,
    pub rows: Vec<Row>,
}

/// A title row for what the rows below have in common, such as their device.
#[derive(Debug, Clone, Default)]
pub(crate) struct Title {
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
    pub sample: Option<Mark>,
    pub name: String,
    /// Marks after the name, with their tooltips.
    pub notes: Vec<(&'static str, &'static str)>,
    pub cells: Vec<Cell>,
}

/// The rows of a group, each with what its figures are about.
pub(crate) type Rows<T> = (Option<Title>, Vec<(Row, T)>);

/// A figure in a row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    pub class: &'static str,
    /// The length of a bar below it, in percent of the longest.
    pub bar: Option<String>,
    pub text: String,
    pub unit: String,
    /// The standard deviation of the turns' figures, in percent, where there are several.
    pub spread_percent: Option<f64>,
    /// The value after `text`, if it can be compared.
    pub value: Option<f64>,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl Cell {
    /// Adds the spread of the turns.
    pub(crate) fn spread(self, percent: Option<f64>) -> Self {
        Self { spread_percent: percent, ..self }
    }

    /// Returns the spread as text with at most `digits` decimals. It is empty without a spread.
    fn spread_text(&self, digits: usize) -> String {
        self.spread_percent.map_or(String::new(), |percent| {
            let digits = if percent < 9.95 { digits } else { 0 };
            format!("±{percent:.digits$}")
        })
    }

    /// Returns the figure and its spread, in `width` columns.
    fn with_spread(&self, width: usize) -> String {
        match width {
            0 => self.text.clone(),
            width => format!("{} {:<width$}", self.text, self.spread_text(0)),
        }
    }
}

impl Head {
    /// Returns the unit, with that of the spreads.
    fn units(&self) -> String {
        format!("{} {}", self.unit, if self.has_spreads { "± %" } else { "" }).trim().to_owned()
    }
}

/// Returns a latency in µs.
pub(crate) fn us(ns: f64) -> Cell {
    Cell { value: Some(ns), ..figures::us(ns).into() }
}

/// Returns I/Os per second.
pub(crate) fn iops(value: f64) -> Cell {
    Cell { value: Some(value), ..figures::iops(value).into() }
}

/// Returns a figure with `DIGITS` decimals.
pub(crate) fn decimals<const DIGITS: usize>(value: f64) -> Cell {
    Cell { value: Some(value), ..format!("{value:.DIGITS$}").into() }
}

impl Table {
    /// Returns the table of these rows, with what `columns` show of the `T` of each.
    pub(crate) fn of<T>(
        label: String,
        first: &'static str,
        mut columns: Vec<Column<T>>,
        groups: Vec<Rows<T>>,
    ) -> Self {
        let all = || groups.iter().flat_map(|(_, rows)| rows);
        columns.retain(|column| all().any(|(_, of)| (column.figure)(of).is_some()));
        let filled = |(title, rows): Rows<T>| Group { title, rows: fill(&columns, rows) };
        let groups = groups.into_iter().map(filled).collect();
        let heads = columns.into_iter().map(|column| column.head);
        let mut table = Self { label, first, heads: heads.collect(), groups };
        for at in 0..table.heads.len() {
            table.heads[at].has_spreads = table.spread_width(at) > 0;
        }
        table
    }

    /// Returns the table for a terminal that is `width` columns wide. Columns that do not fit
    /// beside the others are below them.
    pub(crate) fn text(&self, width: usize) -> String {
        let fits = |lines: &[String]| lines.iter().all(|line| line.chars().count() <= width);
        let (mut parts, mut from) = (Vec::new(), 0);
        while from < self.heads.len() {
            let fitting = |to: &usize| *to == from + 1 || fits(&self.lines(from..*to));
            let to = (from + 1..=self.heads.len()).rev().find(fitting).unwrap_or(from + 1);
            parts.push(self.with_titles(self.lines(from..to), width));
            from = to;
        }
        parts.join("\n")
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.groups.iter().flat_map(|group| &group.rows)
    }

    /// Returns the width of the longest spread of a column, or 0 if it has none.
    fn spread_width(&self, column: usize) -> usize {
        let widths = self.rows().map(|row| row.cells[column].spread_text(0).chars().count());
        widths.max().unwrap_or(0)
    }

    /// Returns a Markdown table for each group, below its title.
    pub(crate) fn markdown(&self) -> String {
        let row = |first: &str, cells: Vec<&str>| {
            let cells = std::iter::once(first).chain(cells).map(|cell| cell.replace('|', "\\|"));
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let names: Vec<String> =
            self.heads.iter().map(|head| format!("{} {}", head.text, head.units())).collect();
        let heads = row(self.first, names.iter().map(|name| name.trim()).collect());
        let heads = heads + &row("---", vec!["--:"; self.heads.len()]);
        let group = |Group { title, rows }: &Group| {
            let title =
                title.iter().map(|of| format!("**{}**: {}\n\n", of.name, of.asides.join(", ")));
            let cells = |of: &Row| {
                let cells: Vec<String> = of
                    .cells
                    .iter()
                    .map(|cell| cell.with_spread(usize::from(cell.spread_percent.is_some())))
                    .collect();
                row(&of.name, cells.iter().map(String::as_str).collect())
            };
            title.collect::<String>() + &heads + &rows.iter().map(cells).collect::<String>() + "\n"
        };
        self.groups.iter().map(group).collect()
    }

    /// Returns the header and a line for each row, with some of the columns.
    fn lines(&self, columns: Range<usize>) -> Vec<String> {
        let mut table = Text::new();
        table.load_preset(PRESET);
        let right = |text: &str| TextCell::new(text).set_alignment(CellAlignment::Right);
        let head = |head: &Head| right(format!("{}\n{}", head.text, head.units()).trim_end());
        let heads = self.heads[columns.clone()].iter().map(head);
        table.set_header(std::iter::once(TextCell::new(self.first)).chain(heads));
        let spreads: Vec<usize> = (0..self.heads.len()).map(|at| self.spread_width(at)).collect();
        for row in self.rows() {
            let cells = columns.clone().map(|at| right(&row.cells[at].with_spread(spreads[at])));
            table.add_row(std::iter::once(TextCell::new(&row.name)).chain(cells));
        }
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding((if at == 0 { 0 } else { 2 }, 0));
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Puts the groups' titles between the lines.
    fn with_titles(&self, lines: Vec<String>, width: usize) -> String {
        let rows = self.groups.iter().map(|group| group.rows.len()).sum::<usize>();
        let head = lines.len() - rows;
        let mut lines = lines.into_iter();
        let mut out: Vec<String> = lines.by_ref().take(head).collect();
        for group in &self.groups {
            if let Some(Title { name, asides, is_another }) = &group.title {
                let another = is_another.then(|| "another device".to_owned());
                if out.len() > head {
                    out.push(String::new());
                }
                let title = std::iter::once(name).chain(asides).chain(&another).join(" · ");
                out.push(wrapped(&title, width));
            }
            out.extend(lines.by_ref().take(group.rows.len()));
        }
        out.join("\n") + "\n"
    }
}

/// Fills the rows of a group.
fn fill<T>(columns: &[Column<T>], rows: Vec<(Row, T)>) -> Vec<Row> {
    let cell = |of: &T, column: &Column<T>| (column.figure)(of).unwrap_or_else(|| none().into());
    let filled = |(row, of): (Row, T)| Row {
        cells: columns.iter().map(|column| cell(&of, column)).collect(),
        ..row
    };
    let mut rows: Vec<Row> = rows.into_iter().map(filled).collect();
    for (at, column) in columns.iter().enumerate() {
        // Rows of a class are parts of the row above them.
        let whole = rows.iter_mut().filter(|row| row.class.is_empty());
        let mut cells: Vec<&mut Cell> = whole.map(|row| &mut row.cells[at]).collect();
        let known: Vec<f64> = cells.iter().filter_map(|cell| cell.value).collect();
        let most = known.iter().copied().fold(0.0, f64::max);
        let best = column.best.filter(|_| !known.iter().all_equal());
        let best = best.and_then(|best| known.into_iter().reduce(best));
        for cell in &mut cells {
            let is_best = best.is_some() && cell.value == best;
            cell.class = if is_best { "best" } else { "" };
            if column.has_bars && most > 0.0 {
                cell.class = if is_best { "bar best" } else { "bar" };
                cell.bar = cell.value.map(|value| format!("{:.1}", value / most * 100.0));
            }
        }
    }
    rows
}
