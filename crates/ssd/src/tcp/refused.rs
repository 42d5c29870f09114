//! Records why hosts were refused, with each reason once and the number of times.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of reasons that are told apart. Hosts choose their names, so there may be any
/// number.
const REASONS: usize = 64;

/// A host whose Connect was refused, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedHost {
    /// The NQN that it has given itself, or a phrase for a host that has none.
    pub host: String,
    /// The reason.
    pub why: String,
    /// How often that has happened.
    pub count: u64,
}

/// The hosts refused since the target was started.
#[derive(Default)]
pub(super) struct Refusals(Mutex<Vec<RefusedHost>>);

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, Vec<RefusedHost>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refusal.
    pub(super) fn add(&self, host: String, why: String) {
        let mut all = self.lock();
        let known = all.iter().position(|one| one.host == host && one.why == why);
        match known {
            Some(at) => all[at].count += 1,
            None if all.len() < REASONS => all.push(RefusedHost { host, why, count: 1 }),
            None if all.len() == REASONS => {
                let why = "for many other reasons, or under many other names".to_owned();
                all.push(RefusedHost { host: "other hosts".to_owned(), why, count: 1 });
            }
            None => all[REASONS].count += 1,
        }
    }

    /// Returns all refusals, the earliest first. None is ever removed.
    pub(super) fn all(&self) -> Vec<RefusedHost> {
        self.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_kept_once_and_there_are_not_many() {
        let refusals = Refusals::default();
        for host in 0..1000 {
            refusals.add("nqn.x".to_owned(), "why".to_owned());
            refusals.add(format!("nqn.{host}"), "why".to_owned());
        }
        let all = refusals.all();
        assert_eq!((all.len(), all[0].count, all[1].count), (REASONS + 1, 1000, 1));
        assert_eq!(all.iter().map(|one| one.count).sum::<u64>(), 2000);
    }
}
