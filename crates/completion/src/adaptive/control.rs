//! Holds a goal: the price of lateness rises and falls until the measured value meets the goal.

use super::super::policy::Goal;
use super::tuning::*;

/// The control of one goal on one channel.
#[derive(Debug, Clone, Default)]
pub(super) struct Control {
    goal: Goal,
    price_log2: f32,
    ios: u32,
    late_ns: f32,
    device_ns: f32,
    cpu_ns: f32,
    /// Latency goal: below this price lateness saves too little CPU.
    lowest_log2: f32,
    /// CPU goal: time of the last reading, and the CPU time read then.
    cpu_since_ns: u64,
    cpu_used_ns: u64,
    /// Percentile goal: how long before the percentile's time a sleep has to end, in ns.
    margin_ns: f32,
    /// Recent share of I/Os beyond the percentile's time, and the share of those that no sleep
    /// caused.
    beyond: f32,
    beyond_by_device: f32,
    seen: u32,
}

/// An ended I/O, with the values that goals depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    /// From submission until the completion was seen, in ns.
    pub total_ns: f32,
    /// Estimated oversleep, in ns.
    pub late_ns: f32,
    /// Planned CPU time for it, in ns.
    pub cpu_ns: f32,
    /// The time when it was seen, in ns.
    pub now_ns: u64,
}

impl Control {
    /// A new control for `goal`. `wake_ns` is the typical lateness of a sleeper.
    pub(super) fn new(goal: Goal, wake_ns: f32) -> Self {
        let price_log2 = match goal {
            // The margin holds the goal instead.
            Goal::P99(_) | Goal::P999(_) => TAIL_PRICE_LOG2,
            _ => FIRST_PRICE_LOG2,
        };
        Self { goal, price_log2, margin_ns: FIRST_MARGIN_WAKES * wake_ns, ..Self::default() }
    }

    /// The goal.
    pub(super) fn goal(&self) -> Goal {
        self.goal
    }

    /// The value of one ns of lateness, in ns of CPU.
    pub(super) fn price(&self) -> f32 {
        self.price_log2.max(CPU_PRICE_LOG2).exp2()
    }

    /// The unclamped price, which includes the stretch; a plan is outdated when it has changed.
    pub(super) fn raw_price(&self) -> f32 {
        self.price_log2.exp2()
    }

    /// How much longer than planned to sleep, as a share of the device time. It is not 0 only if
    /// even free lateness does not reduce the CPU enough.
    pub(super) fn stretch(&self) -> f32 {
        (CPU_PRICE_LOG2 - self.price_log2).max(0.0).exp2() - 1.0
    }

    /// Percentile goal: latest end of a sleep after submission, in ns.
    pub(super) fn limit_ns(&self) -> Option<f32> {
        self.bound().map(|(bound_ns, _)| bound_ns - self.margin_ns)
    }

    /// Percentile goal: its time in ns, and the share of I/Os allowed beyond it.
    fn bound(&self) -> Option<(f32, f32)> {
        match self.goal {
            Goal::P99(ns) => Some((0.99 * ns as f32, 0.01)),
            Goal::P999(ns) => Some((0.99 * ns as f32, 0.001)),
            Goal::Latency(_) | Goal::Cpu(_) => None,
        }
    }

    fn lowest(&self) -> f32 {
        match self.goal {
            // Allows sleeps of up to 32 times the device time.
            Goal::Cpu(_) => CPU_PRICE_LOG2 - LONGEST_STRETCH_LOG2,
            _ => self.lowest_log2,
        }
    }

    /// Whether the goal can be held, as far as is known. A percentile that the device itself
    /// exceeds cannot, nor can a CPU share that even the longest sleeps exceed.
    pub(super) fn is_held(&self) -> bool {
        match self.bound() {
            // The recent share varies around its long-run value.
            Some((_, share)) => {
                self.seen < (10.0 / share) as u32
                    || self.beyond_by_device < share && self.beyond < 1.5 * share
            }
            None => self.price_log2 > self.lowest() || !matches!(self.goal, Goal::Cpu(_)),
        }
    }

    /// Records an I/O. Returns whether the price has changed enough to plan again. `cpu_ns` returns
    /// the CPU time that this thread has used.
    #[inline]
    pub(super) fn record(&mut self, ended: &Ended, cpu_ns: impl FnOnce() -> u64) -> bool {
        if let Some((bound_ns, share)) = self.bound() {
            self.record_tail(ended, bound_ns, share);
            self.ios += 1;
            let step = self.ios >= PRICE_STEP_IOS;
            if step {
                self.ios = 0;
            }
            return step;
        }
        self.ios += 1;
        self.late_ns += ended.late_ns;
        self.device_ns += ended.total_ns - ended.late_ns;
        self.cpu_ns += ended.cpu_ns;
        self.ios >= PRICE_STEP_IOS && self.step(ended.now_ns, cpu_ns)
    }

    fn record_tail(&mut self, ended: &Ended, bound_ns: f32, share: f32) {
        let (aim, unit_ns) = (share * TAIL_AIM_PART, MARGIN_STEP_PART * bound_ns);
        let beyond = ended.total_ns > bound_ns;
        let by_device = ended.total_ns - ended.late_ns > bound_ns;
        self.margin_ns += if beyond { unit_ns * (1.0 - aim) } else { -unit_ns * aim };
        self.margin_ns = self.margin_ns.clamp(0.0, bound_ns);
        self.seen = self.seen.saturating_add(1);
        let weight = (share / 10.0).max(1.0 / self.seen as f32);
        self.beyond += weight * (f32::from(beyond) - self.beyond);
        self.beyond_by_device += weight * (f32::from(by_device) - self.beyond_by_device);
    }

    #[inline(never)]
    fn step(&mut self, now_ns: u64, cpu_ns: impl FnOnce() -> u64) -> bool {
        let off = match self.goal {
            Goal::Latency(permille) => {
                let worth = WORTH_CPU_FACTOR * self.cpu_ns / self.device_ns.max(1.0);
                self.lowest_log2 = worth.max(1e-6).log2().clamp(CPU_PRICE_LOG2, 1.0);
                let budget_ns = LATENCY_AIM_PART * f32::from(permille) / 1000.0 * self.device_ns;
                self.late_ns / budget_ns.max(1.0) - 1.0
            }
            Goal::Cpu(percent) => {
                if now_ns.saturating_sub(self.cpu_since_ns) < CPU_STEP_NS {
                    return false;
                }
                let used_ns = cpu_ns();
                let wall_ns = now_ns.saturating_sub(self.cpu_since_ns);
                let first = self.cpu_since_ns == 0 || wall_ns > 100 * CPU_STEP_NS;
                let share = used_ns.saturating_sub(self.cpu_used_ns) as f32 / wall_ns as f32;
                (self.cpu_since_ns, self.cpu_used_ns) = (now_ns, used_ns);
                if first {
                    return false;
                }
                // Too much CPU: lateness must become cheaper.
                1.0 - share / (f32::from(percent) / 100.0)
            }
            Goal::P99(_) | Goal::P999(_) => 0.0,
        };
        let moved = (PRICE_GAIN_LOG2 * off).clamp(*PRICE_STEP_LOG2.start(), *PRICE_STEP_LOG2.end());
        self.price_log2 = (self.price_log2 + moved).clamp(self.lowest(), HIGHEST_PRICE_LOG2);
        (self.ios, self.late_ns, self.device_ns, self.cpu_ns) = (0, 0.0, 0.0, 0.0);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn latency_goal() -> Control {
        Control::new(Goal::default(), 2_000.0)
    }

    fn feed(control: &mut Control, count: u32, total_ns: f32, late_ns: f32) {
        for n in 0..count {
            let now_ns = u64::from(n) * 10_000;
            control.record(&Ended { total_ns, late_ns, cpu_ns: 2_500.0, now_ns }, || 0);
        }
    }

    #[test]
    fn too_late_makes_lateness_dearer_and_in_time_cheaper() {
        let mut control = latency_goal();
        let price = control.price();
        feed(&mut control, 160, 11_000.0, 1_000.0);
        assert!(control.price() > 4.0 * price);
        feed(&mut control, 1_600, 10_000.0, 0.0);
        assert!(control.price() < price);
        feed(&mut control, 100_000, 10_000.0, 0.0);
        assert_eq!(control.price(), 0.5);
        assert_eq!(control.stretch(), 0.0);
    }

    #[test]
    fn what_is_asked_for_moves_nothing() {
        let mut control = latency_goal();
        let price = control.price();
        let late_ns = LATENCY_AIM_PART * 0.03 * 10_000.0;
        feed(&mut control, 1_600, 10_000.0 + late_ns, late_ns);
        assert!((control.price() / price - 1.0).abs() < 0.01);
    }

    /// I/Os within the percentile shrink its margin; late ones beyond it enlarge it.
    #[test]
    fn a_percentile_moves_its_margin() {
        let mut control = Control::new(Goal::P99(20_000), 2_000.0);
        let limit_ns = |control: &Control| control.limit_ns().unwrap();
        let start_ns = limit_ns(&control);
        feed(&mut control, 200, 15_000.0, 5_000.0);
        assert!(limit_ns(&control) > start_ns);
        feed(&mut control, 3, 25_000.0, 15_000.0);
        assert!(limit_ns(&control) < start_ns);
        assert!(control.is_held());
        // The device itself exceeds the percentile.
        feed(&mut control, 1_000, 25_000.0, 0.0);
        assert!(!control.is_held());
        assert_eq!(limit_ns(&control), 0.0);
    }
}
