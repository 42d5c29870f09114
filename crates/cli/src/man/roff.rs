//! The language of manual pages (groff_man(7)), as much of it as these need. In texts, `…` in
//! backticks is bold and *…* is italic.

use super::text::Block;

/// A page as it grows.
pub(super) struct Roff(String);

impl Roff {
    /// Begins a page of section 1.
    pub(super) fn new(name: &str, source: &str) -> Self {
        // No date: what is built twice is the same. Names of options and keys are not hyphenated.
        let name = escaped(name);
        Self(format!(
            ".TH \"{name}\" 1 \"\" \"{}\" \"User Commands\"\n.nh\n.ad l\n",
            escaped(source)
        ))
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    pub(super) fn section(&mut self, title: &str) {
        self.0 += &format!(".SH \"{}\"\n", escaped(title));
    }

    /// The line that whatis(1) and apropos(1) show.
    pub(super) fn name(&mut self, name: &str, about: &str) {
        let mut chars = about.chars();
        // Abbreviations keep their capitals.
        let about = match (chars.next(), chars.next()) {
            (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
                first.to_lowercase().chain(about.chars().skip(1)).collect()
            }
            _ => about.to_owned(),
        };
        self.line(&format!("{} \\- {}", escaped(name), escaped(&about)));
    }

    pub(super) fn synopsis(&mut self, command: &str, words: &[String]) {
        self.0 += &format!(".SY \"{}\"\n", escaped(command));
        // Between words only, not between an option and its value.
        words.iter().for_each(|word| self.line(&inline(word).replace(' ', "\\ ")));
        self.0 += ".YS\n";
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        self.0 += ".PP\n";
        self.line(&inline(text));
    }

    pub(super) fn item(&mut self, term: &str, what: &str) {
        self.0 += ".TP\n";
        self.line(&inline(term));
        self.line(&inline(what));
    }

    pub(super) fn blocks(&mut self, blocks: &[Block]) {
        for block in blocks {
            match block {
                Block::Paragraph(text) => self.paragraph(text),
                Block::Item(term, what) => self.item(&bold(term), what),
                Block::Code(lines) => self.code(lines),
            }
        }
    }

    /// An option or argument with what is said of it: the first paragraph beside, the rest below.
    pub(super) fn option(&mut self, header: &str, blocks: &[Block]) {
        let (first, rest) = match blocks.split_first() {
            Some((Block::Paragraph(first), rest)) => (first.as_str(), rest),
            _ => ("", blocks),
        };
        self.item(header, first);
        for block in rest {
            match block {
                Block::Paragraph(text) => {
                    self.0 += ".IP\n";
                    self.line(&inline(text));
                }
                Block::Item(term, what) => self.nested(term, what),
                Block::Code(lines) => {
                    self.0 += ".RS\n";
                    self.code(lines);
                    self.0 += ".RE\n";
                }
            }
        }
    }

    /// A term in what is said of an option.
    pub(super) fn nested(&mut self, term: &str, what: &str) {
        self.0 += ".RS\n";
        self.item(&bold(term), what);
        self.0 += ".RE\n";
    }

    fn code(&mut self, lines: &[String]) {
        self.0 += ".PP\n.RS 4\n.EX\n";
        lines.iter().for_each(|line| self.line(&escaped(line)));
        self.0 += ".EE\n.RE\n";
    }

    /// A line of text, which a dot at its begin does not make a request.
    fn line(&mut self, text: &str) {
        if text.starts_with(['.', '\'']) {
            self.0 += "\\&";
        }
        self.0 += text;
        self.0.push('\n');
    }
}

fn bold(text: &str) -> String {
    format!("`{text}`")
}

/// Text with its fonts. A `meantime … --help` is the page that says the same.
fn inline(text: &str) -> String {
    let mut roff = String::new();
    for (at, part) in text.split('`').enumerate() {
        if at % 2 == 0 {
            italics(part, &mut roff);
            continue;
        }
        match part.strip_suffix(" --help").filter(|command| command.starts_with("meantime")) {
            Some(command) => roff += &format!("\\fB{}\\fP(1)", escaped(&command.replace(' ', "-"))),
            None => roff += &format!("\\fB{}\\fP", escaped(part)),
        }
    }
    roff
}

/// Sets *WORD* in italics; other asterisks are themselves.
fn italics(text: &str, roff: &mut String) {
    let mut rest = text;
    while let Some((before, (word, after))) =
        rest.split_once('*').and_then(|(before, after)| Some((before, after.split_once('*')?)))
    {
        *roff += &format!("{}\\fI{}\\fP", escaped(before), escaped(word));
        rest = after;
    }
    *roff += &escaped(rest);
}

/// Text as it is: characters that mean something to roff, that it would set as others (a hyphen is
/// no minus sign), and that are not ASCII, whatever the reader's encoding.
fn escaped(text: &str) -> String {
    let mut roff = String::new();
    for c in text.chars() {
        match c {
            '\\' => roff += "\\e",
            '-' => roff += "\\-",
            '\'' => roff += "\\(aq",
            '"' => roff += "\\(dq",
            '`' => roff += "\\(ga",
            '^' => roff += "\\(ha",
            '~' => roff += "\\(ti",
            c if c.is_ascii() => roff.push(c),
            c => roff += &format!("\\[u{:04X}]", u32::from(c)),
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a-b \\ 'c' µ"), "a\\-b \\e \\(aqc\\(aq \\[u00B5]");
        assert_eq!(
            inline("see `meantime fs ls --help`, *X* or 2 * 3"),
            "see \\fBmeantime\\-fs\\-ls\\fP(1), \\fIX\\fP or 2 * 3"
        );
        let mut page = Roff(String::new());
        page.paragraph(".fig");
        page.name("x", "NVMe things");
        page.name("x", "Show things");
        assert_eq!(page.0, ".PP\n\\&.fig\nx \\- NVMe things\nx \\- show things\n");
    }
}
