//! The results as a part of the documentation: claims with their verdicts, no pictures.

use std::fmt::Write as _;

use super::{Entry, Reproduction};
use crate::figures::wrapped;

/// The width of text.
const COLUMNS: usize = 100;

/// Returns the results as Markdown.
pub fn markdown(reproduction: &Reproduction) -> String {
    let [as_there, less, unlike, open] = reproduction.counts(false);
    let ours = reproduction.counts(true);
    let mut out = String::new();
    for line in &reproduction.about {
        let _ = writeln!(out, "{}\n", wrapped(line, COLUMNS));
    }
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
    let _ = writeln!(out, "{}", wrapped(&counts, COLUMNS));
    for part in &reproduction.documents {
        let _ = writeln!(out, "\n## {}\n", part.title);
        out.push_str("| | where | leg | claim | here | verdict |\n|---|---|---|---|---|---|\n");
        for entry in &part.entries {
            rows(&mut out, entry);
        }
    }
    out
}

fn rows(out: &mut String, entry: &Entry) {
    let lead = format!("`{}` | {} | {}", entry.id, cell(&entry.place), entry.leg);
    if !entry.failure.is_empty() {
        let _ = writeln!(out, "| {lead} | | | not measured: {} |", cell(&entry.failure));
        return;
    }
    for (at, claim) in entry.claims.iter().enumerate() {
        let lead = if at == 0 { lead.as_str() } else { " | | " };
        let reason = match claim.reason.as_str() {
            "" => String::new(),
            reason => format!(": {}", cell(reason)),
        };
        let _ = writeln!(
            out,
            "| {lead} | {} | {} | {}{reason} |",
            cell(&claim.named()),
            cell(&claim.figures),
            claim.verdict
        );
    }
}

/// Escapes a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").replace('<', "&lt;")
}
