//! Fault injection.
//!
//! A [`FaultPlan`] consists of rules: each a [`Fault`] and [`When`] it happens. It is written in
//! Rust, as a TOML text ([`FaultPlan::parse`]; docs/faults.md lists every key), or rule by rule
//! while the SSD runs ([`FaultControl`](crate::FaultControl)). The plan's own fields are shorthand
//! for the common rules.

mod engine;
mod names;
mod parse;
mod rule;

pub(crate) use engine::{Corruption, CqeFaults, Faults, Seen, Verdict};
pub use rule::{Fault, FaultHits, FaultRule, OpcodeSet, When};

/// The most rules of a plan: every command is tested against each.
pub const FAULT_RULES_MAX: usize = 32;

/// Which faults to inject, and how often. The default injects none.
///
/// The rates of the plan's own fields are per I/O command, in parts per million. The same seed and
/// the same commands give the same faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Seed of the random choices.
    pub seed: u64,
    /// Commands that end with an error status instead of being executed. Retryable and other
    /// statuses alternate at random.
    pub status_error_ppm: u32,
    /// Commands that are executed but whose completion is never written.
    pub lose_completion_ppm: u32,
    /// Commands whose completion comes late.
    pub late_completion_ppm: u32,
    /// The delay of late completions, in ns.
    pub late_by_ns: u64,
    /// Completions followed by one with a CID that is not outstanding.
    pub stray_cqe_ppm: u32,
    /// Completions that are written twice.
    pub duplicate_cqe_ppm: u32,
    /// Reads that deliver one flipped bit with status success.
    pub corrupt_read_ppm: u32,
    /// Admin commands are fetched and never completed.
    pub stuck_admin: bool,
    /// CSTS.RDY never becomes 1.
    pub never_ready: bool,
    /// The number of I/O commands after which the controller sets CSTS.CFS.
    pub fatal_after: Option<u64>,
    /// The number of I/O commands after which the controller leaves the bus: registers read all
    /// ones, nothing completes.
    pub gone_after: Option<u64>,
    /// All other faults.
    pub rules: FaultRules,
}

impl FaultPlan {
    /// No faults.
    pub const NONE: Self = Self {
        seed: 0,
        status_error_ppm: 0,
        lose_completion_ppm: 0,
        late_completion_ppm: 0,
        late_by_ns: 0,
        stray_cqe_ppm: 0,
        duplicate_cqe_ppm: 0,
        corrupt_read_ppm: 0,
        stuck_admin: false,
        never_ready: false,
        fatal_after: None,
        gone_after: None,
        rules: FaultRules::NONE,
    };

    /// The plan of one rule.
    #[must_use]
    pub const fn only(rule: FaultRule) -> Self {
        let mut plan = Self::NONE;
        plan.rules.slots[0] = Some(rule);
        plan
    }

    /// Whether it injects nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self { seed: self.seed, late_by_ns: self.late_by_ns, ..Self::NONE }
    }
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self::NONE
    }
}

/// The rules of a plan, at most [`FAULT_RULES_MAX`]. (Without heap memory, so that a plan can be a
/// constant.)
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
    /// [`TooManyRules`].
    pub fn push(&mut self, rule: FaultRule) -> Result<(), TooManyRules> {
        let slot = self.slots.iter_mut().find(|slot| slot.is_none()).ok_or(TooManyRules)?;
        *slot = Some(rule);
        Ok(())
    }

    /// The rules, in order.
    pub fn iter(&self) -> impl Iterator<Item = &FaultRule> {
        self.slots.iter().flatten()
    }
}

impl std::fmt::Debug for FaultRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// There is no room for another rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {FAULT_RULES_MAX} fault rules already, which is the most; clear them first")]
pub struct TooManyRules;
