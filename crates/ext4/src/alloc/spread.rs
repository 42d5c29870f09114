//! Chooses groups for new inodes: files beside their directory, directories where there is room
//! (Orlov's allocator; kernel: `fs/ext4/ialloc.c`).

use super::{Allocator, Hint};
use meantime_ext4_format::ROOT_INO;

/// Sums over adjacent groups.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    free_blocks: u64,
    free_inodes: u64,
    directories: u64,
}

impl Sums {
    fn of(hints: &[Hint]) -> Self {
        hints.iter().fold(Self::default(), |sums, hint| Self {
            free_blocks: sums.free_blocks + u64::from(hint.free_blocks),
            free_inodes: sums.free_inodes + u64::from(hint.free_inodes),
            directories: sums.directories + u64::from(hint.directories),
        })
    }
}

impl Allocator {
    /// Returns all groups in the order in which they are tried for an inode in directory `parent`.
    pub(super) fn groups_for_inode(
        &self,
        parent: u32,
        directory: bool,
    ) -> impl Iterator<Item = u32> + use<> {
        let superblock = self.superblock();
        let groups = superblock.groups();
        let first = (parent.saturating_sub(1) / superblock.inodes_per_group()).min(groups - 1);
        let first =
            if directory { self.group_for_directory(parent, first) } else { self.beside(first) };
        (0..groups)
            .map(move |step| ((u64::from(first) + u64::from(step)) % u64::from(groups)) as u32)
    }

    /// Returns the group for a file whose directory is in group `parent`: the first with free
    /// inodes and blocks among `parent`, the groups of its flex group, and groups at doubling
    /// distances.
    fn beside(&self, parent: u32) -> u32 {
        let hints = self.hints();
        let groups = hints.len() as u32;
        let good = |number: &u32| {
            let hint = hints[*number as usize];
            hint.free_inodes > 0 && hint.free_blocks > 0
        };
        let flex = self.superblock().flex_groups();
        let first = parent - parent % flex;
        let near = std::iter::once(parent).chain(first..first.saturating_add(flex).min(groups));
        let far = (0..u32::BITS)
            .map(|power| ((u64::from(parent) + (1 << power)) % u64::from(groups)) as u32);
        near.chain(far).find(good).unwrap_or(parent)
    }

    /// Returns the group for a directory whose parent is in group `parent_group`. Directories in
    /// the root are spread: the flex group with the fewest directories among those with at least
    /// average room. Others stay with their parent, unless its flex group has many directories or
    /// little room.
    fn group_for_directory(&self, parent: u32, parent_group: u32) -> u32 {
        let superblock = self.superblock();
        let hints = self.hints();
        let flex = superblock.flex_groups();
        let units = hints.len().div_ceil(flex as usize);
        let all = Sums::of(&hints);
        let count = units as u64;
        let unit = |number: usize| {
            let start = number * flex as usize;
            &hints[start..(start + flex as usize).min(hints.len())]
        };
        let parent_unit = (parent_group / flex) as usize;
        let per_unit = u64::from(superblock.inodes_per_group()) * u64::from(flex);
        let found = if parent == ROOT_INO {
            let room = |sums: &Sums| {
                sums.free_inodes > 0
                    && sums.free_inodes >= all.free_inodes / count
                    && sums.free_blocks >= all.free_blocks / count
            };
            let sums = (0..units).map(|number| (number, Sums::of(unit(number))));
            sums.filter(|(_, sums)| room(sums)).min_by_key(|(_, sums)| sums.directories)
        } else {
            let blocks_per_unit = superblock.blocks_per_group() * u64::from(flex);
            let least_inodes = (all.free_inodes / count).saturating_sub(per_unit / 4).max(1);
            let least_blocks = (all.free_blocks / count).saturating_sub(blocks_per_unit / 4);
            let most_directories = all.directories / count + per_unit / 16;
            let good = |sums: &Sums| {
                sums.free_inodes >= least_inodes
                    && sums.free_blocks >= least_blocks
                    && sums.directories < most_directories.max(1)
            };
            let order = (0..units).map(|step| (parent_unit + step) % units);
            order.map(|number| (number, Sums::of(unit(number)))).find(|(_, sums)| good(sums))
        };
        let number = found.map_or(parent_unit, |(number, _)| number);
        // Within the flex group: the first group with free inodes and blocks, or else free inodes.
        let start = number * flex as usize;
        let within = unit(number);
        let good = within.iter().position(|hint| hint.free_inodes > 0 && hint.free_blocks > 0);
        let good = good.or_else(|| within.iter().position(|hint| hint.free_inodes > 0));
        (start + good.unwrap_or(0)) as u32
    }
}
