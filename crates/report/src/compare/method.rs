//! How two groups of figures are compared: functions of numbers alone.
//!
//! - Everything is on logarithms. A change multiplies a latency, and so does noise: a change and
//!   its interval are ratios, and a mean is a geometric one.
//! - A value is the figure of a whole run. The I/Os of a run, and its turns, share its memory and
//!   its caches, so that they tell nothing of another run.
//! - [`separate`] is for runs that have nothing to do with each other: Welch's interval, which does
//!   not suppose that both sides scatter alike. [`paired`] is for runs that were made one after the
//!   other: Student's interval of the ratios in each pair, without what drifts from pair to pair.
//! - A percentile is a step of a histogram. The variance that the steps' width causes (its square
//!   over 12) is added, so that equal values are not taken for certain ones.
//! - [`holm`] corrects the tests of one comparison together: where nothing has changed, all of its
//!   verdicts are *not clear* in 95 % of the cases at least. Intervals are of 95 % each, and not
//!   corrected.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// The probability of an error: of one interval, and of all verdicts of a comparison together.
pub(crate) const ALPHA: f64 = 0.05;

/// The fewest values of a side, or pairs, of which the scatter is taken for known.
pub(crate) const VALUES_MIN: usize = 3;

/// A change, as the ratio of after to before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Change {
    pub ratio: f64,
    /// What is known of the ratio, or `None` if there are too few values, or they do not scatter.
    pub test: Option<Test>,
}

/// The interval of a ratio, and the probability of one as far from 1 if nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Test {
    pub low: f64,
    pub high: f64,
    pub p: f64,
}

impl Change {
    /// Creates the change of a logarithm by `difference`, which has such a standard error.
    fn new(difference: f64, error: f64, freedom: f64, values: usize) -> Self {
        let student = StudentsT::new(0.0, 1.0, freedom).ok();
        let student = student.filter(|_| values >= VALUES_MIN && error > 0.0);
        let test = student.map(|student| {
            let reach = error * student.inverse_cdf(1.0 - ALPHA / 2.0);
            let p = 2.0 * student.sf((difference / error).abs());
            Test { low: (difference - reach).exp(), high: (difference + reach).exp(), p }
        });
        Self { ratio: difference.exp(), test }
    }
}

/// Compares the values of separate runs, all above 0. `step` is the relative width of their steps.
pub(crate) fn separate(before: &[f64], after: &[f64], step: f64) -> Change {
    let of = |values: &[f64]| mean(values.iter().map(|value| value.ln()), step.powi(2) / 12.0);
    let ((from, from_variance), (to, to_variance)) = (of(before), of(after));
    let variance = from_variance + to_variance;
    let share = |part: f64, values: &[f64]| part.powi(2) / (values.len() as f64 - 1.0);
    let freedom = variance.powi(2) / (share(from_variance, before) + share(to_variance, after));
    Change::new(to - from, variance.sqrt(), freedom, before.len().min(after.len()))
}

/// Compares values of pairs, all above 0: those at the same place belong together.
pub(crate) fn paired(before: &[f64], after: &[f64], step: f64) -> Change {
    let ratios = before.iter().zip(after).map(|(before, after)| (after / before).ln());
    let (difference, variance) = mean(ratios, step.powi(2) / 6.0);
    Change::new(difference, variance.sqrt(), before.len() as f64 - 1.0, before.len())
}

/// Returns the geometric mean.
pub(crate) fn geometric_mean(values: &[f64]) -> f64 {
    mean(values.iter().map(|value| value.ln()), 0.0).0.exp()
}

/// Returns the mean and its variance. Each value has the variance `added` besides its own.
fn mean(values: impl Iterator<Item = f64> + Clone, added: f64) -> (f64, f64) {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0) + added) / n)
}

/// Corrects the probabilities of tests that are judged together, after Holm.
pub(crate) fn holm(ps: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ps.len()).collect();
    order.sort_by(|one, other| ps[*one].total_cmp(&ps[*other]));
    let (mut corrected, mut least) = (vec![0.0; ps.len()], 0.0f64);
    for (rank, at) in order.into_iter().enumerate() {
        least = least.max(ps[at] * (ps.len() - rank) as f64).min(1.0);
        corrected[at] = least;
    }
    corrected
}
