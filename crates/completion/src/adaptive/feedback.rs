//! Detects whether I/Os take longer because their thread sleeps.
//!
//! A device that saves power, a CPU that serves it, or a cache may be slower after the host has
//! slept. The host would then sleep through the longer times as well, and make the device slower
//! still. So the channel polls for some I/Os once in a while, and compares their times with those
//! just before. If sleeps have made these longer, twice in a row, sleeps are shortened or given up;
//! later they are tried again.

use super::tuning::*;

/// Number, sum and sum of squares of logarithms.
#[derive(Debug, Clone, Copy, Default)]
struct Logs {
    count: f32,
    sum: f32,
    squares: f32,
}

impl Logs {
    fn add(&mut self, value: f32) {
        let log = value.max(1e-6).ln();
        self.count += 1.0;
        self.sum += log;
        self.squares += log * log;
    }

    fn fade(&mut self) {
        self.count *= COMPARED_KEPT_PART;
        self.sum *= COMPARED_KEPT_PART;
        self.squares *= COMPARED_KEPT_PART;
    }

    fn mean(&self) -> f32 {
        self.sum / self.count
    }

    /// The square of the mean's standard error.
    fn error2(&self) -> f32 {
        let mean = self.mean();
        (self.squares / self.count - mean * mean).max(0.0) / self.count
    }
}

/// The comparison on one channel.
#[derive(Debug, Clone)]
pub(super) struct Feedback {
    /// The part of a planned sleep that the thread makes.
    pub(super) part: f32,
    /// The number of I/Os until the next comparison, and how many of its I/Os are left to poll for.
    left: u32,
    polled_left: u32,
    between: u32,
    slept: Logs,
    polled: Logs,
    /// Whether the last comparison found sleeps to be too long.
    is_suspect: bool,
    /// The number of comparisons until a longer sleep is tried, and from one such trial to the
    /// next.
    held: u32,
    hold: u32,
}

impl Default for Feedback {
    fn default() -> Self {
        Self {
            part: 1.0,
            left: FIRST_COMPARISON_IOS,
            polled_left: 0,
            between: FIRST_COMPARISON_IOS,
            slept: Logs::default(),
            polled: Logs::default(),
            is_suspect: false,
            held: HOLD_COMPARISONS,
            hold: HOLD_COMPARISONS,
        }
    }
}

impl Feedback {
    /// The part of its sleep that the next I/O is to make.
    #[inline]
    pub(super) fn part(&self) -> f32 {
        if self.polled_left > 0 { 0.0 } else { self.part }
    }

    /// Whether I/Os are polled for, to be compared.
    #[inline]
    pub(super) fn is_polling(&self) -> bool {
        self.polled_left > 0
    }

    /// Records an I/O for which a sleep was planned: its time relative to what its kind takes, and
    /// how many were in flight. Returns whether sleeps have another length from now on. In that
    /// case the times seen so far say little about the next ones.
    #[inline]
    pub(super) fn record(&mut self, relative: f32, in_flight: u32) -> bool {
        if self.polled_left > 0 {
            if self.polled_left <= POLLED_IOS - UNCOUNTED_IOS {
                self.polled.add(relative);
            }
            self.polled_left -= 1;
            return self.polled_left == 0 && self.compare();
        }
        self.left -= 1;
        if self.left < SLEPT_IOS && self.part > 0.0 {
            self.slept.add(relative);
        }
        if self.left == 0 && self.part > 0.0 {
            // Those in flight were sent while the thread slept.
            self.polled_left = POLLED_IOS + in_flight;
            return false;
        }
        self.left == 0 && self.compare()
    }

    #[cold]
    fn compare(&mut self) -> bool {
        let longer = self.slept.mean() - self.polled.mean();
        let error = (self.slept.error2() + self.polled.error2()).sqrt();
        // The time that sleeping adds, as a part of the whole.
        let added = 1.0 - (-longer).exp();
        if self.part > 0.0 && added > HARM_PART && longer > HARM_PART + SIGNIFICANT_ERRORS * error {
            // The device may just have changed; the next comparison would then say otherwise.
            if !std::mem::replace(&mut self.is_suspect, true) {
                self.begin();
                return false;
            }
            // This assumes that the harm is in proportion to the sleep.
            self.part *= HARM_PART / added;
            if self.part < SLEPT_LEAST_PART {
                self.part = 0.0;
            }
            self.hold = (2 * self.hold).min(HOLD_LONGEST_COMPARISONS);
            self.begin();
            return true;
        }
        self.is_suspect = false;
        if self.part == 1.0 {
            self.hold = (self.hold / 2).max(HOLD_COMPARISONS);
        }
        self.slept.fade();
        self.polled.fade();
        self.between = (COMPARISON_GROWTH_FACTOR * self.between).min(COMPARISON_IOS);
        self.left = self.between;
        self.held -= u32::from(self.part < 1.0);
        if self.held == 0 {
            self.part = (2.0 * self.part).clamp(SLEPT_LEAST_PART, 1.0);
            self.begin();
            return true;
        }
        false
    }

    /// Begins a new series of comparisons, and soon.
    fn begin(&mut self) {
        (self.slept, self.polled) = (Logs::default(), Logs::default());
        (self.left, self.between) = (FIRST_COMPARISON_IOS, FIRST_COMPARISON_IOS);
        self.held = self.hold;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Feeds I/Os that take 100 µs, more by `slope` times the sleep before. Returns the mean time.
    fn mean_ns(feedback: &mut Feedback, ios: u32, slope: f32) -> f32 {
        let (mut sum, mut slept_ns) = (0.0, 0.0);
        for n in 0..ios {
            let ns = 100_000.0 + slope * slept_ns + (n % 7) as f32 * 1_000.0;
            slept_ns = 0.9 * feedback.part() * ns;
            feedback.record(ns / 100_000.0, 1);
            sum += ns;
        }
        sum / ios as f32
    }

    #[test]
    fn sleeps_that_slow_the_device_become_shorter() {
        for slope in [0.2, 0.5, 1.0] {
            let mut feedback = Feedback::default();
            mean_ns(&mut feedback, 4_000, slope);
            assert!(feedback.part < 1.0, "{slope}");
            let mean_ns = mean_ns(&mut feedback, 100_000, slope);
            assert!(mean_ns < 118_000.0, "{slope}: {mean_ns} ns");
        }
    }

    #[test]
    fn sleeps_that_do_not_stay() {
        let mut feedback = Feedback::default();
        mean_ns(&mut feedback, 100_000, 0.05);
        assert_eq!(feedback.part, 1.0);
    }

    #[test]
    fn a_device_that_changes_is_slept_for_as_before() {
        let mut feedback = Feedback::default();
        for n in 0..100_000 {
            // The first I/Os that are polled for are the first fast ones.
            feedback.record(if n < FIRST_COMPARISON_IOS { 1.0 } else { 0.7 }, 1);
        }
        assert_eq!(feedback.part, 1.0);
    }

    #[test]
    fn they_are_tried_again() {
        let mut feedback = Feedback::default();
        mean_ns(&mut feedback, 10_000, 1.0);
        assert!(feedback.part <= 0.25);
        mean_ns(&mut feedback, 1_000_000, 0.0);
        assert_eq!(feedback.part, 1.0);
    }
}
