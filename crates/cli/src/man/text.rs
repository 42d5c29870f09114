//! What the texts of `--help` mean: headings, paragraphs, lists of terms, command lines. They are
//! written for terminals, and have these forms throughout.

/// What stands below a heading; the first section of a text has none.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub title: String,
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Block {
    Paragraph(String),
    /// A term, and what it is.
    Item(String, String),
    /// Lines that stay as they are.
    Code(Vec<String>),
}

impl Block {
    pub(super) fn paragraph(&self) -> Option<&str> {
        match self {
            Self::Paragraph(text) => Some(text),
            _ => None,
        }
    }
}

/// Reads a text. A section that comes twice is one, where it comes first.
pub(super) fn sections(text: &str) -> Vec<Section> {
    let mut sections = vec![Section::default()];
    let mut at = 0;
    // Whether the line before was not empty.
    let mut joined = false;
    for line in text.lines() {
        let words = line.trim_start();
        if words.is_empty() {
            joined = false;
            continue;
        }
        let indent = line.len() - words.len();
        if indent == 0 && is_heading(line) {
            let title = if line == "TO" { "DESTINATION" } else { line };
            at = sections.iter().position(|section| section.title == title).unwrap_or_else(|| {
                sections.push(Section { title: title.to_owned(), blocks: Vec::new() });
                sections.len() - 1
            });
            joined = false;
            continue;
        }
        let Section { title, blocks } = &mut sections[at];
        add(blocks, title, indent, words, joined);
        joined = true;
    }
    sections
}

fn is_heading(line: &str) -> bool {
    line.len() > 1 && line.chars().all(|c| c.is_ascii_uppercase() || c == ' ')
}

fn add(blocks: &mut Vec<Block>, title: &str, indent: usize, words: &str, joined: bool) {
    if title == "EXAMPLES" {
        // Command lines, and what each shows.
        if indent == 2 && words.ends_with(':') {
            blocks.push(Block::Paragraph(words.to_owned()));
        } else {
            code(blocks, &" ".repeat(indent.saturating_sub(4)), words, joined);
        }
        return;
    }
    if title == "EXIT STATUS" && words.contains(" · ") {
        let items = words.split(" · ").filter_map(|item| item.split_once(' '));
        blocks.extend(items.map(|(code, what)| Block::Item(code.to_owned(), what.to_owned())));
        return;
    }
    if (2..8).contains(&indent)
        && let Some((term, what)) = words.split_once("  ")
    {
        blocks.push(Block::Item(term.to_owned(), what.trim_start().to_owned()));
        return;
    }
    if indent >= 8 && joined {
        // The term may have a line of its own.
        match blocks.pop() {
            Some(Block::Item(term, what)) => {
                blocks.push(Block::Item(term, format!("{what} {words}")))
            }
            Some(Block::Paragraph(term)) => blocks.push(Block::Item(term, words.to_owned())),
            Some(Block::Code(mut lines)) => {
                let term = lines.pop().unwrap_or_default();
                if !lines.is_empty() {
                    blocks.push(Block::Code(lines));
                }
                blocks.push(Block::Item(term, words.to_owned()));
            }
            None => {}
        }
    } else if indent == 4 {
        code(blocks, "", words, joined);
    } else {
        blocks.push(Block::Paragraph(words.to_owned()));
    }
}

fn code(blocks: &mut Vec<Block>, indent: &str, words: &str, joined: bool) {
    let line = format!("{indent}{words}");
    match blocks.last_mut() {
        Some(Block::Code(lines)) if joined => lines.push(line),
        _ => blocks.push(Block::Code(vec![line])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_told_apart() {
        let text = "What it does.\n\nMore:\n\n  one    the first\n         thing\n  two    2\n\nEXAMPLES\n  \
                    This:\n    meantime x \\\n        y\n  meantime z\n\nEXIT STATUS\n  0 done · 1 not so";
        let sections = sections(text);
        let titles: Vec<&str> = sections.iter().map(|section| section.title.as_str()).collect();
        assert_eq!(titles, ["", "EXAMPLES", "EXIT STATUS"]);
        let item = |term: &str, what: &str| Block::Item(term.to_owned(), what.to_owned());
        let [first, examples, exit] = &sections[..] else { panic!() };
        assert_eq!(first.blocks[2..], [item("one", "the first thing"), item("two", "2")]);
        assert_eq!(examples.blocks[0], Block::Paragraph("This:".to_owned()));
        let lines = ["meantime x \\", "    y", "meantime z"].map(str::to_owned).to_vec();
        assert_eq!(examples.blocks[1..], [Block::Code(lines)]);
        assert_eq!(exit.blocks, [item("0", "done"), item("1", "not so")]);
    }
}
