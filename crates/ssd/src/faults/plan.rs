//! A plan: the rules in force, and the seed of its random choices.

use super::rule::FaultRule;

/// The maximum number of rules of a plan. Every command is tested against each.
pub const FAULT_RULES_MAX: usize = 32;

/// The faults to inject, and how often. The default injects none. The same seed and the same
/// commands result in the same faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Seed of the random choices.
    pub seed: u64,
    /// The faults, and when they happen.
    pub rules: FaultRules,
}

impl FaultPlan {
    /// No faults.
    pub const NONE: Self = Self { seed: 0, rules: FaultRules::NONE };

    /// Returns the plan of one rule.
    #[must_use]
    pub const fn only(rule: FaultRule) -> Self {
        Self::NONE.with(rule)
    }

    /// Returns the plan with another rule.
    ///
    /// # Panics
    /// Panics if it has [`FAULT_RULES_MAX`] rules.
    #[must_use]
    pub const fn with(mut self, rule: FaultRule) -> Self {
        let mut free = 0;
        while self.rules.slots[free].is_some() {
            free += 1;
        }
        self.rules.slots[free] = Some(rule);
        self
    }

    /// Returns whether it injects nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.rules == FaultRules::NONE
    }
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self::NONE
    }
}

/// The rules of a plan, at most [`FAULT_RULES_MAX`]. They use no heap memory, so that a plan can be
/// a constant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FaultRules {
    slots: [Option<FaultRule>; FAULT_RULES_MAX],
}

impl FaultRules {
    /// No rules.
    pub const NONE: Self = Self { slots: [None; FAULT_RULES_MAX] };

    /// Adds `rule`.
    ///
    /// # Errors
    /// [`TooManyRules`] if the plan is full.
    pub fn push(&mut self, rule: FaultRule) -> Result<(), TooManyRules> {
        let slot = self.slots.iter_mut().find(|slot| slot.is_none()).ok_or(TooManyRules)?;
        *slot = Some(rule);
        Ok(())
    }

    /// Returns the rules, in order.
    pub fn iter(&self) -> impl Iterator<Item = &FaultRule> {
        self.slots.iter().flatten()
    }
}

impl std::fmt::Debug for FaultRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The error that there is no room for another rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {FAULT_RULES_MAX} fault rules already, which is the most; clear them first")]
pub struct TooManyRules;
