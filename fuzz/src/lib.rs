//! What the fuzzers check, one module each, and what they share. `tests/replay.rs` gives these checks
//! the inputs of `corpus-seed` and generated ones; the programs in `targets` have libFuzzer look for
//! others (scripts/fuzz.sh).

pub mod auth;
pub mod disk;
pub mod driver;
pub mod ext4;
pub mod host;
pub mod job;
pub mod line;
pub mod meeting;
pub mod served;
pub mod ssd;
pub mod tcp;
pub mod uri;
pub mod user;

/// A fuzzer's input, taken from the front. Past its end it gives zeroes, so that an input may be
/// cut anywhere.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (now, later) = self.0.split_at(N.min(self.0.len()));
        self.0 = later;
        let mut bytes = [0; N];
        bytes[..now.len()].copy_from_slice(now);
        bytes
    }

    pub fn u8(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    /// One of `choices`, by one byte.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.u8()) % choices.len()]
    }
}

/// How far `to` is ahead of `from` in a ring of `entries`.
pub fn ahead(from: u32, to: u32, entries: u32) -> u32 {
    if to >= from { to - from } else { to + entries - from }
}
