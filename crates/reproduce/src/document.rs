//! The five documents, and the numbers that stand in them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Document {
    /// Yang, Minturn, Hady: When Poll is Better than Interrupt.
    Fast12,
    /// Wilcox: RFC: allow block drivers to poll for I/O instead of sleeping; and Li's reply.
    Lkml13,
    /// Bates: Having Fun at Queue Depth = 1.
    Bates15,
    /// Le Moal: I/O Latency Optimization with Polling.
    Vault17,
    /// Lee et al.: Asynchronous I/O Stack.
    Aios19,
}

impl Document {
    /// All of them, by year.
    pub const ALL: [Self; 5] =
        [Self::Fast12, Self::Lkml13, Self::Bates15, Self::Vault17, Self::Aios19];

    /// Its name, and its numbers.
    fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Fast12 => ("fast12", include_str!("../documents/fast12.csv")),
            Self::Lkml13 => ("lkml13", include_str!("../documents/lkml13.csv")),
            Self::Bates15 => ("bates15", include_str!("../documents/bates15.csv")),
            Self::Vault17 => ("vault17", include_str!("../documents/vault17.csv")),
            Self::Aios19 => ("aios19", include_str!("../documents/aios19.csv")),
        }
    }

    /// The name for the command line, which begins the names of its experiments.
    pub fn name(self) -> &'static str {
        self.file().0
    }

    /// Its title, author and year: the first line of its file.
    pub fn title(self) -> &'static str {
        self.file().1.lines().next().unwrap_or_default().trim_start_matches("# ")
    }
}

/// The numbers of all documents, by document and name, in our units: times in ns.
#[derive(Debug, Clone, Default)]
pub struct Documents(BTreeMap<(Document, String), f64>);

impl Documents {
    /// Reads the documents' CSV files, which are compiled in.
    ///
    /// # Panics
    /// Panics if a line is not `key,value,unit,place`; a test reads all of them.
    pub fn read() -> Self {
        let mut numbers = BTreeMap::new();
        for document in Document::ALL {
            for line in document.file().1.lines().skip(2) {
                let (key, number) = parse(line).unwrap_or_else(|| panic!("{document:?}: {line}"));
                let earlier = numbers.insert((document, key), number);
                assert!(earlier.is_none(), "{document:?}: {line}: twice");
            }
        }
        Self(numbers)
    }

    /// Returns a number of a document.
    pub fn get(&self, document: Document, key: &str) -> Option<f64> {
        self.0.get(&(document, key.to_owned())).copied()
    }

    /// Returns the same documents with every number multiplied by `factor`.
    #[cfg(test)]
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.0.values_mut().for_each(|number| *number *= factor);
        self
    }

    /// Returns the keys of a document's numbers.
    #[cfg(test)]
    pub fn keys(&self, document: Document) -> impl Iterator<Item = &str> {
        self.0.keys().filter(move |(of, _)| *of == document).map(|(_, key)| key.as_str())
    }
}

fn parse(line: &str) -> Option<(String, f64)> {
    let fields: Vec<&str> = line.splitn(4, ',').collect();
    // The place says where the number stands: a table, a figure, a page or a slide.
    let [key, value, unit, _place] = fields[..] else { return None };
    let value: f64 = value.parse().ok()?;
    Some((key.to_owned(), if unit == "us" { value * 1e3 } else { value }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_number_with_its_place() {
        let documents = Documents::read();
        for document in Document::ALL {
            let count = documents.keys(document).count();
            assert_eq!(count, document.file().1.lines().count() - 2, "{document:?}");
        }
        let one = |documents: &Documents| documents.get(Document::Fast12, "table1/poll/4096");
        assert_eq!(
            (one(&documents), one(&documents.clone().scaled(2.0))),
            (Some(2_900.0), Some(5_800.0))
        );
    }
}
