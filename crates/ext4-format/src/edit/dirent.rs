//! Edits of directory blocks. A changed block is [sealed](seal) afterwards.

use super::super::checksum::crc32c;
use super::super::dirent::{
    DirectoryShape, Dirents, ENTRY_BYTES_MIN, TAIL_BYTES, TAIL_FILE_TYPE, is_same,
};
use crate::FileType;
use crate::error::Defect;

/// Size of the part before a name.
const HEADER_BYTES: usize = 8;

/// A new entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// Its inode.
    pub ino: u32,
    /// The inode's type; `None`: not stored.
    pub file_type: Option<FileType>,
    /// 1 to 255 bytes.
    pub name: &'a [u8],
}

/// The least length of an entry with a name of `name_bytes`, in bytes.
pub fn entry_bytes(name_bytes: usize) -> usize {
    (HEADER_BYTES + name_bytes).next_multiple_of(4).max(ENTRY_BYTES_MIN)
}

/// The directory's number for a type (`EXT4_FT_*`).
fn type_number(file_type: Option<FileType>, shape: DirectoryShape) -> u8 {
    file_type.filter(|_| shape.file_types).map_or(0, FileType::number)
}

/// Encodes a length, a multiple of four (`ext4_rec_len_to_disk`).
fn record_field(bytes: usize, block_bytes: usize) -> u16 {
    match u16::try_from(bytes) {
        Ok(field) => field,
        Err(_) if bytes == block_bytes => u16::MAX,
        // Only in blocks of 64 KiB.
        Err(_) => (bytes & 0xfffc | (bytes >> 16) & 3) as u16,
    }
}

/// The bytes of a block available for names: all but the checksum.
pub fn names_bytes(shape: DirectoryShape) -> usize {
    shape.block_bytes - if shape.checksums { TAIL_BYTES } else { 0 }
}

/// Writes an entry of `bytes` to `at`; `None`: an unused one.
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

/// The part of `block` that holds names.
fn area(block: &[u8], shape: DirectoryShape) -> Result<&[u8], Defect> {
    block.get(..names_bytes(shape)).ok_or(Defect::DirectoryEntry)
}

/// Fills a whole block with `entries`, in order; the last one extends to the end.
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

/// Finds room for a name of `name_bytes`: an entry's offset, its used bytes, and its length.
fn room(
    block: &[u8],
    shape: DirectoryShape,
    name_bytes: usize,
) -> Result<Option<(usize, usize, usize)>, Defect> {
    let needed = entry_bytes(name_bytes);
    for found in Dirents::new(area(block, shape)?, shape) {
        let found = found?;
        let used = if found.ino == 0 { 0 } else { entry_bytes(found.name.len()) };
        if found.bytes - used >= needed {
            return Ok(Some((found.offset, used, found.bytes)));
        }
    }
    Ok(None)
}

/// Whether there is room for a name of `name_bytes`.
///
/// # Errors
/// A defect before room was found.
pub fn has_room(block: &[u8], shape: DirectoryShape, name_bytes: usize) -> Result<bool, Defect> {
    Ok(room(block, shape, name_bytes)?.is_some())
}

/// Inserts `entry`; `false` if there is no room.
///
/// # Errors
/// As [`has_room`].
pub fn insert(
    block: &mut [u8],
    shape: DirectoryShape,
    entry: NewEntry<'_>,
) -> Result<bool, Defect> {
    let Some((at, used, bytes)) = room(block, shape, entry.name.len())? else { return Ok(false) };
    if used > 0 {
        put_length(block, at, used, shape);
    }
    put(block, at + used, bytes - used, Some(entry), shape);
    Ok(true)
}

/// Removes `name`: the entry before it takes over its room. Returns its inode.
///
/// # Errors
/// A defect before the name was found.
pub fn remove(block: &mut [u8], shape: DirectoryShape, name: &[u8]) -> Result<Option<u32>, Defect> {
    let mut before = None;
    let mut place = None;
    for found in Dirents::new(area(block, shape)?, shape) {
        let found = found?;
        if found.ino != 0 && is_same(found.name, name) {
            place = Some((found.offset, found.bytes, found.ino));
            break;
        }
        before = Some((found.offset, found.bytes));
    }
    let Some((at, bytes, ino)) = place else { return Ok(None) };
    match before {
        Some((first, before_bytes)) => {
            put_length(block, first, before_bytes + bytes, shape);
            block[at..at + bytes].fill(0);
        }
        None => put(block, at, bytes, None, shape),
    }
    Ok(Some(ino))
}

/// Makes `entry`'s name, which exists, refer to another inode. Returns the former one.
///
/// # Errors
/// A defect before the name was found.
pub fn replace(
    block: &mut [u8],
    shape: DirectoryShape,
    entry: NewEntry<'_>,
) -> Result<Option<u32>, Defect> {
    // Searches the whole block: `..` of an indexed directory covers it.
    for found in Dirents::new(block, shape) {
        let found = found?;
        if found.ino != 0 && found.name == entry.name {
            let (at, ino) = (found.offset, found.ino);
            block[at..at + 4].copy_from_slice(&entry.ino.to_le_bytes());
            block[at + 7] = type_number(entry.file_type, shape);
            return Ok(Some(ino));
        }
    }
    Ok(None)
}

/// Writes the checksum at the end of `block`, if enabled; `seed` is the directory's.
pub fn seal(block: &mut [u8], shape: DirectoryShape, seed: u32) {
    let (true, Some(at)) = (shape.checksums, block.len().checked_sub(TAIL_BYTES)) else { return };
    let sum = crc32c(seed, &block[..at]);
    // An entry of twelve bytes without an inode or a name (`struct ext4_dir_entry_tail`).
    block[at..at + 8].copy_from_slice(&[0, 0, 0, 0, TAIL_BYTES as u8, 0, 0, TAIL_FILE_TYPE]);
    block[at + 8..].copy_from_slice(&sum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::super::dirent::leaf_checksum_is_right;
    use super::super::super::dirent::tests::SHAPE;
    use super::*;

    fn file(ino: u32, name: &[u8]) -> NewEntry<'_> {
        NewEntry { ino, file_type: Some(FileType::Regular), name }
    }

    fn names(block: &[u8], shape: DirectoryShape) -> Vec<(u32, Vec<u8>)> {
        let all = Dirents::new(block, shape).map(Result::unwrap);
        all.filter(|entry| entry.ino != 0).map(|entry| (entry.ino, entry.name.to_vec())).collect()
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
            // Each takes 16 bytes.
            while insert(&mut block, shape, file(7, format!("n{count:06}").as_bytes())).unwrap() {
                count += 1;
            }
            assert_eq!(count, names_bytes(shape) / 16);
            seal(&mut block, shape, 5);
            assert_eq!(leaf_checksum_is_right(&block, 5), checksums);
            assert_eq!(names(&block, shape).len(), count);
            assert_eq!(remove(&mut block, shape, b"other"), Ok(None));
            // The first one leaves a hole, the others are merged into the previous entry: all the
            // room is free again.
            for at in 0..count {
                assert_eq!(remove(&mut block, shape, format!("n{at:06}").as_bytes()), Ok(Some(7)));
                assert_eq!(names(&block, shape).len(), count - at - 1);
            }
            let long = [b'x'; 255];
            assert_eq!(insert(&mut block, shape, file(9, &long)), Ok(true));
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
        let other = NewEntry { ino: 9, file_type: Some(FileType::Socket), name: b"b" };
        assert_eq!(replace(&mut block, SHAPE, other), Ok(Some(4)));
        assert_eq!(replace(&mut block, SHAPE, file(9, b"d")), Ok(None));
        let b = Dirents::new(&block, SHAPE).nth(1).unwrap().unwrap();
        assert_eq!((b.ino, b.file_type, b.name), (9, Some(FileType::Socket), &b"b"[..]));
        assert_eq!(remove(&mut block, SHAPE, b"b"), Ok(Some(9)));
        assert_eq!(insert(&mut block, SHAPE, file(6, b"e")), Ok(true));
        assert_eq!(
            names(&block, SHAPE),
            [(3, b"a".to_vec()), (6, b"e".to_vec()), (5, b"c".to_vec())]
        );
        let untyped = DirectoryShape { file_types: false, ..SHAPE };
        assert_eq!(insert(&mut block, untyped, file(6, b"f")), Ok(true));
        assert_eq!(Dirents::new(&block, SHAPE).nth(3).unwrap().unwrap().file_type, None);
    }

    #[test]
    fn a_damaged_block_stays_unchanged() {
        let mut block = vec![0; 1024];
        let long = [b'x'; 255];
        fill(&mut block, SHAPE, &[file(3, &long), file(4, &long)]).unwrap();
        block[264 + 4] = 3;
        let before = block.clone();
        assert_eq!(insert(&mut block, SHAPE, file(6, b"e")), Err(Defect::DirectoryEntry));
        assert_eq!(remove(&mut block, SHAPE, b"e"), Err(Defect::DirectoryEntry));
        assert_eq!(replace(&mut block, SHAPE, file(6, b"e")), Err(Defect::DirectoryEntry));
        assert_eq!(block, before);
        // An entry that extends into the checksum.
        let mut block = vec![0; 1024];
        fill(&mut block, DirectoryShape { checksums: false, ..SHAPE }, &[file(3, b"a")]).unwrap();
        assert_eq!(insert(&mut block, SHAPE, file(6, b"e")), Err(Defect::DirectoryEntry));
        let many: Vec<_> = (0..4).map(|_| file(3, &long)).collect();
        assert_eq!(fill(&mut block, SHAPE, &many), Err(Defect::DirectoryEntry));
    }
}
