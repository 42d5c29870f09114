//! Journals that need recovery, replayed here and by e2fsprogs: each block of the results must be
//! equal.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use meantime_ext4::format::journal::{Recovery, recover};
use meantime_ext4::format::{ROOT_INO, RunState, Volume};
use meantime_ext4::{NewNode, OpenOptions};

use meantime_testkit::image::{
    Image, Mounted, debugfs_write, mkfs, mount, names, open, run, run_for, scratch, tools, writable,
};

/// The blocks that record the recovery: the superblock's and the journal's own.
fn noted(volume: &Volume<Image>) -> BTreeSet<u64> {
    let mut blocks = BTreeSet::from([if volume.block_bytes() == 1024 { 1 } else { 0 }]);
    let journal = volume.inode(volume.superblock().journal_ino()).unwrap();
    let mut logical = 0;
    while logical * (volume.block_bytes() as u64) < journal.size() {
        let run = volume.run_at(&journal, logical).unwrap();
        assert_eq!(run.state, RunState::Written);
        blocks.extend(run.physical..run.physical + run.blocks);
        logical += run.blocks;
    }
    blocks
}

/// Replays `image` here and a copy of it with debugfs, and compares each block.
fn compare(image: &Path) -> (Volume<Image>, Recovery) {
    let copy = image.with_extension("replayed");
    std::fs::copy(image, &copy).unwrap();
    run("debugfs", &["-w", "-R", "journal_run", copy.to_str().unwrap()]);
    let mut volume = open(image);
    let noted = noted(&volume);
    let recovery = recover(&volume).unwrap();
    volume.set_overlay(recovery.overlay.clone()).unwrap();
    let replayed = open(&copy);
    assert!(!replayed.superblock().needs_recovery());
    for number in (0..volume.block_count()).filter(|number| !noted.contains(number)) {
        assert_eq!(
            volume.block(number).unwrap(),
            replayed.block(number).unwrap(),
            "block {number}"
        );
    }
    std::fs::remove_file(copy).unwrap();
    (volume, recovery)
}

/// A file of `blocks` blocks of `block_bytes` bytes, of which every third begins like a journal
/// block.
fn payload(dir: &Path, blocks: usize, block_bytes: usize, seed: u8) -> PathBuf {
    let mut bytes = Vec::new();
    for number in 0..blocks {
        let mut block = vec![seed.wrapping_mul(31).wrapping_add(number as u8); block_bytes];
        if number % 3 == 2 {
            block[..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
        }
        bytes.extend(block);
    }
    let path = dir.join(format!("payload-{blocks}-{block_bytes}-{seed}"));
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn journals_that_debugfs_wrote() {
    if !tools() {
        return;
    }
    let dir = scratch();
    for block_bytes in [1024, 4096] {
        for features in ["64bit,metadata_csum", "^64bit,metadata_csum", "^64bit,^metadata_csum"] {
            for checksums in ["", " -c -v 2", " -c -v 3"] {
                let size = if block_bytes == 1024 { "16M" } else { "64M" };
                let block_size = block_bytes.to_string();
                let args = ["-b", &block_size, "-O", features, "-J", "size=4"];
                let image = mkfs(dir.path(), "written.img", size, &args);
                let payload = |blocks, seed| {
                    payload(dir.path(), blocks, block_bytes, seed).display().to_string()
                };
                debugfs_write(
                    &image,
                    &[
                        format!("journal_open{checksums}"),
                        format!("journal_write -b 9000-9299 {}", payload(300, 1)),
                        "journal_write -r 9000,9005-9009".to_owned(),
                        format!("journal_write -b 9100-9109 {}", payload(10, 2)),
                        format!("journal_write -b 9002,9006,9300 {}", payload(3, 3)),
                        "journal_write -r 9200-9205,9300".to_owned(),
                        format!("journal_write -b 9201 {}", payload(1, 4)),
                        "journal_close".to_owned(),
                    ],
                );
                let (volume, recovery) = compare(&image);
                std::fs::remove_file(image).unwrap();
                let has_sums = !checksums.is_empty();
                // debugfs miscounts tags of ten bytes, and overwrites its commit block: both see
                // the end of the log there.
                if features.starts_with('^')
                    && !features.contains("^metadata_csum")
                    && checksums.ends_with('2')
                {
                    continue;
                }
                let what = format!("{block_bytes} {features} {checksums}");
                // Checksums of whole transactions: debugfs writes a wrong one for transactions that
                // only revoke ("transaction 2 was corrupt").
                if features.contains("^metadata_csum") && has_sums {
                    assert_eq!((recovery.transactions, recovery.lost), (1, Some(2)), "{what}");
                    continue;
                }
                assert_eq!(
                    (recovery.transactions, recovery.lost, recovery.errno),
                    (6, None, 0),
                    "{what}"
                );
                assert_eq!(recovery.revoked, 13, "{what}");
                let has = |number| recovery.overlay.contains_key(&number);
                let seen = [9000, 9001, 9005, 9006, 9200, 9201, 9202, 9300].map(has);
                assert_eq!(seen, [false, true, false, true, false, true, false, false], "{what}");
                assert_eq!(volume.ignored(), 0);
            }
        }
    }
}

#[test]
fn a_clean_journal_has_nothing() {
    if !tools() {
        return;
    }
    let dir = scratch();
    for features in ["has_journal", "^has_journal"] {
        let image = mkfs(dir.path(), "clean.img", "16M", &["-b", "1024", "-O", features]);
        assert_eq!(recover(&open(&image)), Ok(Recovery::default()));
    }
}

#[test]
fn journals_that_the_kernel_had_not_emptied() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let shapes: [&[&str]; 4] = [
        &["-b", "4096"],
        &["-b", "1024", "-O", "^metadata_csum"],
        &["-b", "2048", "-O", "^64bit,^extent"],
        &["-b", "1024", "-O", "metadata_csum_seed,orphan_file", "-J", "size=1"],
    ];
    for shape in shapes {
        let image = mkfs(dir.path(), "kernel.img", "32M", shape);
        let at = dir.path().join("mnt");
        let Some(mounted) = Mounted::new(&image, &at, "noatime,commit=300") else { return };
        let mut copies = Vec::new();
        for round in 0..4 {
            // Directories are created, grow and are removed, so their blocks are revoked and
            // reused.
            let sub = at.join(format!("round{round}"));
            std::fs::create_dir(&sub).unwrap();
            for n in 0..400 {
                std::fs::write(sub.join(format!("file-{round}-{n}")), format!("{round} {n}"))
                    .unwrap();
            }
            mounted.sync();
            if round > 0 {
                std::fs::remove_dir_all(at.join(format!("round{}", round - 1))).unwrap();
                mounted.sync();
                std::fs::write(at.join(format!("after{round}")), vec![round as u8; 100_000])
                    .unwrap();
                mounted.sync();
            }
            let copy = dir.path().join(format!("dirty{round}.img"));
            std::fs::copy(&image, &copy).unwrap();
            copies.push(copy);
        }
        drop(mounted);
        for (round, copy) in copies.iter().enumerate() {
            let what = format!("{shape:?} {round}");
            let (volume, recovery) = compare(copy);
            assert!(recovery.transactions > 0 && !recovery.overlay.is_empty(), "{what}");
            assert_eq!((recovery.lost, recovery.errno), (None, 0), "{what}");
            let sub = volume.resolve(ROOT_INO, format!("round{round}").as_bytes(), true).unwrap();
            assert_eq!(names(&volume, sub).len(), 402, "{what}");
            let root = names(&volume, ROOT_INO);
            assert!(!root.contains_key(format!("round{}", round + 9).as_bytes()), "{what}");
            assert_eq!(root.keys().filter(|name| name.starts_with(b"round")).count(), 1, "{what}");
            // The reported recovery stays valid: e2fsck finds no problem after its own replay.
            run_for("e2fsck", &["-p", copy.to_str().unwrap()], &[0, 1]);
            std::fs::remove_file(copy).unwrap();
        }
        std::fs::remove_file(image).unwrap();
    }
}

#[test]
fn orphans_that_e2fsck_deleted_and_left_in_their_file() {
    if !tools() {
        return;
    }
    let dir = scratch();
    // The image has one group only. With an older backup superblock, which has no orphans, e2fsck
    // would run a full check, which repairs the orphan file, too.
    let image =
        mkfs(dir.path(), "image", "8M", &["-b", "1024", "-O", "metadata_csum_seed,orphan_file"]);
    let crashed = dir.path().join("crashed");
    let fs = mount(&image, &writable());
    let root = fs.root().unwrap();
    let node = fs
        .create(&root, "gone".as_ref(), &NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 })
        .unwrap();
    let file =
        fs.open_node_with(&node, &OpenOptions { write: true, ..OpenOptions::default() }).unwrap();
    file.write_at(&[1; 6000], 0).unwrap();
    fs.unlink(&root, "gone".as_ref()).unwrap();
    fs.sync().unwrap();
    std::fs::copy(&image, &crashed).unwrap();
    drop((file, node, root));
    fs.unmount().unwrap();
    run("e2fsck", &["-fn", image.to_str().unwrap()]);

    let said = run_for("e2fsck", &["-p", crashed.to_str().unwrap()], &[0, 1]);
    assert!(said.contains("Clearing orphaned inode"), "{said}");
    let left = run_for("e2fsck", &["-fn", crashed.to_str().unwrap()], &[0, 4]);
    println!("after e2fsck -p: {left}");
    mount(&crashed, &writable()).unmount().unwrap();
    run("e2fsck", &["-fn", crashed.to_str().unwrap()]);
}
