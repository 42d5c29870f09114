//! Generated device times.

use std::fmt;
use std::str::FromStr;

use super::trace::{Io, Trace};
use meantime_completion::Kind;
use meantime_random::Rng;

/// The variation of device times around a base time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// The time is always the base time.
    Constant,
    /// The time is the base time times e to a normal number of this standard deviation.
    Lognormal(f64),
    /// The time is the base time, or for `fraction` of the I/Os `factor` times that, both ± 2 %.
    Bimodal {
        /// The share of slow I/Os.
        fraction: f64,
        /// The factor by which they are slower.
        factor: f64,
    },
    /// The time is the base time ± 3 %. A program or erase delays `fraction` of the I/Os by up to
    /// `factor` times the base time.
    BehindPrograms {
        /// The share of I/Os that are delayed.
        fraction: f64,
        /// The longest stall, in base times.
        factor: f64,
    },
    /// Sizes are 512 B to 128 KiB, with each power of two equally often. The time is the base time
    /// ± 3 % up to 4 KiB, and 0.4 ns (2.5 GB/s) more for each byte beyond.
    MixedSizes,
    /// 70 % are reads at the base time ± 10 %. 30 % are writes, which end in the device's cache, at
    /// 0.6 of the base time ± 15 %.
    ReadWrite,
    /// The time is the base time ± 3 %, and six times that for the second third of the I/Os.
    RegimeChange,
}

impl Shape {
    /// One shape of each kind.
    pub const GRID: [Self; 7] = [
        Self::Constant,
        Self::Lognormal(0.2),
        Self::Bimodal { fraction: 0.1, factor: 5.0 },
        Self::BehindPrograms { fraction: 0.05, factor: 20.0 },
        Self::MixedSizes,
        Self::ReadWrite,
        Self::RegimeChange,
    ];

    /// Returns `count` I/Os with a base time of `base_ns`.
    pub fn trace(self, base_ns: u64, count: usize, seed: u64) -> Trace {
        let mut random = Rng::new(seed);
        let ios =
            (0..count).map(|index| self.io(base_ns as f64, index, count, &mut random)).collect();
        Trace { ios }
    }

    fn io(self, base_ns: f64, index: usize, count: usize, random: &mut Rng) -> Io {
        let (mut kind, mut bytes) = (Kind::Read, 4096u32);
        let mut about = |ns: f64, sigma: f64| ns * (sigma * random.normal()).exp();
        let device_ns = match self {
            Self::Constant => base_ns,
            Self::Lognormal(sigma) => about(base_ns, sigma),
            Self::Bimodal { fraction, factor } => {
                let ns = about(base_ns, 0.02);
                if random.unit() < fraction { ns * factor } else { ns }
            }
            Self::BehindPrograms { fraction, factor } => {
                let ns = about(base_ns, 0.03);
                let stall = random.unit() < fraction;
                if stall { ns + random.unit() * factor * base_ns } else { ns }
            }
            Self::MixedSizes => {
                let ns = about(base_ns, 0.03);
                bytes = 512 << random.below(9);
                ns + f64::from(bytes.saturating_sub(4096)) * 0.4
            }
            Self::ReadWrite => {
                let noise = random.normal();
                if random.unit() < 0.3 {
                    kind = Kind::Write;
                    0.6 * base_ns * (0.15 * noise).exp()
                } else {
                    base_ns * (0.1 * noise).exp()
                }
            }
            Self::RegimeChange => {
                let slow = (count / 3..2 * count / 3).contains(&index);
                about(if slow { 6.0 * base_ns } else { base_ns }, 0.03)
            }
        };
        Io { kind, bytes, device_ns: (device_ns.round() as u64).max(1) }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => f.write_str("constant"),
            Self::Lognormal(sigma) => write!(f, "lognormal={sigma}"),
            Self::Bimodal { fraction, factor } => write!(f, "bimodal={fraction}x{factor}"),
            Self::BehindPrograms { fraction, factor } => write!(f, "programs={fraction}x{factor}"),
            Self::MixedSizes => f.write_str("sizes"),
            Self::ReadWrite => f.write_str("mix"),
            Self::RegimeChange => f.write_str("regime"),
        }
    }
}

/// The error for a text that names no shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no shape of device times: use constant, lognormal=<sigma>, \
     bimodal=<fraction>x<factor>, programs=<fraction>x<factor>, sizes, mix or regime"
)]
pub struct ParseShapeError(String);

impl FromStr for Shape {
    type Err = ParseShapeError;

    fn from_str(text: &str) -> Result<Self, ParseShapeError> {
        let error = || ParseShapeError(text.to_owned());
        let number = |text: &str, most: f64| {
            let number = text.parse::<f64>().ok().filter(|number| (0.0..=most).contains(number));
            number.ok_or_else(error)
        };
        let pair = |text: &str| {
            let (fraction, factor) = text.split_once('x').ok_or_else(error)?;
            Ok((number(fraction, 1.0)?, number(factor, 1e6)?))
        };
        match text.split_once('=').unwrap_or((text, "")) {
            ("constant", "") => Ok(Self::Constant),
            ("lognormal", sigma) => Ok(Self::Lognormal(number(sigma, 5.0)?)),
            ("bimodal", values) => {
                pair(values).map(|(fraction, factor)| Self::Bimodal { fraction, factor })
            }
            ("programs", values) => {
                pair(values).map(|(fraction, factor)| Self::BehindPrograms { fraction, factor })
            }
            ("sizes", "") => Ok(Self::MixedSizes),
            ("mix", "") => Ok(Self::ReadWrite),
            ("regime", "") => Ok(Self::RegimeChange),
            _ => Err(error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for shape in Shape::GRID {
            assert_eq!(shape.to_string().parse::<Shape>().unwrap(), shape);
        }
        for text in [
            "",
            "constant=1",
            "lognormal",
            "lognormal=-1",
            "lognormal=nan",
            "bimodal=2x2",
            "bimodal=1",
            "sizes=2",
        ] {
            assert!(text.parse::<Shape>().unwrap_err().to_string().contains("lognormal=<sigma>"));
        }
    }

    #[test]
    fn traces_are_what_they_say() {
        let trace = |shape: Shape| shape.trace(10_000, 30_000, 1);
        assert!(trace(Shape::Constant).ios.iter().all(|io| io.device_ns == 10_000));
        // 0.9 × 10 + 0.1 × 50 µs; 10 + 0.05 × 100 µs.
        let mean_of = |shape| trace(shape).mean_ns();
        assert!((mean_of(Shape::GRID[2]) / 14_000.0 - 1.0).abs() < 0.03);
        assert!((mean_of(Shape::GRID[3]) / 15_000.0 - 1.0).abs() < 0.05);
        let mixed = trace(Shape::MixedSizes);
        let largest = mixed.ios.iter().filter(|io| io.bytes == 131_072);
        assert!((largest.clone().count() as f64 / 30_000.0 * 9.0 - 1.0).abs() < 0.1);
        assert!(largest.into_iter().all(|io| (58_000..64_000).contains(&io.device_ns)));
        let writes = trace(Shape::ReadWrite).ios.iter().filter(|io| io.kind == Kind::Write).count();
        assert!((8_600..9_400).contains(&writes));
        let regime = trace(Shape::RegimeChange);
        assert!(regime.ios[9_999].device_ns < 13_000 && regime.ios[10_000].device_ns > 50_000);
        assert!(regime.ios[19_999].device_ns > 50_000 && regime.ios[20_000].device_ns < 13_000);
        assert_eq!(regime, trace(Shape::RegimeChange));
        assert_ne!(regime, Shape::RegimeChange.trace(10_000, 30_000, 2));
    }
}
