//! Damaged indexes: a listing returns all names or an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meantime_ext4::format::Error;
use meantime_ext4::format::{Inode, ROOT_INO, Volume, VolumeOptions};
use meantime_ext4::{Corruption, Defect};

use meantime_testkit::image::{Image, mkfs, open_with, run_for, scratch, tools};

type List =
    fn(&Volume<Image>, &Inode, u64) -> Result<Vec<meantime_ext4::format::DirectoryEntry>, Error>;

/// Everything that `list` returns, and its final result.
fn all(volume: &Volume<Image>, dir: &Inode, list: List) -> (Vec<Vec<u8>>, Result<(), Error>) {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        match list(volume, dir, cookie) {
            Ok(some) => {
                let Some(last) = some.last() else { return (names, Ok(())) };
                assert!(last.cookie > cookie);
                cookie = last.cookie;
                names.extend(some.into_iter().map(|entry| entry.name));
            }
            Err(error) => return (names, Err(error)),
        }
    }
}

#[test]
fn a_damaged_index_hides_no_names() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("d")).unwrap();
    for n in 0..400 {
        std::fs::write(tree.join("d").join(format!("{n}-{}", "n".repeat(n % 40))), b"").unwrap();
    }
    let image =
        mkfs(dir.path(), "damaged.img", "16M", &["-b", "1024", "-d", tree.to_str().unwrap()]);
    run_for("e2fsck", &["-fyD", image.to_str().unwrap()], &[0, 1]);
    let options = VolumeOptions { ignore_checksums: true, superblock: None };
    let mut volume = open_with(&image, options);
    let ino = volume.resolve(ROOT_INO, b"/d", true).unwrap();
    let inode = volume.linked_inode(ino).unwrap();
    let in_order: List = |volume, dir, cookie| volume.list(dir, cookie, u64::MAX);
    let by_block: List = |volume, dir, cookie| volume.entries(dir, cookie);
    let (names, ended) = all(&volume, &inode, in_order);
    assert_eq!((names.len(), ended), (402, Ok(())));
    let expected: BTreeSet<_> = names.iter().cloned().collect();
    assert_eq!(expected.len(), 402);

    let number = volume.run_at(&inode, 0).unwrap().physical;
    let root = volume.block(number).unwrap();
    let set = |at: usize, bytes: &[u8]| -> Arc<[u8]> {
        let mut block = root.to_vec();
        block[at..at + bytes.len()].copy_from_slice(bytes);
        block.into()
    };
    let is_tree = |error: &Error| {
        matches!(error, Error::Corrupt(Corruption { defect: Defect::HashTree, .. }))
    };
    // An index that is malformed from the start is read block by block: hash, levels, limit, the
    // path to the first leaf, the order of hashes.
    for (at, bytes) in [
        (28, &[9][..]),
        (30, &[7]),
        (32, &[1, 0]),
        (36, &[0xff, 0xff, 0xff, 0]),
        (56, &[2, 0, 0, 0]),
    ] {
        volume.set_overlay(BTreeMap::from([(number, set(at, bytes))])).unwrap();
        let (found, ended) = all(&volume, &inode, in_order);
        assert_eq!(ended, Ok(()), "byte {at}");
        assert_eq!(found, all(&volume, &inode, by_block).0, "byte {at}");
        assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), expected, "byte {at}");
    }
    // Damage found later is an error, after the names before it: an entry that leads out of the
    // directory, and one that leads to another leaf.
    for (at, bytes) in [(48 + 4, &[0xff, 0xff, 0xff, 0][..]), (48 + 4, &[1, 0, 0, 0])] {
        volume.set_overlay(BTreeMap::from([(number, set(at, bytes))])).unwrap();
        let (found, ended) = all(&volume, &inode, in_order);
        assert!(ended.as_ref().is_err_and(is_tree), "byte {at}: {ended:?}");
        assert!(found.len() > 2 && found.len() < 402, "byte {at}: {} names", found.len());
        assert_eq!(
            found.iter().collect::<BTreeSet<_>>().len(),
            found.len(),
            "byte {at}: none twice"
        );
    }
}
