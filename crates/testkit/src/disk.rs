//! Disks with partition tables, written without the code that reads them; and what holds of
//! whatever that code reads.

use std::cell::Cell;
use std::collections::BTreeSet;

use meantime_partitions::{
    Partition, READS_MAX, Selector, Size, Table, TableError, TableKind, signature,
};

/// Reads for a signature: the beginning, two places at the end, and ZFS's.
const SIGNATURE_READS: usize = 4;

/// The largest read.
const READ_BYTES_MAX: usize = 1 << 20;

/// The CRC of a GPT (CRC-32/ISO-HDLC), bit by bit.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

fn word(image: &[u8], at: usize) -> usize {
    u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize
}

fn long(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(image[at..at + 8].try_into().unwrap())
}

/// A partition to be written: its type and first and last block.
#[derive(Clone, Copy)]
pub struct Entry {
    pub kind: u8,
    pub first: u64,
    pub last: u64,
}

/// The GUID of a Linux file system, in the order of its bytes on the disk.
const LINUX: [u8; 16] = *b"\xaf\x3d\xc6\x0f\x83\x84\x72\x47\x8e\x79\x3d\x69\xd8\x47\x7d\xe4";

/// Writes a GPT with both copies and a protective MBR on all of `image`.
pub fn write_gpt(image: &mut [u8], block: usize, entries: &[Entry]) {
    let last = (image.len() / block - 1) as u64;
    write_record(image, 0, 0, &[Entry { kind: 0xEE, first: 1, last }]);
    let array_blocks = (128 * 128 / block) as u64;
    for (my, other, array) in [(1, last, 2), (last, 1, last - array_blocks)] {
        let at = my as usize * block;
        put(image, at, b"EFI PART\0\0\x01\0\x5c\0\0\0");
        let longs = [my, other, 2 + array_blocks, last - array_blocks - 1];
        (24..).step_by(8).zip(longs).for_each(|(n, long)| put(image, at + n, &long.to_le_bytes()));
        put(image, at + 56, b"a disk's GUID 16");
        put(image, at + 72, &array.to_le_bytes());
        put(image, at + 80, &128u32.to_le_bytes());
        put(image, at + 84, &128u32.to_le_bytes());
        for (n, entry) in entries.iter().enumerate() {
            let at = array as usize * block + 128 * n;
            put(image, at, &if entry.kind == 0 { [0; 16] } else { LINUX });
            put(image, at + 16, b"a partition's ID");
            put(image, at + 31, &[n as u8]);
            put(image, at + 32, &entry.first.to_le_bytes());
            put(image, at + 40, &entry.last.to_le_bytes());
            let name = [b'p', 0, b'0' + (n % 10) as u8, 0];
            put(image, at + 56, &name);
        }
    }
    fix_sums(image, block);
}

/// Writes the boot record in the block at `at`, in bytes.
pub fn write_record(image: &mut [u8], at: usize, id: u32, entries: &[Entry]) {
    put(image, at + 440, &id.to_le_bytes());
    for (n, entry) in entries.iter().enumerate() {
        let at = at + 446 + 16 * n;
        put(image, at, &[0; 16]);
        put(image, at + 4, &[entry.kind]);
        put(image, at + 8, &(entry.first as u32).to_le_bytes());
        let blocks = (entry.last + 1).wrapping_sub(entry.first) as u32;
        put(image, at + 12, &blocks.to_le_bytes());
    }
    put(image, at + 510, &[0x55, 0xAA]);
}

/// Puts the checksums of both copies of a GPT right, where they say where their entries are.
pub fn fix_sums(image: &mut [u8], block: usize) {
    let last = image.len() / block - 1;
    for at in [block, last * block] {
        if image[at..at + 8] != *b"EFI PART" {
            continue;
        }
        let array =
            usize::try_from(long(image, at + 72)).ok().and_then(|lba| lba.checked_mul(block));
        let bytes = word(image, at + 80).saturating_mul(word(image, at + 84));
        let end = array.and_then(|array| array.checked_add(bytes));
        if let (Some(array), Some(end)) = (array, end)
            && end <= image.len()
        {
            let crc = crc32(&image[array..end]);
            put(image, at + 88, &crc.to_le_bytes());
        }
        let header_bytes = word(image, at + 12);
        if (20..=block).contains(&header_bytes) {
            put(image, at + 16, &[0; 4]);
            let crc = crc32(&image[at..at + header_bytes]);
            put(image, at + 16, &crc.to_le_bytes());
        }
    }
}

/// What [`check`] has seen.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Seen {
    pub table: Option<Table>,
    pub damaged: Option<String>,
    pub reads: usize,
    pub bytes: usize,
}

/// Reads the table and the signature of a disk that begins with `image` and is zero after it, and
/// asserts what holds of any disk.
pub fn check(image: &[u8], size: Size) -> Seen {
    let (reads, bytes) = (Cell::new(0), Cell::new(0));
    let left = Cell::new(usize::MAX);
    let mut read = |data: &mut [u8], offset: u64| {
        let end = offset.checked_add(data.len() as u64).expect("an offset");
        assert!(end <= size.bytes(), "a read of {}..{} of {size:?}", offset, end);
        assert!(data.len() <= READ_BYTES_MAX, "a read of {} bytes", data.len());
        reads.set(reads.get() + 1);
        bytes.set(bytes.get() + data.len());
        assert!(reads.get() <= READS_MAX + SIGNATURE_READS);
        data.fill(0);
        if let Some(there) = usize::try_from(offset).ok().and_then(|at| image.get(at..)) {
            let len = there.len().min(data.len());
            data[..len].copy_from_slice(&there[..len]);
        }
        match left.get().checked_sub(1) {
            Some(less) => left.set(less),
            None => return Err("no"),
        }
        Ok(())
    };
    let table = Table::read(&mut read, size);
    assert!(reads.get() <= READS_MAX);
    let table_reads = reads.get();
    if let Some(found) = signature(&mut read, size).expect("no read fails") {
        assert!(!found.text.is_empty());
        assert!([found.label, found.uuid].into_iter().flatten().all(|text| !text.contains('\0')));
    }
    assert!(reads.get() <= table_reads + SIGNATURE_READS);
    let mut seen = Seen { reads: table_reads, bytes: bytes.get(), ..Seen::default() };
    // Whichever read fails, its error is the result.
    if table_reads > 0 {
        left.set(table_reads / 2);
        reads.set(0);
        assert_eq!(Table::read(&mut read, size), Err(TableError::Read("no")));
    }
    match table {
        Ok(None) => {}
        Ok(Some(table)) => {
            check_table(&table, size);
            seen.table = Some(table);
        }
        Err(TableError::OtherBlocks { table_bytes, device_bytes }) => {
            assert!(device_bytes == size.block_bytes && table_bytes != device_bytes);
        }
        Err(TableError::Damaged(why)) => {
            assert!(why.ends_with('.'), "{why}");
            seen.damaged = Some(why);
        }
        Err(error) => panic!("{error}"),
    }
    seen
}

fn check_table(table: &Table, size: Size) {
    let partitions = &table.partitions;
    let numbers: Vec<u32> = partitions.iter().map(|partition| partition.number).collect();
    assert!(numbers.first().is_none_or(|number| *number > 0));
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let most = if table.kind == TableKind::Gpt { 8192 } else { 132 };
    assert!(numbers.len() <= most);
    assert!(table.remarks.iter().all(|remark| remark.ends_with('.')));
    assert!(table.remarks.len() < 300);
    let usable: BTreeSet<u32> = partitions
        .iter()
        .filter(|partition| is_usable(table, partition, size))
        .map(|partition| partition.number)
        .collect();
    // Each look at one takes as long as there are partitions.
    for partition in partitions.iter().step_by(1 + partitions.len() / 64) {
        let by_number = table.select(&Selector::Number(partition.number), size);
        assert_eq!(by_number.is_ok(), usable.contains(&partition.number), "{by_number:?}");
        let names = [
            Selector::Label(partition.label.clone()),
            Selector::Uuid(partition.uuid.to_lowercase()),
        ];
        for name in names {
            if matches!(&name, Selector::Label(text) | Selector::Uuid(text) if text.is_empty()) {
                assert!(table.select(&name, size).is_err());
                continue;
            }
            assert_eq!(name.to_string().parse(), Ok(name.clone()));
            match table.select(&name, size) {
                Ok(found) => assert!(usable.contains(&found.number)),
                Err(why) => assert!(why.ends_with('.')),
            }
        }
    }
    let none = table.select(&Selector::Number(u32::MAX), size).unwrap_err();
    assert!(none.len() < 8 << 10, "{none}");
}

fn is_usable(table: &Table, partition: &Partition, size: Size) -> bool {
    let range = |partition: &Partition| {
        let first = u128::from(partition.first_lba);
        first..first + u128::from(partition.blocks)
    };
    let mine = range(partition);
    let first_usable = if table.kind == TableKind::Gpt { 2 } else { 1 };
    let collides = |other: &&Partition| {
        let other_range = range(other);
        let is_container = other.is_extended() && partition.number > 4;
        other.number != partition.number
            && !is_container
            && !other_range.is_empty()
            && mine.start < other_range.end
            && other_range.start < mine.end
    };
    !partition.is_extended()
        && !mine.is_empty()
        && mine.start >= first_usable
        && mine.end <= u128::from(size.blocks)
        && !table.partitions.iter().any(|other| collides(&other))
}
