//! GUIDs, UTF-16 and other texts on a disk.

/// Writes a GUID whose first three parts are little-endian (UEFI 2.10, appendix A), in upper case.
pub(crate) fn guid(bytes: &[u8; 16]) -> String {
    let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
    uuid(&[&[d, c, b, a, f, e, h, g][..], &rest].concat()).to_uppercase()
}

/// Writes a UUID whose parts are in the order of their bytes (RFC 9562), in lower case.
pub(crate) fn uuid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (n, byte) in bytes.iter().enumerate() {
        if matches!(n, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Reads UTF-16LE up to a NUL. What is no UTF-16 becomes U+FFFD.
pub(crate) fn utf16(bytes: &[u8]) -> String {
    let units = bytes.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit));
    char::decode_utf16(units.take_while(|unit| *unit != 0))
        .map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

/// Reads UTF-8 up to a NUL, without spaces at its end. What is no UTF-8 becomes U+FFFD.
pub(crate) fn utf8(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).trim_end_matches(' ').to_owned()
}
