//! Claims against samples.

use crate::document::Documents;
use crate::experiment::{Claim, Expect, Experiment, Leg};
use crate::measured::Measured;

/// The share of repetitions that must agree with the median: eight of nine.
const AGREE: f64 = 0.85;
/// The part of the document's effect that counts as much as that.
const AS_MUCH: f64 = 0.9;

/// The result of judging a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It holds here.
    Holds,
    /// A simulation agrees with it.
    Consistent,
    /// A simulation does not agree with it.
    Inconsistent,
    /// It has the document's direction, but less of it.
    Smaller,
    /// It does not hold here.
    Fails,
    /// The repetitions disagree.
    Unclear,
    /// A figure is missing.
    NotMeasured,
    /// A figure is the same in each repetition.
    Constant,
    /// Other programs used the CPUs.
    Disturbed,
}

impl Verdict {
    /// Returns its class on the page, and its sign.
    pub fn mark(&self) -> (&'static str, &'static str) {
        match self {
            Self::Holds | Self::Consistent => MARKS[0],
            Self::Smaller => MARKS[1],
            Self::Fails | Self::Inconsistent => MARKS[2],
            _ => MARKS[3],
        }
    }

    /// The verdict in words.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Consistent => "consistent",
            Self::Inconsistent => "not consistent",
            Self::Smaller => "same direction, smaller",
            Self::Fails => "does not hold here",
            Self::Unclear => "not clear",
            Self::NotMeasured => "not measured",
            Self::Constant => "not trusted: a figure is the same each time",
            Self::Disturbed => "not trusted: other programs used the CPUs",
        }
    }
}

/// The marks of verdicts, each a class on the page and a sign. The order is: as in the document;
/// less; not as in the document; unknown.
pub(crate) const MARKS: [(&str, &str); 4] =
    [("as", "✓"), ("less", "≈"), ("unlike", "✗"), ("open", "?")];

/// A claim's verdict, with the quantity here and there.
#[derive(Debug, Clone)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// The samples of the quantity here.
    pub here: Vec<f64>,
    /// The document's own.
    pub there: Option<f64>,
}

/// Judges a claim of `experiment` by its samples.
pub fn judge(
    claim: &Claim,
    experiment: &Experiment,
    measured: &Measured,
    documents: &Documents,
) -> Judged {
    let number = |key: &str| documents.get(experiment.document, key);
    let there = claim.there.as_ref().and_then(|quantity| quantity.of(number));
    let here = claim.here.samples(measured);
    let constants = measured.constants();
    let verdict = if claim.here.names().any(|name| constants.contains(&name)) {
        Verdict::Constant
    } else {
        match decide(claim, measured, &here, there) {
            None => Verdict::NotMeasured,
            Some(verdict) if experiment.leg != Leg::Simulated => verdict,
            Some(Verdict::Holds) => Verdict::Consistent,
            Some(Verdict::Fails) => Verdict::Inconsistent,
            Some(other) => other,
        }
    };
    Judged { verdict, here, there }
}

fn decide(claim: &Claim, measured: &Measured, here: &[f64], there: Option<f64>) -> Option<Verdict> {
    let neutral = claim.here.neutral();
    // A claim of a direction only, of which the document has a figure.
    let whole = |bar: f64| {
        let (neutral, there) = (neutral.filter(|neutral| *neutral == bar)?, there?);
        Some(neutral + AS_MUCH * (there - neutral))
    };
    let bounds = match claim.expect {
        Expect::AtMost(bar) => (f64::MIN, whole(bar).map_or(bar, |whole| whole.min(bar))),
        Expect::AtLeast(bar) => (whole(bar).map_or(bar, |whole| whole.max(bar)), f64::MAX),
        Expect::Within(low, high) => (low, high),
        Expect::AtMostThere => (f64::MIN, there?),
        Expect::AtLeastThere => (there?, f64::MAX),
    };
    // Which is the direction of the claim, if it has one and the bar lies in it.
    let direction = neutral.and_then(|neutral| match bounds {
        (f64::MIN, most) if most < neutral => Some((f64::MIN, neutral.next_down())),
        (least, f64::MAX) if least > neutral => Some((neutral.next_up(), f64::MAX)),
        _ => None,
    });
    let median = meantime_report::figures::median(here)?;
    let medians = |name: &str| meantime_report::figures::median(measured.samples(name));
    let of_medians = claim.here.of(medians).unwrap_or(median);
    // Most repetitions agree with the median, and so do the figures' own medians, which plots show.
    let clearly = |(low, high): (f64, f64)| {
        let inside = |sample: f64| (low..=high).contains(&sample);
        let agree = here.iter().filter(|sample| inside(**sample) == inside(median)).count();
        let clear = agree as f64 >= AGREE * here.len() as f64;
        (clear && inside(of_medians) == inside(median)).then_some(inside(median))
    };
    Some(match clearly(bounds) {
        Some(true) => Verdict::Holds,
        Some(false) if direction.and_then(clearly) == Some(true) => Verdict::Smaller,
        Some(false) => Verdict::Fails,
        None => Verdict::Unclear,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{Quantity, ratio};

    fn claim(expect: Expect, there: Option<Quantity>) -> Claim {
        let here = ratio("poll/mean_ns", "interrupt/mean_ns");
        Claim { text: String::new(), here, there, expect, unless: String::new(), ours: false }
    }

    /// An experiment of FAST 2012.
    fn experiment(leg: Leg) -> Experiment {
        Experiment { leg, ..crate::experiments().swap_remove(0) }
    }

    fn judged(poll: &[f64], leg: Leg, expect: Expect) -> Verdict {
        let mut measured = Measured::default();
        for (at, value) in poll.iter().enumerate() {
            measured.add("poll/mean_ns", *value);
            measured.add("interrupt/mean_ns", 100.0 + at as f64 * 1e-9);
        }
        let there = ratio("figure1/poll/4096", "figure1/interrupt/4096");
        let claim = claim(expect, Some(there));
        judge(&claim, &experiment(leg), &measured, &Documents::read()).verdict
    }

    #[test]
    fn most_repetitions_decide() {
        let less = Expect::AtMost(1.0);
        assert_eq!(judged(&[60.0, 61.0, 62.0], Leg::Machine, less), Verdict::Holds);
        assert_eq!(judged(&[160.0, 161.0, 162.0], Leg::Machine, less), Verdict::Fails);
        // A direction, of which the document has a figure: 0.58.
        assert_eq!(judged(&[80.0, 81.0, 82.0], Leg::Machine, less), Verdict::Smaller);
        assert_eq!(judged(&[60.0, 90.0, 120.0], Leg::Machine, less), Verdict::Unclear);
        assert_eq!(judged(&[], Leg::Machine, less), Verdict::NotMeasured);
        // The document's ratio is 0.58.
        assert_eq!(judged(&[60.0, 61.0], Leg::Machine, Expect::AtMostThere), Verdict::Smaller);
        assert_eq!(judged(&[101.0, 102.0], Leg::Machine, Expect::AtMostThere), Verdict::Fails);
        assert_eq!(judged(&[50.0, 51.0], Leg::Machine, Expect::AtMostThere), Verdict::Holds);
    }

    /// The plots show medians of figures. A claim that they contradict is not clear.
    #[test]
    fn medians_of_figures_agree_with_the_claim() {
        let mut measured = Measured::default();
        let turns = (1..9).map(|turn| (f64::from(turn), f64::from(turn) + 0.5));
        for (poll, interrupt) in turns.chain([(9.0, 0.1)]) {
            measured.add("poll/mean_ns", poll);
            measured.add("interrupt/mean_ns", interrupt);
        }
        let of = |expect| {
            let claim = claim(expect, None);
            let documents = Documents::read();
            judge(&claim, &experiment(Leg::Machine), &measured, &documents).verdict
        };
        // The median of the ratios is 0.92, the ratio of the medians 1.11.
        assert_eq!(of(Expect::AtMost(1.2)), Verdict::Holds);
        assert_eq!(of(Expect::AtMost(1.0)), Verdict::Unclear);
    }

    #[test]
    fn a_simulation_never_holds() {
        let less = Expect::AtMost(1.0);
        assert_eq!(judged(&[60.0, 61.0], Leg::Simulated, less), Verdict::Consistent);
        assert_eq!(judged(&[160.0, 161.0], Leg::Simulated, less), Verdict::Inconsistent);
    }

    #[test]
    fn a_constant_is_not_trusted() {
        assert_eq!(judged(&[60.0, 60.0], Leg::Machine, Expect::AtMost(1.0)), Verdict::Constant);
    }
}
