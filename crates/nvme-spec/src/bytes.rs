//! Text and filler in wire structures.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes that the specification reserves, or fields that neither driver nor SSD uses: zero when
/// written, ignored when read.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(transparent)]
pub struct Reserved<const N: usize>([u8; N]);

impl<const N: usize> fmt::Debug for Reserved<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.0.iter().all(|&byte| byte == 0) { "zero" } else { "not zero" };
        write!(f, "{N} bytes, {state}")
    }
}

/// A text field without its padding (1.4 §1.5, ASCII, left justified, padded with spaces): the
/// printable bytes before the first unprintable one, with spaces at both ends removed. Never fails,
/// whatever the device put there.
#[must_use]
pub fn text(field: &[u8]) -> &str {
    let printable =
        field.iter().position(|byte| !(0x20..0x7f).contains(byte)).unwrap_or(field.len());
    core::str::from_utf8(&field[..printable]).unwrap_or_default().trim_matches(' ')
}

/// Fills a text field, left justified: `text` cut to the field, then spaces.
pub fn set_text(field: &mut [u8], text: &str) {
    field.fill(b' ');
    let bytes = text.bytes().map(|byte| if (0x20..0x7f).contains(&byte) { byte } else { b'?' });
    for (to, from) in field.iter_mut().zip(bytes) {
        *to = from;
    }
}
