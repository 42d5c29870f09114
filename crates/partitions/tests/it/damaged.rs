//! Tables that are damaged, or odd.

use meantime_partitions::{Selector, Table, TableError, TableKind};
use meantime_testkit::disk::{Entry, crc32, fix_sums, write_gpt, write_record};
use meantime_testkit::e2fs::run;

use crate::image::{Image, block_sizes, tools};

/// A GPT of `sfdisk`.
fn gpt(block_bytes: u32) -> Image {
    let image = Image::new(64, block_bytes);
    image.sfdisk("label: gpt\n\nsize=10M, name=one\nsize=20M, name=two\n");
    image
}

fn numbers(table: &Table) -> Vec<u32> {
    table.partitions.iter().map(|partition| partition.number).collect()
}

fn refused(table: &Table, image: &Image, number: u32) -> String {
    table.select(&Selector::Number(number), image.size()).unwrap_err()
}

#[test]
fn the_backup_counts_if_the_primary_copy_is_damaged() {
    if !tools() {
        return;
    }
    for block_bytes in block_sizes() {
        let block = u64::from(block_bytes);
        // The signature, the size, the checksum, MyLBA, an entry, an unused entry, all of it.
        let damages: [(u64, &[u8]); 7] = [
            (block, b"X"),
            (block + 12, &[91]),
            (block + 16, &[1, 2, 3, 4]),
            (block + 24, &[2]),
            (2 * block + 60, b"X"),
            (2 * block + 127 * 128, b"X"),
            (block, &[0; 512]),
        ];
        for (offset, bytes) in damages {
            let image = gpt(block_bytes);
            let before = image.table();
            image.write(offset, bytes);
            let table = image.assert_as_sfdisk();
            assert_eq!(table.partitions, before.partitions);
            assert_eq!(table.remarks.len(), 1);
            assert!(table.remarks[0].starts_with("The primary copy"), "{:?}", table.remarks);
        }
    }
}

#[test]
fn a_damaged_backup_is_a_remark() {
    if !tools() {
        return;
    }
    for block_bytes in block_sizes() {
        let image = gpt(block_bytes);
        for offset in [image.last_block(), image.last_block() - 16_384] {
            let image = gpt(block_bytes);
            image.write(offset, b"XXXX");
            let table = image.assert_as_sfdisk();
            assert_eq!(table.remarks.len(), 1);
            assert!(table.remarks[0].contains("backup of the GPT is damaged"), "{table:?}");
        }
        // It is sound, and of another table.
        let other = gpt(block_bytes);
        let last = image.last_block() as usize;
        image.change(|disk| disk[last - 16_384..].copy_from_slice(&other.bytes()[last - 16_384..]));
        let table = image.assert_as_sfdisk();
        assert!(table.remarks[0].contains("another table"), "{table:?}");
    }
}

/// `sfdisk` takes the protective MBR for a table then, and would offer to use its entry. This
/// entry is none of a partition.
#[test]
fn two_damaged_copies_are_an_error() {
    if !tools() {
        return;
    }
    for block_bytes in block_sizes() {
        let image = gpt(block_bytes);
        image.write(u64::from(block_bytes) + 40, b"X");
        image.write(image.last_block() + 40, b"X");
        let why = image.damaged();
        assert!(why.contains("block 1 has a wrong checksum"), "{why}");
        assert!(why.contains("both copies") && why.contains("gdisk"), "{why}");
        assert_eq!(image.sfdisk_list().unwrap()["label"], "dos");
    }
}

/// `sfdisk` looks only for blocks of the device's size, and takes the protective MBR for a table.
#[test]
fn a_gpt_for_other_blocks_is_an_error() {
    if !tools() {
        return;
    }
    for (made, opened) in [(512, 4096), (4096, 512)] {
        if block_sizes().len() == 1 {
            return;
        }
        let mut image = gpt(made);
        image.block_bytes = opened;
        match image.read() {
            Err(error @ TableError::OtherBlocks { table_bytes, device_bytes }) => {
                assert_eq!((table_bytes, device_bytes), (made, opened));
                assert!(error.to_string().contains(&format!("blocks of {made} bytes")));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(image.signature().unwrap().name, "GPT");
        assert_eq!(image.sfdisk_list().unwrap()["label"], "dos");
    }
}

/// `sfdisk` refuses a table whose last usable block is beyond the disk. We list it, so that a copy
/// that was cut off can be read, and refuse the partitions that were cut.
#[test]
fn a_table_of_a_larger_disk_is_listed() {
    if !tools() {
        return;
    }
    let image = gpt(512);
    let file = std::fs::File::options().write(true).open(&image.path).unwrap();
    file.set_len(25 << 20).unwrap();
    let table = image.table();
    assert_eq!(numbers(&table), [1, 2]);
    assert!(table.remarks.iter().any(|remark| remark.contains("larger disk")), "{table:?}");
    assert!(table.remarks.iter().any(|remark| remark.contains("2 reaches beyond")), "{table:?}");
    assert!(table.select(&Selector::Number(1), image.size()).is_ok());
    assert!(refused(&table, &image, 2).contains("reaches beyond the disk"));
    assert_ne!(image.sfdisk_list().unwrap()["label"], "gpt");
}

#[test]
fn a_disk_that_has_grown_has_its_backup_elsewhere() {
    if !tools() {
        return;
    }
    for damage in [None, Some(1024)] {
        let image = gpt(512);
        let file = std::fs::File::options().write(true).open(&image.path).unwrap();
        file.set_len(80 << 20).unwrap();
        // The header says where the backup is, so damaged entries do not matter.
        damage.into_iter().for_each(|offset| image.write(offset, b"XXXX"));
        let table = image.table();
        assert_eq!(numbers(&table), [1, 2]);
        let remark = if damage.is_none() { "sgdisk -e" } else { "This is the backup" };
        assert!(table.remarks[0].contains(remark), "{table:?}");
    }
    let image = gpt(512);
    let file = std::fs::File::options().write(true).open(&image.path).unwrap();
    file.set_len(80 << 20).unwrap();
    image.assert_as_sfdisk();
    run("sgdisk", &["-e", image.text()]);
    assert!(image.assert_as_sfdisk().remarks.is_empty());
}

/// Linux and `sfdisk` see no GPT without a protective MBR: so we do not use it, and do not take the
/// disk for an empty one.
#[test]
fn a_gpt_without_a_protective_mbr_is_an_error() {
    if !tools() {
        return;
    }
    let image = gpt(512);
    image.write(446, &[0; 66]);
    assert!(image.damaged().contains("no protective MBR"));
    assert_eq!(image.sfdisk_list(), None);
    image.write(510, &[0x55, 0xAA]);
    assert!(image.damaged().contains("no protective MBR"));
    // Another table in its place counts.
    image.change(|disk| write_record(disk, 0, 7, &[Entry { kind: 0x83, first: 2048, last: 4095 }]));
    let table = image.assert_as_sfdisk();
    assert_eq!(table.kind, TableKind::Mbr);
    assert!(table.remarks[0].contains("does not count"), "{table:?}");
}

#[test]
fn sizes_of_headers_and_entries_are_bounded() {
    let entries = [Entry { kind: 1, first: 2048, last: 4095 }];
    let with = |change: &dyn Fn(&mut [u8])| {
        let mut disk = vec![0; 4 << 20];
        write_gpt(&mut disk, 512, &entries);
        change(&mut disk);
        fix_sums(&mut disk, 512);
        Image::of(&disk, 512)
    };
    let both = |at: usize, value: u32| {
        move |disk: &mut [u8]| {
            let last = disk.len() - 512;
            for header in [512, last] {
                disk[header + at..header + at + 4].copy_from_slice(&value.to_le_bytes());
            }
        }
    };
    // HeaderSize: 92 to a block.
    for (bytes, is_sound) in [(91, false), (92, true), (512, true), (513, false), (!0, false)] {
        let image = with(&both(12, bytes));
        assert_eq!(image.read().is_ok(), is_sound, "{bytes}");
    }
    // SizeOfPartitionEntry: 128 times a power of two.
    for (bytes, is_sound) in [
        (0, false),
        (64, false),
        (127, false),
        (128, true),
        (384, false),
        (8192, false),
        (!0, false),
    ] {
        let image = with(&both(84, bytes));
        assert_eq!(image.read().is_ok(), is_sound, "{bytes}");
    }
    // NumberOfPartitionEntries: an array of 1 MiB.
    for (count, is_sound) in [(0, false), (1, true), (8192, true), (8193, false), (!0, false)] {
        let image = with(&|disk| {
            both(80, count)(disk);
            disk[512 + 72..512 + 80].copy_from_slice(&34u64.to_le_bytes());
            disk.copy_within(1024..1024 + 128, 34 * 512);
        });
        assert_eq!(image.read().is_ok(), is_sound, "{count}");
        if count == 8193 {
            assert!(image.damaged().contains("up to 1048576 are supported"), "{}", image.damaged());
        }
    }
    // Where the entries are.
    for (lba, is_sound) in [(1 << 40, false), (u64::MAX, false), (8191, false), (2, true)] {
        let image = with(&|disk| {
            for header in [512, disk.len() - 512] {
                disk[header + 72..header + 80].copy_from_slice(&u64::to_le_bytes(lba));
            }
        });
        assert_eq!(image.read().is_ok(), is_sound, "{lba}");
    }
}

/// `sfdisk` takes all entries for ones of 128 bytes, whatever the header says.
#[test]
fn larger_entries_are_read() {
    let mut disk = vec![0; 4 << 20];
    write_gpt(&mut disk, 512, &[]);
    let last = disk.len() - 512;
    for header in [512, last] {
        disk[header + 80..header + 88].copy_from_slice(b"\x20\0\0\0\0\x02\0\0");
        let array = u64::from_le_bytes(disk[header + 72..header + 80].try_into().unwrap()) as usize;
        for (n, first) in [(1, 2048u64), (31, 4096)] {
            let at = array * 512 + 512 * n;
            disk[at..at + 16].copy_from_slice(&[1; 16]);
            disk[at + 32..at + 40].copy_from_slice(&first.to_le_bytes());
            disk[at + 40..at + 48].copy_from_slice(&(first + 9).to_le_bytes());
        }
    }
    fix_sums(&mut disk, 512);
    let table = Image::of(&disk, 512).table();
    assert_eq!(numbers(&table), [2, 32]);
    assert_eq!((table.partitions[1].first_lba, table.partitions[1].blocks), (4096, 10));
    assert!(table.remarks.is_empty(), "{table:?}");
}

#[test]
fn odd_entries_of_a_gpt_are_listed_and_refused() {
    let entries = [
        (2048, 4095),
        (4000, 5000),
        // Ends before it begins; by one, too.
        (6000, 5990),
        (6100, 6099),
        (8000, 1 << 40),
        (u64::MAX, u64::MAX),
        // The table itself.
        (1, 1),
        (7000, 7000),
        // Touches its neighbours.
        (7001, 7100),
    ];
    let entries = entries.map(|(first, last)| Entry { kind: 1, first, last });
    let mut disk = vec![0; 4 << 20];
    write_gpt(&mut disk, 512, &entries);
    let image = Image::of(&disk, 512);
    let table = if tools() { image.assert_as_sfdisk() } else { image.table() };
    let reasons = [
        Some("Partition 1 overlaps partition 2"),
        Some("Partition 2 overlaps partition 1"),
        Some("Partition 3 has no blocks"),
        Some("Partition 4 has no blocks"),
        Some("Partition 5 reaches beyond the disk"),
        Some("Partition 6 reaches beyond the disk"),
        Some("Partition 7 begins at block 1"),
        None,
        None,
    ];
    for (number, reason) in (1..).zip(reasons) {
        let selected = table.select(&Selector::Number(number), image.size());
        match reason {
            None => assert_eq!(selected.unwrap().number, number),
            Some(reason) => assert!(selected.unwrap_err().starts_with(reason), "{number}"),
        }
    }
    let remarks = table.remarks.join(" ");
    let outside =
        "Partition 5 is not within the blocks that the GPT has for partitions, 34 to 8158.";
    for said in ["1 and 2 overlap", "3 has no blocks", "5 reaches", "6 reaches", outside] {
        assert!(remarks.contains(said), "{remarks}");
    }
}

#[test]
fn a_partition_of_all_blocks_does_not_overflow() {
    let mut disk = vec![0; 4 << 20];
    write_gpt(&mut disk, 512, &[Entry { kind: 1, first: 0, last: u64::MAX }]);
    let image = Image::of(&disk, 512);
    assert_eq!(image.table().partitions[0].blocks, u64::MAX);
    assert!(refused(&image.table(), &image, 1).contains("reaches beyond"));
}

#[test]
fn remarks_are_bounded() {
    let entries = vec![Entry { kind: 1, first: 2048, last: 4095 }; 128];
    let mut disk = vec![0; 4 << 20];
    write_gpt(&mut disk, 512, &entries);
    let table = Image::of(&disk, 512).table();
    assert_eq!(table.remarks.len(), 17);
    assert_eq!(table.remarks[16], "There are 111 more such partitions.");
}

#[test]
fn odd_entries_of_an_mbr_are_listed_and_refused() {
    let record = |entries: &[(u8, u64, u64)]| {
        let mut disk = vec![0; 4 << 20];
        let entries: Vec<Entry> = entries
            .iter()
            .map(|(kind, first, blocks)| Entry {
                kind: *kind,
                first: *first,
                last: first + blocks - 1,
            })
            .collect();
        write_record(&mut disk, 0, 0, &entries);
        Image::of(&disk, 512)
    };
    let listed = |image: &Image| if tools() { image.assert_as_sfdisk() } else { image.table() };

    let image = record(&[(0x83, 2048, 1000), (0x83, 3000, 50), (0x83, 8000, 500), (0, 100, 8)]);
    let table = listed(&image);
    assert!(refused(&table, &image, 1).contains("overlaps partition 2"));
    assert!(refused(&table, &image, 3).contains("beyond the disk"));
    // Images of ISO 9660 have such an entry.
    assert!(table.select(&Selector::Number(4), image.size()).is_ok());
    // The disk has no identifier.
    assert!(table.partitions.iter().all(|partition| partition.uuid.is_empty()));
    assert!(table.select(&Selector::Uuid(String::new()), image.size()).is_err());

    let image = record(&[(0x83, 0, 1000), (0x83, 3000, 0), (0x83, u64::from(u32::MAX), 4)]);
    let table = listed(&image);
    assert!(refused(&table, &image, 1).contains("contains the partition table"));
    assert!(refused(&table, &image, 2).contains("no blocks"));
    assert!(refused(&table, &image, 3).contains("beyond the disk"));

    // A primary partition in the extended one would destroy the chain.
    let image = record(&[(5, 2048, 1000), (0x83, 2100, 100)]);
    let table = image.table();
    assert!(refused(&table, &image, 2).contains("overlaps partition 1"));
    assert!(table.remarks.iter().any(|remark| remark.contains("1 and 2 overlap")), "{table:?}");
}

/// A disk with an extended partition in blocks 2048 to 8191, and the given boot records: where,
/// partition and link, both as in the record.
fn chain(records: &[(u64, (u64, u64), Option<u64>)]) -> Image {
    let mut disk = vec![0; 4 << 20];
    write_record(&mut disk, 0, 0x1234, &[Entry { kind: 5, first: 2048, last: 8191 }]);
    for (lba, (first, blocks), link) in records {
        let mut entries = vec![Entry { kind: 0x83, first: *first, last: first + blocks - 1 }];
        entries.extend(link.map(|first| Entry { kind: 5, first, last: first + 99 }));
        write_record(&mut disk, *lba as usize * 512, 0, &entries);
    }
    Image::of(&disk, 512)
}

#[test]
fn links_count_from_the_extended_partition() {
    let image =
        chain(&[(2048, (10, 20), Some(100)), (2148, (11, 21), Some(50)), (2098, (12, 22), None)]);
    let table = if tools() { image.assert_as_sfdisk() } else { image.table() };
    let places: Vec<_> =
        table.partitions[1..].iter().map(|p| (p.number, p.first_lba, p.blocks)).collect();
    assert_eq!(places, [(5, 2058, 20), (6, 2159, 21), (7, 2110, 22)]);
    assert!(table.remarks.is_empty(), "{table:?}");
}

#[test]
fn a_chain_ends() {
    // Each has two partitions before the chain breaks.
    let first = (2048, (10, 20), Some(100));
    let cases = [
        // To itself, to the first, beyond the disk, far beyond it, to what is no record.
        ((2148, (10, 20), Some(100)), "block 2148, which it has already been through"),
        ((2148, (10, 20), Some(0)), "block 2048, which it has already been through"),
        ((2148, (10, 20), Some(7000)), "block 9048, which is beyond the disk"),
        ((2148, (10, 20), Some(0xFFFF_FFFF)), "which is beyond the disk"),
        ((2148, (10, 20), Some(200)), "block 2248, which has no boot record"),
    ];
    for (second, why) in cases {
        let table = chain(&[first, second]).table();
        assert_eq!(numbers(&table), [1, 5, 6]);
        assert!(table.remarks[0].contains(why), "{table:?}");
    }
    let mut disk = vec![0; 1 << 20];
    write_record(&mut disk, 0, 1, &[Entry { kind: 5, first: 0, last: 99 }]);
    let table = Image::of(&disk, 512).table();
    assert!(table.remarks[0].contains("the master boot record"), "{table:?}");
}

/// `sfdisk` stops at number 60. Linux has room for 256 minor numbers.
#[test]
fn a_chain_is_bounded() {
    let records: Vec<_> = (0..200).map(|n| (2048 + 10 * n, (1, 2), Some(10 * (n + 1)))).collect();
    let table = chain(&records).table();
    assert_eq!(table.partitions.len(), 1 + 128);
    assert!(table.remarks[0].contains("beyond the number"), "{table:?}");
}

#[test]
fn a_logical_partition_outside_of_the_extended_one_is_a_remark() {
    let image = chain(&[(2048, (7000, 20), None)]);
    let table = image.table();
    assert!(table.remarks[0].contains("not inside"), "{table:?}");
    // Within it, and over the next record.
    let image = chain(&[(2048, (6100, 500), None)]);
    assert!(refused(&image.table(), &image, 5).contains("beyond the disk"));
}

/// As `fdisk` reads them.
#[test]
fn further_partitions_in_a_record_are_a_remark() {
    let image = chain(&[(2048, (10, 20), Some(100)), (2148, (10, 20), None)]);
    image.change(|disk| {
        let entries = [(0x83, 10), (5, 100), (0x83, 40), (5, 200)];
        let entries = entries.map(|(kind, first)| Entry { kind, first, last: first + 19 });
        write_record(disk, 2048 * 512, 0, &entries);
    });
    let table = if tools() { image.assert_as_sfdisk() } else { image.table() };
    assert_eq!(numbers(&table), [1, 5, 6]);
    assert!(table.remarks[0].contains("more than one partition and a link"), "{table:?}");
}

#[test]
fn further_extended_partitions_are_a_remark() {
    let mut disk = vec![0; 4 << 20];
    let extended = |first: u64| Entry { kind: 0xF, first, last: first + 99 };
    write_record(&mut disk, 0, 1, &[extended(2048), extended(4096)]);
    for lba in [2048, 4096] {
        write_record(&mut disk, lba * 512, 0, &[Entry { kind: 0x83, first: 1, last: 9 }]);
    }
    let image = Image::of(&disk, 512);
    let table = if tools() { image.assert_as_sfdisk() } else { image.table() };
    assert_eq!(numbers(&table), [1, 2, 5]);
    assert!(table.remarks[0].contains("more than one extended"), "{table:?}");
}

/// `sfdisk` makes other characters of these names, or none.
#[test]
fn broken_names_have_replacement_characters() {
    let mut disk = vec![0; 4 << 20];
    write_gpt(&mut disk, 512, &[Entry { kind: 1, first: 2048, last: 4095 }; 4]);
    let names: [&[u16]; 4] = [
        // A high surrogate alone, a low one, both in the wrong order, and all units used.
        &[0x61, 0xD83D, 0x62, 0],
        &[0xDCA1, 0, 0x63],
        &[0xDCA1, 0xD83D, 7, 0x1B],
        &[0x2603; 36],
    ];
    for (n, name) in names.iter().enumerate() {
        let bytes: Vec<u8> = name.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let at = 1024 + 128 * n + 56;
        disk[at..at + 72].fill(0);
        disk[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    fix_sums(&mut disk, 512);
    let table = Image::of(&disk, 512).table();
    let labels: Vec<&str> = table.partitions.iter().map(|partition| &*partition.label).collect();
    let snow = "\u{2603}".repeat(36);
    assert_eq!(labels, ["a\u{FFFD}b", "\u{FFFD}", "\u{FFFD}\u{FFFD}\u{7}\u{1B}", &snow]);
    // Messages escape them.
    let size = Image::of(&disk, 512).size();
    let why = table.select(&Selector::Number(9), size).unwrap_err();
    assert!(why.contains("\\u{1b}") && !why.contains('\u{1b}'), "{why}");
}

#[test]
fn the_checksum_is_the_known_one() {
    assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
}
