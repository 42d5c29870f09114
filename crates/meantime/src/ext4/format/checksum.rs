//! The checksums of ext4 (kernel documentation: `filesystems/ext4/checksums.rst`; e2fsprogs: `lib/ext2fs/csum.c`).

/// CRC-32C over `bytes`, going on from `state`, **without** the inversions at both ends that crates and hardware descriptions have: ext4
/// starts at all ones where it wants to and keeps the state as it is.
pub fn crc32c(state: u32, bytes: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!state, bytes)
}

/// CRC-16 (polynomial 0x8005, reflected, no inversion) going on from `state`: the descriptors' checksum with `uninit_bg` and no
/// `metadata_csum` (e2fsprogs: `ext2fs_crc16`).
pub fn crc16(state: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(state, |state, byte| {
        (0..8).fold(
            state ^ u16::from(*byte),
            |crc, _| if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0xA001 },
        )
    })
}

/// The state that the checksums of everything in an inode start from: its number and generation after the file system's `seed`.
pub fn inode_seed(seed: u32, ino: u32, generation: u32) -> u32 {
    crc32c(crc32c(seed, &ino.to_le_bytes()), &generation.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_vectors() {
        // The check value of CRC-32C is 0xE3069283 with the final inversion.
        assert_eq!(crc32c(!0, b"123456789"), !0xE306_9283);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), !0xE306_9283);
        assert_eq!(crc32c(0, b""), 0);
        assert_eq!(crc32c(0x1234_5678, b""), 0x1234_5678);
        // RFC 3720 §B.4: 32 bytes of zeroes.
        assert_eq!(crc32c(!0, &[0; 32]), !0x8A91_36AA);
        // The check value of CRC-16/ARC, and that of CRC-16/MODBUS, which starts at all ones.
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
        assert_eq!(crc16(0xFFFF, b"123456789"), 0x4B37);
    }
}
