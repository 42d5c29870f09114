//! Results as the report's page.

use meantime_report::figures::median;
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
            Verdict::Fails | Verdict::Inconsistent => Tone::Unlike,
            _ => Tone::Open,
        };
        let reason = if tone == Tone::As { "" } else { claim.unless };
        page::Claim {
            text: claim.text.to_owned(),
            verdict: judged.verdict.words().to_owned(),
            tone,
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

/// Formats a quantity: a ratio as a change, anything else with its unit.
fn text(quantity: &Quantity, value: f64) -> String {
    match quantity {
        Quantity::Value(name) => unit_of(name).text(value),
        Quantity::Difference(name, _) if unit_of(name) == Unit::Percent => {
            format!("{value:+.0} points").replace('-', "−")
        }
        Quantity::Difference(name, _) => unit_of(name).text(value),
        Quantity::Ratio(..) | Quantity::SumRatio(..) if value < 3.0 => {
            meantime_report::figures::change(value, 1.0)
        }
        Quantity::Ratio(..) | Quantity::SumRatio(..) => format!("× {value:.1}"),
    }
}

fn figures(claim: &Claim, judged: &Judged) -> String {
    let Some(middle) = median(&judged.here) else { return String::new() };
    let mut out = text(&claim.here, middle);
    if judged.here.len() > 1 {
        let (low, high) = range(&judged.here);
        out += &format!(" ({} to {})", text(&claim.here, low), text(&claim.here, high));
    }
    if let Some(there) = judged.there {
        out += &format!(" against {}", text(&claim.here, there));
    }
    if let Expect::AtMost(bar) | Expect::AtLeast(bar) = claim.expect
        && ![0.0, 1.0].contains(&bar)
    {
        let word = if matches!(claim.expect, Expect::AtMost(_)) { "at most" } else { "at least" };
        out += &format!(", expected {word} {}", text(&claim.here, bar));
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
    let samples = measured.samples(&mark.here);
    let here = median(samples);
    let deviation = mark.deviation.as_ref().and_then(|name| median(measured.samples(name)));
    let range = match (here, deviation) {
        (Some(here), Some(deviation)) => Some((here - deviation, here + deviation)),
        _ => (samples.len() > 1).then(|| range(samples)),
    };
    let there = mark.there.as_ref().and_then(|key| documents.get(document, key));
    page::Figure { name: mark.name.clone(), here, range, there: there.map(|number| number.value) }
}
