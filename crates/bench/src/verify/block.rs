//! The content of a block that is written to be checked, and its differences.

use std::fmt;

use crate::digest::{self, DIGEST_BYTES, crc32c, digest};
use crate::job::{Job, Payload, Verify};
use crate::pattern::Rng;

/// `MTVERIF2`, little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"MTVERIF2");

/// Length of the header at the beginning of each block.
///
/// All numbers are little-endian: magic (8), offset in bytes (8), number (8), seed (8), length (4),
/// digest of the payload (32, filled with zeroes), and CRC-32C of the 68 bytes before (4).
pub(super) const HEADER_BYTES: usize = CRC_AT + 4;

const DIGEST_AT: usize = 36;
const CRC_AT: usize = DIGEST_AT + DIGEST_BYTES;

/// The expected content of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Offset in bytes from the start of the namespace.
    pub offset_bytes: u64,
    /// Number of the write in its thread, from 1.
    pub number: u64,
    /// Seed of the thread.
    pub seed: u64,
    /// The method of the payload's digest.
    pub method: Verify,
    /// Whether another job wrote the block, so that seed and number may differ.
    pub is_foreign: bool,
}

/// The rules for filling and checking blocks.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(super) method: Verify,
    pub(super) checks: bool,
    interval_bytes: Option<usize>,
    payload: Option<Payload>,
    /// Whether the job checks blocks that were written before it.
    pub(super) is_reader: bool,
}

impl Rules {
    /// Returns the rules of `job`.
    pub(crate) fn of(job: &Job) -> Self {
        let keys = &job.verify_keys;
        Self {
            method: job.verify,
            checks: keys.checks,
            interval_bytes: keys.interval_bytes.map(|bytes| bytes as usize),
            payload: keys.payload.clone(),
            is_reader: !job.writes(),
        }
    }

    fn interval_bytes(&self, block: &[u8]) -> usize {
        self.interval_bytes.unwrap_or(block.len()).min(block.len())
    }

    /// Fills `block` for `stamp`. Each of its intervals has a header.
    pub(super) fn fill(&self, block: &mut [u8], stamp: Stamp) {
        let interval_bytes = self.interval_bytes(block);
        let has_header = self.method != Verify::Pattern;
        if let Some(payload) = &self.payload {
            payload.fill(block, stamp.offset_bytes, 0);
        }
        for (part, at) in block.chunks_exact_mut(interval_bytes).zip((0..).step_by(interval_bytes))
        {
            let stamp = Stamp { offset_bytes: stamp.offset_bytes + at, ..stamp };
            if self.payload.is_none() {
                fill_payload(part, stamp);
            }
            if has_header {
                seal(part, stamp);
            }
        }
    }

    /// Checks that `block` has the content that [`Rules::fill`] writes for `stamp`. Otherwise
    /// returns the first interval that differs.
    pub(super) fn check(&self, block: &[u8], stamp: Stamp) -> Result<(), (Stamp, usize, Mismatch)> {
        let interval_bytes = self.interval_bytes(block);
        let header_bytes = if self.method == Verify::Pattern { 0 } else { HEADER_BYTES };
        for (part, at) in block.chunks_exact(interval_bytes).zip((0..).step_by(interval_bytes)) {
            let of_part = Stamp { offset_bytes: stamp.offset_bytes + at, ..stamp };
            let fail = |mismatch| (of_part, part.len(), mismatch);
            if header_bytes > 0 {
                check(part, of_part).map_err(fail)?;
            }
            // A digest detects that as well.
            let is_compared =
                matches!(self.method, Verify::Pattern | Verify::PatternHdr | Verify::Meta);
            if let Some(payload) = self.payload.as_ref().filter(|_| is_compared) {
                let begin = at as usize + header_bytes;
                let differs = payload.differs(&part[header_bytes..], stamp.offset_bytes, begin);
                if let Some((place, want, found)) = differs {
                    return Err(fail(Mismatch::Pattern(header_bytes + place, want, found)));
                }
            }
        }
        Ok(())
    }
}

/// A difference in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// All zeroes.
    Zeroes,
    /// There is no header.
    Magic(u64),
    /// The header's checksum is wrong. The fields are the computed one and the one found.
    Header(u32, u32),
    /// A block of another place.
    Offset(u64),
    /// A block of another size.
    Length(u32),
    /// A block of another thread or run.
    Seed(u64),
    /// Another write to this place.
    Number(u64),
    /// The payload's digest is wrong. The fields are the computed one and the one found.
    Payload([u8; DIGEST_BYTES], [u8; DIGEST_BYTES]),
    /// A byte of the payload differs from the pattern. The fields are the place, the expected byte
    /// and the actual byte.
    Pattern(usize, u8, u8),
}

/// Writes the random payload of `stamp`.
fn fill_payload(block: &mut [u8], stamp: Stamp) {
    let mut rng = Rng::new(stamp.seed ^ stamp.number.rotate_left(32) ^ stamp.offset_bytes);
    rng.fill(&mut block[HEADER_BYTES..]);
}

/// Writes the header of `stamp` before the payload of `block`.
fn seal(block: &mut [u8], stamp: Stamp) {
    let length = block.len() as u32;
    let (header, payload) = block.split_at_mut(HEADER_BYTES);
    header[..8].copy_from_slice(&MAGIC.to_le_bytes());
    header[8..16].copy_from_slice(&stamp.offset_bytes.to_le_bytes());
    header[16..24].copy_from_slice(&stamp.number.to_le_bytes());
    header[24..32].copy_from_slice(&stamp.seed.to_le_bytes());
    header[32..36].copy_from_slice(&length.to_le_bytes());
    header[DIGEST_AT..CRC_AT].copy_from_slice(&digest(stamp.method, payload));
    let crc = crc32c(&header[..CRC_AT]);
    header[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
}

/// Checks the header of `block`, and the digest in it.
fn check(block: &[u8], stamp: Stamp) -> Result<(), Mismatch> {
    let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| block[at + i]));
    let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| block[at + i]));
    if u64_at(0) != MAGIC {
        let zeroes = block.iter().all(|byte| *byte == 0);
        return Err(if zeroes { Mismatch::Zeroes } else { Mismatch::Magic(u64_at(0)) });
    }
    let header_crc = crc32c(&block[..CRC_AT]);
    if header_crc != u32_at(CRC_AT) {
        return Err(Mismatch::Header(header_crc, u32_at(CRC_AT)));
    }
    if u64_at(8) != stamp.offset_bytes {
        return Err(Mismatch::Offset(u64_at(8)));
    }
    if u32_at(32) as usize != block.len() {
        return Err(Mismatch::Length(u32_at(32)));
    }
    if u64_at(24) != stamp.seed && !stamp.is_foreign {
        return Err(Mismatch::Seed(u64_at(24)));
    }
    if u64_at(16) != stamp.number && !stamp.is_foreign {
        return Err(Mismatch::Number(u64_at(16)));
    }
    let found: [u8; DIGEST_BYTES] = std::array::from_fn(|i| block[DIGEST_AT + i]);
    let computed = digest(stamp.method, &block[HEADER_BYTES..]);
    if computed != found {
        return Err(Mismatch::Payload(computed, found));
    }
    Ok(())
}

/// A mismatch with the expectation, as text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report(pub Stamp, pub usize, pub Mismatch);

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(stamp, length, mismatch) = self;
        let number = stamp.number;
        write!(
            f,
            "the block of {length} bytes at offset {} is not what was written: ",
            stamp.offset_bytes
        )?;
        match mismatch {
            Mismatch::Zeroes if stamp.is_foreign => {
                write!(f, "found zeroes, and no header of a job that wrote with verify=")
            }
            Mismatch::Pattern(at, want, found) => {
                write!(f, "its byte {at} should be {want:#04x} of the pattern, and is {found:#04x}")
            }
            Mismatch::Zeroes => write!(f, "expected write {number}, found zeroes"),
            Mismatch::Magic(found) => {
                write!(f, "expected the magic {MAGIC:#018x}, found {found:#018x}")
            }
            Mismatch::Header(want, found) => {
                write!(f, "its header's CRC-32C is {found:#010x} where its bytes give {want:#010x}")
            }
            Mismatch::Offset(found) => write!(f, "found the block of offset {found}"),
            Mismatch::Length(found) => write!(f, "found a block of {found} bytes"),
            Mismatch::Seed(found) => {
                write!(f, "expected a block of seed {:#x}, found one of {found:#x}", stamp.seed)
            }
            Mismatch::Number(found) if *found < number => {
                write!(f, "expected write {number}, found the older write {found}")
            }
            Mismatch::Number(found) => write!(f, "expected write {number}, found write {found}"),
            Mismatch::Payload(want, found) => {
                let [want, found] = [want, found].map(|digest| digest::hex(stamp.method, digest));
                let name = digest::name(stamp.method);
                write!(f, "its payload's {name} should be {found}, its bytes give {want}")
            }
        }
    }
}

/// The expected number of a block that another job wrote.
pub(super) const FOREIGN: u64 = u64::MAX;

/// Corrupts a buffer before a read. The buffer may hold the same block from an earlier read or
/// write, and data that the device does not transfer must not be taken for the block.
pub(super) fn corrupt(buf: &mut [u8], rules: &Rules) {
    if rules.method == Verify::Pattern {
        buf.iter_mut().for_each(|byte| *byte = !*byte);
        return;
    }
    let interval_bytes = rules.interval_bytes(buf);
    buf.chunks_exact_mut(interval_bytes).for_each(|part| part[..HEADER_BYTES].fill(0xa5));
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        offset_bytes: 1 << 20,
        number: 7,
        seed: 3,
        method: Verify::Crc32c,
        is_foreign: false,
    };

    fn block() -> Vec<u8> {
        block_of(STAMP)
    }

    fn block_of(stamp: Stamp) -> Vec<u8> {
        let mut block = vec![0; 512];
        fill_payload(&mut block, stamp);
        seal(&mut block, stamp);
        block
    }

    #[test]
    fn what_was_written_passes() {
        assert_eq!(check(&block(), STAMP), Ok(()));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for method in [Verify::Crc32c, Verify::Crc64, Verify::Md5, Verify::Sha256, Verify::Meta] {
            let stamp = Stamp { method, ..STAMP };
            let good = block_of(stamp);
            assert_eq!(check(&good, stamp), Ok(()), "{method:?}");
            // Without a digest only the header is checked.
            let checked = if method == Verify::Meta { HEADER_BYTES } else { 512 };
            for at in 0..512 {
                for bit in 0..8 {
                    let mut block = good.clone();
                    block[at] ^= 1 << bit;
                    assert_eq!(
                        check(&block, stamp).is_err(),
                        at < checked,
                        "{method:?}, byte {at}, bit {bit}"
                    );
                }
            }
        }
    }

    fn rules(keys: &[(&str, &str)]) -> Rules {
        Rules::of(&crate::job::testing::job(keys))
    }

    #[test]
    fn each_interval_has_a_header_and_the_pattern_goes_through() {
        for (verify, header) in
            [("meta", HEADER_BYTES), ("pattern_hdr", HEADER_BYTES), ("pattern", 0)]
        {
            let keys = [
                ("rw", "write"),
                ("verify", verify),
                ("verify_interval", "512"),
                ("verify_pattern", "0x010203"),
            ];
            let rules = rules(&keys);
            let stamp = Stamp { method: rules.method, ..STAMP };
            let mut block = vec![0; 2048];
            rules.fill(&mut block, stamp);
            assert_eq!(rules.check(&block, stamp), Ok(()), "{verify}");
            for at in 0..2048 {
                // As in fio, the offset is counted from the block's beginning, regardless of
                // headers that cover it.
                if at % 512 >= header {
                    assert_eq!(usize::from(block[at]), 1 + at % 3, "{verify}, {at}");
                }
                let mut torn = block.clone();
                torn[at] ^= 0x80;
                let (of, length, mismatch) = rules.check(&torn, stamp).unwrap_err();
                assert_eq!(
                    (of.offset_bytes, length),
                    (stamp.offset_bytes + at as u64 / 512 * 512, 512)
                );
                let is_pattern =
                    matches!(mismatch, Mismatch::Pattern(place, ..) if place == at % 512);
                assert_eq!(is_pattern, at % 512 >= header, "{verify}, {at}: {mismatch:?}");
            }
            let text = Report(stamp, 512, Mismatch::Pattern(80, 1, 0x81)).to_string();
            assert!(
                text.ends_with("its byte 80 should be 0x01 of the pattern, and is 0x81"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_reader_takes_what_any_job_wrote_there() {
        let stamp = Stamp { method: Verify::Md5, ..STAMP };
        let block = block_of(stamp);
        let rules = rules(&[("rw", "read"), ("verify", "md5")]);
        let foreign = Stamp { number: FOREIGN, seed: 99, is_foreign: true, ..stamp };
        assert_eq!(rules.check(&block, foreign), Ok(()));
        let elsewhere = Stamp { offset_bytes: 0, ..foreign };
        assert!(matches!(rules.check(&block, elsewhere), Err((_, 512, Mismatch::Offset(_)))));
        let mut torn = block.clone();
        torn[300] ^= 1;
        assert!(matches!(rules.check(&torn, foreign), Err((_, 512, Mismatch::Payload(..)))));
        let (of, length, mismatch) = rules.check(&[0; 512], foreign).unwrap_err();
        assert!(Report(of, length, mismatch).to_string().contains("found zeroes, and no header"));
    }

    #[test]
    fn each_mismatch_says_what_was_expected_and_found() {
        let say = |block: &[u8], stamp| {
            Report(stamp, block.len(), check(block, stamp).unwrap_err()).to_string()
        };
        assert!(
            say(&[0; 512], STAMP).contains(
                "at offset 1048576 is not what was written: expected write 7, found zeroes"
            )
        );
        assert!(say(&[1; 512], STAMP).contains("found 0x0101010101010101"));
        assert!(
            say(&block(), Stamp { offset_bytes: 0, ..STAMP })
                .contains("found the block of offset 1048576")
        );
        assert!(say(&block(), Stamp { number: 8, ..STAMP }).contains("found the older write 7"));
        assert!(say(&block(), Stamp { number: 6, ..STAMP }).contains("found write 7"));
        assert!(say(&block(), Stamp { seed: 4, ..STAMP }).contains("found one of 0x3"));
        let mut short = block();
        short.truncate(256);
        assert!(say(&short, STAMP).contains("found a block of 512 bytes"));
        let mut torn = block();
        torn[511] ^= 1;
        assert!(say(&torn, STAMP).contains("payload"));
        let mut torn = block();
        torn[17] ^= 1;
        assert!(say(&torn, STAMP).contains("header"));
    }
}
