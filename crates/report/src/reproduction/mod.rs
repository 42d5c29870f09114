//! The five documents' figures, measured again: a page, and a part of the documentation; and what
//! draws them, for a picture of others.

mod drawing;
mod markdown;
mod page;
mod picture;

pub use markdown::markdown;
pub use page::page;
pub use picture::picture;

use crate::figures;

/// All results.
#[derive(Debug, Clone, Default)]
pub struct Reproduction {
    /// The program that made it.
    pub generator: String,
    /// When, with which revision, on which machine, how long.
    pub about: Vec<String>,
    /// The documents.
    pub documents: Vec<Part>,
}

/// A document.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// Its title.
    pub title: String,
    /// Its experiments.
    pub entries: Vec<Entry>,
}

/// An experiment.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Its name.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Where it stands in the document.
    pub place: String,
    /// Where it was measured.
    pub leg: String,
    /// The question.
    pub question: String,
    /// What the document measured.
    pub there: String,
    /// How it is measured here.
    pub here: String,
    /// The claims.
    pub claims: Vec<Claim>,
    /// The plot.
    pub picture: Picture,
    /// What was not measured, and other remarks.
    pub notes: Vec<String>,
    /// The inputs of a simulation.
    pub inputs: Vec<String>,
    /// The commands.
    pub commands: Vec<String>,
    /// Why there are no figures; empty if there are.
    pub failure: String,
}

/// A claim with its verdict.
#[derive(Debug, Clone, Default)]
pub struct Claim {
    /// The claim.
    pub text: String,
    /// The verdict in words.
    pub verdict: String,
    /// Whether it is as in the document.
    pub tone: Tone,
    /// Whether it is an expectation of ours, beyond what the document states.
    pub ours: bool,
    /// The figures: ours, the document's.
    pub figures: String,
    /// Why it does not hold; empty if it does.
    pub reason: String,
}

impl Claim {
    /// Returns its text, with a note if it is ours.
    pub fn named(&self) -> String {
        if self.ours { format!("{} (our expectation)", self.text) } else { self.text.clone() }
    }
}

/// How a verdict is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    /// As in the document.
    As,
    /// In the document's direction, but by less.
    Less,
    /// Not as in the document.
    Unlike,
    /// Unknown.
    #[default]
    Open,
}

impl Tone {
    /// Returns its class on the page, and its sign.
    fn mark(self) -> (&'static str, &'static str) {
        match self {
            Self::As => ("as", "✓"),
            Self::Less => ("less", "≈"),
            Self::Unlike => ("unlike", "✗"),
            Self::Open => ("open", "?"),
        }
    }
}

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

/// How far the figures behind a median are apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spread {
    /// The least and the most of the repetitions.
    Range(f64, f64),
    /// The standard deviation of the I/Os.
    Deviation(f64),
}

/// A figure: ours, its spread, and the document's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figure {
    /// Its name, or its place on the axis.
    pub name: String,
    /// The median of the repetitions.
    pub here: Option<f64>,
    /// How far the figures behind it are apart.
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
    /// Lines over numbers: the axis' title, and whether it is logarithmic.
    Lines(String, bool),
    /// Shares of I/Os that take longer than a time.
    Exceedance,
    /// Shares of I/Os that take no longer than a time.
    Distribution,
}

impl Figure {
    /// Returns the ends of its whisker.
    fn whisker(&self) -> Option<(f64, f64)> {
        Some(match self.spread? {
            Spread::Range(low, high) => (low, high),
            Spread::Deviation(deviation) => (self.here? - deviation, self.here? + deviation),
        })
    }
}

impl Reproduction {
    /// Counts the claims by tone: as in the document, less, unlike it, open.
    fn counts(&self, ours: bool) -> [usize; 4] {
        let entries = || self.documents.iter().flat_map(|part| &part.entries);
        let claims = || entries().flat_map(|entry| &entry.claims);
        let count = |tone| claims().filter(|one| one.ours == ours && one.tone == tone).count();
        [Tone::As, Tone::Less, Tone::Unlike, Tone::Open].map(count)
    }
}
