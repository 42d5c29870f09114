//! Results as the report's page.

use meantime_report::figures::{change, median};
use meantime_report::reproduction::{self as page, Form, Picture, Reproduction, Tone, Unit};

use crate::document::{Document, Documents};
use crate::experiment::{Claim, Expect, Experiment, Mark, Plot, Series};
use crate::measured::Measured;
use crate::quantity::{Kind, Quantity};
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
        title: experiment.title.clone(),
        place: experiment.place.clone(),
        leg: experiment.leg.name().to_owned(),
        question: experiment.question.clone(),
        there: experiment.there.clone(),
        here: experiment.here.clone(),
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
        let mut judged = judge(claim, experiment, &kept.measured, documents);
        if kept.is_disturbed() && judged.verdict != Verdict::NotMeasured {
            judged.verdict = Verdict::Disturbed;
        }
        let tone = match judged.verdict {
            Verdict::Holds | Verdict::Consistent => Tone::As,
            Verdict::Smaller => Tone::Less,
            Verdict::Fails | Verdict::Inconsistent => Tone::Unlike,
            _ => Tone::Open,
        };
        page::Claim {
            text: claim.text.clone(),
            verdict: judged.verdict.words().to_owned(),
            tone,
            ours: claim.ours,
            figures: figures(claim, &judged),
            reason: if tone == Tone::As { String::new() } else { claim.unless.clone() },
        }
    };
    experiment.claims.iter().map(shown).collect()
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
    let all = |series: &[Series]| -> Vec<page::Series> {
        let figure = |mark: &Mark| figure(mark, experiment.document, measured, documents);
        let shown = |(name, marks): &Series| page::Series {
            name: name.clone(),
            figures: marks.iter().map(figure).collect(),
        };
        series.iter().map(shown).collect()
    };
    let curves = |curves: &[(String, String)]| -> Vec<page::Curve> {
        let there = |(name, curve): &(String, String)| {
            Some((name.clone(), measured.curves.get(curve)?.clone()))
        };
        curves.iter().filter_map(there).collect()
    };
    let (form, series, curves) = match &experiment.plot {
        Plot::Bars(series) => (Form::Bars, all(series), Vec::new()),
        Plot::Stacks(series) => (Form::Stacks, all(series), Vec::new()),
        Plot::Lines { axis, linear, series } => {
            (Form::Lines(axis.clone(), !linear), all(series), Vec::new())
        }
        Plot::Exceedance(list) => (Form::Exceedance, Vec::new(), curves(list)),
        Plot::Distribution(list) => (Form::Distribution, Vec::new(), curves(list)),
    };
    Picture { form, unit: experiment.plot.unit(), series, curves }
}

fn figure(
    mark: &Mark,
    document: Document,
    measured: &Measured,
    documents: &Documents,
) -> page::Figure {
    let samples = mark.here.as_ref().map(|here| here.samples(measured)).unwrap_or_default();
    let here = median(&samples);
    let deviation = mark.deviation().and_then(|name| median(measured.samples(&name)));
    let spread = match deviation {
        Some(deviation) => Some(page::Spread::Deviation(deviation)),
        None if samples.len() > 1 => {
            let (low, high) = range(&samples);
            Some(page::Spread::Range(low, high))
        }
        None => None,
    };
    let number = |key: &str| documents.get(document, key);
    let there = mark.there.as_ref().and_then(|there| there.of(number));
    page::Figure { name: mark.name.clone(), here, spread, there }
}
