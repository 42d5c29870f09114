//! A map from the bytes of a file to values.

use std::collections::BTreeMap;
use std::ops::Range;

/// A value for every number, stored by ranges of equal values.
#[derive(Debug, Clone)]
pub(crate) struct Ranges<T>(BTreeMap<u64, T>);

impl<T: Clone> Ranges<T> {
    /// `value` everywhere.
    pub(crate) fn new(value: T) -> Self {
        Self(BTreeMap::from([(0, value)]))
    }

    fn split(&mut self, at: u64) {
        if at < u64::MAX && !self.0.contains_key(&at) {
            let before = self.0.range(..at).next_back().map(|(_, value)| value.clone());
            self.0.insert(at, before.expect("a value from 0 on"));
        }
    }

    /// Changes the values in `range`.
    pub(crate) fn change(&mut self, range: Range<u64>, mut change: impl FnMut(&mut T)) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        self.0.range_mut(range).for_each(|(_, value)| change(value));
    }

    /// Sets all of `range` to `value`.
    pub(crate) fn set(&mut self, range: Range<u64>, value: T) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        let inside: Vec<u64> = self.0.range(range.clone()).map(|(at, _)| *at).collect();
        for at in inside {
            self.0.remove(&at);
        }
        self.0.insert(range.start, value);
    }

    /// The pieces of `range`, in order.
    pub(crate) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, &T)> + '_ {
        let ends = self.0.keys().skip(1).copied().chain([u64::MAX]);
        let all = self.0.iter().zip(ends).map(|((begin, value), end)| (*begin..end, value));
        all.filter_map(move |(piece, value)| {
            let inside = piece.start.max(range.start)..piece.end.min(range.end);
            (!inside.is_empty()).then_some((inside, value))
        })
    }
}
