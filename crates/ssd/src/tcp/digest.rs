//! CRC32C, as header and data digests are.

/// The digest of `bytes`.
#[inline]
pub(super) fn of(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The digest of what `digest` is the digest of, followed by `bytes`; 0 of nothing.
#[inline]
pub(super) fn append(digest: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(digest, bytes)
}
