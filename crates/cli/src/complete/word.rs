//! A word of a command line as it stands there, with the shell's quotes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// A word, perhaps not finished.
#[derive(Debug)]
pub(super) struct Word {
    /// The text as the shell interprets it.
    plain: Vec<u8>,
    /// The offset in `plain` of the part that readline replaces.
    replaced_from: usize,
    /// The quote that is still open.
    quote: Option<u8>,
}

/// Returns whether more is to follow after the completion `value`. The scripts ask the same.
pub(super) fn goes_on(value: &OsStr) -> bool {
    value.as_bytes().last().is_some_and(|last| b":/=,&?".contains(last))
}

impl Word {
    /// Reads what was typed. `breaks` are the characters after which readline begins a word.
    pub(super) fn read(typed: &OsStr, breaks: &str) -> Self {
        let mut word = Self { plain: Vec::new(), replaced_from: 0, quote: None };
        let mut bytes = typed.as_bytes().iter().copied();
        while let Some(byte) = bytes.next() {
            match (word.quote, byte) {
                (None, b'\'' | b'"') => {
                    word.quote = Some(byte);
                    word.replaced_from = word.plain.len();
                }
                (Some(quote), _) if byte == quote => {
                    word.quote = None;
                    // A quote that was closed is a part of its word.
                    word.replaced_from = word.after_break(breaks);
                }
                (None, b'\\') => word.plain.extend(bytes.next()),
                (Some(b'"'), b'\\') => match bytes.next() {
                    Some(next) if b"\\\"$`".contains(&next) => word.plain.push(next),
                    Some(next) => word.plain.extend([b'\\', next]),
                    None => word.plain.push(b'\\'),
                },
                (None, _) if breaks.as_bytes().contains(&byte) => {
                    word.plain.push(byte);
                    word.replaced_from = word.plain.len();
                }
                _ => word.plain.push(byte),
            }
        }
        word
    }

    /// A word that the shell has read already.
    pub(super) fn as_it_is(text: &OsStr) -> Self {
        Self { plain: text.as_bytes().to_vec(), replaced_from: 0, quote: None }
    }

    pub(super) fn plain(&self) -> OsString {
        OsString::from_vec(self.plain.clone())
    }

    pub(super) fn is_open(&self) -> bool {
        self.quote.is_some()
    }

    fn after_break(&self, breaks: &str) -> usize {
        let at = self.plain.iter().rposition(|byte| breaks.as_bytes().contains(byte));
        at.map_or(0, |at| at + 1)
    }

    /// Returns whether [`Word::insertion`] can write `value`: in double quotes nothing keeps bash
    /// from expanding `!`.
    pub(super) fn can_hold(&self, value: &OsStr) -> bool {
        let new = value.as_bytes().get(self.plain.len()..).unwrap_or_default();
        self.quote != Some(b'"') || !new.contains(&b'!')
    }

    /// Returns the text with which readline replaces its part, to complete this word to `value`.
    /// `value` begins with this word.
    pub(super) fn insertion(&self, value: &OsStr) -> Vec<u8> {
        let mut quoted = Vec::new();
        for &byte in value.as_bytes().get(self.replaced_from..).unwrap_or_default() {
            match self.quote {
                None if b" \"'\\$`&|;<>()*?[]{}~#!".contains(&byte) => quoted.extend([b'\\', byte]),
                Some(b'"') if b"\\\"$`".contains(&byte) => quoted.extend([b'\\', byte]),
                Some(b'\'') if byte == b'\'' => quoted.extend(b"'\\''"),
                _ => quoted.push(byte),
            }
        }
        quoted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(typed: &str, value: &str) -> (String, String) {
        let word = Word::read(OsStr::new(typed), " \t\n\"'><=;|&(:");
        let insertion = String::from_utf8(word.insertion(OsStr::new(value))).unwrap();
        (word.plain().into_string().unwrap(), insertion)
    }

    #[test]
    fn quotes_are_read_and_written() {
        for (typed, plain, value, inserted) in [
            ("me", "me", "mem:", "mem:"),
            // Readline replaces what follows the colon.
            ("mem:1G\\?mo", "mem:1G?mo", "mem:1G?model=", "1G\\?model="),
            ("--device=mem:1", "--device=mem:1", "--device=mem:1G", "1G"),
            // In quotes readline replaces all that follows the quote, and so do we.
            ("'mem:1G?mo", "mem:1G?mo", "mem:1G?model=", "mem:1G?model="),
            ("--device='mem:1", "--device=mem:1", "--device=mem:1G?", "mem:1G?"),
            ("\"file:a b", "file:a b", "file:a b$.img", "file:a b\\$.img"),
            ("file:a\\ b", "file:a b", "file:a b.img", "a\\ b.img"),
            ("'it", "it", "it's", "it'\\''s"),
            ("\"a\\n\\\"", "a\\n\"", "a\\n\"x", "a\\\\n\\\"x"),
        ] {
            assert_eq!(completed(typed, value), (plain.to_owned(), inserted.to_owned()), "{typed}");
        }
    }

    #[test]
    fn nothing_in_double_quotes_is_expanded() {
        for (typed, value, can) in [
            ("\"file:a", "file:a!x.img", false),
            ("\"file:a!", "file:a!x.img", true),
            ("'file:a", "file:a!x.img", true),
            ("file:a", "file:a!x.img", true),
            ("\"file:a", "file:a.img", true),
        ] {
            let word = Word::read(OsStr::new(typed), ":=");
            assert_eq!(word.can_hold(OsStr::new(value)), can, "{typed}");
        }
    }
}
