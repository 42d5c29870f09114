//! Tables that are sound.

use meantime_partitions::{Partition, Selector, Table, TableKind};
use meantime_testkit::e2fs::{has, run};

use crate::image::{Image, block_sizes, tools};

fn numbers(table: &Table) -> Vec<u32> {
    table.partitions.iter().map(|partition| partition.number).collect()
}

fn by_number(table: &Table, number: u32) -> &Partition {
    table.partitions.iter().find(|partition| partition.number == number).unwrap()
}

#[test]
fn a_gpt_is_listed_as_by_sfdisk() {
    if !tools() {
        return;
    }
    for block_bytes in block_sizes() {
        let image = Image::new(64, block_bytes);
        image.sfdisk(
            "label: gpt\n\nsize=10M, type=U, name=\"EFI\"\nsize=20M, type=L, name=\"b\u{f6}ot a/b%\"\n\
             size=4M, type=S\n7: size=1M, type=0FC63DAF-8483-4772-8E79-3D69D8477DE5\n\
             type=L, attrs=\"RequiredPartition\", name=\"abcdefghijklmnopqrstuvwxyz0123456789\"\n",
        );
        let table = image.assert_as_sfdisk();
        assert_eq!(table.kind, TableKind::Gpt);
        assert!(table.remarks.is_empty(), "{:?}", table.remarks);
        assert_eq!(table.partitions[0].type_name, Some("EFI System"));
        assert_eq!(table.partitions[1].label, "b\u{f6}ot a/b%");
        assert_eq!(by_number(&table, 7).type_name, None);
        assert!(table.partitions.iter().any(|partition| partition.label.len() == 36));
        for partition in &table.partitions {
            let selector = Selector::Uuid(partition.uuid.to_lowercase());
            assert_eq!(table.select(&selector, image.size()), Ok(partition));
        }
        assert_eq!(image.signature().unwrap().name, "GPT");
    }
}

#[test]
fn a_gpt_of_sgdisk_and_parted_is_listed_as_by_sfdisk() {
    if !tools() {
        return;
    }
    let image = Image::new(64, 512);
    // 200 entries, which do not fill the last block of their array.
    run(
        "sgdisk",
        &[
            "-a=1",
            "--resize-table=200",
            "--new=150:2048:+1M",
            "--change-name=150:\u{1f4a1} \"lamp\"",
            "--typecode=150:8e00",
            "--new=3:60:61",
            "--new=1:0:0",
            image.text(),
        ],
    );
    let table = image.assert_as_sfdisk();
    assert_eq!(numbers(&table), [1, 3, 150]);
    assert_eq!(by_number(&table, 150).label, "\u{1f4a1} \"lamp\"");
    assert_eq!(by_number(&table, 3).blocks, 2);
    assert!(table.remarks.is_empty(), "{:?}", table.remarks);

    let image = Image::new(64, 512);
    run(
        "parted",
        &[
            "-s",
            image.text(),
            "mklabel",
            "gpt",
            "mkpart",
            "\"two words\"",
            "ext4",
            "1MiB",
            "10MiB",
            "mkpart",
            "swap",
            "linux-swap",
            "10MiB",
            "100%",
            "set",
            "1",
            "raid",
            "on",
        ],
    );
    let table = image.assert_as_sfdisk();
    assert_eq!(table.partitions[0].type_name, Some("Linux RAID"));
    assert_eq!(table.partitions[0].label, "two words");
}

#[test]
fn a_hybrid_mbr_gives_way_to_the_gpt() {
    if !tools() {
        return;
    }
    // sgdisk can put the entry for the GPT first or last.
    for hybrid in ["1:2", "1:2:EE"] {
        let image = Image::new(64, 512);
        run("sgdisk", &["-n", "1::+10M", "-n", "2::+5M", "-n", "3", image.text()]);
        run("sgdisk", &["-h", hybrid, image.text()]);
        let table = image.assert_as_sfdisk();
        assert_eq!((table.kind, numbers(&table)), (TableKind::Gpt, vec![1, 2, 3]));
        assert_eq!(table.remarks.len(), 1);
        assert!(table.remarks[0].contains("hybrid"), "{:?}", table.remarks);
    }
}

#[test]
fn an_mbr_is_listed_as_by_sfdisk() {
    if !tools() {
        return;
    }
    for block_bytes in block_sizes() {
        let image = Image::new(64, block_bytes);
        image
            .sfdisk("label: dos\nlabel-id: 0x00ABCDEF\n\n,10M,83,*\n,10M,c\n4: size=4M, type=82\n");
        let table = image.assert_as_sfdisk();
        assert_eq!((table.kind, numbers(&table)), (TableKind::Mbr, vec![1, 2, 4]));
        assert_eq!(table.id, "0x00abcdef");
        assert_eq!(by_number(&table, 4).uuid, "00abcdef-04");
        assert_eq!(by_number(&table, 2).type_name, Some("W95 FAT32 (LBA)"));
        assert!(table.remarks.is_empty(), "{:?}", table.remarks);
        assert_eq!(image.signature().unwrap().text, "a partition table");
    }
}

#[test]
fn logical_partitions_count_from_5() {
    if !tools() {
        return;
    }
    for (block_bytes, kind) in
        block_sizes().into_iter().flat_map(|b| ["5", "f", "85"].map(|k| (b, k)))
    {
        let image = Image::new(64, block_bytes);
        let logical = ",2M,83\n".repeat(12);
        image.sfdisk(&format!("label: dos\n\n,10M,83\n,,{kind}\n{logical}"));
        let table = image.assert_as_sfdisk();
        assert_eq!(numbers(&table), [&[1, 2][..], &Vec::from_iter(5..17)].concat());
        assert!(table.remarks.is_empty(), "{:?}", table.remarks);
        // The number in it is hexadecimal.
        assert!(by_number(&table, 16).uuid.ends_with("-10"));
        let why = table.select(&Selector::Number(2), image.size()).unwrap_err();
        assert!(why.contains("extended partition"), "{why}");
        assert!(table.select(&Selector::Number(16), image.size()).is_ok());
    }
}

/// `sfdisk` does not list the UUIDs of an MBR's partitions. `partx` and `lsblk` do, by libblkid.
#[test]
fn uuids_of_an_mbr_are_those_of_partx() {
    if !tools() || !has("partx") {
        return;
    }
    let image = Image::new(64, 512);
    let logical = ",2M,83\n".repeat(12);
    image.sfdisk(&format!("label: dos\nlabel-id: 0xABCDEF\n\n,10M,83\n,,5\n{logical}"));
    let list = run("partx", &["-g", "-r", "-o", "NR,START,SECTORS,UUID", image.text()]);
    let mut ours = String::new();
    for Partition { number, first_lba, blocks, uuid, .. } in &image.table().partitions {
        ours += &format!("{number} {first_lba} {blocks} {uuid}\n");
    }
    assert_eq!(ours, list);
}

#[test]
fn logical_partitions_that_were_removed_leave_no_gap() {
    if !tools() {
        return;
    }
    let image = Image::new(64, 512);
    image.sfdisk("label: dos\n\n,10M,83\n,,5\n,2M,83\n,3M,83\n,4M,83\n,5M,83\n");
    for number in ["6", "5"] {
        run("sfdisk", &["-q", "--no-reread", "--no-tell-kernel", "--delete", image.text(), number]);
        image.assert_as_sfdisk();
    }
    // parted leaves an empty record in front.
    run("parted", &["-s", image.text(), "rm", "5"]);
    let table = image.assert_as_sfdisk();
    assert_eq!(numbers(&table), [1, 2, 5]);
}

#[test]
fn partitions_out_of_order_keep_their_numbers() {
    if !tools() {
        return;
    }
    let image = Image::new(64, 512);
    image.sfdisk(
        "label: dos\n\nstart=60000, size=100, type=83\nstart=2048, size=50000, type=5\n\
         start=56000, size=10, type=83\n\nstart=20000, size=10, type=83\nstart=10000, size=10, type=7\n",
    );
    let table = image.assert_as_sfdisk();
    assert!(table.remarks.is_empty(), "{:?}", table.remarks);
}

#[test]
fn an_empty_table_is_a_table() {
    if !tools() {
        return;
    }
    for label in ["gpt", "dos"] {
        let image = Image::new(8, 512);
        image.sfdisk(&format!("label: {label}\n"));
        let table = image.assert_as_sfdisk();
        assert!(table.partitions.is_empty() && table.remarks.is_empty());
        let why = table.select(&Selector::Number(1), image.size()).unwrap_err();
        assert!(why.starts_with("The disk has no partitions"), "{why}");
    }
}

#[test]
fn what_has_no_table_has_none() {
    if !tools() {
        return;
    }
    let image = Image::new(8, 512);
    assert_eq!((image.table_or_none(), image.signature()), (None, None));
    // Boot sectors of FAT have the same two bytes at their end, and no table.
    for args in [&["-F", "12"][..], &["-F", "16"], &["-F", "32", "-s", "1"]] {
        let image = Image::new(64, 512);
        run("mkfs.vfat", &[args, &[image.text()]].concat());
        assert_eq!(image.table_or_none(), None);
        assert_eq!(image.signature().unwrap().name, "vfat");
    }
    run("mkfs.ext4", &["-q", "-F", image.text()]);
    assert_eq!(image.table_or_none(), None);
    // Random code has no status bytes.
    let image = Image::new(8, 512);
    image.write(400, &[0x33; 110]);
    image.write(510, &[0x55, 0xAA]);
    assert_eq!((image.table_or_none(), image.signature()), (None, None));
    // Too small for anything.
    let image = Image::of(&[0x55; 100], 512);
    assert_eq!((image.table_or_none(), image.signature()), (None, None));
}

#[test]
fn a_disk_with_fat_parameters_and_partitions_has_a_table() {
    if !tools() {
        return;
    }
    let image = Image::new(64, 512);
    run("mkfs.vfat", &["-F", "16", image.text()]);
    let fat = image.bytes();
    image.sfdisk("label: dos\n\n,10M,6\n,10M,83\n");
    image.change(|disk| disk[..440].copy_from_slice(&fat[..440]));
    assert_eq!(numbers(&image.assert_as_sfdisk()), [1, 2]);
}

/// The names of types are those that `sfdisk` prints, which depend on its version: they are found
/// in the list of the installed one.
#[test]
fn types_have_the_names_of_sfdisk() {
    if !tools() {
        return;
    }
    let list = run("sfdisk", &["--list-types", "--label", "gpt"]);
    let known = list.lines().filter(|line| line.len() > 38 && line.as_bytes()[8] == b'-');
    let mut named = 0;
    for batch in Vec::from_iter(known).chunks(100) {
        let image = Image::new(64, 512);
        let script: String =
            batch.iter().map(|line| format!("size=8, type={}\n", &line[..36])).collect();
        image.sfdisk(&format!("label: gpt\n\n{script}"));
        for (partition, line) in image.assert_as_sfdisk().partitions.iter().zip(batch) {
            assert_eq!(partition.type_code, line[..36].to_uppercase());
            if let Some(name) = partition.type_name {
                named += 1;
                assert_eq!(name, line[36..].trim());
            }
        }
    }
    assert!(named > 30, "{named}");

    let list = run("sfdisk", &["--list-types", "--label", "dos"]);
    let known = list.lines().filter_map(|line| line.trim().split_once("  "));
    let mut named = 0;
    for (code, name) in known.filter(|(code, _)| !["Id", "0", "5", "f", "85", "ee"].contains(code))
    {
        let image = Image::new(8, 512);
        image.write(450, &[u8::from_str_radix(code, 16).unwrap(), 0, 0, 0, 1, 0, 0, 0, 9]);
        image.write(510, &[0x55, 0xAA]);
        let table = image.assert_as_sfdisk();
        assert_eq!(table.partitions[0].type_code, code);
        if let Some(ours) = table.partitions[0].type_name {
            named += 1;
            assert_eq!(ours, name.trim());
        }
    }
    assert!(named > 30, "{named}");
}
