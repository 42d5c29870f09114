//! The lists of keys in `--help` and docs/fio.md.

use itertools::Itertools as _;
use meantime_report::figures::wrapped;

use super::{Default, Key, SUBJECTS, Subject, built};

/// A key that `bench --help` lists as an option.
pub struct KeyOption {
    /// The key's name.
    pub name: &'static str,
    /// The name of its value.
    pub value_name: &'static str,
    /// Its help text, with the default.
    pub help: String,
    /// Its meaning without a value, if it may stand alone.
    pub alone: Option<&'static str>,
}

/// Returns the keys that `bench --help` lists as options.
pub fn options() -> impl Iterator<Item = KeyOption> {
    built().filter_map(|key| {
        let Key { name, value_name, help, .. } = *key;
        let value_name = value_name?;
        let is_flag = value_name == "0|1";
        let help = match key.default {
            Default::Is(value) if !is_flag => format!("{help} [default: {value}]"),
            Default::Means(words) => format!("{help} [default: {words}]"),
            _ => help.to_owned(),
        };
        let alone = if is_flag { Some("1") } else { key.alone.filter(|alone| !alone.is_empty()) };
        Some(KeyOption { name, value_name, help, alone })
    })
}

/// Returns the names of all implemented keys, by subject, in lines.
pub fn subjects() -> String {
    const INDENT: usize = 14;
    const WIDTH: usize = 88;
    let lines = |subject: &Subject| {
        let keys = subject.keys.iter().map(|key| key.name).join(", ");
        let keys = wrapped(&keys, WIDTH - INDENT);
        let keys = keys.replace('\n', &format!("\n{:INDENT$}", ""));
        format!("  {:<1$}{keys}", subject.name, INDENT - 2)
    };
    SUBJECTS.iter().map(lines).join("\n")
}
