//! The five documents, and the numbers that stand in them.

use std::collections::BTreeMap;

/// A document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

    /// The name for the command line, which begins the names of its experiments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast12 => "fast12",
            Self::Lkml13 => "lkml13",
            Self::Bates15 => "bates15",
            Self::Vault17 => "vault17",
            Self::Aios19 => "aios19",
        }
    }

    /// Its title, author and year.
    pub fn title(self) -> &'static str {
        match self {
            Self::Fast12 => "When Poll is Better than Interrupt (Yang, Minturn, Hady; FAST 2012)",
            Self::Lkml13 => {
                "Allow block drivers to poll for I/O instead of sleeping (Wilcox, Li; LKML 2013)"
            }
            Self::Bates15 => "Having Fun at Queue Depth = 1 (Bates, 2015)",
            Self::Vault17 => "I/O Latency Optimization with Polling (Le Moal; Vault 2017)",
            Self::Aios19 => {
                "Asynchronous I/O Stack (Lee, Shin, Song, Ham, Lee, Jeong; USENIX ATC 2019)"
            }
        }
    }

    fn csv(self) -> &'static str {
        match self {
            Self::Fast12 => include_str!("../documents/fast12.csv"),
            Self::Lkml13 => include_str!("../documents/lkml13.csv"),
            Self::Bates15 => include_str!("../documents/bates15.csv"),
            Self::Vault17 => include_str!("../documents/vault17.csv"),
            Self::Aios19 => include_str!("../documents/aios19.csv"),
        }
    }
}

/// A number of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// The value, in the unit of ours: times in ns.
    pub value: f64,
    /// Where it stands: a table, a figure, a page or a slide.
    pub place: String,
}

/// The numbers of all documents, by document and name.
#[derive(Debug, Clone, Default)]
pub struct Documents(BTreeMap<(Document, String), Number>);

impl Documents {
    /// Reads the documents' CSV files, which are compiled in.
    ///
    /// # Panics
    /// Panics if a line is not `key,value,unit,place`; a test reads all of them.
    pub fn read() -> Self {
        let mut numbers = BTreeMap::new();
        for document in Document::ALL {
            for line in document.csv().lines().skip(1) {
                let (key, number) = parse(line).unwrap_or_else(|| panic!("{document:?}: {line}"));
                let earlier = numbers.insert((document, key), number);
                assert!(earlier.is_none(), "{document:?}: {line}: twice");
            }
        }
        Self(numbers)
    }

    /// Returns a number of a document.
    pub fn get(&self, document: Document, key: &str) -> Option<&Number> {
        self.0.get(&(document, key.to_owned()))
    }

    /// Returns the same documents with every number multiplied by `factor`.
    #[cfg(test)]
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.0.values_mut().for_each(|number| number.value *= factor);
        self
    }

    /// Returns the keys of a document's numbers.
    #[cfg(test)]
    pub fn keys(&self, document: Document) -> impl Iterator<Item = &str> {
        self.0.keys().filter(move |(of, _)| *of == document).map(|(_, key)| key.as_str())
    }
}

fn parse(line: &str) -> Option<(String, Number)> {
    let mut fields = line.splitn(4, ',');
    let (key, value, unit, place) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let value: f64 = value.parse().ok()?;
    let value = if unit == "us" { value * 1e3 } else { value };
    Some((key.to_owned(), Number { value, place: place.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_number_with_its_place() {
        let documents = Documents::read();
        for document in Document::ALL {
            let count = documents.keys(document).count();
            assert_eq!(count, document.csv().lines().count() - 1, "{document:?}");
        }
        let poll = documents.get(Document::Fast12, "table1/poll/4096").unwrap();
        assert_eq!((poll.value, poll.place.as_str()), (2_900.0, "Table 1"));
        assert_eq!(
            documents.scaled(2.0).get(Document::Fast12, "figure2/tu").unwrap().value,
            5_400.0
        );
    }
}
