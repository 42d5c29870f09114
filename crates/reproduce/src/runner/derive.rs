//! Computes quantities from a repetition's figures.

use super::Bench;
use crate::quantity::{Kind, Quantity};

impl Bench<'_> {
    fn last(&self, name: &str) -> Option<f64> {
        self.measured.samples(name).last().copied()
    }

    /// Adds a quantity if all its operands were measured. A share whose name ends with `_percent`
    /// is in percent.
    pub(super) fn derive(&mut self, name: &str, quantity: &Quantity) {
        let is_share = matches!(quantity.kind, Kind::Ratio | Kind::Gain | Kind::Saved);
        let times = if is_share && name.ends_with("_percent") { 100.0 } else { 1.0 };
        let value = match quantity.kind {
            Kind::Crossing => self.crossing(&quantity.operands[0], &quantity.operands[1]),
            _ => quantity.of(|name| self.last(name)),
        };
        self.measured.add(name, value.map(|value| value * times));
    }

    /// Returns 1 in how many I/Os polling is the later way: where the curve of the polled I/Os
    /// first lies above that of the interrupt-driven ones. If it never does, returns the smaller of
    /// the two numbers of I/Os.
    fn crossing(&mut self, poll: &str, interrupt: &str) -> Option<f64> {
        let count = |way: &str| self.last(&format!("{way}/ios_count"));
        let fewer = count(poll)?.min(count(interrupt)?);
        let curve = |way: &str| self.measured.curves.get(way).map(Vec::as_slice);
        let (poll, interrupt) = (curve(poll)?, curve(interrupt)?);
        let share = |curve: &[(f64, f64)], time: f64| {
            let before = curve.iter().take_while(|(ns, _)| *ns <= time).last();
            let end = curve.last().is_some_and(|(ns, _)| time > *ns * 1.03);
            before.map_or(1.0, |(_, share)| if end { 0.0 } else { *share })
        };
        let later = |(ns, _): &&(f64, f64)| share(poll, *ns) > share(interrupt, *ns);
        let crossing = poll.iter().find(later).map(|(_, share)| 1.0 / share);
        if crossing.is_none_or(|crossing| crossing >= fewer) {
            let note = "The curves do not cross: 1 in N is one of all reads that there were.";
            self.measured.left_out.push(note.to_owned());
        }
        Some(crossing.unwrap_or(fewer).min(fewer))
    }
}
