//! The facts that a command shows, each with words for people and a value for programs.

use comfy_table::{CellAlignment, Table};
use serde_json::Value;

use crate::figures::wrapped;
use crate::output::{bare_table, json_text, table_lines};

/// Width of lists of names.
pub(crate) const COLUMNS: usize = 90;

/// One fact.
pub(crate) struct Fact {
    /// Its name in tables. If it is empty, only JSON has the fact.
    pub(crate) name: &'static str,
    /// The words for people.
    pub(crate) words: String,
    /// Its key in JSON.
    key: &'static str,
    value: Value,
}

impl Fact {
    /// Creates a fact, whose words are its value's unless there are others.
    pub(crate) fn new<const N: usize>(
        name: &'static str,
        key: &'static str,
        value: Value,
        words: [String; N],
    ) -> Self {
        let words = words.into_iter().next().unwrap_or_else(|| match &value {
            Value::Null => "–".to_owned(),
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        });
        Self { name, words, key, value }
    }
}

/// Facts, each as `NAME, KEY: VALUE;` or `NAME, KEY: VALUE => WORDS;`.
macro_rules! facts {
    ($($name:literal, $key:literal: $value:expr $(=> $words:expr)?;)*) => {
        vec![$($crate::facts::Fact::new(
            $name, $key, serde_json::json!($value), [$($words.to_string())?],
        )),*]
    };
}
pub(crate) use facts;

/// Returns the names of the set bits of `bits`, by (bit, name).
pub(crate) fn names_of(bits: u64, names: &[(u64, &str)]) -> String {
    let set = names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name);
    let set: Vec<&str> = set.collect();
    if set.is_empty() { "none".to_owned() } else { wrapped(&set.join(", "), COLUMNS) }
}

/// Returns the JSON object of `facts`.
pub(crate) fn object(facts: &[Fact]) -> Value {
    facts.iter().map(|fact| (fact.key.to_owned(), fact.value.clone())).collect()
}

/// Returns the JSON array of `things`.
pub(crate) fn objects(things: &[Vec<Fact>]) -> Value {
    things.iter().map(|facts| object(facts)).collect()
}

/// Returns a row for each fact.
pub(crate) fn rows(facts: &[Fact]) -> String {
    let mut table = bare_table();
    for fact in facts.iter().filter(|fact| !fact.name.is_empty()) {
        table.add_row([fact.name, &fact.words]);
    }
    rendered(table)
}

/// Returns `facts` as JSON, or in words.
pub(crate) fn text(facts: &[Fact], as_json: bool) -> String {
    if as_json { json_text(&object(facts)) } else { rows(facts) }
}

/// Returns a row for each of `things`, with a column for each name.
pub(crate) fn table(things: &[Vec<Fact>]) -> String {
    let Some(most) = things.iter().max_by_key(|facts| facts.len()) else { return String::new() };
    let columns: Vec<&Fact> = most.iter().filter(|fact| !fact.name.is_empty()).collect();
    let mut table = bare_table();
    table.set_header(columns.iter().map(|fact| fact.name));
    for facts in things {
        table.add_row(columns.iter().map(|column| {
            let fact = facts.iter().find(|fact| fact.name == column.name);
            fact.map_or("–", |fact| &fact.words)
        }));
    }
    for (column, fact) in table.column_iter_mut().zip(columns) {
        let is_number = |one: &Fact| one.name == fact.name && one.value.is_number();
        if things.iter().flatten().any(is_number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    rendered(table)
}

fn rendered(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table_lines(&table).iter().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_values_unless_there_are_others() {
        let none: Option<u32> = None;
        let facts = facts! {
            "size", "bytes": 4096 => "4 KiB";
            "usable", "usable": true;
            "boundary", "boundary": none;
            "", "key": "only";
        };
        let json = r#"{"bytes":4096,"usable":true,"boundary":null,"key":"only"}"#;
        assert_eq!(object(&facts).to_string(), json);
        assert_eq!(rows(&facts), "  size      4 KiB\n  usable    yes\n  boundary  –\n");
        let short = facts! { "usable", "usable": false => "no: gone"; };
        let text = table(&[facts, short]);
        let last = text.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(last, ["–", "no:", "gone", "–"], "{text}");
    }
}
