//! Injects faults of the network into the target.

use std::str::FromStr;

use super::output::Corrupted;
use crate::Rng;
use crate::faults::parse_ns;

/// The longest delay, which is a minute.
const DELAY_MAX_NS: u64 = 60_000_000_000;

/// The faults of the network to inject. The default is none.
///
/// As text it is a list of `delay=TIME`, `drop=1/N`, `cut=1/N`, `hdgst=1/N`, `ddgst=1/N` and
/// `seed=N`, separated by commas; TIME has a unit: ns, us, ms or s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetFaults {
    /// The time for which each response is held back, in ns.
    pub delay_ns: u64,
    /// One in this number of commands closes its connection; 0 means none.
    pub drop_one_in: u32,
    /// One in this number of responses ends in the middle, and the connection with it; 0 means
    /// none.
    pub cut_one_in: u32,
    /// One in this number of PDUs with a header digest has a wrong one; 0 means none.
    pub hdgst_one_in: u32,
    /// One in this number of PDUs with a data digest has a wrong one; 0 means none.
    pub ddgst_one_in: u32,
    /// The seed of the random choices.
    pub seed: u64,
}

impl NetFaults {
    /// No faults.
    pub const NONE: Self = Self {
        delay_ns: 0,
        drop_one_in: 0,
        cut_one_in: 0,
        hdgst_one_in: 0,
        ddgst_one_in: 0,
        seed: 0,
    };
}

/// The reason why a text is no [`NetFaults`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("network faults: {0}")]
pub struct NetFaultsError(String);

impl FromStr for NetFaults {
    type Err = NetFaultsError;

    fn from_str(text: &str) -> Result<Self, NetFaultsError> {
        let mut faults = Self::NONE;
        let mut seen = Vec::new();
        for item in text.split(',') {
            let err = |what: &str| Err(NetFaultsError(format!("{item:?}: {what}")));
            let Some((key, value)) = item.split_once('=') else {
                return err("write key=value; keys: delay, drop, cut, hdgst, ddgst, seed");
            };
            if seen.contains(&key) {
                return err("given twice");
            }
            seen.push(key);
            let to = match key {
                "delay" => {
                    let Some(delay_ns) = parse_ns(value).ok().filter(|&ns| ns <= DELAY_MAX_NS)
                    else {
                        return err("a time up to 60s, with a unit: ns, us, ms or s");
                    };
                    faults.delay_ns = delay_ns;
                    continue;
                }
                "seed" => {
                    let Ok(seed) = value.parse() else { return err("a number") };
                    faults.seed = seed;
                    continue;
                }
                "drop" => &mut faults.drop_one_in,
                "cut" => &mut faults.cut_one_in,
                "hdgst" => &mut faults.hdgst_one_in,
                "ddgst" => &mut faults.ddgst_one_in,
                _ => return err("no such key; there are delay, drop, cut, hdgst, ddgst, seed"),
            };
            match value.strip_prefix("1/").and_then(|n| n.parse().ok()).filter(|&n| n > 0) {
                Some(one_in) => *to = one_in,
                None => return err("one in how many: 1/N"),
            }
        }
        Ok(faults)
    }
}

/// The faults in force.
pub(super) struct Injector {
    pub(super) plan: NetFaults,
    pub(super) none: bool,
    rng: Rng,
}

impl Injector {
    pub(super) fn new(plan: NetFaults) -> Self {
        let none = plan == NetFaults { seed: plan.seed, ..NetFaults::NONE };
        Self { plan, none, rng: Rng::new(plan.seed) }
    }

    fn one_in(&mut self, n: u32) -> bool {
        n > 0 && self.rng.next_u64().is_multiple_of(u64::from(n))
    }

    /// Returns whether to close the connection at this command.
    pub(super) fn drops(&mut self) -> bool {
        self.one_in(self.plan.drop_one_in)
    }

    /// Returns how many of the `len` bytes of a response are sent before the connection is closed.
    pub(super) fn cuts(&mut self, len: usize) -> Option<usize> {
        let cuts = self.one_in(self.plan.cut_one_in);
        // At least one byte is sent, because the connection is closed only after sending bytes.
        cuts.then(|| 1 + (self.rng.next_u64() % (len.max(2) - 1) as u64) as usize)
    }

    /// Returns whether digests are wrong.
    pub(super) fn corrupts(&mut self) -> Corrupted {
        let header = self.one_in(self.plan.hdgst_one_in);
        Corrupted { header, data: self.one_in(self.plan.ddgst_one_in) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_strictly() {
        let plan: NetFaults =
            "delay=2ms,drop=1/100,cut=1/7,hdgst=1/9,ddgst=1/3,seed=5".parse().unwrap();
        let expected = NetFaults {
            delay_ns: 2_000_000,
            drop_one_in: 100,
            cut_one_in: 7,
            hdgst_one_in: 9,
            ddgst_one_in: 3,
            seed: 5,
        };
        assert_eq!(plan, expected);
        for (text, word) in [
            ("", "key=value"),
            ("delay", "key=value"),
            ("delay=2", "unit"),
            ("delay=2h", "unit"),
            ("delay=61s", "60s"),
            ("delay=99999999999999999999ns", "60s"),
            ("drop=2/3", "1/N"),
            ("drop=1/0", "1/N"),
            ("seed=x", "number"),
            ("loss=1/2", "no such key"),
            ("drop=1/2,drop=1/3", "twice"),
            ("drop=1/2,", "key=value"),
        ] {
            let why = text.parse::<NetFaults>().unwrap_err().to_string();
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
