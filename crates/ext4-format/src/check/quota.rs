//! Quota files: what they say of who uses how much (kernel: `fs/quota/quota_tree.c`, `quota_v2.c`;
//! e2fsprogs: `lib/support/mkquota.c`).

use std::collections::HashMap;

use super::sets::Bits;
use super::{Checker, Step};
use crate::inode::flags;
use crate::{Corruption, Defect};
use crate::{Inode, ROOT_INO, RunState, Source};

/// What each user, group or project has: bytes, and inodes.
pub(super) type Usage = HashMap<u32, (u64, u64)>;

/// What the files of users, groups and projects begin with, and their version.
const MAGICS: [u32; 3] = [0xD9C0_1F11, 0xD9C0_1927, 0xD9C0_3F14];
const VERSION: u32 = 1;
/// A file consists of blocks of so many bytes.
const BLOCK_BYTES: usize = 1024;
/// The root of the tree is in this one.
const ROOT: u32 = 1;
/// Levels of blocks of pointers: one for each byte of an identifier.
const DEPTH: u32 = 4;
/// At the beginning of a block of entries (`struct qt_disk_dqdbheader`), and one of those
/// (`struct v2r1_disk_dqblk`), in bytes.
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 72;
const INODES_AT: usize = 24;
const SPACE_AT: usize = 48;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_le_bytes(*four))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |eight| u64::from_le_bytes(*eight))
}

impl<S: Source> Checker<'_, S> {
    /// Charges `inode`, and so many inodes with values of its attributes, to whom it belongs.
    pub(super) fn account(&mut self, inode: &Inode, values: u64) {
        let superblock = self.volume.superblock();
        let ino = inode.ino();
        let is_own = ino < superblock.first_ino() && ino != ROOT_INO
            || ino == self.orphan_file()
            || self.quota_files().contains(&ino);
        let Some(usage) = self.usage.as_mut().filter(|_| !is_own && !inode.has(flags::EA_INODE))
        else {
            return;
        };
        let metadata = inode.metadata();
        for (usage, id) in usage.iter_mut().zip([metadata.uid, metadata.gid, metadata.project]) {
            let (bytes, inodes) = usage.entry(id).or_default();
            *bytes = bytes.saturating_add(metadata.blocks_512.saturating_mul(512));
            *inodes += 1 + values;
        }
    }

    /// Whether the quota files say what was found.
    pub(super) fn quotas(&mut self) -> Step {
        let Some(usage) = self.usage.take() else { return Ok(()) };
        for ((file, magic), found) in self.quota_files().into_iter().zip(MAGICS).zip(*usage) {
            if file != 0 {
                self.quota(file, magic, found)?;
            }
        }
        Ok(())
    }

    fn quota(&mut self, file: u32, magic: u32, mut found: Usage) -> Step {
        let broken = Corruption::new(Defect::QuotaFile).in_inode(file);
        // What is wrong with the inode was said.
        let Ok(inode) = self.volume.inode(file) else { return Ok(()) };
        if !inode.has_blocks() || self.blocks_within(&inode).is_none() {
            return self.found(broken, None);
        }
        let Some(header) = self.quota_block(&inode, 0)? else { return self.found(broken, None) };
        if u32_at(&header, 0) != magic || u32_at(&header, 4) != VERSION {
            return self.found(broken, None);
        }
        let mut is_wrong = false;
        let mut seen = Bits::default();
        seen.insert(0);
        seen.insert(u64::from(ROOT));
        let mut left = vec![(ROOT, 0)];
        while let Some((number, depth)) = left.pop() {
            self.tick()?;
            let Some(block) = self.quota_block(&inode, number)? else {
                return self.found(broken, None);
            };
            if depth < DEPTH {
                let below =
                    block.chunks_exact(4).map(|four| u32_at(four, 0)).filter(|number| *number != 0);
                for number in below {
                    if !self.quota_holds(&inode, number) {
                        return self.found(broken, None);
                    }
                    // Blocks of entries are reached by the identifier of each entry in them.
                    if seen.insert(u64::from(number)) {
                        left.push((number, depth + 1));
                    } else if depth + 1 < DEPTH {
                        return self.found(broken, None);
                    }
                }
                continue;
            }
            for entry in block[HEADER_BYTES..].chunks_exact(ENTRY_BYTES) {
                if entry.iter().all(|byte| *byte == 0) {
                    continue;
                }
                let id = u32_at(entry, 0);
                let says = (u64_at(entry, SPACE_AT), u64_at(entry, INODES_AT));
                if found.remove(&id).unwrap_or_default() != says {
                    is_wrong = true;
                }
            }
        }
        if is_wrong || !found.is_empty() {
            self.found(Corruption::new(Defect::QuotaUsage).in_inode(file), None)?;
        }
        Ok(())
    }

    /// Whether a quota file has a block `number`.
    fn quota_holds(&self, inode: &Inode, number: u32) -> bool {
        (u64::from(number) + 1) * BLOCK_BYTES as u64 <= inode.size()
    }

    /// Block `number` of a quota file.
    fn quota_block(&mut self, inode: &Inode, number: u32) -> Step<Option<Vec<u8>>> {
        let volume = self.volume;
        let block_bytes = volume.block_bytes();
        let from = u64::from(number) * BLOCK_BYTES as u64;
        if !self.quota_holds(inode, number) {
            return Ok(None);
        }
        let run = volume.run_at(inode, from / block_bytes as u64);
        let Some(run) = self.sound(run, Some(inode.ino()), None)? else { return Ok(None) };
        if run.state != RunState::Written {
            return Ok(None);
        }
        let Some(block) = self.sound(volume.block(run.physical), Some(inode.ino()), None)? else {
            return Ok(None);
        };
        let at = (from % block_bytes as u64) as usize;
        Ok(block.get(at..at + BLOCK_BYTES).map(<[u8]>::to_vec))
    }
}
