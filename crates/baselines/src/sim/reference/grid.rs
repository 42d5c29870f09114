//! Distributions on a grid of times.

use crate::sim::distribution::Distribution;

/// The maximum number of steps of a grid.
const MOST_STEPS: f64 = 24_000.0;

/// Returns the step in ns of a grid for times up to `longest_ns` that are typically `typical_ns`.
pub(super) fn step_ns(typical_ns: u64, longest_ns: u64) -> f64 {
    let fine = (typical_ns as f64 / 200.0).clamp(10.0, 50.0);
    fine.max(longest_ns as f64 / MOST_STEPS).ceil()
}

/// The lateness of a sleeper, as numbers of steps with a probability each. A time between two steps
/// is divided between them, so that the mean is kept.
#[derive(Debug)]
pub(super) struct Wake {
    pub steps: Vec<(usize, f64)>,
    /// The mean in steps.
    pub mean: f64,
    /// The largest number of steps.
    pub most: usize,
}

impl Wake {
    pub(super) fn new(wake: &Distribution, plus_ns: u64, step_ns: f64) -> Self {
        let samples = wake.samples_ns();
        let each = 1.0 / samples.len() as f64;
        let mut weights = Vec::new();
        let mut add = |at: usize, weight: f64| {
            if weights.len() <= at {
                weights.resize(at + 1, 0.0);
            }
            weights[at] += weight;
        };
        for sample in samples {
            let at = (sample + plus_ns) as f64 / step_ns;
            let (whole, part) = (at.floor() as usize, at.fract());
            add(whole, each * (1.0 - part));
            add(whole + 1, each * part);
        }
        let steps: Vec<(usize, f64)> =
            weights.into_iter().enumerate().filter(|(_, p)| *p > 0.0).collect();
        let mean = steps.iter().map(|(at, p)| *at as f64 * p).sum();
        let most = steps.last().map_or(0, |(at, _)| *at);
        Self { steps, mean, most }
    }
}

/// Device times, as their exact distribution function at the points of the grid.
#[derive(Debug)]
pub(super) struct Known {
    /// P(T ≤ x) at each point.
    pub done: Vec<f64>,
    /// E[T; T ≤ x], in steps, at each point.
    pub moment: Vec<f64>,
    /// The first point by which every I/O is complete.
    pub last: usize,
}

impl Known {
    /// Creates the grid with `beyond` more points after the last.
    pub(super) fn new(times: &Distribution, step_ns: f64, beyond: usize) -> Self {
        let samples = times.samples_ns();
        let longest_ns = samples.last().copied().unwrap_or(0);
        let last = (longest_ns as f64 / step_ns).ceil() as usize + 1;
        let (mut done, mut moment) = (Vec::new(), Vec::new());
        let (mut count, mut sum) = (0, 0.0);
        let all = samples.len() as f64;
        for point in 0..=last + beyond {
            while count < samples.len() && samples[count] as f64 <= point as f64 * step_ns {
                sum += samples[count] as f64 / step_ns;
                count += 1;
            }
            done.push(count as f64 / all);
            moment.push(sum / all);
        }
        Self { done, moment, last }
    }

    /// Returns P(T > x) at a point.
    pub(super) fn left(&self, point: usize) -> f64 {
        1.0 - self.done[point]
    }

    /// Returns E[(x - T)+], in steps, at a point.
    pub(super) fn late(&self, point: usize) -> f64 {
        point as f64 * self.done[point] - self.moment[point]
    }

    /// Returns the time spent spinning from `point` until the next point or the completion, in
    /// steps.
    pub(super) fn spun(&self, point: usize) -> f64 {
        // E[min(T, x + 1) - x; T > x]
        let ended = self.done[point + 1] - self.done[point];
        self.moment[point + 1] - self.moment[point] - point as f64 * ended + self.left(point + 1)
    }
}
