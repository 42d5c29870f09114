//! Faults to order: what a device may do to its driver.

use meantime_spec::status::{Status, StatusCode};

use crate::rng::Rng;

/// Which faults to inject, and how often. The default injects none.
///
/// Rates are per I/O command, in parts per million. The same seed and the same commands give the same faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Seed of the choice.
    pub seed: u64,
    /// Commands that end with an error status instead of being executed; retryable and other statuses alternate at random.
    pub status_error_ppm: u32,
    /// Commands that are executed but whose completion is never written.
    pub lose_completion_ppm: u32,
    /// Commands whose completion comes late.
    pub late_completion_ppm: u32,
    /// How late, in ns.
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
    /// The controller sets CSTS.CFS after that many I/O commands.
    pub fatal_after: Option<u64>,
    /// The controller vanishes after that many I/O commands: registers read all ones, nothing completes.
    pub gone_after: Option<u64>,
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
    };

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

/// What is to happen to one I/O command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// End with this status, unexecuted.
    pub(crate) status: Option<Status>,
    pub(crate) lose: bool,
    pub(crate) late_by_ns: u64,
    pub(crate) stray: bool,
    pub(crate) duplicate: bool,
    /// Flip this bit of the data read, counted modulo its length.
    pub(crate) corrupt_bit: Option<u64>,
    pub(crate) fatal: bool,
    pub(crate) gone: bool,
}

/// A fault plan at work.
pub(crate) struct Faults {
    pub(crate) plan: FaultPlan,
    rng: Rng,
    commands: u64,
}

/// Statuses that a driver may retry (DNR clear) and ones that it must not.
const STATUSES: [(StatusCode, bool); 8] = [
    (StatusCode::InternalError, false),
    (StatusCode::CommandInterrupted, false),
    (StatusCode::NamespaceNotReady, false),
    (StatusCode::TransientTransportError, false),
    (StatusCode::InternalError, true),
    (StatusCode::UnrecoveredReadError, true),
    (StatusCode::WriteFault, true),
    (StatusCode::AccessDenied, true),
];

impl Faults {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        let rng = Rng::new(plan.seed);
        Self { plan, rng, commands: 0 }
    }

    /// Decides on the next I/O command; `is_read` and `is_write` keep media errors plausible.
    pub(crate) fn next(&mut self, is_read: bool, is_write: bool) -> Verdict {
        let (plan, rng) = (&self.plan, &mut self.rng);
        self.commands += 1;
        let mut verdict = Verdict {
            fatal: plan.fatal_after.is_some_and(|n| self.commands > n),
            gone: plan.gone_after.is_some_and(|n| self.commands > n),
            lose: rng.chance_ppm(plan.lose_completion_ppm),
            stray: rng.chance_ppm(plan.stray_cqe_ppm),
            duplicate: rng.chance_ppm(plan.duplicate_cqe_ppm),
            ..Verdict::default()
        };
        if rng.chance_ppm(plan.late_completion_ppm) {
            verdict.late_by_ns = plan.late_by_ns;
        }
        if rng.chance_ppm(plan.status_error_ppm) {
            let (mut code, dnr) = STATUSES[rng.below(STATUSES.len() as u64) as usize];
            if code == StatusCode::UnrecoveredReadError && !is_read
                || code == StatusCode::WriteFault && !is_write
            {
                code = StatusCode::InternalError;
            }
            let status = Status::from_code(code);
            verdict.status = Some(if dnr { status.with_dnr() } else { status });
        }
        if is_read && rng.chance_ppm(plan.corrupt_read_ppm) {
            verdict.corrupt_bit = Some(rng.next_u64());
        }
        verdict
    }
}
