//! Service-time models, which say how long a command occupies the device.
//!
//! A model is a short TOML text. Its costs are piecewise linear in the size of a transfer. A
//! command occupies one of the model's channels for that time, and waits while the channel is busy.

use serde::Deserialize;

use crate::error::SsdError;

/// The built-in models: name and text.
const BUILT_IN: [(&str, &str); 7] = [
    ("null", include_str!("models/null.toml")),
    ("fast12", include_str!("models/fast12.toml")),
    ("dram-nvme", include_str!("models/dram-nvme.toml")),
    ("nvram", include_str!("models/nvram.toml")),
    ("optane", include_str!("models/optane.toml")),
    ("zssd", include_str!("models/zssd.toml")),
    ("nand", include_str!("models/nand.toml")),
];

const NAMES: [&str; BUILT_IN.len()] = {
    let mut names = [""; BUILT_IN.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = BUILT_IN[i].0;
        i += 1;
    }
    names
};

/// The highest cost, in ns: an hour. It keeps sums of times far from overflow.
const MAX_NS: u64 = 3_600_000_000_000;
const MAX_CHANNELS: u32 = 1024;

/// A service-time model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// The source of its numbers.
    pub source: String,
    /// Number of units that work in parallel. With 0 there are no costs: every command completes at
    /// once.
    pub channels: u32,
    /// The maximum number of commands inside the device. No more are fetched until one has
    /// completed, so arbitration between the queues decides which command waits. With 0, every
    /// command is fetched, and waits inside in order of arrival.
    #[serde(default)]
    pub inside: u32,
    /// The choice of the channel that a command occupies.
    #[serde(default)]
    pub select: Select,
    /// Consecutive bytes on one channel, for `select = "stripe"`.
    #[serde(default = "default_stripe_bytes")]
    pub stripe_bytes: u64,
    /// Cost of a read: points `[bytes, ns]`, ascending in bytes, with linear interpolation. It is
    /// constant below the first point, and extrapolated beyond the last.
    #[serde(default)]
    pub read: Vec<(u64, u64)>,
    /// Cost of a write, in the same form.
    #[serde(default)]
    pub write: Vec<(u64, u64)>,
    /// Cost of a flush in ns.
    #[serde(default)]
    pub flush_ns: u64,
    /// Cost of a deallocation or of writing zeroes, in ns.
    #[serde(default)]
    pub trim_ns: u64,
    /// Random variation of each cost.
    #[serde(default)]
    pub jitter: Jitter,
    /// Rare slow events.
    #[serde(default)]
    pub slow: Slow,
    /// The work of NAND after a write has entered its buffer.
    #[serde(default)]
    pub nand: Option<Nand>,
}

/// The choice of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Select {
    /// The address selects the channel.
    Stripe,
    /// The command occupies the channel that becomes free first.
    #[default]
    LeastBusy,
}

/// Random variation of a cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Jitter {
    /// There is no variation.
    #[default]
    None,
    /// The cost is multiplied by a log-normal factor of mean 1 and this sigma.
    Lognormal {
        /// Standard deviation of the factor's logarithm.
        sigma: f64,
    },
    /// Up to `ns` is added or subtracted, uniformly.
    Uniform {
        /// The largest deviation, in ns.
        ns: u64,
    },
}

/// Rare slow events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slow {
    /// Probability per command, from 0 to 1.
    pub probability: f64,
    /// Extra time of the command, in ns.
    pub extra_ns: u64,
}

/// The work of NAND after a write has been accepted. Reads on the same channel wait behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nand {
    /// Data per program operation, in bytes.
    pub program_bytes: u64,
    /// Time of a program operation on the channel, in ns.
    pub program_ns: u64,
    /// Number of programs per erase.
    pub programs_per_erase: u32,
    /// Time of an erase on the channel, in ns.
    pub erase_ns: u64,
    /// Number of programs that may be queued on a channel before a write has to wait.
    pub buffered_programs: u32,
}

fn default_stripe_bytes() -> u64 {
    4096
}

impl Model {
    /// Returns the built-in model with this name.
    ///
    /// # Errors
    /// [`SsdError::UnknownModel`], which lists the known names.
    pub fn named(name: &str) -> Result<Self, SsdError> {
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::parse(text),
            None => Err(SsdError::UnknownModel { name: name.to_owned(), known: &NAMES }),
        }
    }

    /// Returns the names of the built-in models.
    #[must_use]
    pub fn names() -> &'static [&'static str] {
        &NAMES
    }

    /// Returns the model without costs.
    ///
    /// # Panics
    /// Does not panic in practice, because its text is compiled in and tested.
    #[must_use]
    pub fn null() -> Self {
        Self::named("null").expect("the built-in model parses")
    }

    /// Parses a model from its TOML text.
    ///
    /// # Errors
    /// [`SsdError::Model`], which says where the text is wrong or which number is invalid.
    pub fn parse(text: &str) -> Result<Self, SsdError> {
        let model: Self =
            toml::from_str(text).map_err(|e| SsdError::Model(e.to_string().trim().to_owned()))?;
        model.check().map_err(|problem| SsdError::Model(format!("{:?}: {problem}", model.name)))?;
        Ok(model)
    }

    /// Returns whether every command completes at once.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.channels == 0
    }

    fn check(&self) -> Result<(), String> {
        if self.source.trim().is_empty() {
            return Err("`source` is empty; say where the numbers come from".into());
        }
        if self.channels > MAX_CHANNELS {
            return Err(format!("`channels` is {}, more than {MAX_CHANNELS}", self.channels));
        }
        for (what, points) in [("read", &self.read), ("write", &self.write)] {
            self.check_costs(points).map_err(|problem| format!("`{what}` {problem}"))?;
        }
        let nand_ns = self.nand.map_or([0; 2], |nand| [nand.program_ns, nand.erase_ns]);
        let times_ns = [self.flush_ns, self.trim_ns, self.slow.extra_ns];
        if times_ns.into_iter().chain(nand_ns).any(|ns| ns > MAX_NS) {
            return Err("a time is longer than an hour".into());
        }
        if self.stripe_bytes == 0 {
            return Err("`stripe_bytes` is 0".into());
        }
        let probability = self.slow.probability;
        if !(0.0..=1.0).contains(&probability) {
            return Err(format!("`slow.probability` is {probability}, not within 0 to 1"));
        }
        match self.jitter {
            Jitter::Lognormal { sigma } if !(0.0..=3.0).contains(&sigma) => {
                return Err(format!("`jitter.lognormal.sigma` is {sigma}, not within 0 to 3"));
            }
            Jitter::Uniform { ns } if ns > MAX_NS => {
                return Err("`jitter.uniform.ns` is longer than an hour".into());
            }
            _ => {}
        }
        let Some(nand) = self.nand else { return Ok(()) };
        if nand.program_bytes == 0 || nand.programs_per_erase == 0 || nand.buffered_programs == 0 {
            let which = "program_bytes, programs_per_erase and buffered_programs";
            return Err(format!("`nand`: {which} must be at least 1"));
        }
        if self.is_null() { Err("`nand` needs channels".into()) } else { Ok(()) }
    }

    fn check_costs(&self, points: &[(u64, u64)]) -> Result<(), String> {
        if self.is_null() && !points.is_empty() {
            return Err("has costs but there are no channels; give at least 1".into());
        }
        if !self.is_null() && points.is_empty() {
            return Err("needs at least one point [bytes, ns]".into());
        }
        if let Some(pair) = points.windows(2).find(|p| p[0].0 >= p[1].0 || p[0].1 > p[1].1) {
            let (at, next) = (pair[0], pair[1]);
            return Err(format!("has {next:?} after {at:?}: bytes must rise, ns must not fall"));
        }
        if points.iter().any(|&(bytes, ns)| bytes > 1 << 40 || ns > MAX_NS) {
            return Err("has a point beyond 1 TiB or an hour".into());
        }
        Ok(())
    }
}

/// Returns the cost of `bytes` along `points`.
pub(crate) fn cost_ns(points: &[(u64, u64)], bytes: u64) -> u64 {
    let Some(&(first_bytes, first_ns)) = points.first() else { return 0 };
    if bytes <= first_bytes || points.len() == 1 {
        return first_ns;
    }
    // This is the segment that contains `bytes`, or the last one, extrapolated.
    let upper = points.partition_point(|&(b, _)| b < bytes).min(points.len() - 1);
    let ((b0, n0), (b1, n1)) = (points[upper - 1], points[upper]);
    let rise = u128::from(bytes - b0) * u128::from(n1 - n0) / u128::from(b1 - b0);
    n0.saturating_add(u64::try_from(rise).unwrap_or(u64::MAX)).min(MAX_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_models_parse_and_are_named_as_listed() {
        for name in Model::names() {
            let model = Model::named(name).unwrap();
            assert_eq!(model.name, *name);
            assert_eq!(model.is_null(), *name == "null");
        }
    }

    #[test]
    fn costs_are_piecewise_linear() {
        let points = [(512, 1500), (4096, 2900), (8192, 4900)];
        assert_eq!(cost_ns(&points, 1), 1500);
        assert_eq!(cost_ns(&points, 512), 1500);
        assert_eq!(cost_ns(&points, 2304), 2200);
        assert_eq!(cost_ns(&points, 4096), 2900);
        assert_eq!(cost_ns(&points, 8192), 4900);
        assert_eq!(cost_ns(&points, 12288), 6900);
        assert_eq!(cost_ns(&[(512, 7)], 1 << 20), 7);
    }

    #[test]
    fn published_numbers() {
        let read = |name: &str, bytes| cost_ns(&Model::named(name).unwrap().read, bytes);
        // shared/reference/results.md: FAST 2012's polled device time, Le Moal, AIOS.
        assert_eq!(read("fast12", 512), 1500);
        assert_eq!(read("fast12", 4096), 2900);
        assert_eq!(read("dram-nvme", 512), 2600);
        assert_eq!(read("nvram", 512), 8000);
        assert_eq!(read("optane", 4096), 7260);
        assert!((12_000..=13_000).contains(&read("zssd", 4096)));
        assert!((75_000..=85_000).contains(&read("nand", 4096)));
    }

    #[test]
    fn bad_texts_say_what_is_wrong() {
        let null = include_str!("models/null.toml");
        let cases = [
            ("name = ", "TOML"),
            (&null.replace("source = \"", "sauce = \""), "sauce"),
            (&null.replace("channels = 0", "channels = 1"), "`read` needs at least one point"),
            (&format!("{null}\nread = [[512, 3]]"), "no channels"),
            (&format!("{null}\nnand = {{ program_bytes = 1 }}"), "program_ns"),
            (&format!("{null}\nslow = {{ probability = 2.0, extra_ns = 1 }}"), "probability"),
            (
                &null.replace(
                    "channels = 0",
                    "channels = 1\nread = [[512, 9], [512, 10]]\nwrite = [[1, 1]]",
                ),
                "rise",
            ),
        ];
        for (text, expected) in cases {
            let error = Model::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} should mention {expected}");
        }
        let unknown = Model::named("fast13").unwrap_err().to_string();
        assert!(unknown.contains("fast13") && unknown.contains("optane"), "{unknown}");
    }
}
