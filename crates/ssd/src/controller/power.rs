//! Power states and autonomous transitions between them (1.4 §8.4).
//!
//! This needs no timer, because the state follows from the time without I/O commands, and only the
//! next command, or a Get Features, can observe it. Only I/O commands count as activity; admin
//! commands are processed in every state.

use meantime_nvme_spec::features::{ApstTable, PowerManagement};

use crate::config::PowerState;

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_US: u64 = 1_000;

pub(super) struct Power {
    states: Vec<PowerState>,
    /// The value of feature Power Management: the state set by the host or the last activity.
    setting: PowerManagement,
    /// The operational state to return to (1.4 §8.4.1).
    operational: u8,
    /// Start of the idle time: the last activity, or the end of leaving a state.
    since_ns: u64,
    /// The idle transitions, if the feature is on.
    transitions: Option<Box<ApstTable>>,
}

/// The state of an idle SSD, and its start time.
struct Fallen {
    state: u8,
    since_ns: u64,
}

impl Power {
    pub(super) fn new(states: Vec<PowerState>) -> Self {
        Self { states, setting: PowerManagement(0), operational: 0, since_ns: 0, transitions: None }
    }

    pub(super) fn has_state(&self, state: u8) -> bool {
        usize::from(state) < self.states.len()
    }

    fn is_non_operational(&self, state: u8) -> bool {
        self.states.get(usize::from(state)).is_some_and(|s| s.non_operational)
    }

    /// Returns whether `table` (of Autonomous Power State Transition) names only existing
    /// non-operational states.
    pub(super) fn allows(&self, table: &ApstTable) -> bool {
        let used = &table.entries[..self.states.len().min(table.entries.len())];
        used.iter().all(|entry| entry.itpt_ms() == 0 || self.is_non_operational(entry.itps()))
    }

    /// Returns whether idle time matters, so that commands cannot be executed without a clock.
    pub(super) fn needs_clock(&self) -> bool {
        self.transitions.is_some() || self.is_non_operational(self.setting.ps())
    }

    /// Sets feature Power Management, to an existing state, at `now_ns`.
    pub(super) fn set_state(&mut self, setting: PowerManagement, now_ns: u64) {
        self.setting = setting;
        if !self.is_non_operational(setting.ps()) {
            self.operational = setting.ps();
        }
        self.since_ns = now_ns;
    }

    pub(super) fn set_transitions(&mut self, transitions: Option<Box<ApstTable>>, now_ns: u64) {
        self.transitions = transitions;
        self.since_ns = self.since_ns.max(now_ns);
    }

    /// Applies the transitions due by `now_ns`, if no command was outstanding since.
    fn fallen(&self, now_ns: u64) -> Fallen {
        let mut at = Fallen { state: self.setting.ps(), since_ns: self.since_ns };
        let Some(table) = &self.transitions else { return at };
        // Each entry leads to another state, and no chain is longer than the number of states.
        for _ in 0..self.states.len() {
            let entry = table.entries[usize::from(at.state & 31)];
            let idle_ns = u64::from(entry.itpt_ms()) * NS_PER_MS;
            let due_ns = at.since_ns.saturating_add(idle_ns);
            if idle_ns == 0 || due_ns > now_ns || entry.itps() == at.state {
                break;
            }
            at = Fallen { state: entry.itps(), since_ns: due_ns };
        }
        at
    }

    /// Returns the answer of Get Features at `now_ns`. `busy` says that I/O commands are
    /// outstanding.
    pub(super) fn current(&self, now_ns: u64, busy: bool) -> PowerManagement {
        if busy { self.setting } else { self.setting.with_ps(self.fallen(now_ns).state) }
    }

    /// Returns when an I/O command fetched at `now_ns` can be served. `busy` says that others are
    /// outstanding.
    pub(super) fn awake_at_ns(&mut self, now_ns: u64, busy: bool) -> u64 {
        if !self.needs_clock() {
            return now_ns;
        }
        // While the SSD leaves a state, `since_ns` lies ahead, and every command waits for it.
        if busy || self.since_ns > now_ns {
            return self.since_ns.max(now_ns);
        }
        let fallen = self.fallen(now_ns);
        self.since_ns = now_ns;
        if self.is_non_operational(fallen.state) {
            let state = self.states[usize::from(fallen.state)];
            // Entering the state has to complete before leaving it can begin.
            let entered_ns = fallen.since_ns.saturating_add(u64::from(state.enlat_us) * NS_PER_US);
            let exit_ns = u64::from(state.exlat_us) * NS_PER_US;
            self.since_ns = entered_ns.max(now_ns).saturating_add(exit_ns);
            self.setting = self.setting.with_ps(self.operational);
        }
        self.since_ns
    }

    /// Notes that an I/O command completed at `now_ns`. Idle time begins no earlier.
    pub(super) fn active_until(&mut self, now_ns: u64) {
        self.since_ns = self.since_ns.max(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use meantime_nvme_spec::features::ApstEntry;

    use super::*;

    const MS: u64 = NS_PER_MS;

    /// Returns power states of which 0 and 1 are operational, and 2 and 3 are not.
    fn power(apst: bool) -> Power {
        let state = |max_power_10mw, enlat_us, exlat_us, non_operational| PowerState {
            max_power_10mw,
            enlat_us,
            exlat_us,
            non_operational,
        };
        let states = vec![
            state(9, 0, 0, false),
            state(5, 0, 0, false),
            state(2, 5, 100, true),
            state(1, 2000, 9000, true),
        ];
        let mut power = Power::new(states);
        let mut table = ApstTable::default();
        table.entries[0] = ApstEntry::new(2, 10);
        table.entries[2] = ApstEntry::new(3, 50);
        if apst {
            assert!(power.allows(&table));
            power.set_transitions(Some(Box::new(table)), 0);
        }
        power
    }

    #[test]
    fn idleness_leads_from_state_to_state() {
        let mut p = power(true);
        assert_eq!(p.current(10 * MS - 1, false).ps(), 0);
        assert_eq!(p.current(10 * MS, false).ps(), 2);
        assert_eq!(p.current(60 * MS - 1, false).ps(), 2);
        assert_eq!(p.current(60 * MS, false).ps(), 3);
        assert_eq!(p.current(60 * MS, true).ps(), 0, "not idle");
        // Leaving state 3 takes 9 ms, and every command meanwhile waits for that.
        assert_eq!(p.awake_at_ns(100 * MS, false), 109 * MS);
        assert_eq!(p.awake_at_ns(101 * MS, true), 109 * MS);
        assert_eq!(p.current(101 * MS, true).ps(), 0);
        p.active_until(110 * MS);
        assert_eq!(p.awake_at_ns(119 * MS, false), 119 * MS, "9 ms are not idle enough");
    }

    #[test]
    fn a_state_is_entered_before_it_is_left() {
        let mut p = power(false);
        p.set_state(PowerManagement(3), MS);
        assert!(p.needs_clock());
        // The state is entered at 3 ms, and then takes 9 ms to leave.
        assert_eq!(p.awake_at_ns(2 * MS, false), 12 * MS);
        assert_eq!((p.current(12 * MS, false).ps(), p.needs_clock()), (0, false));
        // The SSD returns to the last operational state.
        p.set_state(PowerManagement(1), 20 * MS);
        p.set_state(PowerManagement(2), 21 * MS);
        assert_eq!(p.awake_at_ns(30 * MS, false), 30 * MS + 100_000);
        assert_eq!(p.current(31 * MS, false).ps(), 1);
    }

    #[test]
    fn switched_off_it_costs_nothing() {
        let mut p = power(false);
        assert!(!p.needs_clock());
        assert_eq!(p.awake_at_ns(u64::MAX, false), u64::MAX);
        assert_eq!(p.current(u64::MAX, false).ps(), 0);
    }

    #[test]
    fn tables_with_invalid_transitions_are_refused() {
        let p = power(false);
        let with = |state: usize, itps| {
            let mut table = ApstTable::default();
            table.entries[state] = ApstEntry::new(itps, 1);
            p.allows(&table)
        };
        assert!(with(0, 3) && with(1, 2));
        assert!(!with(0, 1), "operational");
        assert!(!with(0, 4), "not there");
        assert!(with(9, 9), "entries of states that are not there do not count");
    }
}
