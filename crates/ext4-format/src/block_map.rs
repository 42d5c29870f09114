//! The block maps of ext2 and ext3 (kernel documentation: `filesystems/ext4/ifork.rst`,
//! "Direct/Indirect Block Addressing").

use super::structures::words;

/// Pointers in the inode that lead to data.
pub const DIRECT: usize = 12;
/// The double indirect pointer in the inode (`EXT2_DIND_BLOCK`).
pub(crate) const TWICE_INDIRECT: usize = 13;

/// The path to a logical block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// The pointers to follow: the first one in `i_block`, the others in the indirect blocks.
    pub slots: [usize; 4],
    /// Number of pointers.
    pub depth: usize,
}

/// Returns the path to `logical` in a file system whose blocks hold `pointers` pointers, or `None`
/// if the block is beyond the reach of a map.
pub fn path(logical: u64, pointers: u64) -> Option<Path> {
    let sizes = [DIRECT as u64, pointers, pointers.pow(2), pointers.pow(3)];
    let mut rest = logical;
    let mut level = 0;
    while rest >= *sizes.get(level)? {
        rest -= sizes[level];
        level += 1;
    }
    let mut slots = [0; 4];
    slots[0] = if level == 0 { rest as usize } else { DIRECT + level - 1 };
    for (at, slot) in slots.iter_mut().enumerate().take(level + 1).skip(1) {
        *slot = (rest / span(pointers, level - at) % pointers) as usize;
    }
    Some(Path { slots, depth: level + 1 })
}

/// Returns the pointer in slot `slot` of `table`. 0 means no block, and so does a slot beyond the
/// end.
pub fn pointer(table: &[u8], slot: usize) -> u64 {
    words(table).get(slot).map_or(0, |pointer| u64::from(pointer.get()))
}

/// Returns the target of the pointer in slot `from` of `table`, and the number of pointers from
/// there on that continue it, up to the table's end. A pointer continues it if both are 0, or, on
/// the `last` level, if it points to the next block.
pub fn consecutive(table: &[u8], from: usize, last: bool) -> (u64, u64) {
    let first = pointer(table, from);
    if first != 0 && !last {
        return (first, 1);
    }
    let more = (from + 1..table.len() / 4).zip(1..);
    let more = more.take_while(|(slot, step)| {
        pointer(table, *slot) == if first == 0 { 0 } else { first + step }
    });
    (first, 1 + more.count() as u64)
}

/// Number of logical blocks below one pointer with `below` more levels.
pub fn span(pointers: u64, below: usize) -> u64 {
    (0..below).fold(1, |span, _| span * pointers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_the_kernel() {
        // Blocks of 1 KiB have 256 pointers.
        let way = |logical| path(logical, 256).map(|path| path.slots[..path.depth].to_vec());
        assert_eq!(way(0).unwrap(), [0]);
        assert_eq!(way(11).unwrap(), [11]);
        assert_eq!(way(12).unwrap(), [12, 0]);
        assert_eq!(way(267).unwrap(), [12, 255]);
        assert_eq!(way(268).unwrap(), [13, 0, 0]);
        assert_eq!(way(268 + 65_535).unwrap(), [13, 255, 255]);
        assert_eq!(way(268 + 65_536).unwrap(), [14, 0, 0, 0]);
        assert_eq!(way(268 + 65_536 + 257).unwrap(), [14, 0, 1, 1]);
        let end = 268 + 65_536 + (1 << 24);
        assert_eq!(way(end - 1).unwrap(), [14, 255, 255, 255]);
        assert_eq!(way(end), None);
        assert_eq!(way(u64::MAX), None);
        // With blocks of 64 KiB, the map reaches beyond the largest logical block number.
        assert_eq!(path(u64::from(u32::MAX), 16_384).unwrap().depth, 4);
    }

    #[test]
    fn consecutive_pointers_are_one_run() {
        let table: Vec<u8> =
            [5u32, 6, 7, 9, 0, 0, 3].iter().flat_map(|pointer| pointer.to_le_bytes()).collect();
        assert_eq!(consecutive(&table, 0, true), (5, 3));
        assert_eq!(consecutive(&table, 0, false), (5, 1));
        assert_eq!(consecutive(&table, 3, true), (9, 1));
        assert_eq!(consecutive(&table, 4, true), (0, 2));
        assert_eq!(consecutive(&table, 6, true), (3, 1));
        assert_eq!(consecutive(&table, 7, true), (0, 1));
        assert_eq!(pointer(&table, 6), 3);
        assert_eq!(pointer(&table[..27], 6), 0);
    }
}
