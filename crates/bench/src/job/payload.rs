//! `verify_pattern`: the content of blocks that are written for a check.

use super::error::Why;

/// The longest pattern.
const PATTERN_MAX: usize = 512;

/// Bytes that fill a block by repetition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Payload {
    /// One repetition.
    bytes: Vec<u8>,
    /// Places in a repetition that hold the block's offset (`%o`), in eight little-endian bytes.
    offsets: Vec<usize>,
}

impl Payload {
    /// Parses fio's notation: numbers, `"text"` and `%o`, one after the other.
    pub(super) fn parse(text: &str) -> Result<Payload, Why> {
        let mut payload = Payload::default();
        let mut rest = text.trim();
        while !rest.is_empty() {
            rest = payload.push(rest)?;
            if payload.bytes.len() > PATTERN_MAX {
                return Err(format!("longer than {PATTERN_MAX} bytes"));
            }
        }
        if payload.bytes.is_empty() {
            return Err("a pattern has one byte at least".to_owned());
        }
        Ok(payload)
    }

    /// Parses the first part of `text`, and returns the rest.
    fn push<'t>(&mut self, text: &'t str) -> Result<&'t str, Why> {
        if let Some(rest) = text.strip_prefix("%o") {
            self.offsets.push(self.bytes.len());
            self.bytes.extend([0; 8]);
            return Ok(rest);
        }
        if let Some(quoted) = text.strip_prefix('"') {
            let (inner, rest) = quoted.split_once('"').ok_or("a \" without its end")?;
            self.bytes.extend(inner.bytes());
            return Ok(rest);
        }
        if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
            let (digits, rest) = hex.split_at(end);
            self.push_hex(digits)?;
            return Ok(rest);
        }
        let signed = text.strip_prefix('-');
        let digits = signed.unwrap_or(text);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let (digits, rest) = digits.split_at(end);
        let number: i64 = digits.parse().map_err(|_| {
            "expected numbers such as 0xaa55 or 12, \"text\" and %o (the offset)".to_owned()
        })?;
        let number = if signed.is_some() { -number } else { number };
        if i32::try_from(number).is_err() && u32::try_from(number).is_err() {
            return Err("a number of more than 32 bits is written as 0x…".to_owned());
        }
        // Little-endian, without leading zero bytes.
        let bytes = (number as u32).to_le_bytes();
        let length = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        self.bytes.extend(&bytes[..length]);
        Ok(rest)
    }

    /// Adds digits in the order in which they are written. An odd first digit is a byte of its own.
    fn push_hex(&mut self, digits: &str) -> Result<(), Why> {
        if digits.is_empty() {
            return Err("0x without digits".to_owned());
        }
        let even = if digits.len() % 2 == 1 { format!("0{digits}") } else { digits.to_owned() };
        for pair in even.as_bytes().chunks(2) {
            let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
            self.bytes.push(digit(pair[0]) << 4 | digit(pair[1]));
        }
        Ok(())
    }

    /// Returns the repetition of a block at `offset_bytes`.
    fn round(&self, offset_bytes: u64) -> Vec<u8> {
        let mut round = self.bytes.clone();
        for at in &self.offsets {
            round[*at..at + 8].copy_from_slice(&offset_bytes.to_le_bytes());
        }
        round
    }

    /// Fills `part`, the bytes from `at` on of a block at `offset_bytes`.
    pub fn fill(&self, part: &mut [u8], offset_bytes: u64, at: usize) {
        let round = self.round(offset_bytes);
        let mut bytes = round.iter().cycle().skip(at % round.len());
        part.iter_mut().for_each(|byte| *byte = *bytes.next().unwrap_or(&0));
    }

    /// Returns the first difference in `part`, the bytes from `at` on of a block at `offset_bytes`:
    /// the place in it, the expected byte, and the actual one.
    pub fn differs(&self, part: &[u8], offset_bytes: u64, at: usize) -> Option<(usize, u8, u8)> {
        let round = self.round(offset_bytes);
        let bytes = round.iter().cycle().skip(at % round.len());
        let mut pairs = part.iter().zip(bytes).enumerate();
        pairs
            .find(|(_, (found, want))| found != want)
            .map(|(at, (found, want))| (at, *want, *found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the first bytes of the block at 4096 that fio 3.33 wrote with `verify=pattern`.
    #[test]
    fn patterns_are_fios() {
        for (text, hex) in [
            ("0xaa555aa5", "aa555aa5aa555aa5aa555aa5"),
            ("12", "0c0c0c0c0c0c0c0c0c0c0c0c"),
            ("305419896", "785634127856341278563412"),
            ("\"abcd\"", "616263646162636461626364"),
            ("0x123", "012301230123012301230123"),
            ("%o", "001000000000000000100000"),
            (
                "0xff%o\"abcd\"-12",
                "ff001000000000000061626364f4ffffffff001000000000000061626364f4ff",
            ),
        ] {
            let payload = Payload::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            let mut block = vec![0; hex.len() / 2];
            payload.fill(&mut block, 4096, 0);
            let got: String = block.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(got, hex, "{text}");
            assert_eq!(payload.differs(&block, 4096, 0), None);
            // A part is filled as within the whole block.
            let mut tail = vec![0; block.len() - 5];
            payload.fill(&mut tail, 4096, 5);
            assert_eq!(tail, block[5..], "{text}");
            tail[3] ^= 1;
            let want = block[8];
            assert_eq!(payload.differs(&tail, 4096, 5), Some((3, want, want ^ 1)));
        }
    }

    #[test]
    fn what_is_no_pattern() {
        for (text, why) in [
            ("", "one byte at least"),
            ("x", "expected numbers"),
            ("0x", "without digits"),
            ("\"ab", "without its end"),
            ("%p", "expected numbers"),
            ("99999999999", "more than 32 bits"),
            (&format!("0x{}", "ab".repeat(513)), "longer than 512"),
        ] {
            let error = Payload::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
