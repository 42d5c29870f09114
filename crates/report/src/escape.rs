//! The escaper of the templates: one function for text and attribute values, of pages and pictures.

use std::fmt::{self, Write};

/// The escaper that an `askama.toml` names for all templates of its crate.
#[derive(Debug, Clone, Copy, Default)]
pub struct Escape;

impl askama::filters::Escaper for Escape {
    fn write_escaped_str<W: Write>(&self, mut out: W, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                // Control characters are not allowed in HTML, escaped or not. Marks that change the
                // reading direction would let a name rearrange the text beside it.
                c if c.is_control() && !matches!(c, '\n' | '\t') => out.write_char('\u{fffd}')?,
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.write_char('\u{fffd}')?,
                c => out.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::plot::{line, text};

    #[test]
    fn everything_is_escaped() {
        let words = "a & b <script>alert(1)</script>\0\u{202e}";
        let text = text("\"'><script>", "end", (0.0, 0.0), words);
        let path = line("", (0.0, 0.0), (0.0, 1.0));
        assert_eq!(
            format!("{text}{path}"),
            "<text class=\"&quot;&#39;&gt;&lt;script&gt;\" text-anchor=\"end\" x=\"0.0\" y=\"0.0\">\
             a &amp; b &lt;script&gt;alert(1)&lt;/script&gt;\u{fffd}\u{fffd}</text>\
             <path class=\"\" d=\"M0,0 0,1\"/>"
        );
    }
}
