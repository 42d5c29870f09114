//! A writer of HTML and SVG that cannot forget to escape: text and attribute values pass through
//! one function, and tags close themselves.

use std::fmt::{Display, Write as _};

/// Markup in the making.
#[derive(Debug, Default)]
pub(crate) struct Markup {
    text: String,
}

/// An attribute's value: anything that can be shown.
pub(crate) type Attr<'a> = (&'a str, &'a dyn Display);

impl Markup {
    /// `<tag …>`, what `inside` writes, `</tag>`.
    pub(crate) fn with(&mut self, tag: &str, attrs: &[Attr<'_>], inside: impl FnOnce(&mut Self)) {
        self.open(tag, attrs, "");
        inside(self);
        let _ = write!(self.text, "</{tag}>");
    }

    /// An element with text.
    pub(crate) fn element(&mut self, tag: &str, attrs: &[Attr<'_>], text: &str) {
        self.with(tag, attrs, |out| out.text(text));
    }

    /// An element without content: `<tag …/>`, which SVG needs and HTML's void elements allow.
    pub(crate) fn empty(&mut self, tag: &str, attrs: &[Attr<'_>]) {
        self.open(tag, attrs, "/");
    }

    /// Text.
    pub(crate) fn text(&mut self, text: &str) {
        escape(text, &mut self.text);
    }

    /// A line break in the source, so that a page can be read with an editor, too.
    pub(crate) fn newline(&mut self) {
        self.text.push('\n');
    }

    /// A style sheet of our own. (A `<style>` element's text is not escaped in HTML.)
    pub(crate) fn style(&mut self, css: &'static str) {
        let _ = write!(self.text, "<style>\n{css}</style>");
    }

    /// The page, with its document type.
    pub(crate) fn into_page(self) -> String {
        format!("<!doctype html>\n{}\n", self.text)
    }

    /// What was written.
    #[cfg(test)]
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    fn open(&mut self, tag: &str, attrs: &[Attr<'_>], end: &str) {
        let _ = write!(self.text, "<{tag}");
        for (name, value) in attrs {
            let _ = write!(self.text, " {name}=\"");
            escape(&value.to_string(), &mut self.text);
            self.text.push('"');
        }
        let _ = write!(self.text, "{end}>");
    }
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in HTML, whether escaped or not; nor are the marks that turn the reading
            // direction welcome.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_escaped() {
        let mut out = Markup::default();
        out.element(
            "p",
            &[("title", &"\"'><script>")],
            "a & b <script>alert(1)</script>\0\u{202e}",
        );
        out.empty("path", &[("d", &"M0 0")]);
        assert_eq!(
            out.as_str(),
            "<p title=\"&quot;&#39;&gt;&lt;script&gt;\">a &amp; b &lt;script&gt;alert(1)&lt;/script&gt;\u{fffd}\u{fffd}</p>\
             <path d=\"M0 0\"/>"
        );
    }
}
