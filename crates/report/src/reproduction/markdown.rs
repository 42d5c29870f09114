//! The results as a part of the documentation: claims with their verdicts, no pictures.

use askama::Template;

use super::{Part, Reproduction};
use crate::figures::wrapped;
use crate::view;

/// The width of text.
const COLUMNS: usize = 100;

#[derive(Template)]
#[template(path = "reproduction.md", escape = "none")]
struct Markdown<'a> {
    about: Vec<String>,
    /// By tone: those of the documents, and our own.
    theirs: [usize; 4],
    ours: [usize; 4],
    documents: &'a [Part],
}

impl Markdown<'_> {
    /// Escapes a cell of a table.
    fn cell(&self, text: impl AsRef<str>) -> String {
        text.as_ref().replace('|', "\\|").replace('\n', " ").replace('<', "&lt;")
    }
}

/// Returns the results as Markdown.
pub fn markdown(reproduction: &Reproduction) -> String {
    view::page(&Markdown {
        about: reproduction.about.iter().map(|line| wrapped(line, COLUMNS)).collect(),
        theirs: reproduction.counts(false),
        ours: reproduction.counts(true),
        documents: &reproduction.documents,
    })
}
