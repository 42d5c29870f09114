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
    counts: String,
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
    let [as_there, less, unlike, open] = reproduction.counts(false);
    let ours = reproduction.counts(true);
    let counts = format!(
        "Of the documents' {} claims {as_there} hold, {less} have the same direction and are \
         smaller, {unlike} do not hold, {open} are open. Of {} expectations of our own, beyond what \
         they state, {} hold, {} are smaller, {} do not hold, {} are open.",
        as_there + less + unlike + open,
        ours.iter().sum::<usize>(),
        ours[0],
        ours[1],
        ours[2],
        ours[3]
    );
    view::page(&Markdown {
        about: reproduction.about.iter().map(|line| wrapped(line, COLUMNS)).collect(),
        counts: wrapped(&counts, COLUMNS),
        documents: &reproduction.documents,
    })
}
