//! Facts of the machine and the command line, as the JSON has them.

use serde_json::Value;

/// Returns a fact as text, or `None` if it is a list or has parts.
pub(crate) fn fact(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(yes) => Some(if *yes { "yes" } else { "no" }.to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Describes a machine by its facts, in a few parts.
pub(crate) fn described(fact: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let cpus = fact("cpus").map_or(String::new(), |cpus| format!(", {cpus} CPUs"));
    let parts = [
        fact("cpu").map(|cpu| cpu + &cpus),
        fact("kernel").map(|kernel| format!("Linux {kernel}")),
        fact("virtual_machine").filter(|is| is == "yes").map(|_| "virtual machine".to_owned()),
    ];
    parts.into_iter().flatten().collect()
}

/// Returns a command line as one text, from a text or a list of arguments.
pub(crate) fn command(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => {
            let words = words.iter().map(|word| word.as_str().map(shell_word));
            words.collect::<Option<Vec<String>>>().map(|words| words.join(" "))
        }
        _ => None,
    }
}

/// Quotes a word for a shell.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
