//! `flow`: jobs of one flow have shares of its I/Os.
//!
//! As in fio a thread waits if it did more than its share of the flow's I/Os. Only threads whose
//! turn has begun count, so a thread that has ended delays no other. When the turns of all threads
//! are about to end, a thread that ends first still counts: the others cannot run ahead of their
//! shares.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::job::FlowKeys;

/// The counters of a flow's threads.
#[derive(Debug, Default)]
struct Flow {
    /// The I/Os of the threads in a turn.
    ios: AtomicU64,
    /// The weights of these threads.
    weights: AtomicU64,
}

/// The flows of jobs that run at the same time, by cell and `flow_id`.
#[derive(Debug, Default)]
pub(crate) struct Flows(Mutex<BTreeMap<(usize, u32), Arc<Flow>>>);

impl Flows {
    /// Returns a thread's part in its flow in cell `cell`; `None` if the job belongs to no flow.
    pub(crate) fn member(&self, cell: usize, keys: &FlowKeys) -> Option<Member> {
        if keys.weight == 0 {
            return None;
        }
        let mut flows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let flow = flows.entry((cell, keys.id)).or_default().clone();
        Some(Member {
            flow,
            weight: u64::from(keys.weight),
            ios: 0,
            sleep: keys.sleep,
            counts: false,
        })
    }
}

/// A thread of a flow.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    flow: Arc<Flow>,
    weight: u64,
    ios: u64,
    /// Time to sleep when the next I/O would exceed the thread's share.
    pub sleep: Duration,
    /// Whether it is in a turn.
    counts: bool,
}

impl Member {
    /// Begins the thread's turn.
    pub(crate) fn begin(&mut self) {
        if std::mem::replace(&mut self.counts, true) {
            return;
        }
        self.flow.weights.fetch_add(self.weight, Ordering::Relaxed);
        self.flow.ios.fetch_add(self.ios, Ordering::Relaxed);
    }

    /// Ends the thread's turn.
    pub(crate) fn rest(&mut self) {
        if !std::mem::take(&mut self.counts) {
            return;
        }
        self.flow.ios.fetch_sub(self.ios, Ordering::Relaxed);
        self.flow.weights.fetch_sub(self.weight, Ordering::Relaxed);
    }

    /// Returns whether the next I/O is within the thread's share; if so, counts it.
    pub(crate) fn takes(&mut self) -> bool {
        let ios = self.flow.ios.load(Ordering::Relaxed);
        let weights = self.flow.weights.load(Ordering::Relaxed);
        if u128::from(self.ios) * u128::from(weights) > u128::from(self.weight) * u128::from(ios) {
            return false;
        }
        self.flow.ios.fetch_add(1, Ordering::Relaxed);
        self.ios += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(weights: &[u32]) -> Vec<Member> {
        let flows = Flows::default();
        let of =
            |weight: &u32| flows.member(0, &FlowKeys { weight: *weight, ..FlowKeys::default() });
        weights.iter().filter_map(of).collect()
    }

    /// Gives each member `rounds` chances for an I/O, in turn.
    fn rounds(members: &mut [Member], rounds: usize) -> Vec<u64> {
        for _ in 0..rounds {
            members.iter_mut().for_each(|member| {
                member.takes();
            });
        }
        members.iter().map(|member| member.ios).collect()
    }

    #[test]
    fn shares_are_as_the_weights() {
        let mut three = members(&[3, 2, 1]);
        three.iter_mut().for_each(Member::begin);
        let ios = rounds(&mut three, 6000);
        assert!(ios[0].abs_diff(3 * ios[2]) <= 6 && ios[1].abs_diff(2 * ios[2]) <= 4, "{ios:?}");
        assert!(ios[0] > 1000, "{ios:?}");
    }

    #[test]
    fn a_thread_without_a_turn_delays_no_other() {
        let mut two = members(&[1, 8]);
        two[1].begin();
        assert_eq!(rounds(&mut two[1..], 800), [800]);
        // It begins late, and goes first.
        two[0].begin();
        assert!(!two[1].takes());
        assert_eq!(rounds(&mut two[..1], 1000), [101]);
        assert!(two[1].takes());
        two[0].rest();
        two[0].rest();
        assert_eq!(rounds(&mut two[1..], 1000), [1801]);
        two[1].rest();
        assert_eq!(two[0].flow.ios.load(Ordering::Relaxed), 0);
        assert_eq!(two[0].flow.weights.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn flows_are_apart() {
        let flows = Flows::default();
        let keys = |id| FlowKeys { weight: 1, id, ..FlowKeys::default() };
        let [mut a, b, c] =
            [(0, 0), (0, 1), (1, 0)].map(|(cell, id)| flows.member(cell, &keys(id)).unwrap());
        a.begin();
        assert_eq!([&b, &c].map(|other| other.flow.weights.load(Ordering::Relaxed)), [0, 0]);
        assert!(flows.member(0, &FlowKeys::default()).is_none());
    }
}
