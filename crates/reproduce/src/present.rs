//! Results as the report's page.

use meantime_report::figures::{change, median};
use meantime_report::reproduction::{self as page, Picture, Reproduction, Tone, Unit};

use crate::document::{Document, Documents};
use crate::experiment::{Claim, Expect, Experiment, Mark, Plot, Quantity, Series};
use crate::inventory::NOT_MEASURABLE;
use crate::measured::Measured;
use crate::run::Outcome;
use crate::verdict::{Judged, Verdict, judge};

/// Returns the results of `outcomes` beside the documents' numbers; `about` says when, where and
/// with what.
pub fn reproduction(
    outcomes: &[Outcome],
    documents: &Documents,
    generator: &str,
    about: Vec<String>,
) -> Reproduction {
    let part = |document: Document| page::Part {
        title: document.title().to_owned(),
        entries: outcomes
            .iter()
            .filter(|outcome| outcome.experiment.document == document)
            .map(|outcome| entry(outcome, documents))
            .collect(),
    };
    Reproduction {
        generator: generator.to_owned(),
        about,
        documents: Document::ALL
            .map(part)
            .into_iter()
            .filter(|part| !part.entries.is_empty())
            .collect(),
        not_measurable: NOT_MEASURABLE
            .iter()
            .map(|one| (one.what.to_owned(), one.needs.to_owned()))
            .collect(),
    }
}

fn entry(outcome: &Outcome, documents: &Documents) -> page::Entry {
    let (experiment, kept) = (&outcome.experiment, &outcome.kept);
    let mut notes = kept.measured.left_out.clone();
    if kept.repeated > 0 {
        notes.push(format!(
            "{} repetitions were done again, since other programs used the CPUs.",
            kept.repeated
        ));
    }
    if kept.disturbed > 0 {
        notes.push(format!(
            "Beside {} of the repetitions that count, other programs used up to {:.0} % of a CPU.",
            kept.disturbed, kept.others_percent
        ));
    }
    page::Entry {
        id: experiment.key(),
        title: experiment.title.to_owned(),
        place: experiment.place.to_owned(),
        leg: experiment.leg.name().to_owned(),
        question: experiment.question.to_owned(),
        there: experiment.there.to_owned(),
        here: experiment.here.to_owned(),
        claims: claims(outcome, documents),
        picture: picture(experiment, &kept.measured, documents),
        notes,
        inputs: kept.measured.inputs.clone(),
        commands: kept.commands.clone(),
        failure: kept.failure.clone(),
    }
}

fn claims(outcome: &Outcome, documents: &Documents) -> Vec<page::Claim> {
    let (experiment, kept) = (&outcome.experiment, &outcome.kept);
    let shown = |claim: &Claim| {
        let (document, leg) = (experiment.document, experiment.leg);
        let mut judged = judge(claim, document, leg, &kept.measured, documents);
        if kept.is_disturbed() && judged.verdict != Verdict::NotMeasured {
            judged.verdict = Verdict::Disturbed;
        }
        let tone = match judged.verdict {
            Verdict::Holds | Verdict::Consistent => Tone::As,
            Verdict::Smaller => Tone::Less,
            Verdict::Fails | Verdict::Inconsistent => Tone::Unlike,
            _ => Tone::Open,
        };
        let reason = if tone == Tone::As { "" } else { claim.unless };
        page::Claim {
            text: claim.text.to_owned(),
            verdict: judged.verdict.words().to_owned(),
            tone,
            ours: claim.ours,
            figures: figures(claim, &judged),
            reason: reason.to_owned(),
        }
    };
    experiment.claims.iter().map(shown).collect()
}

/// Returns the unit of a figure, by the end of its name.
pub(crate) fn unit_of(name: &str) -> Unit {
    let ends = |unit: &str| name.ends_with(unit);
    match () {
        () if ends("_ns") => Unit::Time,
        () if ends("_iops") || ends("_per_second") => Unit::Rate,
        () if ends("_percent") => Unit::Percent,
        () if ends("_bytes") => Unit::Bytes,
        () if ends("_ratio") => Unit::Ratio,
        () => Unit::Count,
    }
}

/// How a claim's quantity is shown: here, in the document, and as what is expected.
#[derive(Clone, Copy)]
enum Form {
    Figure(Unit),
    Points,
    /// A ratio as a change: −42 %.
    Change,
    /// A gain as a change: 0.26 is +26 %.
    Gain,
    /// A part saved, as a change: 0.26 is −26 %.
    Saved,
    /// A ratio that is almost nothing: 1.3 % of it.
    Share,
    /// A large ratio as a factor: × 7.1.
    Factor,
    /// A rate: 1 in 6,000.
    OneIn,
}

impl Form {
    /// Returns the form for a quantity that is about `value` here.
    fn of(quantity: &Quantity, value: f64) -> Self {
        match quantity {
            Quantity::Value(name) if name.ends_with("gain_ratio") => Self::Gain,
            Quantity::Value(name) if name.ends_with("saved_ratio") => Self::Saved,
            Quantity::Value(name) if name.ends_with("one_in_count") => Self::OneIn,
            Quantity::Value(name) => Self::Figure(unit_of(name)),
            Quantity::Difference(name, _) => match unit_of(name) {
                Unit::Percent => Self::Points,
                unit => Self::Figure(unit),
            },
            Quantity::Ratio(..) | Quantity::SumRatio(..) => match value {
                value if value < 0.02 => Self::Share,
                value if value < 3.0 => Self::Change,
                _ => Self::Factor,
            },
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Self::Figure(unit) => unit.text(value),
            Self::Points => format!("{value:+.0} points").replace('-', "−"),
            Self::Change => change(value, 1.0),
            Self::Gain => change(1.0 + value, 1.0),
            Self::Saved => change(1.0 - value, 1.0),
            Self::Share => format!("{:.1} % of it", value * 100.0),
            Self::Factor => format!("× {value:.1}"),
            Self::OneIn => format!("1 in {}", Unit::Count.text(value.round())),
        }
    }
}

fn figures(claim: &Claim, judged: &Judged) -> String {
    let Some(middle) = median(&judged.here) else { return String::new() };
    let form = Form::of(&claim.here, middle);
    let mut out = form.text(middle);
    if judged.here.len() > 1 {
        let (low, high) = range(&judged.here);
        out += &format!(" ({} to {})", form.text(low), form.text(high));
    }
    if let Some(there) = judged.there {
        out += &format!(" against {}", form.text(there));
    }
    if let Expect::AtMost(bar) | Expect::AtLeast(bar) = claim.expect
        && ![0.0, 1.0].contains(&bar)
    {
        let word = if matches!(claim.expect, Expect::AtMost(_)) { "at most" } else { "at least" };
        out += &format!(", expected {word} {}", form.text(bar));
    }
    out
}

fn range(samples: &[f64]) -> (f64, f64) {
    let least = samples.iter().copied().fold(f64::MAX, f64::min);
    (least, samples.iter().copied().fold(f64::MIN, f64::max))
}

fn picture(experiment: &Experiment, measured: &Measured, documents: &Documents) -> Picture {
    let all = |series: &[Series]| -> Vec<page::Series> {
        let figure = |mark: &Mark| figure(mark, experiment.document, measured, documents);
        let shown = |one: &Series| page::Series {
            name: one.name.clone(),
            figures: one.marks.iter().map(figure).collect(),
        };
        series.iter().map(shown).collect()
    };
    let curves = |curves: &[(String, String)]| -> Vec<page::Curve> {
        let there = |(name, curve): &(String, String)| {
            Some((name.clone(), measured.curves.get(curve)?.clone()))
        };
        curves.iter().filter_map(there).collect()
    };
    match &experiment.plot {
        Plot::Bars(unit, series) => Picture::Bars(*unit, all(series)),
        Plot::Stacks(unit, series) => Picture::Stacks(*unit, all(series)),
        Plot::Lines(unit, axis, log, series) => {
            Picture::Lines(*unit, (*axis).to_owned(), *log, all(series))
        }
        Plot::Exceedance(list) => Picture::Curves(true, curves(list)),
        Plot::Distribution(list) => Picture::Curves(false, curves(list)),
    }
}

fn figure(
    mark: &Mark,
    document: Document,
    measured: &Measured,
    documents: &Documents,
) -> page::Figure {
    let samples = mark.here.as_ref().map(|here| here.samples(measured)).unwrap_or_default();
    let here = median(&samples);
    let deviation = mark.deviation.as_ref().and_then(|name| median(measured.samples(name)));
    let spread = match deviation {
        Some(deviation) => Some(page::Spread::Deviation(deviation)),
        None if samples.len() > 1 => {
            let (low, high) = range(&samples);
            Some(page::Spread::Range(low, high))
        }
        None => None,
    };
    let number = |key: &str| documents.get(document, key).map(|number| number.value);
    let there = mark.there.as_ref().and_then(|there| there.of(number));
    page::Figure { name: mark.name.clone(), here, spread, there }
}
