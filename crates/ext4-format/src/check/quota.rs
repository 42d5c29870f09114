//! Quota files: the usage of each user, group and project (kernel: `fs/quota/quota_tree.c`,
//! `quota_v2.c`; e2fsprogs: `lib/support/mkquota.c`).

use std::collections::HashMap;

use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

use super::sets::Bits;
use super::{Checker, Step};
use crate::inode::flags;
use crate::structures::words;
use crate::{Corruption, Defect};
use crate::{Inode, ROOT_INO, RunState, Source};

/// The usage of each user, group or project: bytes, and inodes.
pub(super) type Usage = HashMap<u32, (u64, u64)>;

/// Magic numbers of the files of users, groups and projects, and their version.
const MAGICS: [u32; 3] = [0xD9C0_1F11, 0xD9C0_1927, 0xD9C0_3F14];
const VERSION: u32 = 1;
/// Size of a block of a quota file.
const BLOCK_BYTES: usize = 1024;
/// The block of the tree's root.
const ROOT: u32 = 1;
/// Levels of blocks of pointers: one for each byte of an identifier.
const DEPTH: u32 = 4;
/// Size of the header of a block of entries (`struct qt_disk_dqdbheader`), in bytes.
const HEADER_BYTES: usize = 16;

on_disk! {
    /// `struct v2r1_disk_dqblk`.
    struct Entry, 72 {
        0 id: U32,
        4 pad: U32,
        8 ihardlimit: U64,
        16 isoftlimit: U64,
        24 curinodes: U64,
        32 bhardlimit: U64,
        40 bsoftlimit: U64,
        48 curspace: U64,
        56 btime: U64,
        64 itime: U64,
    }
}

impl<S: Source> Checker<'_, S> {
    /// Charges `inode`, and `values` inodes with its attribute values, to its owners.
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

    /// Compares the quota files with the usage found.
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
        // The defect of the file's inode was already reported.
        let Ok(inode) = self.volume.inode(file) else { return Ok(()) };
        if !inode.has_blocks() || self.blocks_within(&inode).is_none() {
            return self.found(broken, None);
        }
        let Some(header) = self.quota_block(&inode, 0)? else { return self.found(broken, None) };
        if !words(&header).starts_with(&[magic.into(), VERSION.into()]) {
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
                for number in words(&block).iter().map(|number| number.get()) {
                    if number == 0 {
                        continue;
                    }
                    if !self.quota_holds(&inode, number) {
                        return self.found(broken, None);
                    }
                    // Blocks of entries are reached once for each entry in them.
                    if seen.insert(u64::from(number)) {
                        left.push((number, depth + 1));
                    } else if depth + 1 < DEPTH {
                        return self.found(broken, None);
                    }
                }
                continue;
            }
            for entry in block[HEADER_BYTES..].chunks_exact(size_of::<Entry>()) {
                if entry.iter().all(|byte| *byte == 0) {
                    continue;
                }
                let Ok(entry) = Entry::ref_from_bytes(entry) else { continue };
                let says = (entry.curspace.get(), entry.curinodes.get());
                is_wrong |= found.remove(&entry.id.get()).unwrap_or_default() != says;
            }
        }
        if is_wrong || !found.is_empty() {
            self.wrong(Defect::QuotaUsage, file, None)?;
        }
        Ok(())
    }

    /// Returns whether a quota file has a block `number`.
    fn quota_holds(&self, inode: &Inode, number: u32) -> bool {
        (u64::from(number) + 1) * BLOCK_BYTES as u64 <= inode.size()
    }

    /// Reads block `number` of a quota file.
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
        let Some(block) = self.block(run.physical, Some(inode.ino()), None)? else {
            return Ok(None);
        };
        let at = (from % block_bytes as u64) as usize;
        Ok(block.get(at..at + BLOCK_BYTES).map(<[u8]>::to_vec))
    }
}
