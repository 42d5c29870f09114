//! Damaged file systems, and odd ones that are sound.

use std::io::Read;
use std::os::unix::fs::FileExt;

use meantime_ext4::format::{Error, OpenFailure, RunState, Volume, VolumeOptions};
use meantime_ext4::{Corruption, Defect, MountError};
use tempfile::TempDir;

use super::{
    Image, content, debugfs_write, ino, mkfs, noise, open, tools, tree, try_open, write_at,
};

fn corrupt(result: Result<Volume<Image>, OpenFailure>) -> OpenFailure {
    result.map(|_| ()).unwrap_err()
}

#[test]
fn damaged_superblocks_name_a_backup_and_can_be_read_by_it() {
    if !tools() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let tree = tree(dir.path());
    for (name, args, size, backup) in [
        ("b1024", &["-b", "1024"][..], "40M", 8193),
        ("b4096", &["-b", "4096"][..], "200M", 32768),
        ("meta", &["-b", "1024", "-g", "1024", "-O", "meta_bg,^resize_inode"][..], "40M", 1025),
    ] {
        let image = mkfs(dir.path(), name, args, size, Some(&tree));
        let good = open(&image);
        let number = ino(&image, "sub/large");
        // One byte of the label makes the checksum wrong.
        write_at(&image, 1024 + 0x78, b"x");
        let failure = corrupt(try_open(&image, VolumeOptions::default()));
        // The superblock is the second KiB: its block number depends on the block size.
        let block = u64::from(!args.contains(&"4096"));
        let corruption = Corruption::new(Defect::SuperblockChecksum).in_block(block);
        assert_eq!(failure, OpenFailure::Backup { corruption, block: backup });
        let said = MountError::of_device(failure, "file:x", 1).to_string();
        assert!(said.contains(&format!("--superblock {backup}")), "{said}");
        let ignoring = VolumeOptions { ignore_checksums: true, ..VolumeOptions::default() };
        assert_eq!(try_open(&image, ignoring).unwrap().ignored(), 1);
        // The whole superblock, and the descriptors after it.
        write_at(&image, 1024, &[0; 2048]);
        let by_backup = VolumeOptions { superblock: Some(backup), ..VolumeOptions::default() };
        let volume = try_open(&image, by_backup).unwrap();
        assert!(volume.is_from_backup());
        assert_eq!(volume.superblock().blocks(), good.superblock().blocks());
        for group in 0..volume.superblock().groups() {
            volume.group(group).unwrap();
        }
        assert!(content(&volume, number) == std::fs::read(tree.join("sub/large")).unwrap());
        let nothing = VolumeOptions { superblock: Some(backup + 1), ..VolumeOptions::default() };
        let wrong = Corruption::new(Defect::SuperblockMagic).in_block(backup + 1);
        assert_eq!(corrupt(try_open(&image, nothing)), wrong.into());
    }
}

#[test]
fn other_things_are_called_by_name() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("device");
    let why = |at: u64, magic: &[u8]| {
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(4 << 20).unwrap();
        write_at(&path, at, magic);
        match corrupt(try_open(&path, VolumeOptions::default())) {
            OpenFailure::NotExt4(why) => why,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(why(0, b""), "it begins with nothing but zeroes");
    assert_eq!(why(7, b"x"), "there is no superblock");
    assert_eq!(why(0, b"XFSB"), "it looks like an XFS file system");
    assert_eq!(why(65_600, b"_BHRfS_M"), "it looks like a btrfs file system");
    assert_eq!(
        why(510, b"\x55\xAA"),
        "it looks like a partition table or boot sector: name the partition"
    );
    let tiny = dir.path().join("tiny");
    std::fs::write(&tiny, [0; 2047]).unwrap();
    let failure = corrupt(try_open(&tiny, VolumeOptions::default()));
    assert_eq!(failure, OpenFailure::NotExt4("it has only 2047 bytes".into()));
}

#[test]
fn devices_too_small_unknown_features_and_wrong_checksums_are_refused() {
    if !tools() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let tree = tree(dir.path());
    let image = mkfs(dir.path(), "image", &["-O", "^metadata_csum"], "16M", Some(&tree));
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&image).unwrap();
    file.set_len((16 << 20) - 1).unwrap();
    let failure = corrupt(try_open(&image, VolumeOptions::default()));
    assert_eq!(failure, OpenFailure::TooSmall { fs_bytes: 16 << 20 });
    file.set_len(16 << 20).unwrap();
    let mut word = [0; 4];
    file.read_exact_at(&mut word, 1024 + 0x60).unwrap();
    file.write_all_at(&(u32::from_le_bytes(word) | 1 << 30).to_le_bytes(), 1024 + 0x60).unwrap();
    let failure = corrupt(try_open(&image, VolumeOptions::default()));
    assert!(
        matches!(&failure, OpenFailure::Unsupported(unsupported) if unsupported.what == "feature FEATURE_I30")
    );

    let image = mkfs(dir.path(), "journal", &["-b", "4096", "-O", "journal_dev"], "16M", None);
    let failure = corrupt(try_open(&image, VolumeOptions::default()));
    assert!(
        matches!(&failure, OpenFailure::Unsupported(unsupported) if unsupported.what == "feature journal_dev")
    );

    let image = mkfs(dir.path(), "elsewhere", &["-b", "4096"], "16M", None);
    debugfs_write(&image, &["set_super_value journal_inum 0".into()]);
    try_open(&image, VolumeOptions::default()).unwrap();
    debugfs_write(&image, &["feature needs_recovery".into()]);
    let failure = corrupt(try_open(&image, VolumeOptions::default()));
    assert!(
        matches!(&failure, OpenFailure::Unsupported(unsupported) if unsupported.what.contains("external journal"))
    );

    let image = mkfs(dir.path(), "sums", &["-b", "4096"], "16M", Some(&tree));
    let number = ino(&image, "tiny");
    let volume = open(&image);
    let (block, at) = volume.inode_place(number).unwrap();
    // The owner.
    write_at(&image, block * 4096 + at as u64 + 2, &[9]);
    let wrong = Corruption { defect: Defect::InodeChecksum, ino: Some(number), block: Some(block) };
    assert_eq!(volume.inode(number).unwrap_err(), Error::Corrupt(wrong));
    let ignoring =
        try_open(&image, VolumeOptions { ignore_checksums: true, superblock: None }).unwrap();
    assert_eq!(ignoring.inode(number).unwrap().metadata().uid & 0xFF, 9);
    assert_eq!(ignoring.ignored(), 1);
    // A group descriptor, and the bitmap whose checksum it has.
    let group = volume.group(0).unwrap();
    write_at(&image, group.inode_bitmap * 4096, &[0]);
    let wrong = Corruption::new(Defect::BitmapChecksum).in_block(group.inode_bitmap);
    assert_eq!(volume.inode_bitmap(0).unwrap_err(), Error::Corrupt(wrong));
    write_at(&image, 4096 + 0xC, &[0xEE, 0xEE]);
    let wrong = Corruption::new(Defect::GroupChecksum).in_block(0);
    assert_eq!(volume.group(0).unwrap_err(), Error::Corrupt(wrong));
    // The first volume has cached where its inodes are.
    assert_eq!(open(&image).inode(number).unwrap_err(), Error::Corrupt(wrong));
    assert!(matches!(
        volume.inode(0),
        Err(Error::Corrupt(Corruption { defect: Defect::InodeNumber, .. }))
    ));
    assert!(matches!(
        volume.inode(u32::MAX),
        Err(Error::Corrupt(Corruption { defect: Defect::InodeNumber, .. }))
    ));
    assert!(matches!(
        volume.linked_inode(8),
        Err(Error::Corrupt(Corruption { defect: Defect::InodeNumber, .. }))
    ));
}

#[test]
fn what_the_journal_has_newer_counts() {
    if !tools() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let image = mkfs(dir.path(), "image", &["-b", "4096"], "16M", None);
    let mut volume = open(&image);
    let mut first = volume.block(0).unwrap().to_vec();
    first[1024 + 0x78..][..4].copy_from_slice(b"new\0");
    let overlay = |bytes: &[u8]| [(0, bytes.into())].into_iter().collect();
    // A replayed superblock is checked, too.
    let failure = volume.set_overlay(overlay(&first)).unwrap_err();
    assert_eq!(failure, Corruption::new(Defect::SuperblockChecksum).in_block(0).into());
    let checksum = meantime_ext4::format::checksum::crc32c(!0, &first[1024..2044]);
    first[2044..2048].copy_from_slice(&checksum.to_le_bytes());
    volume.set_overlay(overlay(&first)).unwrap();
    assert_eq!(volume.info().label, b"new");
    assert_eq!(volume.block(0).unwrap()[..], first[..]);
    assert!(volume.is_overlaid(0, 1) && !volume.is_overlaid(1, 1000));
    assert_eq!(volume.overlaid(1), None);
    assert!(volume.set_overlay([(5, [0; 7].as_slice().into())].into_iter().collect()).is_err());
}

#[test]
fn files_that_cannot_be_read_here_are_refused_by_name() {
    if !tools() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let tree = tree(dir.path());
    let image = mkfs(dir.path(), "image", &["-O", "encrypt,verity,casefold"], "32M", Some(&tree));
    let requests = ["small 0x80800", "tiny 0x180000", "sub 0x40080000"];
    debugfs_write(
        &image,
        &requests.map(|request| {
            format!(
                "set_inode_field {} flags {}",
                &request[..request.find(' ').unwrap()],
                &request[request.find(' ').unwrap() + 1..]
            )
        }),
    );
    let volume = open(&image);
    for (path, what) in [("small", "encrypted"), ("tiny", "verity"), ("sub", "casefold")] {
        let inode = volume.linked_inode(ino(&image, path)).unwrap();
        for failure in [volume.run_at(&inode, 0).map(|_| ()), volume.extent_map(&inode).map(|_| ())]
        {
            assert!(
                matches!(failure, Err(Error::Unsupported(unsupported)) if unsupported.what.contains(what))
            );
        }
    }
}

#[test]
fn a_block_map_that_goes_in_circles_ends() {
    if !tools() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let tree = tree(dir.path());
    let image = mkfs(dir.path(), "image", &["-t", "ext2", "-b", "1024"], "16M", Some(&tree));
    let volume = open(&image);
    let number = ino(&image, "small");
    let (block, at) = volume.inode_place(number).unwrap();
    let at = block * 1024 + at as u64;
    // Its only block is full of pointers to itself, and all three indirect pointers lead to it.
    let own = volume.run_at(&volume.inode(number).unwrap(), 0).unwrap().physical;
    let pointer = u32::try_from(own).unwrap().to_le_bytes();
    write_at(&image, own * 1024, &pointer.repeat(256));
    write_at(&image, at + 0x28 + 4 * 12, &pointer.repeat(3));
    write_at(&image, at + 4, &(1u32 << 31).to_le_bytes());
    let inode = volume.inode(number).unwrap();
    let map = volume.extent_map(&inode).unwrap();
    assert!(!map.is_complete() && map.extents().len() == 1 << 20);
    assert_eq!(map.run_at(map.known()), None);
    assert_eq!(volume.run_at(&inode, map.known()).unwrap().physical, own);
    let mut met = 0u64;
    let circles = volume.visit_mapping_blocks(&inode, &mut |_| {
        met += 1;
        Ok(())
    });
    let shared = Corruption { defect: Defect::BlockShared, ino: Some(number), block: Some(own) };
    assert_eq!(circles, Err(Error::Corrupt(shared)));
    assert_eq!(met, volume.block_count());
}

/// Reads everything with any result. Nothing may panic, hang or take unbounded memory.
fn use_all(volume: &Volume<Image>) {
    let _ = volume.usage();
    for number in 1..=volume.superblock().inodes().min(40) {
        let Ok(inode) = volume.inode(number) else { continue };
        let _ = volume.inline_data(&inode);
        let _ = volume.extent_map(&inode);
        for logical in [0, 1, 11, 12, 300, 70_000, u64::from(u32::MAX), u64::MAX] {
            if let Ok(run) = volume.run_at(&inode, logical) {
                assert!(run.blocks > 0);
                let end = run.physical.checked_add(run.blocks).unwrap();
                assert!(run.state == RunState::Hole || end <= volume.block_count());
            }
        }
    }
}

#[test]
fn wrong_bytes_anywhere_in_the_metadata_do_no_harm() {
    if !tools() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let tree = tree(dir.path());
    for (name, args) in [
        ("ext4", &["-b", "1024", "-O", "inline_data"][..]),
        ("ext2", &["-t", "ext2", "-b", "1024"][..]),
    ] {
        let image = mkfs(dir.path(), name, args, "16M", Some(&tree));
        let (mut whole, volume) = (Vec::new(), open(&image));
        std::fs::File::open(&image).unwrap().read_to_end(&mut whole).unwrap();
        let mut places = vec![(1024, 1024), (2048, 64)];
        for number in 1..30 {
            let (block, at) = volume.inode_place(number).unwrap();
            places.push((
                block as usize * 1024 + at,
                256.min(volume.superblock().inode_bytes() as usize),
            ));
            let inode = volume.inode(number).unwrap();
            if inode.has_blocks() && !inode.is_free() {
                let mut push = |block| {
                    places.push((block as usize * 1024, 1024));
                    Ok(())
                };
                volume.visit_mapping_blocks(&inode, &mut push).unwrap();
            }
        }
        let picks = noise(99, 8 * 800);
        let mutated = dir.path().join("mutated");
        std::fs::write(&mutated, &whole).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&mutated).unwrap();
        for pick in picks.chunks_exact(8) {
            let pick = u64::from_le_bytes(pick.try_into().unwrap()) as usize;
            let (start, bytes) = places[pick % places.len()];
            let at = start + (pick >> 16) % bytes;
            let value = [0, 0xFF, 1, 0x80, whole[at] ^ 1 << (pick >> 40 & 7)][(pick >> 44) % 5];
            file.write_all_at(&[value], at as u64).unwrap();
            for ignore_checksums in [false, true] {
                if let Ok(volume) =
                    try_open(&mutated, VolumeOptions { ignore_checksums, superblock: None })
                {
                    use_all(&volume);
                }
            }
            file.write_all_at(&whole[at..=at], at as u64).unwrap();
        }
    }
}
