//! A plan with any number of sleeps.

/// If the clock is read at `from_ns` or later but before `before_ns`, and the I/O is not complete,
/// the plan sleeps until `until_ns`. All times are since the doorbell, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// First time at which the sleep may begin.
    pub from_ns: u64,
    /// End of the times at which the sleep may begin, exclusive.
    pub before_ns: u64,
    /// When the timer goes off.
    pub until_ns: u64,
}

/// The action at any time during an I/O: sleep in one of the rests, and otherwise spin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    rests: Vec<Rest>,
}

impl Schedule {
    /// Builds a schedule from the action at each point of a grid: 0 to spin, and otherwise the
    /// point until which to sleep.
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

    /// Returns the rests, in order. They do not overlap.
    pub fn rests(&self) -> &[Rest] {
        &self.rests
    }

    /// Returns the first rest that is not over when the I/O has been in flight for `elapsed_ns`.
    pub(super) fn rest_at(&self, elapsed_ns: u64) -> Option<&Rest> {
        self.rests.get(self.rests.partition_point(|rest| rest.before_ns <= elapsed_ns))
    }
}
