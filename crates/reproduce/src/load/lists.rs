//! Lists of parameters, and what is repeated for their entries.

use std::collections::BTreeMap;

use toml::{Table, Value};

/// An entry: its fields by name. The text for the entry itself has the name "".
type Row = BTreeMap<String, String>;
/// Entries that were chosen, by the name of their list.
type Bound<'a> = BTreeMap<&'a str, &'a Row>;

/// Lists in the order in which they are declared.
#[derive(Debug, Default, Clone)]
pub(super) struct Lists(Vec<(String, Vec<Row>)>);

impl Lists {
    /// Adds the lists of a table.
    ///
    /// # Errors
    /// Returns an error if an entry is neither a string nor a table of strings.
    pub(super) fn add(&mut self, table: &Table) -> Result<(), String> {
        for (name, entries) in table {
            let rows: Option<Vec<Row>> = match entries {
                Value::Array(entries) => entries.iter().map(row).collect(),
                Value::Table(titled) => titled.iter().map(titled_row).collect(),
                _ => None,
            };
            let wrong =
                || format!("lists.{name}: no strings, tables of strings, or titled strings");
            let rows = rows.ok_or_else(wrong)?;
            self.0.push((name.clone(), rows));
        }
        Ok(())
    }

    /// Repeats these lists for each entry of `parameter`, which each copy has as a list of one
    /// entry. Returns each copy with the text of its entry.
    pub(super) fn with_each(&self, parameter: &Table) -> Result<Vec<(String, Self)>, String> {
        let mut further = Self::default();
        further.add(parameter)?;
        let with = |(list, row): (&String, &Row)| {
            let mut all = self.0.clone();
            all.push((list.clone(), vec![row.clone()]));
            (row.get("").cloned().unwrap_or_default(), Self(all))
        };
        let entries =
            further.0.iter().flat_map(|(list, rows)| rows.iter().map(move |row| (list, row)));
        Ok(entries.map(with).collect())
    }

    /// Repeats each element that names lists, and fills in the entries.
    ///
    /// # Errors
    /// Returns an error if a string names a list but nothing repeats it for the list's entries.
    pub(super) fn expand(&self, value: &Value) -> Result<Value, String> {
        // A list of one entry is a name for it, everywhere.
        let only = self.0.iter().filter(|(_, rows)| rows.len() == 1);
        let names_alone = only.map(|(list, rows)| (list.as_str(), &rows[0])).collect();
        let expanded = self.within(value, &names_alone);
        let mut wrong = None;
        strings(&expanded, &mut |text| {
            if self.0.iter().any(|(list, _)| names(text, list)) {
                wrong = Some(format!("{text:?} names a list, but no key or array repeats it"));
            }
        });
        wrong.map_or(Ok(expanded), Err)
    }

    fn within(&self, value: &Value, bound: &Bound<'_>) -> Value {
        match value {
            Value::Array(items) => {
                let repeated = |item| {
                    let bounds = self.choices(&own_strings(item), bound);
                    bounds.into_iter().map(move |bound| self.within(item, &bound))
                };
                Value::Array(items.iter().flat_map(repeated).collect())
            }
            Value::Table(table) => {
                let mut filled = Table::new();
                for (key, value) in table {
                    for bound in self.choices(&[key], bound) {
                        let value = self.within(value, &bound);
                        match (filled.entry(text(key, &bound)).or_insert(value.clone()), value) {
                            (Value::Table(there), Value::Table(more)) => there.extend(more),
                            (there, value) => *there = value,
                        }
                    }
                }
                Value::Table(filled)
            }
            Value::String(string) => Value::String(text(string, bound)),
            other => other.clone(),
        }
    }

    /// Returns `bound` with each choice of entries of the further lists that `texts` name.
    fn choices<'a>(&'a self, texts: &[&str], bound: &Bound<'a>) -> Vec<Bound<'a>> {
        let mut all = vec![bound.clone()];
        for (list, rows) in &self.0 {
            if bound.contains_key(list.as_str()) || !texts.iter().any(|text| names(text, list)) {
                continue;
            }
            let with = |bound: Bound<'a>| {
                rows.iter().map(move |row| {
                    let mut bound = bound.clone();
                    bound.insert(list, row);
                    bound
                })
            };
            all = all.into_iter().flat_map(with).collect();
        }
        all
    }
}

fn row(entry: &Value) -> Option<Row> {
    match entry {
        Value::String(text) => Some(Row::from([(String::new(), text.clone())])),
        Value::Table(fields) => {
            let field =
                |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
            fields.iter().map(field).collect()
        }
        _ => None,
    }
}

fn titled_row((title, entry): (&String, &Value)) -> Option<Row> {
    let mut row = row(entry)?;
    row.insert("title".to_owned(), title.clone());
    Some(row)
}

/// Whether `text` names a list: `{list}` or `{list.field}`.
fn names(text: &str, list: &str) -> bool {
    ["}", "."].iter().any(|end| text.contains(&format!("{{{list}{end}")))
}

/// Fills the chosen entries in.
fn text(text: &str, bound: &Bound<'_>) -> String {
    let mut filled = text.to_owned();
    for (list, row) in bound {
        for (field, value) in *row {
            let dot = if field.is_empty() { "" } else { "." };
            filled = filled.replace(&format!("{{{list}{dot}{field}}}"), value);
        }
    }
    filled
}

/// Returns a string, or the strings of an array or a table, without those of inner ones.
fn own_strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        Value::Table(table) => table.iter().filter_map(|(_, value)| value.as_str()).collect(),
        _ => Vec::new(),
    }
}

/// Shows `see` every string and key.
pub(super) fn strings(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, see)),
        Value::Table(table) => {
            for (key, value) in table {
                see(key);
                strings(value, see);
            }
        }
        _ => {}
    }
}
