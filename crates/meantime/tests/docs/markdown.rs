//! The checkable parts of a Markdown page: headings, links, quoted names, code blocks.

/// A page, split line by line.
#[derive(Default)]
pub(super) struct Page {
    /// Headings, as written.
    pub(super) headings: Vec<String>,
    /// Each link's target, with its line.
    pub(super) links: Vec<(usize, String)>,
    /// Each text between backticks, with its line.
    pub(super) quotes: Vec<(usize, String)>,
    /// Each line of a code block, with its line and the block's language.
    pub(super) code: Vec<(usize, String, String)>,
    /// Lines of prose (no tables, no code) that are longer than 100 characters.
    pub(super) long: Vec<usize>,
}

impl Page {
    pub(super) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut fence: Option<String> = None;
        let mut open: Option<String> = None;
        for (line, text) in (1..).zip(text.lines()) {
            if let Some(language) = text.trim_start().strip_prefix("```") {
                fence = if fence.is_some() { None } else { Some(language.trim().to_owned()) };
                continue;
            }
            if let Some(language) = &fence {
                page.code.push((line, text.to_owned(), language.clone()));
                continue;
            }
            if text.starts_with("    ") && !text.trim_start().starts_with(['-', '*', '|']) {
                // An indented block, or the rest of a list item: names are checked in both.
                page.code.push((line, text.trim().to_owned(), String::new()));
            }
            if let Some(title) = text.strip_prefix('#') {
                page.headings.push(title.trim_start_matches('#').trim().to_owned());
            }
            if text.chars().count() > 100 && !text.starts_with('|') {
                page.long.push(line);
            }
            page.take_links(line, text);
            open = page.take_quotes(line, text, open);
        }
        page
    }

    fn take_links(&mut self, line: usize, text: &str) {
        for (at, _) in text.match_indices("](") {
            if let Some(end) = text[at..].find(')') {
                self.links.push((line, text[at + 2..at + end].to_owned()));
            }
        }
    }

    /// Collects quotes. Returns the one still open at the end of the line, if any.
    fn take_quotes(&mut self, line: usize, text: &str, open: Option<String>) -> Option<String> {
        if text.trim().is_empty() {
            return None;
        }
        let mut inside = open.is_some();
        let mut quote = open.map(|open| open + " ").unwrap_or_default();
        for (number, part) in text.split('`').enumerate() {
            if number > 0 {
                if inside {
                    self.quotes.push((line, std::mem::take(&mut quote)));
                }
                inside = !inside;
            }
            if inside {
                quote.push_str(part.trim_end_matches('\n'));
            }
        }
        inside.then_some(quote)
    }

    /// Whether a heading has this anchor: lower case, spaces as hyphens, other characters dropped.
    pub(super) fn has_anchor(&self, anchor: &str) -> bool {
        self.headings.iter().any(|heading| slug(heading) == anchor)
    }

    /// Whether there is a section `number`, as in `## 3. Who owns a buffer`.
    pub(super) fn has_section(&self, number: &str) -> bool {
        self.headings.iter().any(|heading| heading.starts_with(&format!("{number}. ")))
    }

    /// The blocks of one language: each with its first line.
    pub(super) fn blocks(&self, language: &str) -> Vec<(usize, Vec<&str>)> {
        let mut blocks: Vec<(usize, Vec<&str>)> = Vec::new();
        for (line, text, _) in self.code.iter().filter(|(_, _, of)| of == language) {
            match blocks.last_mut() {
                Some((first, lines)) if *first + lines.len() == *line => lines.push(text),
                _ => blocks.push((*line, vec![text])),
            }
        }
        blocks
    }
}

fn slug(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}
