//! Faults of the network, injected by the target.

use std::str::FromStr;

use super::output::Spoiled;
use crate::Rng;

/// Which faults of the network to inject. The default is none.
///
/// As text it is a list of `delay=TIME`, `drop=1/N`, `cut=1/N`, `hdgst=1/N`, `ddgst=1/N` and
/// `seed=N`, separated by commas; TIME has a unit: ns, us, ms or s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetFaults {
    /// Each response is held back so long, in ns.
    pub delay_ns: u64,
    /// Of so many commands, one closes its connection; 0: none.
    pub drop_one_in: u32,
    /// Of so many responses, one ends in the middle, and the connection with it; 0: none.
    pub cut_one_in: u32,
    /// Of so many PDUs with a header digest, one has a wrong one; 0: none.
    pub hdgst_one_in: u32,
    /// Of so many PDUs with a data digest, one has a wrong one; 0: none.
    pub ddgst_one_in: u32,
    /// The seed of chance.
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

    /// Holds each response back for `delay_ns`.
    #[must_use]
    pub const fn with_delay_ns(mut self, delay_ns: u64) -> Self {
        self.delay_ns = delay_ns;
        self
    }

    /// Closes the connection at one in `one_in` commands.
    #[must_use]
    pub const fn with_drop(mut self, one_in: u32) -> Self {
        self.drop_one_in = one_in;
        self
    }

    /// Ends one in `one_in` responses in the middle.
    #[must_use]
    pub const fn with_cut(mut self, one_in: u32) -> Self {
        self.cut_one_in = one_in;
        self
    }

    /// Sends one in `one_in` header and data digests wrong.
    #[must_use]
    pub const fn with_digests(mut self, header_one_in: u32, data_one_in: u32) -> Self {
        self.hdgst_one_in = header_one_in;
        self.ddgst_one_in = data_one_in;
        self
    }

    /// The same with another seed.
    #[must_use]
    pub const fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

/// Why a text is no [`NetFaults`].
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
                    let Some(delay_ns) = time_ns(value) else {
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

fn time_ns(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(unit).filter(|&ns| ns <= 60_000_000_000)
}

/// Faults at work.
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

    /// Whether to close the connection at this command.
    pub(super) fn drops(&mut self) -> bool {
        self.one_in(self.plan.drop_one_in)
    }

    /// How many of the `len` bytes of a response are sent before the connection is closed.
    pub(super) fn cuts(&mut self, len: usize) -> Option<usize> {
        let cuts = self.one_in(self.plan.cut_one_in);
        // At least one: only bytes that are sent get it there.
        cuts.then(|| 1 + (self.rng.next_u64() % (len.max(2) - 1) as u64) as usize)
    }

    /// Whether digests are wrong.
    pub(super) fn spoils(&mut self) -> Spoiled {
        let header = self.one_in(self.plan.hdgst_one_in);
        Spoiled { header, data: self.one_in(self.plan.ddgst_one_in) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_strictly() {
        let plan: NetFaults =
            "delay=2ms,drop=1/100,cut=1/7,hdgst=1/9,ddgst=1/3,seed=5".parse().unwrap();
        let digests = NetFaults::NONE.with_delay_ns(2_000_000).with_digests(9, 3);
        assert_eq!(plan, digests.with_drop(100).with_cut(7).with_seed(5));
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
