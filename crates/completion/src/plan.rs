//! When to sleep during one I/O.

/// One sleep: from `from_ns` to `until_ns` after the I/O's submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stage {
    /// Start of the sleep since submission, in ns.
    pub from_ns: u32,
    /// End of the sleep since submission, in ns: when the timer expires. The sleeper runs later by
    /// the wake cost.
    pub until_ns: u32,
}

/// The most sleeps during one I/O.
pub const MAX_STAGES: usize = 16;

/// The sleeps during one I/O, in order; the thread spins between and after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Plan {
    stages: [Stage; MAX_STAGES],
    count: u8,
    /// 0 stands for no limit.
    patience_ns: u64,
}

impl Plan {
    /// No sleep at all.
    pub const SPIN: Self =
        Self { stages: [Stage { from_ns: 0, until_ns: 0 }; MAX_STAGES], count: 0, patience_ns: 0 };

    /// The first sleeps of `stages`, up to [`MAX_STAGES`].
    pub fn of(stages: &[Stage]) -> Self {
        let mut plan = Self::SPIN;
        for stage in stages.iter().take(MAX_STAGES) {
            plan.push(*stage);
        }
        plan
    }

    /// Appends a sleep. Returns false if there is no room.
    pub fn push(&mut self, stage: Stage) -> bool {
        let Some(place) = self.stages.get_mut(usize::from(self.count)) else { return false };
        *place = stage;
        self.count += 1;
        true
    }

    /// Limits the spinning: it stops once the I/O has taken `patience_ns` and the sleeps are over.
    #[must_use]
    pub fn with_patience_ns(mut self, patience_ns: u64) -> Self {
        self.patience_ns = patience_ns;
        self
    }

    /// The time after which the wait stops spinning, in ns since submission.
    #[inline(always)]
    pub fn patience_ns(&self) -> u64 {
        if self.patience_ns == 0 { u64::MAX } else { self.patience_ns }
    }

    /// The sleeps.
    #[inline(always)]
    pub fn stages(&self) -> &[Stage] {
        &self.stages[..usize::from(self.count).min(MAX_STAGES)]
    }

    /// Whether it contains no sleep.
    #[inline(always)]
    pub fn is_spin(&self) -> bool {
        self.count == 0
    }
}
