//! Quantities: figures, and what is computed from several of them.

use std::collections::BTreeMap;

use meantime_report::picture::Unit;
use serde::Deserialize;

use crate::measured::Measured;

/// How a quantity is computed from its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One figure.
    Value,
    /// The first over the second.
    Ratio,
    /// The first less the second.
    Difference,
    /// The sum of all.
    Sum,
    /// The product of all.
    Product,
    /// The first minus the second, as a part of the second.
    Gain,
    /// The second minus the first, as a part of the second.
    Saved,
    /// The CPU time of an I/O in ns, of a way to wait with its CPU load and its rate.
    Cost,
    /// The first that was measured.
    First,
    /// The least of those that were measured.
    Least,
    /// The most of those that were measured.
    Most,
    /// Compares two curves: one in how many I/Os of the first is later than one of the second.
    Crossing,
}

impl Kind {
    /// Returns how many operands it has, if not any number.
    fn operands(self) -> Option<usize> {
        match self {
            Self::Value => Some(1),
            Self::Sum | Self::Product | Self::First | Self::Least | Self::Most => None,
            _ => Some(2),
        }
    }
}

/// A quantity by names of samples, or by keys of the document's numbers. An operand may be a number
/// as well.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "BTreeMap<Kind, Operands>")]
pub struct Quantity {
    /// How it is computed.
    pub kind: Kind,
    /// Its operands.
    pub operands: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a name, or a list of names")]
enum Operands {
    One(String),
    Many(Vec<String>),
}

impl TryFrom<BTreeMap<Kind, Operands>> for Quantity {
    type Error = String;

    fn try_from(written: BTreeMap<Kind, Operands>) -> Result<Self, String> {
        let mut kinds = written.into_iter();
        let (Some((kind, operands)), None) = (kinds.next(), kinds.next()) else {
            return Err("a quantity has one kind, as `ratio = [\"one\", \"other\"]`".to_owned());
        };
        let operands = match operands {
            Operands::One(way) if kind == Kind::Cost => {
                ["cpu_percent", "rate_iops"].map(|figure| format!("{way}/{figure}")).to_vec()
            }
            Operands::One(name) => vec![name],
            Operands::Many(names) => names,
        };
        match kind.operands() {
            Some(count) if count != operands.len() => {
                Err(format!("{kind:?} has {count} operands, not {}: {operands:?}", operands.len()))
            }
            _ => Ok(Self { kind, operands }),
        }
    }
}

impl Quantity {
    /// Returns the value that says that two ways do not differ, or `None` if it compares none.
    pub fn neutral(&self) -> Option<f64> {
        match self.kind {
            Kind::Value => match self.operands[0].as_str() {
                name if name.ends_with("gain_ratio") || name.ends_with("saved_ratio") => Some(0.0),
                name if name.ends_with("times_ratio") => Some(1.0),
                _ => None,
            },
            Kind::Difference | Kind::Gain | Kind::Saved => Some(0.0),
            Kind::Ratio => Some(1.0),
            _ => None,
        }
    }

    /// Returns its unit, by the end of its first name if it is not a ratio.
    pub fn unit(&self) -> Unit {
        match self.kind {
            Kind::Ratio | Kind::Gain | Kind::Saved => Unit::Ratio,
            _ => unit_of(&self.operands[0]),
        }
    }

    /// Returns the names that it is made of.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.operands.iter().map(String::as_str);
        names.filter(|name| name.parse::<f64>().is_err())
    }

    /// Computes it from values by name. Returns `None` if one is missing, or if it would divide by
    /// 0.
    pub fn of(&self, value: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let number = |name: &String| name.parse().ok().or_else(|| value(name));
        let mut known = self.operands.iter().filter_map(number);
        match self.kind {
            Kind::First => return known.next(),
            Kind::Least => return known.reduce(f64::min),
            Kind::Most => return known.reduce(f64::max),
            _ => {}
        }
        let known: Vec<f64> = known.collect();
        if known.len() < self.operands.len() {
            return None;
        }
        let over = |one: f64, other: f64| (other != 0.0).then(|| one / other);
        match (self.kind, known.as_slice()) {
            (Kind::Value, [one]) => Some(*one),
            (Kind::Ratio, [one, other]) => over(*one, *other),
            (Kind::Difference, [one, other]) => Some(one - other),
            (Kind::Sum, all) => Some(all.iter().sum()),
            (Kind::Product, all) => Some(all.iter().product()),
            (Kind::Gain, [one, other]) => Some(over(*one, *other)? - 1.0),
            (Kind::Saved, [one, other]) => Some(1.0 - over(*one, *other)?),
            (Kind::Cost, [percent, iops]) => over(percent / 100.0 * 1e9, *iops),
            _ => None,
        }
    }

    /// Computes it for each repetition, from figures of that repetition only.
    pub fn samples(&self, measured: &Measured) -> Vec<f64> {
        let count = self.names().map(|name| measured.samples(name).len()).min().unwrap_or(0);
        let of = |at: usize| self.of(|name| measured.samples(name).get(at).copied());
        (0..count).filter_map(of).collect()
    }
}

/// Returns the unit of a figure, by the end of its name.
pub(crate) fn unit_of(name: &str) -> Unit {
    let ends = |unit: &str| name.ends_with(unit);
    match () {
        () if ends("_ns") => Unit::Time,
        () if ends("_iops") || ends("_per_second") => Unit::Rate,
        () if ends("_percent") => Unit::Percent,
        () if ends("_bytes") => Unit::Bytes,
        () if ends("_ratio") => Unit::Ratio,
        () => Unit::Count,
    }
}

#[cfg(test)]
pub(crate) fn ratio(one: &str, other: &str) -> Quantity {
    Quantity { kind: Kind::Ratio, operands: vec![one.to_owned(), other.to_owned()] }
}
