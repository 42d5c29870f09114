//! Tests directories that grow large and become empty again.

use std::collections::BTreeMap;

use super::*;

/// Fills a directory with links to one file, and removes them again.
fn fill(size: &str, args: &[&str], debugfs: &[&str], count: u32, name_bytes: usize, levels: usize) {
    let Some(mut rig) = Rig::new(size, args, debugfs) else { return };
    let (dir, file) = rig
        .change(|handle| {
            let dir = mkdir(handle, ROOT_INO, b"dir", &NEW)?;
            Ok((dir, create(handle, dir, &name(0, name_bytes), &NEW)?))
        })
        .unwrap();
    for first in (1..count).step_by(20) {
        rig.change(|handle| {
            (first..count.min(first + 20))
                .try_for_each(|number| link(handle, file, dir, &name(number, name_bytes)))
        })
        .unwrap();
    }
    let check = |rig: &Rig, left: &dyn Fn(u32) -> bool| {
        let volume = rig.image.volume();
        let expected: BTreeMap<_, _> = (0..count)
            .filter(|number| left(*number))
            .map(|number| (name(number, name_bytes), file))
            .collect();
        assert!(names(&volume, dir) == expected);
        rig.image.fsck();
    };
    check(&rig, &|_| true);
    let volume = rig.image.volume();
    let inode = volume.linked_inode(dir).unwrap();
    if levels == 0 {
        assert!(!inode.has(flags::INDEX));
    } else {
        let directory = meantime_ext4_format::directory::Directory::open(&volume, &inode).unwrap();
        let root = directory.root().unwrap().0;
        assert_eq!(root.levels, levels - 1);
    }
    let again = rig.change(|handle| link(handle, file, dir, &name(1, name_bytes)));
    assert_eq!(again, Err(Error::Exists));
    // Remove two of three names.
    let stays = |number: u32| number.is_multiple_of(3);
    for first in (0..count).step_by(50) {
        rig.change(|handle| {
            (first..count.min(first + 50)).filter(|number| !stays(*number)).try_for_each(|number| {
                unlink(handle, dir, &name(number, name_bytes), MAYBE_USED).map(|_| ())
            })
        })
        .unwrap();
    }
    check(&rig, &stays);
    let gone = rig.change(|handle| unlink(handle, dir, &name(1, name_bytes), MAYBE_USED));
    assert_eq!(gone, Err(Error::NotFound));
    // The kernel changes the directory next, then this crate does.
    let entries = (0..count).filter(|number| stays(*number)).count();
    with_kernel(&mut rig, "rw", |at| {
        let dir = at.join("dir");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), entries);
        for number in 0..count.min(2000) {
            let name = name(number, name_bytes);
            let path =
                dir.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&name));
            assert_eq!(path.exists(), stays(number));
            if stays(number) {
                std::fs::remove_file(path).unwrap();
            } else {
                std::fs::write(path, b"").unwrap();
            }
        }
    });
    let seen = names(&rig.image.volume(), dir);
    if seen.contains_key(&name(1, name_bytes)) {
        for first in (0..count.min(2000)).step_by(50) {
            rig.change(|handle| {
                for number in first..count.min(2000).min(first + 50) {
                    if !stays(number) {
                        unlink(handle, dir, &name(number, name_bytes), MAYBE_USED)?;
                    }
                }
                Ok(())
            })
            .unwrap();
        }
        assert!(names(&rig.image.volume(), dir).keys().all(|name| seen.contains_key(name)));
    }
    let inodes: Vec<_> = rig.change(|handle| orphans::list(handle)).unwrap();
    inodes.into_iter().for_each(|ino| rig.finish(ino));
    rig.image.fsck();
}

#[test]
fn directories_grow_and_shrink_with_every_hash() {
    for (version, sign) in [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)] {
        let version = format!("ssv def_hash_version {version}");
        let sign = format!("ssv flags {sign}");
        // The tree has a root, one more level, and leaves.
        fill("24M", &["-b", "1024", "-N", "4000"], &[&version, &sign], 5000, 40, 2);
    }
}

#[test]
fn an_index_of_three_levels() {
    fill("96M", &["-b", "1024", "-O", "large_dir"], &[], 40_000, 250, 3);
}

#[test]
fn an_index_that_is_full_says_so() {
    let Some(rig) = Rig::new("48M", &["-b", "1024"], &[]) else { return };
    let (dir, file) = rig
        .change(|handle| {
            let dir = mkdir(handle, ROOT_INO, b"dir", &NEW)?;
            Ok((dir, create(handle, dir, &name(0, 250), &NEW)?))
        })
        .unwrap();
    let mut number = 0;
    let failed = loop {
        number += 1;
        let result = rig.change(|handle| link(handle, file, dir, &name(number, 250)));
        if let Err(error) = result {
            break error;
        }
    };
    assert_eq!(failed, Error::NoSpace);
    assert!(number > 10_000 && rig.allocator.usage().free_blocks > 4000);
    assert_eq!(names(&rig.image.volume(), dir).len(), number as usize);
    rig.image.fsck();
}

#[test]
fn directories_of_every_shape() {
    let shapes: [(&str, &[&str], usize); 8] = [
        ("16M", &["-b", "4096", "-N", "4000"], 1),
        ("16M", &["-b", "1024", "-O", "^metadata_csum,^64bit"], 1),
        ("16M", &["-b", "1024", "-O", "^dir_index"], 0),
        ("16M", &["-b", "1024", "-O", "^filetype"], 1),
        ("16M", &["-b", "2048", "-O", "metadata_csum_seed,orphan_file"], 1),
        ("96M", &["-b", "65536", "-N", "4000"], 1),
        ("96M", &["-b", "65536", "-O", "^metadata_csum", "-N", "4000"], 1),
        ("16M", &["-b", "1024", "-I", "128"], 1),
    ];
    for (size, args, levels) in shapes {
        println!("{args:?}");
        fill(size, args, &[], 1500, 40, levels);
    }
}

#[test]
fn without_extents_a_directory_has_twelve_blocks() {
    let Some(rig) = Rig::new("16M", &["-b", "1024", "-O", "^extent,^64bit"], &[]) else { return };
    let (dir, file) = rig
        .change(|handle| {
            let dir = mkdir(handle, ROOT_INO, b"dir", &NEW)?;
            symlink(handle, dir, b"long", &[b'x'; 200], &NEW)?;
            Ok((dir, create(handle, dir, b"file", &NEW)?))
        })
        .unwrap();
    let mut number = 0;
    let failed = loop {
        number += 1;
        let result = rig.change(|handle| link(handle, file, dir, &name(number, 100)));
        if let Err(error) = result {
            break error;
        }
    };
    assert!(matches!(failed, Error::Unsupported(_)), "{failed}");
    assert!(number > 50);
    rig.image.fsck();
}
