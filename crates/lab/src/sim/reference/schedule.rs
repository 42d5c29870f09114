//! A plan without a limit to its sleeps.

/// Sleep until `until_ns` if the clock is read while the I/O has been under way for `from_ns` or
/// more but less than `before_ns`, and it is not complete. All times since the doorbell, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// From when on.
    pub from_ns: u64,
    /// Until when.
    pub before_ns: u64,
    /// When the timer goes off.
    pub until_ns: u64,
}

/// What to do at any time during an I/O: to sleep in one of the rests, else to spin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    rests: Vec<Rest>,
}

impl Schedule {
    /// Of what is to be done at each point of a grid: 0 to spin, else until which point to sleep.
    pub(super) fn of_points(actions: &[u32], step_ns: f64) -> Self {
        let ns = |point: usize| (point as f64 * step_ns).round() as u64;
        let mut rests: Vec<Rest> = Vec::new();
        for (point, until) in actions.iter().enumerate().filter(|(_, until)| **until != 0) {
            let rest = Rest {
                from_ns: ns(point),
                before_ns: ns(point + 1),
                until_ns: ns(*until as usize),
            };
            match rests
                .last_mut()
                .filter(|last| last.before_ns == rest.from_ns && last.until_ns == rest.until_ns)
            {
                Some(last) => last.before_ns = rest.before_ns,
                None => rests.push(rest),
            }
        }
        Self { rests }
    }

    /// The rests, in order, which do not overlap.
    pub fn rests(&self) -> &[Rest] {
        &self.rests
    }

    /// The first rest that is not over when the I/O has been under way for `elapsed_ns`.
    pub(super) fn rest_at(&self, elapsed_ns: u64) -> Option<&Rest> {
        self.rests.get(self.rests.partition_point(|rest| rest.before_ns <= elapsed_ns))
    }
}
