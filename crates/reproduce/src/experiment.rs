//! An experiment: what a document measured, and how it is measured here.

use meantime_report::reproduction::Unit;

use crate::document::Document;
use crate::measured::Measured;
use crate::runner::{Bench, RunError};

/// Where an experiment is measured. Figures of different legs are never compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leg {
    /// This machine: the software SSD with the document's device as its model, and the kernel on a
    /// file.
    Machine,
    /// A virtual machine with QEMU's NVMe controller, where the kernel's own paths are.
    Guest,
    /// A device that the user names.
    Device,
    /// The simulator, with documented costs of waking up.
    Simulated,
}

impl Leg {
    /// The name, on the command line and on the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Guest => "guest",
            Self::Device => "device",
            Self::Simulated => "simulated",
        }
    }
}

/// Measures one repetition.
pub type Measure = fn(&mut Bench<'_>) -> Result<(), RunError>;

/// A table or figure of a document, measured here.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Its name: the document's name, a hyphen, and what it is.
    pub id: &'static str,
    /// The document.
    pub document: Document,
    /// Where it stands there: a table, a figure, a page or a slide.
    pub place: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The question that it answers.
    pub question: &'static str,
    /// What the document measured, and on what.
    pub there: &'static str,
    /// How it is measured here.
    pub here: &'static str,
    /// The leg.
    pub leg: Leg,
    /// Measures one repetition.
    pub measure: Measure,
    /// The claims.
    pub claims: Vec<Claim>,
    /// The plot, in the document's own form.
    pub plot: Plot,
}

impl Experiment {
    /// Returns its name among results: with the leg, on a device of the user's.
    pub fn key(&self) -> String {
        match self.leg {
            Leg::Device => format!("{}.device", self.id),
            _ => self.id.to_owned(),
        }
    }
}

/// A quantity of a claim or a plot, by names of samples, or by keys of the document's numbers.
#[derive(Debug, Clone, PartialEq)]
pub enum Quantity {
    /// One figure.
    Value(String),
    /// The first over the second.
    Ratio(String, String),
    /// The first less the second.
    Difference(String, String),
    /// The sum of the first two over the third.
    SumRatio(String, String, String),
}

impl<T: Into<String>> From<T> for Quantity {
    fn from(name: T) -> Self {
        Self::Value(name.into())
    }
}

/// What a claim expects of its quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expect {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Between these.
    Within(f64, f64),
    /// At most the document's own.
    AtMostThere,
    /// At least the document's own.
    AtLeastThere,
}

/// A claim of the document about an experiment's figures.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The claim, in a sentence.
    pub text: &'static str,
    /// The quantity here.
    pub here: Quantity,
    /// The quantity in the document, if it has a number.
    pub there: Option<Quantity>,
    /// What is expected.
    pub expect: Expect,
    /// Why it may not hold on a machine of this kind.
    pub unless: &'static str,
    /// Whether it is our expectation, beyond what the document states.
    pub ours: bool,
}

impl Claim {
    /// Creates a claim; the document has no number for it.
    pub fn new(text: &'static str, here: Quantity, expect: Expect) -> Self {
        Self { text, here, there: None, expect, unless: "", ours: false }
    }

    /// Adds the document's numbers.
    #[must_use]
    pub fn there(mut self, quantity: Quantity) -> Self {
        self.there = Some(quantity);
        self
    }

    /// Adds why it may not hold here.
    #[must_use]
    pub fn unless(mut self, reason: &'static str) -> Self {
        self.unless = reason;
        self
    }

    /// Marks it as our expectation.
    #[must_use]
    pub fn ours(self) -> Self {
        Self { ours: true, ..self }
    }
}

/// Creates the quantity of one figure.
pub(crate) fn value(name: impl Into<String>) -> Quantity {
    Quantity::Value(name.into())
}

/// Creates the quantity of one figure over another.
pub(crate) fn ratio(one: impl Into<String>, other: impl Into<String>) -> Quantity {
    Quantity::Ratio(one.into(), other.into())
}

/// Creates the quantity of one figure less another.
pub(crate) fn difference(one: impl Into<String>, other: impl Into<String>) -> Quantity {
    Quantity::Difference(one.into(), other.into())
}

/// A bar, or a point of a line.
#[derive(Debug, Clone)]
pub struct Mark {
    /// Its name, or its place on the axis.
    pub name: String,
    /// What is measured here; `None` if it is a number of the document only.
    pub here: Option<Quantity>,
    /// The name of its standard deviation, drawn as a whisker instead of the samples' range.
    pub deviation: Option<String>,
    /// The document's number.
    pub there: Option<Quantity>,
}

impl Mark {
    /// Creates a mark; the document has no number for it.
    pub fn new(name: impl Into<String>, here: impl Into<Quantity>) -> Self {
        Self { name: name.into(), here: Some(here.into()), deviation: None, there: None }
    }

    /// Creates a mark for a number of the document that has no counterpart here.
    pub fn theirs(name: impl Into<String>, there: impl Into<Quantity>) -> Self {
        Self { name: name.into(), here: None, deviation: None, there: Some(there.into()) }
    }

    /// Adds the document's number.
    #[must_use]
    pub fn there(mut self, there: impl Into<Quantity>) -> Self {
        self.there = Some(there.into());
        self
    }

    /// Adds the name of its standard deviation.
    #[must_use]
    pub fn deviation(mut self, name: impl Into<String>) -> Self {
        self.deviation = Some(name.into());
        self
    }
}

/// Marks that belong together: a group of bars, a stack, a line.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its marks.
    pub marks: Vec<Mark>,
}

impl Series {
    /// Creates a series.
    pub fn new(name: impl Into<String>, marks: impl IntoIterator<Item = Mark>) -> Self {
        Self { name: name.into(), marks: marks.into_iter().collect() }
    }
}

/// A plot.
#[derive(Debug, Clone)]
pub enum Plot {
    /// Groups of bars.
    Bars(Unit, Vec<Series>),
    /// Bars made of parts.
    Stacks(Unit, Vec<Series>),
    /// Lines over numbers: the marks' names are numbers. The title of the axis, and whether it is
    /// logarithmic.
    Lines(Unit, &'static str, bool, Vec<Series>),
    /// Shares of I/Os that take longer, by time: names of curves.
    Exceedance(Vec<(String, String)>),
    /// Shares of I/Os that take no longer, by time: names of curves.
    Distribution(Vec<(String, String)>),
}

impl Plot {
    /// Returns its series; curves have none.
    pub fn series(&self) -> &[Series] {
        match self {
            Self::Bars(_, series) | Self::Stacks(_, series) | Self::Lines(_, _, _, series) => {
                series
            }
            Self::Exceedance(_) | Self::Distribution(_) => &[],
        }
    }

    /// Returns the names of its curves.
    pub fn curves(&self) -> &[(String, String)] {
        match self {
            Self::Exceedance(curves) | Self::Distribution(curves) => curves,
            _ => &[],
        }
    }
}

impl Quantity {
    /// Returns what it is if two ways do not differ; `None` if it compares none.
    pub fn neutral(&self) -> Option<f64> {
        match self {
            Self::Value(name) if name.ends_with("gain_ratio") || name.ends_with("saved_ratio") => {
                Some(0.0)
            }
            Self::Value(name) if name.ends_with("times_ratio") => Some(1.0),
            Self::Value(_) => None,
            Self::Difference(..) => Some(0.0),
            Self::Ratio(..) | Self::SumRatio(..) => Some(1.0),
        }
    }

    /// Returns the names that it is made of.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Value(one) => vec![one],
            Self::Ratio(one, other) | Self::Difference(one, other) => vec![one, other],
            Self::SumRatio(one, other, third) => vec![one, other, third],
        }
    }

    /// Computes it from values by name; `None` if one is missing, or would be divided by 0.
    pub fn of(&self, value: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let over = |one: f64, other: f64| (other != 0.0).then(|| one / other);
        match self {
            Self::Value(one) => value(one),
            Self::Ratio(one, other) => over(value(one)?, value(other)?),
            Self::Difference(one, other) => Some(value(one)? - value(other)?),
            Self::SumRatio(one, other, third) => over(value(one)? + value(other)?, value(third)?),
        }
    }

    /// Computes it for each repetition: all its figures are of the same one.
    pub fn samples(&self, measured: &Measured) -> Vec<f64> {
        let names = self.names();
        let count = names.iter().map(|name| measured.samples(name).len()).min().unwrap_or(0);
        let of = |at: usize| self.of(|name| measured.samples(name).get(at).copied());
        (0..count).filter_map(of).collect()
    }
}
