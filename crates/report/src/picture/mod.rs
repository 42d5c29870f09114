//! Figures, and those of a document beside them: plots in the documents' own forms, for a page or
//! as a file, and tables.

mod drawing;
mod svg;
mod table;

pub use svg::svg;

use crate::figures;

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Times in ns.
    #[default]
    Time,
    /// I/Os or operations per second.
    Rate,
    /// Percent.
    Percent,
    /// A ratio.
    Ratio,
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
}

impl Unit {
    /// Formats a figure with its unit.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Time if value < 0.0 => format!("−{}", figures::time(-value)),
            Self::Time => figures::time(value),
            Self::Rate => format!("{}/s", figures::iops(value)),
            // There is no −0.
            Self::Percent => format!("{:.0} %", value.round() + 0.0).replace('-', "−"),
            Self::Ratio => format!("{value:.2}"),
            Self::Bytes => figures::bytes(value.max(0.0) as u64),
            Self::Count if value >= 100.0 || value.fract() == 0.0 => figures::grouped(value),
            Self::Count => format!("{value:.2}"),
        }
    }

    /// The title of an axis.
    fn title(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Rate => "per second",
            Self::Percent => "%",
            Self::Ratio => "ratio",
            Self::Bytes => "bytes",
            Self::Count => "number",
        }
    }
}

/// The spread of the figures behind a median.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spread {
    /// The ends of its whisker.
    pub ends: (f64, f64),
    /// The text in the table.
    pub text: String,
}

/// A figure: ours, its spread, and the document's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figure {
    /// Its name, or its place on the axis.
    pub name: String,
    /// The median of the repetitions.
    pub here: Option<f64>,
    /// The spread of the figures behind it.
    pub spread: Option<Spread>,
    /// The document's.
    pub there: Option<f64>,
}

/// Figures that belong together.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Their name.
    pub name: String,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// A curve: its name and its points.
pub type Curve = (String, Vec<(f64, f64)>);

/// A plot.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    /// Its form.
    pub form: Form,
    /// The unit of the figures.
    pub unit: Unit,
    /// The figures of bars, stacks and lines.
    pub series: Vec<Series>,
    /// The curves of distributions.
    pub curves: Vec<Curve>,
}

/// The form of a plot.
#[derive(Debug, Clone, Default)]
pub enum Form {
    /// Groups of bars.
    #[default]
    Bars,
    /// Bars made of parts.
    Stacks,
    /// Lines over numbers, with the axis' title and whether the axis is logarithmic.
    Lines(String, bool),
    /// Shares of I/Os that take longer than a time.
    Exceedance,
    /// Shares of I/Os that take no longer than a time.
    Distribution,
}
