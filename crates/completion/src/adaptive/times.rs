//! The distribution of device times of one class of I/O, learned from exact and from censored
//! observations.

use super::tuning::*;

/// Bins per octave: each is about 1 to 1.5 % wide, and keeps the mean of its observations.
const BINS_PER_OCTAVE: usize = 64;
/// Times below 256 ns fall into the first bin.
const FIRST_OCTAVE: u32 = 8;
/// The last bin takes 16 ms and more.
const OCTAVES: usize = 16;
const BINS: usize = OCTAVES * BINS_PER_OCTAVE + 1;

/// The weight of an observation over that of the one before: an observation loses most of its
/// weight after `REMEMBERED_IOS` others.
const GROWTH: f32 = 1.0 + 1.0 / REMEMBERED_IOS;
/// Weights are scaled down when the newest reaches this value.
const LARGEST_WEIGHT: f32 = 65_536.0;
/// The most points of a [`Support`].
pub const MAX_POINTS: usize = 48;

#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    /// Weight of exact observations, and their weighted sum in ns.
    exact: f32,
    sum_ns: f32,
    /// Weight of the observations that are upper limits in this bin.
    at_most: f32,
}

/// The observations, recent ones weighted more.
#[derive(Debug, Clone)]
pub(super) struct Times {
    bins: [Bin; BINS],
    /// The bins in use are `low..high`.
    low: usize,
    high: usize,
    weight: f32,
    /// The weight of all observations.
    total: f32,
}

impl Default for Times {
    fn default() -> Self {
        Self { bins: [Bin::default(); BINS], low: BINS, high: 0, weight: 1.0, total: 0.0 }
    }
}

#[inline(always)]
fn bin_of(ns: u64) -> usize {
    let ns = ns.max(1 << FIRST_OCTAVE);
    let octave = u64::BITS - 1 - ns.leading_zeros();
    let within = (ns >> (octave - BINS_PER_OCTAVE.ilog2())) as usize & (BINS_PER_OCTAVE - 1);
    (((octave - FIRST_OCTAVE) as usize) * BINS_PER_OCTAVE + within).min(BINS - 1)
}

impl Times {
    /// Records an I/O that took `ns`.
    #[inline]
    pub(super) fn exactly(&mut self, ns: u64) {
        let weight = self.next_weight();
        let bin = self.bin_mut(ns);
        bin.exact += weight;
        bin.sum_ns += weight * ns as f32;
    }

    /// Records an I/O that took at most `ns`: no look preceded the one that found it complete.
    #[inline]
    pub(super) fn at_most(&mut self, ns: u64) {
        let weight = self.next_weight();
        self.bin_mut(ns).at_most += weight;
    }

    #[inline(always)]
    fn next_weight(&mut self) -> f32 {
        self.weight *= GROWTH;
        if self.weight > LARGEST_WEIGHT {
            self.scale(1.0 / LARGEST_WEIGHT);
        }
        self.total += self.weight;
        self.weight
    }

    #[inline(always)]
    fn bin_mut(&mut self, ns: u64) -> &mut Bin {
        let at = bin_of(ns);
        self.low = self.low.min(at);
        self.high = self.high.max(at + 1);
        &mut self.bins[at]
    }

    #[cold]
    fn scale(&mut self, factor: f32) {
        for bin in &mut self.bins[..self.high] {
            bin.exact *= factor;
            bin.sum_ns *= factor;
            bin.at_most *= factor;
        }
        self.weight *= factor;
        self.total *= factor;
    }

    /// The number of observations of equal weight that these are worth.
    #[cfg(all(test, not(loom)))]
    fn count(&self) -> f32 {
        self.total / self.weight
    }

    /// Drops all observations: the device has changed.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Estimates the distribution by Kaplan and Meier's method, computed from above, since the
    /// censored observations are upper limits. An I/O with only an upper limit is distributed like
    /// those that took at most as long; it never makes the device look slower.
    ///
    /// Mass below every exact observation goes to the smallest exact time.
    pub(super) fn support(&mut self) -> Support {
        // Bins whose weight has decayed are dropped.
        let faint = self.total * FAINT_PART;
        let is_faint = |bin: &Bin| bin.exact + bin.at_most <= faint;
        while self.low < self.high && is_faint(&self.bins[self.low]) {
            self.bins[self.low] = Bin::default();
            self.low += 1;
        }
        while self.high > self.low && is_faint(&self.bins[self.high - 1]) {
            self.high -= 1;
            self.bins[self.high] = Bin::default();
        }
        if self.low >= self.high {
            (self.low, self.high) = (BINS, 0);
            return Support::default();
        }
        let used = &self.bins[self.low..self.high];
        let mut support = Support::default();
        let mut at_risk: f32 = used.iter().map(|bin| bin.exact + bin.at_most).sum();
        let mut mass_below = 1.0f32;
        for bin in used.iter().rev() {
            if bin.exact > faint {
                let share = (bin.exact / at_risk).min(1.0);
                support.push_below(bin.sum_ns / bin.exact, mass_below * share);
                mass_below *= 1.0 - share;
            }
            at_risk -= bin.exact + bin.at_most;
        }
        support.finish(mass_below)
    }
}

/// A distribution as a small number of points.
#[derive(Debug, Clone, Copy)]
pub struct Support {
    /// Times in ascending order, in ns.
    pub ns: [f32; MAX_POINTS],
    /// Probability of each.
    pub mass: [f32; MAX_POINTS],
    /// Number of points.
    pub count: usize,
}

impl Default for Support {
    fn default() -> Self {
        Self { ns: [0.0; MAX_POINTS], mass: [0.0; MAX_POINTS], count: 0 }
    }
}

impl Support {
    /// The distribution of equally likely `samples`, at most [`MAX_POINTS`] of them.
    pub fn of(samples: &[(f32, f32)]) -> Self {
        let mut support = Self::default();
        for &(ns, mass) in samples.iter().rev() {
            support.push_below(ns, mass);
        }
        support.finish(0.0)
    }

    /// Adds a point of some mass below all others; if there is no room, merges neighbours.
    fn push_below(&mut self, ns: f32, mass: f32) {
        if mass <= 0.0 {
            return;
        }
        if self.count == MAX_POINTS {
            self.thin_out();
        }
        (self.ns[self.count], self.mass[self.count]) = (ns, mass);
        self.count += 1;
    }

    /// Makes room: merges the neighbours that add the least variance, until a quarter is free.
    #[cold]
    fn thin_out(&mut self) {
        while self.count > MAX_POINTS * 3 / 4 {
            let added = |at: usize| {
                let (upper, lower) = (self.mass[at], self.mass[at + 1]);
                let gap_ns = self.ns[at] - self.ns[at + 1];
                upper * lower / (upper + lower) * gap_ns * gap_ns
            };
            let mut least = (0, f32::INFINITY);
            for at in 0..self.count - 1 {
                let added = added(at);
                if added < least.1 {
                    least = (at, added);
                }
            }
            let at = least.0;
            let mass = self.mass[at] + self.mass[at + 1];
            self.ns[at] =
                (self.ns[at] * self.mass[at] + self.ns[at + 1] * self.mass[at + 1]) / mass;
            self.mass[at] = mass;
            self.ns.copy_within(at + 2..self.count, at + 1);
            self.mass.copy_within(at + 2..self.count, at + 1);
            self.count -= 1;
        }
    }

    fn finish(mut self, mass_below: f32) -> Self {
        let count = self.count;
        if count > 0 {
            self.mass[count - 1] += mass_below;
        }
        self.ns[..count].reverse();
        self.mass[..count].reverse();
        self
    }

    /// The points: times in ns, and their probabilities.
    pub fn points(&self) -> impl DoubleEndedIterator<Item = (f32, f32)> + '_ {
        self.ns[..self.count].iter().copied().zip(self.mass[..self.count].iter().copied())
    }

    /// The mean in ns; 0 if unknown.
    pub fn mean_ns(&self) -> f32 {
        self.points().map(|(ns, mass)| ns * mass).sum()
    }

    /// The `q` quantile in ns; 0 if unknown.
    pub fn quantile_ns(&self, q: f32) -> f32 {
        let mut below = 0.0;
        for (ns, mass) in self.points() {
            below += mass;
            if below >= q {
                return ns;
            }
        }
        self.ns[..self.count].last().copied().unwrap_or(0.0)
    }

    /// The probability of more than `more_ns` and at most `at_most_ns`.
    pub fn between(&self, more_ns: f32, at_most_ns: f32) -> f32 {
        let within = self.points().filter(|(ns, _)| *ns > more_ns && *ns <= at_most_ns);
        within.map(|(_, mass)| mass).sum()
    }

    /// Draws a time in that range by the distribution; `draw` is from 0 to 1.
    pub fn draw_between_ns(&self, more_ns: f32, at_most_ns: f32, draw: f32) -> Option<f32> {
        let mut left = draw * self.between(more_ns, at_most_ns);
        let mut last = None;
        for (ns, mass) in self.points().filter(|(ns, _)| *ns > more_ns && *ns <= at_most_ns) {
            last = Some(ns);
            left -= mass;
            if left <= 0.0 {
                break;
            }
        }
        last
    }

    /// The mean of the times up to `at_most_ns`; `None` if there are none.
    pub fn mean_below_ns(&self, at_most_ns: f32) -> Option<f32> {
        let (mut mass, mut sum) = (0.0, 0.0);
        for (ns, share) in self.points() {
            if ns > at_most_ns {
                break;
            }
            mass += share;
            sum += ns * share;
        }
        (mass > 1e-6).then(|| sum / mass)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
