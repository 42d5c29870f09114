//! Searches for the price at which a goal is met exactly.

/// The expected mean result of a plan for one I/O, with times in ns, or in steps of a grid.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Expected {
    /// CPU between doorbell and completion seen.
    pub cpu: f64,
    /// Time from the completion until it is seen.
    pub late: f64,
    /// Share of I/Os that end beyond the limit.
    pub beyond: f64,
}

impl Expected {
    /// Adds `share` of `other`.
    pub(super) fn add(&mut self, share: f64, other: &Self) {
        self.cpu += share * other.cpu;
        self.late += share * other.late;
        self.beyond += share * other.beyond;
    }
}

/// The limit that a plan meets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// The largest mean lateness.
    Late { most_ns: f64 },
    /// The largest share of I/Os beyond the limit.
    Beyond { share: f64 },
    /// The largest share of CPU in the time that passes. Each I/O takes `fixed_ns` of CPU besides,
    /// and `polled_ns` of time if it is not late.
    Cpu { share: f64, fixed_ns: f64, polled_ns: f64 },
}

impl Target {
    /// Returns the amount by which `expected` misses the limit. The amount is linear in it.
    fn excess(self, expected: &Expected) -> f64 {
        match self {
            Self::Late { most_ns } => expected.late - most_ns,
            Self::Beyond { share } => expected.beyond - share,
            Self::Cpu { share, fixed_ns, polled_ns } => {
                fixed_ns + expected.cpu - share * (polled_ns + expected.late)
            }
        }
    }

    /// Returns the bounds of the price.
    fn prices(self) -> (f64, f64) {
        match self {
            Self::Late { .. } | Self::Cpu { .. } => (1e-4, 1e4),
            Self::Beyond { .. } => (1.0, 1e10),
        }
    }
}

/// Two plans, one of which is chosen at random for each I/O.
#[derive(Debug)]
pub(super) struct Mixture<P> {
    pub plans: [(P, Expected); 2],
    /// The share of I/Os that use the first plan.
    pub share_of_first: f64,
    pub reachable: bool,
    pub price: f64,
}

impl<P> Mixture<P> {
    pub(super) fn expected(&self) -> Expected {
        let mut mixed = Expected::default();
        mixed.add(self.share_of_first, &self.plans[0].1);
        mixed.add(1.0 - self.share_of_first, &self.plans[1].1);
        mixed
    }
}

/// Number of halvings of the price's logarithm. Afterwards the plans on both sides differ only in
/// ties.
const STEPS: u32 = 40;

/// Returns the cheapest mixture of plans that meets `target`. A lower price never costs more CPU,
/// and a higher one never causes more lateness.
pub(super) fn search<P>(target: Target, solve: impl Fn(f64) -> (P, Expected)) -> Mixture<P> {
    let (mut low, mut high) = target.prices();
    let (mut cheap, mut prompt) = (solve(low), solve(high));
    let excess = |plan: &(P, Expected)| target.excess(&plan.1);
    for _ in 0..STEPS {
        let both = (excess(&cheap) <= 0.0, excess(&prompt) <= 0.0);
        if both.0 == both.1 || high / low < 1.0 + 1e-9 {
            break;
        }
        let price = (low * high).sqrt();
        let middle = solve(price);
        if (excess(&middle) <= 0.0) == both.0 {
            (low, cheap) = (price, middle);
        } else {
            (high, prompt) = (price, middle);
        }
    }
    let (a, b) = (excess(&cheap), excess(&prompt));
    let budget = matches!(target, Target::Cpu { .. });
    let (share_of_first, reachable) = match (a <= 0.0, b <= 0.0) {
        // Both ends meet the target, so the other quantity decides. A CPU budget minimises
        // lateness, and any other target minimises CPU.
        (true, true) => (if budget { 0.0 } else { 1.0 }, true),
        (false, false) => (if budget { 1.0 } else { 0.0 }, false),
        _ => (b / (b - a), true),
    };
    let price = if share_of_first > 0.5 { low } else { high };
    Mixture { plans: [cheap, prompt], share_of_first, reachable, price }
}
