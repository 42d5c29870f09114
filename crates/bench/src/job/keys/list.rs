//! The keys as `--help` and docs/fio.md list them.

use super::{Default, Key, SUBJECTS, built};

/// A key that `bench --help` lists as an option.
pub struct KeyOption {
    /// The key's name.
    pub name: &'static str,
    /// What its value is called.
    pub value_name: &'static str,
    /// What it says, and what holds without it.
    pub help: String,
    /// What it means without a value, if it may stand alone.
    pub alone: Option<&'static str>,
}

/// The keys that `bench --help` lists as options.
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

/// The names of all keys that are built, by subject, in lines.
pub fn subjects() -> String {
    const INDENT: usize = 14;
    const WIDTH: usize = 88;
    let mut lines = Vec::new();
    for subject in SUBJECTS {
        let mut line = format!("  {:<1$}", subject.name, INDENT - 2);
        for (at, key) in subject.keys.iter().enumerate() {
            let comma = if at + 1 < subject.keys.len() { "," } else { "" };
            if line.len() + 1 + key.name.len() + comma.len() > WIDTH {
                lines.push(std::mem::replace(&mut line, " ".repeat(INDENT)));
            }
            let blank = if line.len() > INDENT { " " } else { "" };
            line += &format!("{blank}{}{comma}", key.name);
        }
        lines.push(line);
    }
    lines.join("\n")
}

/// All keys as docs/fio.md has them.
#[cfg(test)]
pub(in crate::job) fn manual() -> String {
    use super::fios::{self, Accepts, IGNORED, REFUSED};
    use super::{Applies, Job};
    use std::fmt::Write as _;

    let code = |names: &mut dyn Iterator<Item = &'static str>| {
        names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let mut text = String::from("\n### Built\n");
    for subject in SUBJECTS {
        let _ = write!(
            text,
            "\n**{}**\n\n| key | value | default | what it says |\n|---|---|---|---|\n",
            subject.name
        );
        for key in subject.keys {
            let default = match key.default {
                Default::None => String::new(),
                Default::Is(value) => format!("`{value}`"),
                Default::Means(words) => words.to_owned(),
            };
            let needs: String = key
                .applies
                .iter()
                .map(|applies| match applies {
                    Applies::With(other) => format!("; needs `{other}`"),
                    Applies::If(condition) => format!("; needs {}", condition.needs),
                })
                .collect();
            let names = code(&mut std::iter::once(key.name).chain(key.aliases.iter().copied()));
            let takes = (key.field.takes)(&Job::new(""));
            let help = key.help.replace("0|1", "0 or 1");
            let _ = writeln!(text, "| {names} | {takes} | {default} | {help}{needs} |");
        }
    }
    text += "\n### Accepted without effect\n\n| key | why |\n|---|---|\n";
    for (group, accepts, why) in IGNORED {
        let only = match accepts {
            Accepts::Only(values) => format!(" (only {})", values.join(" or ")),
            _ => String::new(),
        };
        let _ = writeln!(text, "| {}{only} | {why} |", code(&mut fios::names(group)));
    }
    text += "\n### Refused\n\n| key | why, or what to say instead |\n|---|---|\n";
    for (group, why) in REFUSED {
        let _ = writeln!(text, "| {} | {why} |", code(&mut fios::names(group)));
    }
    text + "\n"
}
