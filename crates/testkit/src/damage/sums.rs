//! Recomputes checksums of changed structures, from the kernel's documentation and not by our own
//! code, so that changes pass verification.

use super::regions::{Kind, Region, Seeds};

/// crc32c without the final inversion.
pub fn crc(state: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!state, bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Fixes the checksum of `region`, which is `bytes`, if the file system has checksums for it.
pub fn fix(seeds: &Seeds, region: &Region, bytes: &mut [u8]) {
    if !seeds.metadata_csum && !matches!(region.kind, Kind::Journal) {
        return;
    }
    let owner = |ino: u32| seeds.inode(ino);
    match region.kind {
        Kind::Superblock => {
            let sum = crc(!0, &bytes[..1020]);
            bytes[1020..1024].copy_from_slice(&sum.to_le_bytes());
        }
        Kind::Group(group) => {
            bytes[0x1e..0x20].fill(0);
            let sum = crc(crc(seeds.volume, &group.to_le_bytes()), bytes);
            bytes[0x1e..0x20].copy_from_slice(&(sum as u16).to_le_bytes());
        }
        Kind::Inode(ino) => {
            let high = bytes.len() > 128 && u16_at(bytes, 0x80) >= 4;
            bytes[0x7c..0x7e].fill(0);
            if high {
                bytes[0x82..0x84].fill(0);
            }
            let generation = u32_at(bytes, 0x64);
            let seed = crc(crc(seeds.volume, &ino.to_le_bytes()), &generation.to_le_bytes());
            let sum = crc(seed, bytes);
            bytes[0x7c..0x7e].copy_from_slice(&(sum as u16).to_le_bytes());
            if high {
                bytes[0x82..0x84].copy_from_slice(&((sum >> 16) as u16).to_le_bytes());
            }
        }
        Kind::Extents(ino) => {
            let tail = 12 + 12 * usize::from(u16_at(bytes, 4));
            if tail + 4 <= bytes.len() {
                let sum = crc(owner(ino), &bytes[..tail]);
                bytes[tail..tail + 4].copy_from_slice(&sum.to_le_bytes());
            }
        }
        Kind::Directory(ino) => directory(owner(ino), bytes),
        Kind::Attributes(block) => {
            bytes[0x10..0x14].fill(0);
            let sum = crc(crc(seeds.volume, &block.to_le_bytes()), bytes);
            bytes[0x10..0x14].copy_from_slice(&sum.to_le_bytes());
        }
        Kind::Journal => journal(seeds, bytes),
        Kind::Pointers | Kind::Data => {}
    }
}

fn directory(seed: u32, bytes: &mut [u8]) {
    let end = bytes.len();
    if bytes[end - 12..end - 4] == [0, 0, 0, 0, 12, 0, 0, 0xde] {
        let sum = crc(seed, &bytes[..end - 12]);
        bytes[end - 4..].copy_from_slice(&sum.to_le_bytes());
        return;
    }
    // A node of the hash tree: limit and count come after `.`, `..` and 8 bytes in the root, after
    // an empty entry elsewhere.
    let at = if u16_at(bytes, 4) == 12 { 32 } else { 8 };
    let (limit, count) = (usize::from(u16_at(bytes, at)), usize::from(u16_at(bytes, at + 2)));
    let tail = at + limit * 8;
    if tail + 8 <= end && count <= limit {
        let sum = crc(crc(crc(seed, &bytes[..at + count * 8]), &bytes[tail..tail + 4]), &[0; 4]);
        bytes[tail + 4..tail + 8].copy_from_slice(&sum.to_le_bytes());
    }
}

fn journal(seeds: &Seeds, bytes: &mut [u8]) {
    if bytes[..4] != [0xc0, 0x3b, 0x39, 0x98] {
        return;
    }
    let end = bytes.len();
    match bytes[7] {
        3 | 4 => {
            bytes[0xfc..0x100].fill(0);
            let sum = crc(!0, &bytes[..1024]);
            bytes[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
        }
        1 | 5 if seeds.journal_csum => {
            bytes[end - 4..].fill(0);
            let sum = crc(seeds.journal, bytes);
            bytes[end - 4..].copy_from_slice(&sum.to_be_bytes());
        }
        2 if seeds.journal_csum => {
            bytes[0x10..0x14].fill(0);
            let sum = crc(seeds.journal, bytes);
            bytes[0x10..0x14].copy_from_slice(&sum.to_be_bytes());
        }
        _ => {}
    }
}
