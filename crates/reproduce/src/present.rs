//! Results beside the documents' numbers: as a page, and as a part of the documentation.

use askama::Template;
use meantime_report::figures::{change, median};
use meantime_report::picture::{self, Form, Picture, Spread, Unit};
use meantime_report::view::{framed, render};

use crate::document::{Document, Documents};
use crate::experiment::{Claim, Expect, Experiment, Mark, Plot, Series};
use crate::measured::Measured;
use crate::quantity::{Kind, Quantity};
use crate::run::Outcome;
use crate::store::Kept;
use crate::verdict::{Judged, MARKS, Verdict, judge};

/// The page's title.
const TITLE: &str = "Five documents, measured again";

/// The width of text.
const COLUMNS: usize = 100;

/// All results. As a template, what is inside the page.
#[derive(Debug, Template)]
#[template(path = "reproduction.html")]
pub struct Reproduction<'a> {
    about: Vec<String>,
    /// The documents with their experiments.
    pub documents: Vec<(Document, Vec<Entry<'a>>)>,
}

/// An experiment.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Its kept results.
    pub kept: &'a Kept,
    /// Its claims.
    pub claims: Vec<Shown<'a>>,
    picture: Picture,
}

/// A claim with its verdict.
#[derive(Debug)]
pub struct Shown<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// The verdict.
    pub verdict: Verdict,
    /// The figures: ours, the document's.
    pub figures: String,
}

#[derive(Template)]
#[template(path = "reproduction.md", escape = "none")]
struct Markdown<'a> {
    of: &'a Reproduction<'a>,
}

impl Markdown<'_> {
    /// Escapes a cell of a table.
    fn cell(&self, text: impl AsRef<str>) -> String {
        text.as_ref().replace('|', "\\|").replace('\n', " ").replace('<', "&lt;")
    }
}

impl<'a> Reproduction<'a> {
    /// Returns the results of `outcomes` beside the documents' numbers. `about` says when, where
    /// and with what they were measured.
    pub fn new(outcomes: &'a [Outcome], documents: &Documents, about: Vec<String>) -> Self {
        let entry = |Outcome { experiment, kept, .. }: &'a Outcome| {
            let picture = picture(experiment, &kept.measured, documents);
            let claims = experiment.claims.iter();
            let claims = claims.map(|claim| shown(claim, experiment, kept, documents)).collect();
            Entry { experiment, kept, claims, picture }
        };
        let part = |document: Document| {
            let of = outcomes.iter().filter(|outcome| outcome.experiment.document == document);
            (document, of.map(entry).collect::<Vec<_>>())
        };
        let documents = Document::ALL.map(part).into_iter();
        Self { about, documents: documents.filter(|(_, entries)| !entries.is_empty()).collect() }
    }

    /// Returns the page; `generator` is the program that makes it.
    pub fn page(&self, generator: &str) -> String {
        framed(generator, TITLE, "reproduction", &render(self))
    }

    /// Returns the results as Markdown: claims with their verdicts, no pictures.
    pub fn markdown(&self) -> String {
        render(&Markdown { of: self })
    }

    /// Returns all experiments.
    pub fn entries(&self) -> impl Iterator<Item = &Entry<'a>> {
        self.documents.iter().flat_map(|(_, entries)| entries)
    }

    /// Counts the claims by their marks.
    fn counts(&self, ours: bool) -> [usize; 4] {
        let claims = || self.entries().flat_map(|entry| &entry.claims);
        let is = |one: &Shown<'_>, mark| one.claim.ours == ours && one.verdict.mark() == mark;
        MARKS.map(|mark| claims().filter(|one| is(one, mark)).count())
    }
}

impl Shown<'_> {
    /// Returns its text, with a note if it is ours.
    pub fn named(&self) -> String {
        let Claim { text, ours, .. } = self.claim;
        if *ours { format!("{text} (our expectation)") } else { text.clone() }
    }

    /// Returns why the claim does not hold. The text is empty if it does.
    pub fn reason(&self) -> &str {
        if self.verdict.mark() == MARKS[0] { "" } else { &self.claim.unless }
    }
}

fn shown<'a>(
    claim: &'a Claim,
    experiment: &Experiment,
    kept: &Kept,
    documents: &Documents,
) -> Shown<'a> {
    let judged = judge(claim, experiment, &kept.measured, documents);
    let figures = figures(claim, &judged);
    let verdict = match judged.verdict {
        Verdict::NotMeasured => Verdict::NotMeasured,
        _ if kept.is_disturbed() => Verdict::Disturbed,
        verdict => verdict,
    };
    Shown { claim, verdict, figures }
}

/// Shows a value of a claim's quantity, which is about `middle` here.
fn text(quantity: &Quantity, middle: f64, value: f64) -> String {
    let ends = |end: &str| quantity.operands[0].ends_with(end);
    match quantity.kind {
        // A gain of 0.26 is +26 %, and what is saved −26 %.
        Kind::Value if ends("gain_ratio") => change(1.0 + value, 1.0),
        Kind::Value if ends("saved_ratio") => change(1.0 - value, 1.0),
        Kind::Value if ends("one_in_count") => {
            format!("1 in {}", Unit::Count.text(value.round()))
        }
        Kind::Difference if quantity.unit() == Unit::Percent => {
            format!("{value:+.0} points").replace('-', "−")
        }
        // A ratio is a change, unless it is almost nothing or many times.
        Kind::Ratio if middle < 0.02 => format!("{:.1} % of it", value * 100.0),
        Kind::Ratio if middle < 3.0 => change(value, 1.0),
        Kind::Ratio => format!("× {value:.1}"),
        _ => quantity.unit().text(value),
    }
}

/// Shows a claim's figures: ours, the document's, and what is expected.
fn figures(claim: &Claim, judged: &Judged) -> String {
    let Some(middle) = median(&judged.here) else { return String::new() };
    let text = |value| text(&claim.here, middle, value);
    let mut out = text(middle);
    if judged.here.len() > 1 {
        let (low, high) = range(&judged.here);
        out += &format!(" ({} to {})", text(low), text(high));
    }
    if let Some(there) = judged.there {
        out += &format!(" against {}", text(there));
    }
    if let Expect::AtMost(bar) | Expect::AtLeast(bar) = claim.expect
        && ![0.0, 1.0].contains(&bar)
    {
        let word = if matches!(claim.expect, Expect::AtMost(_)) { "at most" } else { "at least" };
        out += &format!(", expected {word} {}", text(bar));
    }
    out
}

fn range(samples: &[f64]) -> (f64, f64) {
    let least = samples.iter().copied().fold(f64::MAX, f64::min);
    (least, samples.iter().copied().fold(f64::MIN, f64::max))
}

fn picture(experiment: &Experiment, measured: &Measured, documents: &Documents) -> Picture {
    let plot = &experiment.plot;
    let form = match plot {
        Plot::Bars(_) => Form::Bars,
        Plot::Stacks(_) => Form::Stacks,
        Plot::Lines { axis, linear, .. } => Form::Lines(axis.clone(), !linear),
        Plot::Exceedance(_) => Form::Exceedance,
        Plot::Distribution(_) => Form::Distribution,
    };
    let number = |key: &str| documents.get(experiment.document, key);
    let series = |(name, marks): &Series| picture::Series {
        name: name.clone(),
        figures: marks.iter().map(|mark| figure(plot.unit(), mark, measured, number)).collect(),
    };
    let curve = |(name, curve): &(String, String)| {
        Some((name.clone(), measured.curves.get(curve)?.clone()))
    };
    let series = plot.series().iter().map(series).collect();
    Picture {
        form,
        unit: plot.unit(),
        series,
        curves: plot.curves().iter().filter_map(curve).collect(),
    }
}

/// Returns a figure with its spread, and the document's `number`.
fn figure(
    unit: Unit,
    mark: &Mark,
    measured: &Measured,
    number: impl Fn(&str) -> Option<f64>,
) -> picture::Figure {
    let samples = mark.here.as_ref().map(|here| here.samples(measured)).unwrap_or_default();
    let here = median(&samples);
    let deviation = mark.deviation().and_then(|name| median(measured.samples(&name)));
    let spread = match here.zip(deviation) {
        Some((here, by)) => {
            Some(Spread { ends: (here - by, here + by), text: format!("± {}", unit.text(by)) })
        }
        None => (samples.len() > 1).then(|| {
            let (low, high) = range(&samples);
            let text = format!("{} – {}", unit.text(low), unit.text(high));
            Spread { ends: (low, high), text }
        }),
    };
    picture::Figure {
        name: mark.name.clone(),
        here,
        spread,
        there: mark.there.as_ref().and_then(|there| there.of(number)),
    }
}
