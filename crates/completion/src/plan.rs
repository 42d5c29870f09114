//! When to sleep while one I/O is under way.

/// One sleep: once the I/O has been under way for `from_ns`, sleep until it has been for
/// `until_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stage {
    /// Since submission, in ns.
    pub from_ns: u32,
    /// Since submission, in ns: when the timer goes off. The sleeper runs later than that by the
    /// wake cost.
    pub until_ns: u32,
}

/// The most sleeps during one I/O.
pub const MAX_STAGES: usize = 16;

/// The sleeps during one I/O, in order; between and after them is spinning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Plan {
    stages: [Stage; MAX_STAGES],
    count: u8,
    /// 0: no end.
    patience_ns: u64,
}

impl Plan {
    /// No sleep at all.
    pub const SPIN: Self =
        Self { stages: [Stage { from_ns: 0, until_ns: 0 }; MAX_STAGES], count: 0, patience_ns: 0 };

    /// The first sleeps of `stages`, as many as there can be.
    pub fn of(stages: &[Stage]) -> Self {
        let mut plan = Self::SPIN;
        for stage in stages.iter().take(MAX_STAGES) {
            plan.push(*stage);
        }
        plan
    }

    /// Adds a sleep, which comes after those there are. False if there is no room.
    pub fn push(&mut self, stage: Stage) -> bool {
        let Some(place) = self.stages.get_mut(usize::from(self.count)) else { return false };
        *place = stage;
        self.count += 1;
        true
    }

    /// The same, that no longer burns the CPU once the I/O has been under way for `patience_ns` and
    /// the sleeps are over.
    #[must_use]
    pub fn with_patience_ns(mut self, patience_ns: u64) -> Self {
        self.patience_ns = patience_ns;
        self
    }

    /// After how long the I/O is not spun for any more, in ns since submission.
    #[inline(always)]
    pub fn patience_ns(&self) -> u64 {
        if self.patience_ns == 0 { u64::MAX } else { self.patience_ns }
    }

    /// The sleeps.
    #[inline(always)]
    pub fn stages(&self) -> &[Stage] {
        &self.stages[..usize::from(self.count).min(MAX_STAGES)]
    }

    /// Whether there is no sleep in it.
    #[inline(always)]
    pub fn is_spin(&self) -> bool {
        self.count == 0
    }
}
