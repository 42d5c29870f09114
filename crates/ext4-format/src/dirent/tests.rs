use super::*;

pub(in super::super) const SHAPE: DirectoryShape = DirectoryShape {
    block_bytes: 1024,
    file_types: true,
    checksums: true,
    large: false,
    inodes: 100,
    any_names: false,
};

/// Appends an entry of `bytes` bytes.
pub(in super::super) fn put(area: &mut Vec<u8>, ino: u32, bytes: u16, file_type: u8, name: &[u8]) {
    let end = area.len() + usize::from(bytes);
    area.extend(ino.to_le_bytes());
    area.extend(bytes.to_le_bytes());
    area.extend([u8::try_from(name.len()).unwrap(), file_type]);
    area.extend(name);
    area.resize(end, 0);
}

fn block() -> Vec<u8> {
    let mut area = Vec::new();
    put(&mut area, 2, 12, 2, b".");
    put(&mut area, 2, 12, 2, b"..");
    put(&mut area, 0, 16, 1, b"gone");
    put(&mut area, 11, 1024 - 40 - 12, 7, b"link");
    put(&mut area, 0, 12, 0xde, b"");
    let sum = crc32c(7, &area[..1012]);
    area[1020..].copy_from_slice(&sum.to_le_bytes());
    // The tail has no name. The length that `put` stores for the name marks it.
    area
}

#[test]
fn entries_are_read_in_order() {
    let block = block();
    let all: Vec<_> = Dirents::new(&block, SHAPE).map(Result::unwrap).collect();
    assert_eq!(all.iter().map(|entry| entry.ino).collect::<Vec<_>>(), [2, 2, 0, 11, 0]);
    assert_eq!(all[3].name, b"link");
    assert_eq!(all[3].file_type, Some(FileType::Symlink));
    assert_eq!(all[3].offset, 40);
    let (named, slot) = find(&block, SHAPE, b"link").unwrap().unwrap();
    assert_eq!(named, (11, Some(FileType::Symlink)));
    assert!(slot.before.is_some_and(|before| before < slot.offset));
    assert_eq!(find(&block, SHAPE, b"gone"), Ok(None));
    assert!(leaf_checksum_is_right(&block, 7));
    assert!(!leaf_checksum_is_right(&block, 8));
    for at in 0..block.len() {
        let mut other = block.clone();
        other[at] ^= 0x10;
        assert!(!leaf_checksum_is_right(&other, 7), "byte {at}");
    }
    assert!(!leaf_checksum_is_right(&block[..8], 7));
}

#[test]
fn a_defect_ends_the_entries() {
    let changes: [(&str, usize, &[u8]); 7] = [
        ("length 0", 4, &[0, 0]),
        ("length no multiple of 4", 4, &[13, 0]),
        ("shorter than its name", 6, &[9]),
        ("beyond the end", 44, &[0xff, 0xff]),
        ("an inode that is not", 0, &[101, 0]),
        ("no name", 6, &[0]),
        ("a slash in it", 8, b"/"),
    ];
    for (what, at, bytes) in changes {
        let mut block = block();
        block[at..at + bytes.len()].copy_from_slice(bytes);
        let seen: Vec<_> = Dirents::new(&block, SHAPE).collect();
        assert_eq!(seen.last(), Some(&Err(Defect::DirectoryEntry)), "{what}");
        assert_eq!(seen.iter().filter(|entry| entry.is_err()).count(), 1, "{what}");
    }
    // These eight bytes are no valid entry.
    let mut area = Vec::new();
    put(&mut area, 2, 16, 2, b".");
    area.extend([0; 8]);
    assert_eq!(Dirents::new(&area, SHAPE).next(), Some(Err(Defect::DirectoryEntry)));
}

#[test]
fn lengths_in_blocks_of_64_kib() {
    let cases = [(12, 12), (0xffff, 65_536), (0, 65_536), (0xfffc, 65_532), (0x0005, 0x10004)];
    for (raw, bytes) in cases {
        assert_eq!(record_bytes(raw, 65_536), bytes, "{raw:#x}");
    }
    assert_eq!(record_bytes(0xffff, 32_768), 0xffff);
    assert_eq!(record_bytes(0, 4_096), 0);
}

#[test]
fn bytes_that_no_name_has_are_seen_wherever_they_are() {
    for length in 1..40 {
        let name = vec![b'0'; length];
        assert!(is_name(&name) && is_same(&name, &name));
        for (at, byte) in (0..length).flat_map(|at| [(at, 0), (at, b'/'), (at, 1), (at, 0x80)]) {
            let mut other = name.clone();
            other[at] = byte;
            assert_eq!(is_name(&other), byte != 0 && byte != b'/', "{length} {at} {byte}");
            assert!(!is_same(&other, &name) && !is_same(&name[..at], &name));
        }
    }
    assert!(!is_name(b""));
}
