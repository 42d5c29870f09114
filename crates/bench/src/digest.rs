//! Digests of what `verify` writes.

use std::sync::LazyLock;

use crc_fast::{CrcAlgorithm, CrcParams};
use md5::Md5;
use sha2::{Digest as _, Sha256};

use crate::job::Verify;

/// Length of the longest digest.
pub(super) const DIGEST_BYTES: usize = 32;

/// fio's CRC-64, which is Jones's polynomial without an initial value (as in Redis).
static CRC_64: LazyLock<CrcParams> = LazyLock::new(|| {
    CrcParams::new("CRC-64/REDIS", 64, 0xad93_d235_94c9_35a9, 0, true, 0, 0xe9c6_d914_c4b8_d9ca)
});

/// CRC-32C.
pub(super) fn crc32c(data: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data) as u32
}

/// Returns the digest of `data` by `method`; the rest is zeroes.
pub(super) fn digest(method: Verify, data: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut digest = [0; DIGEST_BYTES];
    let mut put = |bytes: &[u8]| digest[..bytes.len()].copy_from_slice(bytes);
    match method {
        Verify::None | Verify::Meta | Verify::PatternHdr | Verify::Pattern => {}
        Verify::Crc32c => put(&crc32c(data).to_le_bytes()),
        Verify::Crc64 => put(&crc_fast::checksum_with_params(*CRC_64, data).to_le_bytes()),
        Verify::Md5 => put(&Md5::digest(data)),
        Verify::Sha256 => put(&Sha256::digest(data)),
    }
    digest
}

/// Returns the name of the digest of `method`, its length in bytes, and whether it is a number,
/// whose last byte is written first.
fn form(method: Verify) -> (&'static str, usize, bool) {
    match method {
        Verify::None | Verify::Meta | Verify::PatternHdr | Verify::Pattern => {
            ("no digest", 0, false)
        }
        Verify::Crc32c => ("CRC-32C", 4, true),
        Verify::Crc64 => ("CRC-64", 8, true),
        Verify::Md5 => ("MD5", 16, false),
        Verify::Sha256 => ("SHA-256", 32, false),
    }
}

/// Returns the name of the digest of `method`.
pub(super) fn name(method: Verify) -> &'static str {
    form(method).0
}

/// Formats a digest for people.
pub(super) fn hex(method: Verify, digest: &[u8; DIGEST_BYTES]) -> String {
    let (_, length, is_number) = form(method);
    let mut bytes = digest[..length].to_vec();
    if is_number {
        bytes.reverse();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each method's published check value; CRC-64's is from fio's table.
    #[test]
    fn known_digests() {
        let of = |method, data: &[u8]| hex(method, &digest(method, data));
        assert_eq!(of(Verify::Crc32c, b"123456789"), "e3069283");
        assert_eq!(of(Verify::Crc64, b"123456789"), "e9c6d914c4b8d9ca");
        // The second entry of fio's table.
        assert_eq!(of(Verify::Crc64, &[1]), "7ad870c830358979");
        assert_eq!(of(Verify::Md5, b"abc"), "900150983cd24fb0d6963f7d28e17f72");
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of(Verify::Sha256, b"abc"), sha256);
        assert_eq!(of(Verify::Meta, b"abc"), "");
    }
}
