//! Names and times in a plan's text.

use meantime_nvme_spec::status::StatusCode;

use super::rule::{OpcodeSet, commands};

/// An hour, which is the longest time in a plan. It keeps sums far from overflow.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Joins the specification's words: `Unrecovered Read Error` becomes `unrecovered-read-error`.
pub(super) fn kebab(words: &str) -> String {
    let words = words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// Returns whether both are the same name, regardless of separators and capitalisation.
fn same(a: &str, b: &str) -> bool {
    fn letters(text: &str) -> impl Iterator<Item = char> + '_ {
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase())
    }
    letters(a).eq(letters(b))
}

/// Returns the status code with this name in the specification.
pub(super) fn status_code(name: &str) -> Result<StatusCode, String> {
    let found = StatusCode::ALL.iter().copied().find(|code| same(code.name(), name));
    found.ok_or_else(|| {
        let word = name.split(|c: char| !c.is_ascii_alphabetic()).max_by_key(|word| word.len());
        let word = word.unwrap_or_default().to_ascii_lowercase();
        let alike: Vec<String> = StatusCode::ALL
            .iter()
            .map(|code| kebab(code.name()))
            .filter(|text| word.len() > 2 && text.contains(&word))
            .take(8)
            .collect();
        let hint = match alike.is_empty() {
            true => "write it as the specification does, e.g. unrecovered-read-error".to_owned(),
            false => format!("there are {}", alike.join(", ")),
        };
        format!("no status is called {name:?}; {hint}; or give sct and sc")
    })
}

/// Returns the set of the opcodes with these names.
pub(super) fn opcodes<'a>(names: impl Iterator<Item = &'a str>) -> Result<OpcodeSet, String> {
    let mut set: Option<OpcodeSet> = None;
    for name in names {
        let name = match name {
            "deallocate" | "trim" => "dataset-management",
            other => other,
        };
        let find = |admin| {
            let found = commands(admin).find(|(known, _)| same(known, name));
            found.map(|(_, opcode)| (admin, opcode))
        };
        let (admin, opcode) = find(false)
            .or_else(|| find(true))
            .ok_or_else(|| format!("no command is called {name:?}; there are {}", all_opcodes()))?;
        let so_far = set.unwrap_or(OpcodeSet::empty(admin));
        if so_far.is_admin() != admin {
            return Err("names I/O and admin commands; make two rules of it".into());
        }
        set = Some(so_far.with(opcode));
    }
    set.ok_or_else(|| format!("names no command; there are {}", all_opcodes()))
}

fn all_opcodes() -> String {
    let [io, admin] = [false, true]
        .map(|admin| commands(admin).map(|(name, _)| name).collect::<Vec<_>>().join(", "));
    format!("{io}; and the admin commands {admin}")
}

const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Parses a time such as `250ns`, `5us`, `3ms` or `2s`.
pub(crate) fn parse_ns(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = UNITS.iter().find(|(name, _)| *name == unit.trim());
    let ns = unit.and_then(|(_, ns)| number.parse::<u64>().ok()?.checked_mul(*ns));
    ns.filter(|&ns| ns <= LONGEST_NS).ok_or_else(|| {
        format!("{text:?} is no time of up to an hour; write it as 250ns, 5us, 3ms or 2s")
    })
}

/// Formats a time so that [`parse_ns`] can read it.
pub(super) fn text_of_ns(ns: u64) -> String {
    let (unit, divisor) = UNITS
        .iter()
        .rev()
        .find(|(_, divisor)| ns > 0 && ns.is_multiple_of(*divisor))
        .unwrap_or(&UNITS[0]);
    format!("{}{unit}", ns / divisor)
}

#[cfg(test)]
mod tests {
    use meantime_nvme_spec::opcode::{AdminOpcode, IoOpcode};

    use super::*;

    #[test]
    fn every_name_of_the_specification_is_its_own() {
        for code in StatusCode::ALL {
            assert_eq!(status_code(code.name()), Ok(*code));
            assert_eq!(status_code(&kebab(code.name())), Ok(*code));
        }
        for opcode in IoOpcode::ALL {
            let set = opcodes([opcode.name()].into_iter()).unwrap();
            assert!(!set.is_admin() && set.contains(*opcode as u8), "{opcode:?}");
        }
        for opcode in AdminOpcode::ALL {
            let set = opcodes([kebab(opcode.name()).as_str()].into_iter()).unwrap();
            assert!(set.is_admin() && set.contains(*opcode as u8), "{opcode:?}");
        }
    }

    #[test]
    fn times_round_trip() {
        for (text, ns) in [
            ("0ns", 0),
            ("1ns", 1),
            ("1001ns", 1001),
            ("5us", 5_000),
            ("3ms", 3_000_000),
            ("3600s", LONGEST_NS),
        ] {
            assert_eq!((parse_ns(text), text_of_ns(ns).as_str()), (Ok(ns), text));
        }
        for text in ["", "5", "ms", "5 m", "5m", "-5ms", "1.5ms", "3601s", "99999999999999999999s"]
        {
            assert!(parse_ns(text).unwrap_err().contains("3ms"), "{text}");
        }
    }
}
