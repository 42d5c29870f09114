//! Edits of directory blocks. A changed block is [sealed](seal) afterwards.

use super::super::checksum::crc32c;
use super::super::dirent::{
    DirectoryShape, Dirent, ENTRY_BYTES_MIN, Slot, TAIL_BYTES, TAIL_FILE_TYPE, find_past,
};
use crate::FileType;
use crate::dirent::Named;
use crate::error::Defect;

/// Size of the part before a name.
const HEADER_BYTES: usize = 8;

/// A new entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// Its inode.
    pub ino: u32,
    /// The inode's type, or `None` if it is not stored.
    pub file_type: Option<FileType>,
    /// The name, of 1 to 255 bytes.
    pub name: &'a [u8],
}

/// Returns the minimum length of an entry with a name of `name_bytes`, in bytes.
pub fn entry_bytes(name_bytes: usize) -> usize {
    (HEADER_BYTES + name_bytes).next_multiple_of(4).max(ENTRY_BYTES_MIN)
}

/// Returns the directory's number for a type (`EXT4_FT_*`).
fn type_number(file_type: Option<FileType>, shape: DirectoryShape) -> u8 {
    file_type.filter(|_| shape.file_types).map_or(0, FileType::number)
}

/// Encodes a length, a multiple of four (`ext4_rec_len_to_disk`).
fn record_field(bytes: usize, block_bytes: usize) -> u16 {
    match u16::try_from(bytes) {
        Ok(field) => field,
        Err(_) if bytes == block_bytes => u16::MAX,
        // This happens only in blocks of 64 KiB.
        Err(_) => (bytes & 0xfffc | (bytes >> 16) & 3) as u16,
    }
}

/// Returns the number of bytes of a block that are available for names: all but the checksum.
pub fn names_bytes(shape: DirectoryShape) -> usize {
    shape.block_bytes - if shape.checksums { TAIL_BYTES } else { 0 }
}

/// Writes an entry of `bytes` to `at`, or an unused one if `entry` is `None`.
pub(super) fn put(
    block: &mut [u8],
    at: usize,
    bytes: usize,
    entry: Option<NewEntry<'_>>,
    shape: DirectoryShape,
) {
    let (ino, number, name) = entry.map_or((0, 0, &[][..]), |entry| {
        (entry.ino, type_number(entry.file_type, shape), entry.name)
    });
    block[at..at + 4].copy_from_slice(&ino.to_le_bytes());
    put_length(block, at, bytes, shape);
    // Names have at most 255 bytes.
    block[at + 6] = name.len() as u8;
    block[at + 7] = number;
    let text = at + HEADER_BYTES;
    block[text..text + name.len()].copy_from_slice(name);
    let end = at + if entry.is_some() { entry_bytes(name.len()) } else { bytes };
    block[text + name.len()..end].fill(0);
}

fn put_length(block: &mut [u8], at: usize, bytes: usize, shape: DirectoryShape) {
    block[at + 4..at + 6].copy_from_slice(&record_field(bytes, shape.block_bytes).to_le_bytes());
}

/// Returns the part of `block` that holds names.
fn area(block: &[u8], shape: DirectoryShape) -> Result<&[u8], Defect> {
    block.get(..names_bytes(shape)).ok_or(Defect::DirectoryEntry)
}

/// Fills a whole block with `entries`, in order. The last one extends to the end.
///
/// # Errors
/// [`Defect::DirectoryEntry`] if they do not fit.
pub fn fill(
    block: &mut [u8],
    shape: DirectoryShape,
    entries: &[NewEntry<'_>],
) -> Result<(), Defect> {
    let end = area(block, shape)?.len();
    let needed: usize = entries.iter().map(|entry| entry_bytes(entry.name.len())).sum();
    if needed > end {
        return Err(Defect::DirectoryEntry);
    }
    block.fill(0);
    let Some((last, others)) = entries.split_last() else {
        put(block, 0, end, None, shape);
        return Ok(());
    };
    let mut at = 0;
    for entry in others {
        let bytes = entry_bytes(entry.name.len());
        put(block, at, bytes, Some(*entry), shape);
        at += bytes;
    }
    put(block, at, end - at, Some(*last), shape);
    Ok(())
}

/// Room for a new entry: an entry that is longer than it needs to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Its offset, in bytes.
    offset: usize,
    /// The part of it that is used, or 0 if it has no name.
    used: usize,
    /// Its length.
    bytes: usize,
}

/// The result of looking for a new name in a block of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// The name is there already.
    Found(Named, Slot),
    /// The name is not there. There is this room for it, if there is any.
    Absent(Option<Room>),
}

/// Looks for `name` in a block of names, and for room for it.
///
/// # Errors
/// Fails with a defect that comes before the name was found.
pub fn search(block: &[u8], shape: DirectoryShape, name: &[u8]) -> Result<Search, Defect> {
    let needed = entry_bytes(name.len());
    let mut room = None;
    let found = find_past(area(block, shape)?, shape, name, |entry| {
        if room.is_none() {
            let used = if entry.ino == 0 { 0 } else { entry_bytes(entry.name.len()) };
            let Dirent { offset, bytes, .. } = *entry;
            room = (bytes - used >= needed).then_some(Room { offset, used, bytes });
        }
    })?;
    Ok(found.map_or(Search::Absent(room), |(named, slot)| Search::Found(named, slot)))
}

/// Inserts `entry` into `room`, which was found for its name.
pub fn insert(block: &mut [u8], shape: DirectoryShape, entry: NewEntry<'_>, room: Room) {
    let Room { offset, used, bytes } = room;
    if used > 0 {
        put_length(block, offset, used, shape);
    }
    put(block, offset + used, bytes - used, Some(entry), shape);
}

/// Removes the entry at `slot`. The entry before it takes over its room.
pub fn remove(block: &mut [u8], shape: DirectoryShape, slot: Slot) {
    let Slot { offset, bytes, before } = slot;
    match before {
        Some(before) => {
            put_length(block, before, offset + bytes - before, shape);
            block[offset..offset + bytes].fill(0);
        }
        None => put(block, offset, bytes, None, shape),
    }
}

/// Makes the name at `slot` refer to another inode.
pub fn replace(
    block: &mut [u8],
    shape: DirectoryShape,
    slot: Slot,
    (ino, file_type): (u32, Option<FileType>),
) {
    block[slot.offset..slot.offset + 4].copy_from_slice(&ino.to_le_bytes());
    block[slot.offset + 7] = type_number(file_type, shape);
}

/// Writes the checksum at the end of `block`, if enabled. `seed` is the directory's.
pub fn seal(block: &mut [u8], shape: DirectoryShape, seed: u32) {
    let (true, Some(at)) = (shape.checksums, block.len().checked_sub(TAIL_BYTES)) else { return };
    let sum = crc32c(seed, &block[..at]);
    // The tail is an entry of twelve bytes without an inode or a name
    // (`struct ext4_dir_entry_tail`).
    block[at..at + 8].copy_from_slice(&[0, 0, 0, 0, TAIL_BYTES as u8, 0, 0, TAIL_FILE_TYPE]);
    block[at + 8..].copy_from_slice(&sum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::super::dirent::tests::SHAPE;
    use super::super::super::dirent::{Dirents, find, leaf_checksum_is_right};
    use super::*;

    fn file(ino: u32, name: &[u8]) -> NewEntry<'_> {
        NewEntry { ino, file_type: Some(FileType::Regular), name }
    }

    fn names(block: &[u8], shape: DirectoryShape) -> Vec<(u32, Vec<u8>)> {
        let all = Dirents::new(block, shape).map(Result::unwrap);
        all.filter(|entry| entry.ino != 0).map(|entry| (entry.ino, entry.name.to_vec())).collect()
    }

    /// Inserts `entry`. Returns false if it is there already, or if there is no room.
    fn add(block: &mut [u8], shape: DirectoryShape, entry: NewEntry<'_>) -> Result<bool, Defect> {
        let Search::Absent(Some(room)) = search(block, shape, entry.name)? else {
            return Ok(false);
        };
        insert(block, shape, entry, room);
        Ok(true)
    }

    /// Removes `name`. Returns its inode.
    fn take(block: &mut [u8], shape: DirectoryShape, name: &[u8]) -> Result<Option<u32>, Defect> {
        let Search::Found((ino, _), slot) = search(block, shape, name)? else { return Ok(None) };
        assert_eq!(find(block, shape, name), Ok(Some(((ino, Some(FileType::Regular)), slot))));
        remove(block, shape, slot);
        Ok(Some(ino))
    }

    #[test]
    fn inserting_and_removing_names() {
        for (block_bytes, checksums) in
            [(1024, true), (1024, false), (65_536, true), (65_536, false)]
        {
            let shape = DirectoryShape { block_bytes, checksums, ..SHAPE };
            let mut block = vec![0xAA; block_bytes];
            fill(&mut block, shape, &[]).unwrap();
            let mut count = 0;
            // Each entry takes 16 bytes.
            while add(&mut block, shape, file(7, format!("n{count:06}").as_bytes())).unwrap() {
                count += 1;
            }
            assert_eq!(count, names_bytes(shape) / 16);
            seal(&mut block, shape, 5);
            assert_eq!(leaf_checksum_is_right(&block, 5), checksums);
            assert_eq!(names(&block, shape).len(), count);
            assert_eq!(take(&mut block, shape, b"other"), Ok(None));
            // Removing the first entry leaves a hole, and the others are merged into the previous
            // entry. So all the room is free again.
            for at in 0..count {
                assert_eq!(take(&mut block, shape, format!("n{at:06}").as_bytes()), Ok(Some(7)));
                assert_eq!(names(&block, shape).len(), count - at - 1);
            }
            let long = [b'x'; 255];
            assert_eq!(add(&mut block, shape, file(9, &long)), Ok(true));
            assert_eq!(add(&mut block, shape, file(9, &long)), Ok(false), "it is there");
            assert_eq!(names(&block, shape), [(9, long.to_vec())]);
            let first = Dirents::new(&block, shape).next().unwrap().unwrap();
            assert_eq!((first.offset, first.bytes), (0, names_bytes(shape)));
            seal(&mut block, shape, 5);
            assert_eq!(leaf_checksum_is_right(&block, 5), checksums);
        }
    }

    #[test]
    fn replacing_an_inode() {
        let mut block = vec![0; 1024];
        fill(&mut block, SHAPE, &[file(3, b"a"), file(4, b"b"), file(5, b"c")]).unwrap();
        seal(&mut block, SHAPE, 5);
        let (found, slot) = find(&block, SHAPE, b"b").unwrap().unwrap();
        assert_eq!(found.0, 4);
        replace(&mut block, SHAPE, slot, (9, Some(FileType::Socket)));
        let b = Dirents::new(&block, SHAPE).nth(1).unwrap().unwrap();
        assert_eq!((b.ino, b.file_type, b.name), (9, Some(FileType::Socket), &b"b"[..]));
        remove(&mut block, SHAPE, slot);
        assert_eq!(add(&mut block, SHAPE, file(6, b"e")), Ok(true));
        assert_eq!(
            names(&block, SHAPE),
            [(3, b"a".to_vec()), (6, b"e".to_vec()), (5, b"c".to_vec())]
        );
        let untyped = DirectoryShape { file_types: false, ..SHAPE };
        assert_eq!(add(&mut block, untyped, file(6, b"f")), Ok(true));
        assert_eq!(Dirents::new(&block, SHAPE).nth(3).unwrap().unwrap().file_type, None);
    }

    #[test]
    fn a_damaged_block_has_no_place_for_a_name() {
        let mut block = vec![0; 1024];
        let long = [b'x'; 255];
        fill(&mut block, SHAPE, &[file(3, &long), file(4, &long)]).unwrap();
        block[264 + 4] = 3;
        assert_eq!(search(&block, SHAPE, b"e"), Err(Defect::DirectoryEntry));
        assert_eq!(find(&block, SHAPE, b"e"), Err(Defect::DirectoryEntry));
        // This entry extends into the checksum.
        let mut block = vec![0; 1024];
        fill(&mut block, DirectoryShape { checksums: false, ..SHAPE }, &[file(3, b"a")]).unwrap();
        assert_eq!(search(&block, SHAPE, b"e"), Err(Defect::DirectoryEntry));
        let many: Vec<_> = (0..4).map(|_| file(3, &long)).collect();
        assert_eq!(fill(&mut block, SHAPE, &many), Err(Defect::DirectoryEntry));
    }
}
