//! The checksums of ext4 (kernel documentation: `filesystems/ext4/checksums.rst`; e2fsprogs:
//! `lib/ext2fs/csum.c`).

use crc_fast::{CrcAlgorithm, Digest};

/// Returns the CRC-32C over `bytes`, continuing from `state`, **without** the inversions at both
/// ends that crates and hardware descriptions use. ext4 chooses the initial state and stores the
/// final one unchanged.
pub fn crc32c(state: u32, bytes: &[u8]) -> u32 {
    crc32(CrcAlgorithm::Crc32Iscsi, state, bytes)
}

/// Returns the CRC-32C over `bytes`, in which the fields of `field_bytes` bytes, four at most, at
/// offsets `fields` count as zeroes. This is for checksums inside the data that they cover.
pub(crate) fn crc32c_without(
    state: u32,
    bytes: &[u8],
    fields: &[usize],
    field_bytes: usize,
) -> u32 {
    let (mut state, mut from) = (state, 0);
    for at in fields {
        state = crc32c(crc32c(state, &bytes[from..*at]), &[0; 4][..field_bytes]);
        from = at + field_bytes;
    }
    crc32c(state, &bytes[from..])
}

/// Returns the CRC-32, most significant bit first, without inversions (`crc32_be`), continuing from
/// `state`. It is the checksum of a journal's whole transaction.
pub(crate) fn crc32_be(state: u32, bytes: &[u8]) -> u32 {
    crc32(CrcAlgorithm::Crc32Mpeg2, state, bytes)
}

#[inline]
fn crc32(algorithm: CrcAlgorithm, state: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(algorithm, u64::from(state));
    digest.update(bytes);
    digest.get_state() as u32
}

/// Returns the CRC-16 (polynomial 0x8005, reflected, no inversion) continuing from `state`. It is
/// the descriptors' checksum with `uninit_bg` but without `metadata_csum` (e2fsprogs:
/// `ext2fs_crc16`).
pub fn crc16(state: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(state, |state, byte| {
        (0..8).fold(state ^ u16::from(*byte), |crc, _| {
            if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0xA001 }
        })
    })
}

/// Returns the initial state of the checksums of an inode's structures: the file system's `seed`
/// continued with the inode's number and generation.
pub fn inode_seed(seed: u32, ino: u32, generation: u32) -> u32 {
    crc32c(seed, &(u64::from(generation) << 32 | u64::from(ino)).to_le_bytes())
}

/// The polynomial of CRC-32C, reflected.
const CRC32C_POLYNOMIAL: u32 = 0x82F6_3B78;

/// Returns the product of `a` and `b` as polynomials, modulo that of CRC-32C. The highest bit is
/// the power 0.
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for power in (0..u32::BITS).rev() {
        product ^= b & (a >> power & 1).wrapping_neg();
        b = b >> 1 ^ CRC32C_POLYNOMIAL & (b & 1).wrapping_neg();
    }
    product
}

/// Updates a CRC-32C after a change of few of its bytes. A CRC is linear: its change is the CRC,
/// from zero on, of the differences followed by zeroes for all later bytes.
#[derive(Debug, Clone)]
pub struct Patch {
    /// The factor of a state that is followed by as many zero bytes as the index says.
    zeroes: Box<[u32]>,
}

impl Patch {
    /// Creates a table for up to `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        let first = 1u32 << 31;
        let zeroes =
            std::iter::successors(Some(first), |state| Some(crc32c(*state, &[0]))).take(bytes + 1);
        Self { zeroes: zeroes.collect() }
    }

    /// Returns the value to xor to the checksum if bytes differ by `difference` (old xor new
    /// bytes), with `after` bytes after them, or `None` if there are too many bytes after them.
    pub fn of(&self, difference: &[u8], after: usize) -> Option<u32> {
        Some(multiply(*self.zeroes.get(after)?, crc32c(0, difference)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_patched_checksum_is_that_of_the_patched_bytes(
            mut bytes in prop::collection::vec(any::<u8>(), 1..300),
            difference in prop::collection::vec(any::<u8>(), 1..20),
            at in any::<prop::sample::Index>(),
            state in any::<u32>(),
        ) {
            let patch = Patch::new(300);
            let at = at.index(bytes.len());
            let difference = &difference[..difference.len().min(bytes.len() - at)];
            let before = crc32c(state, &bytes);
            for (byte, difference) in bytes[at..].iter_mut().zip(difference) {
                *byte ^= difference;
            }
            let after = bytes.len() - at - difference.len();
            prop_assert_eq!(crc32c(state, &bytes), before ^ patch.of(difference, after).unwrap());
            prop_assert_eq!(patch.of(difference, 301), None);
        }
    }

    #[test]
    fn known_vectors() {
        // The check value of CRC-32C is 0xE3069283 with the final inversion.
        assert_eq!(crc32c(!0, b"123456789"), !0xE306_9283);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), !0xE306_9283);
        assert_eq!(crc32c(0, b""), 0);
        assert_eq!(crc32c(0x1234_5678, b""), 0x1234_5678);
        // RFC 3720 §B.4: 32 bytes of zeroes.
        assert_eq!(crc32c(!0, &[0; 32]), !0x8A91_36AA);
        // The check value of CRC-32/MPEG-2, with and without a pause.
        assert_eq!(crc32_be(!0, b"123456789"), 0x0376_E6E7);
        assert_eq!(crc32_be(crc32_be(!0, b"1234"), b"56789"), 0x0376_E6E7);
        assert_eq!(crc32_be(0, b""), 0);
        // The check value of CRC-16/ARC, and that of CRC-16/MODBUS, which starts at all ones.
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
        assert_eq!(crc16(0xFFFF, b"123456789"), 0x4B37);
    }
}
