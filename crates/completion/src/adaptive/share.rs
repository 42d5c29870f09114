//! Measures how much of a CPU a thread gets.
//!
//! If other threads want its CPU, or its control group has a quota, a thread waits although it is
//! runnable. The kernel counts that time, whatever the reason. If the thread always wants to run,
//! the part of the time that it runs is its *share*. If it sleeps, others may only delay its
//! wake-ups.

use super::tuning::*;
use meantime_process::cpu::SHORT;

/// Times and numbers of I/Os, the recent ones with more weight.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    wall_ns: f32,
    ran_ns: f32,
    waited_ns: f32,
    ios: f32,
}

impl Sums {
    /// Adds `new`; what was added before it decays with the time constant `decay_ns`.
    fn add(&mut self, new: &Self, decay_ns: f32) {
        let left = (-new.wall_ns / decay_ns).exp();
        self.wall_ns = left * self.wall_ns + new.wall_ns;
        self.ran_ns = left * self.ran_ns + new.ran_ns;
        self.waited_ns = left * self.waited_ns + new.waited_ns;
        self.ios = left * self.ios + new.ios;
    }

    fn is_short(&self) -> bool {
        self.waited_ns > SHORT * self.wall_ns
    }
}

/// What a look has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// The CPU has become short.
    Short,
    /// The CPU had ceased to count as short, and still is.
    StillShort,
    /// The CPU no longer counts as short.
    Enough,
}

/// What is known of a thread's CPU.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    /// The last look: its time, and the time for which the thread had run.
    seen: Option<(u64, u64)>,
    /// The time for which the thread had waited, when that was last asked.
    waited_ns: Option<u64>,
    recent: Sums,
    /// The sums since the thread last changed how it waits.
    steady: Sums,
    /// The sums while the CPU was short, from `short_from_ns` on.
    short: Sums,
    short_from_ns: u64,
    /// Time until which the CPU counts as short, in ns, and how long it counts as short when seen.
    short_until_ns: u64,
    patience_ns: u64,
    /// The longest wait since the thread last changed how it waits, in ns.
    longest_ns: f32,
    /// The part of the CPU that the thread gets if it always wants to run; all of it before that
    /// was measured. Another thread may want the CPU only because this one sleeps, which spinning
    /// shows.
    share: f32,
    /// Whether its waits only spin.
    spins: bool,
    /// How long it waits for the CPU after a sleep, per I/O, in ns.
    wake_wait_ns: f32,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            seen: None,
            waited_ns: None,
            recent: Sums::default(),
            steady: Sums::default(),
            short: Sums::default(),
            short_from_ns: 0,
            short_until_ns: 0,
            patience_ns: 0,
            longest_ns: 0.0,
            share: 1.0,
            spins: false,
            wake_wait_ns: 0.0,
        }
    }
}

impl Share {
    /// Looks at how much of its CPU the thread got until `now_ns`: it has run for `ran_ns` since
    /// its start, and has done `ios` I/Os since the last look. `waited_ns` returns for how long it
    /// has waited.
    pub(crate) fn sample(
        &mut self,
        now_ns: u64,
        ran_ns: u64,
        ios: u32,
        waited_ns: impl FnOnce() -> Option<u64>,
    ) -> Change {
        let Some((then_ns, before_ns)) = self.seen.replace((now_ns, ran_ns)) else {
            self.waited_ns = waited_ns();
            return Change::Nothing;
        };
        let wall_ns = now_ns.saturating_sub(then_ns).max(1) as f32;
        let ran_ns = (ran_ns.saturating_sub(before_ns) as f32).min(wall_ns);
        let mut new = Sums { wall_ns, ran_ns, waited_ns: 0.0, ios: ios as f32 };
        // The thread did not run for this long; only then it may have waited for much.
        let idle_ns = wall_ns - ran_ns;
        if idle_ns > SHORT * wall_ns {
            let before = std::mem::replace(&mut self.waited_ns, waited_ns());
            if let (Some(before), Some(now)) = (before, self.waited_ns) {
                // The channel may have moved to another thread.
                new.waited_ns = (now.saturating_sub(before) as f32).min(idle_ns);
            }
        }
        self.recent.add(&new, RECENT_NS);
        self.steady.add(&new, STEADY_NS);
        let was_short = self.is_short(then_ns);
        let mut change = Change::Nothing;
        if self.recent.is_short() && new.is_short() {
            if !was_short {
                change = self.begin(now_ns);
            }
            if wall_ns - new.waited_ns < CLOSE_NS {
                self.longest_ns = self.longest_ns.max(new.waited_ns);
            }
            let patience_ns = self.patience_ns.max((SHORT_WAITS * self.longest_ns) as u64);
            self.patience_ns = patience_ns.min(SHORT_LONGEST_NS);
            self.short_until_ns = now_ns + self.patience_ns;
        }
        if self.is_short(now_ns) {
            if then_ns >= self.short_from_ns {
                self.short.add(&new, STEADY_NS);
            }
            self.measure(&new);
        } else {
            (self.share, self.wake_wait_ns) = (1.0, 0.0);
            change = if was_short { Change::Enough } else { Change::Nothing };
        }
        change
    }

    /// Notes that the CPU is short, after it did not count as short.
    fn begin(&mut self, now_ns: u64) -> Change {
        let still_is = now_ns.saturating_sub(self.short_until_ns) < TRIAL_NS;
        self.patience_ns = if still_is { 2 * self.patience_ns } else { 0 };
        // Old times do not count, nor those before the thread waited as it does now.
        if self.steady.wall_ns > self.recent.wall_ns {
            self.steady = self.recent;
        }
        (self.longest_ns, self.share) = (0.0, 1.0);
        (self.short, self.short_from_ns) = (Sums::default(), now_ns + CATCH_UP_NS);
        if still_is { Change::StillShort } else { Change::Short }
    }

    fn measure(&mut self, new: &Sums) {
        let Sums { wall_ns, ran_ns, waited_ns, ios } = self.steady;
        let always = ran_ns + waited_ns > ALWAYS_PART * wall_ns;
        if self.steady.is_short() && (always || self.spins || self.longest_ns > STOPPED_NS) {
            let wanted_ns = if self.spins { ran_ns + waited_ns } else { wall_ns };
            self.share = (ran_ns / wanted_ns).max(0.001);
        } else if !always && ios > 0.0 {
            self.wake_wait_ns = waited_ns / ios;
        }
        if always {
            // A delay that is no longer seen is forgotten, so that sleeping is tried again.
            self.wake_wait_ns *= (-new.wall_ns / WAKE_WAIT_FORGET_NS).exp();
        }
    }

    /// Notes that the thread waits in another way from `now_ns` on; `spins` says whether by
    /// spinning only.
    pub(crate) fn changes(&mut self, now_ns: u64, spins: bool) {
        self.spins = spins;
        (self.steady, self.longest_ns) = (Sums::default(), 0.0);
        (self.short, self.short_from_ns) = (Sums::default(), now_ns + CATCH_UP_NS);
    }

    /// Has the part of the CPU that the thread gets measured anew.
    pub(crate) fn forget_share(&mut self) {
        self.share = 1.0;
    }

    /// Whether the CPU counts as short.
    pub(crate) fn is_short(&self, now_ns: u64) -> bool {
        now_ns < self.short_until_ns
    }

    /// The part of the CPU that the thread gets if it always wants to run.
    pub(crate) fn share(&self) -> f32 {
        self.share
    }

    /// How long it waits for the CPU after a sleep, per I/O, in ns.
    pub(crate) fn wake_wait_ns(&self) -> f32 {
        self.wake_wait_ns
    }

    /// The time of an I/O, in ns, with everything that the thread does besides, while the CPU was
    /// short and the thread waited as it does now; `None` before that lasted long enough.
    pub(crate) fn io_ns(&self) -> Option<f32> {
        let Sums { wall_ns, ios, .. } = self.short;
        let enough = wall_ns >= MEASURED_NS.max(MEASURED_WAITS * self.longest_ns);
        (enough && ios >= MEASURED_IOS).then(|| wall_ns / ios)
    }

    /// For how long the thread sleeps, per I/O, in ns.
    pub(crate) fn io_slept_ns(&self) -> f32 {
        let Sums { wall_ns, ran_ns, waited_ns, ios } = self.steady;
        (wall_ns - ran_ns - waited_ns).max(0.0) / ios.max(1.0)
    }

    /// The CPU that an I/O takes, in ns, with everything that the thread does besides; `None` if
    /// unknown.
    pub(crate) fn io_cpu_ns(&self) -> Option<f32> {
        (self.steady.ios > 0.0).then(|| self.steady.ran_ns / self.steady.ios)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
