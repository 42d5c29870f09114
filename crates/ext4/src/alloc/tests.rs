//! Compares allocation with what e2fsck finds.

mod attach;
mod model;

use super::{Allocator, Want};
use crate::journal::tests::image::Image;
use crate::space::{Caller, Who};
use crate::{Defect, Error};
use meantime_ext4_format::Volume;
use meantime_ext4_format::edit::bitmap;

fn want(blocks: u32) -> Want<'static> {
    Want::data(12, None, blocks)
}

#[test]
fn what_is_freed_is_nobodys_before_the_commit() {
    let Some(image) = Image::make("8M", &["-b", "1024"]) else { return };
    let allocator = Allocator::new(&image.volume()).unwrap();
    allocator.set_privileged(true);
    let before = allocator.usage();
    assert_eq!(before, image.volume().usage().unwrap());
    let taken =
        image.change_with(&allocator, |handle| allocator.blocks(handle, want(100))).unwrap();
    assert_eq!(taken.end - taken.start, 100);
    assert_eq!(allocator.usage().free_blocks, before.free_blocks - 100);
    image.change_with(&allocator, |handle| allocator.free_blocks(handle, taken.clone())).unwrap();
    assert_eq!(allocator.usage(), before);
    image.fsck();
    let next = image.change_with(&allocator, |handle| allocator.blocks(handle, want(100))).unwrap();
    assert!(next.start >= taken.end, "{next:?}");
    image.change_with(&allocator, |handle| allocator.free_blocks(handle, next.clone())).unwrap();
    image.commit();
    let there = Want { goal: Some(taken.start), ..want(100) };
    let again = image.change_with(&allocator, |handle| allocator.blocks(handle, there)).unwrap();
    assert_eq!(again, taken);
}

/// A search that finds a long run still held must not remember that the group has none.
#[test]
fn a_run_that_was_held_is_found_after_the_commit() {
    let Some(image) = Image::make("16M", &["-b", "1024", "-O", "^flex_bg"]) else { return };
    let allocator = Allocator::new(&image.volume()).unwrap();
    allocator.set_privileged(true);
    let take =
        |blocks| image.change_with(&allocator, |handle| allocator.blocks(handle, want(blocks)));
    let free = |blocks: std::ops::Range<u64>| {
        image.change_with(&allocator, |handle| allocator.free_blocks(handle, blocks)).unwrap();
    };
    let taken: Vec<_> = std::iter::from_fn(|| take(1000).ok()).collect();
    let last = || Want { blocks: 1000, ..Want::node(12, None) };
    while image.change_with(&allocator, |handle| allocator.blocks(handle, last())).is_ok() {}
    let group_1 = image.volume().superblock().group_start(1);
    let (first, second): (Vec<_>, Vec<_>) = taken.iter().partition(|run| run.end <= group_1);
    // Group 0 has single blocks, group 1 a run.
    for n in 0..10 {
        free(first[0].start + 2 * n..first[0].start + 2 * n + 1);
    }
    image.commit();
    let run = second.iter().find(|run| run.start >= group_1 && run.end - run.start >= 600).unwrap();
    free(run.start..run.start + 600);
    // Metadata leave this many for data.
    let single = take(200).unwrap();
    assert!(single.end <= group_1 && single.end - single.start == 1, "{single:?}");
    image.commit();
    assert_eq!(take(200).unwrap().count(), 200);
}

#[test]
fn a_change_that_fails_takes_nothing() {
    let Some(image) = Image::make("8M", &["-b", "1024"]) else { return };
    let allocator = Allocator::new(&image.volume()).unwrap();
    let before = allocator.usage();
    let mut reservation = allocator.reserve(50).unwrap();
    let failed: Result<(), Error> = image.change_with(&allocator, |handle| {
        let taken =
            allocator.blocks(handle, Want { reservation: Some(&mut reservation), ..want(30) })?;
        assert_eq!((taken.end - taken.start, reservation.blocks()), (30, 20));
        allocator.inode(handle, 2, true)?;
        Err(Error::NotFound)
    });
    assert_eq!(failed, Err(Error::NotFound));
    assert_eq!(reservation.blocks(), 50);
    assert_eq!(allocator.usage().free_blocks, before.free_blocks - 50);
    image.fsck();
    let taken = image.change_with(&allocator, |handle| {
        allocator.blocks(handle, Want { reservation: Some(&mut reservation), ..want(30) })
    });
    assert_eq!(reservation.blocks(), 20);
    assert_eq!(allocator.usage().free_blocks, before.free_blocks - 50);
    drop(reservation);
    assert_eq!(allocator.usage().free_blocks, before.free_blocks - 30);
    image.change_with(&allocator, |handle| allocator.free_blocks(handle, taken.unwrap())).unwrap();
    assert_eq!(allocator.usage(), before);
}

#[test]
fn inodes_of_every_group_are_taken_and_freed() {
    let Some(image) = Image::make("32M", &["-b", "1024", "-N", "512"]) else { return };
    let allocator = Allocator::new(&image.volume()).unwrap();
    let before = allocator.usage();
    let mut taken = Vec::new();
    loop {
        let directory = taken.len() % 3 == 0;
        match image.change_with(&allocator, |handle| allocator.inode(handle, 2, directory)) {
            Ok(ino) => taken.push((ino, directory)),
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                break;
            }
        }
    }
    assert_eq!(taken.len() as u64, before.free_inodes);
    assert_eq!(image.volume().usage().unwrap().free_inodes, 0);
    for (ino, directory) in &taken {
        image
            .change_with(&allocator, |handle| allocator.free_inode(handle, *ino, *directory))
            .unwrap();
        let again =
            image.change_with(&allocator, |handle| allocator.free_inode(handle, *ino, *directory));
        assert!(matches!(again, Err(Error::Corrupt(_))));
    }
    image.fsck();
    assert_eq!(usage(&image.volume()), allocator.usage());
}

#[test]
fn files_that_grow_by_turns_stay_in_few_pieces() {
    let Some(image) = Image::make("64M", &["-b", "1024"]) else { return };
    let allocator = Allocator::new(&image.volume()).unwrap();
    let mut ends = [None; 8];
    let mut pieces = [0; 8];
    for _ in 0..600 {
        for (at, end) in ends.iter_mut().enumerate() {
            let want = Want { ino: 20 + at as u32, goal: *end, ..want(1) };
            let taken =
                image.change_with(&allocator, |handle| allocator.blocks(handle, want)).unwrap();
            pieces[at] += i32::from(*end != Some(taken.start));
            *end = Some(taken.end);
        }
    }
    assert!(pieces.iter().all(|pieces| *pieces <= 14), "{pieces:?}");
}

#[test]
fn many_blocks_are_one_run_where_there_is_one() {
    let Some(image) = Image::make("64M", &["-b", "1024", "-O", "^has_journal"]) else { return };
    let allocator = Allocator::new(&image.volume()).unwrap();
    // Leave only holes at the beginning of the first group.
    let mut holes = Vec::new();
    for at in 0..2000 {
        let taken =
            image.change_with(&allocator, |handle| allocator.blocks(handle, want(3))).unwrap();
        if at % 2 == 0 {
            holes.push(taken);
        }
    }
    for hole in holes {
        image.change_with(&allocator, |handle| allocator.free_blocks(handle, hole)).unwrap();
    }
    image.commit();
    for _ in 0..20 {
        let goal = Some(image.volume().superblock().group_start(0) + 1000);
        let want = Want { goal, ..want(512) };
        let taken = image.change_with(&allocator, |handle| allocator.blocks(handle, want)).unwrap();
        if taken.end - taken.start == 512 {
            assert_eq!(taken.start % 512, 0);
        } else {
            // The goal itself was free.
            assert_eq!(Some(taken.start), goal);
        }
    }
}

#[test]
fn some_blocks_are_roots_and_the_last_for_metadata() {
    let Some(image) = Image::make("16M", &["-b", "1024", "-m", "10"]) else { return };
    let allocator = Allocator::new(&image.volume()).unwrap();
    let take = |metadata| {
        let mut taken = 0;
        loop {
            let who = if metadata { Who::Need } else { Who::Caller };
            let want = Want { metadata, who, ..want(1000) };
            match image.change_with(&allocator, |handle| allocator.blocks(handle, want)) {
                Ok(blocks) => taken += blocks.end - blocks.start,
                Err(error) => {
                    assert_eq!(error, Error::NoSpace);
                    return taken;
                }
            }
        }
    };
    let before = allocator.usage();
    let reservation = allocator.reserve(before.available_blocks).unwrap();
    assert_eq!(allocator.reserve(1).err(), Some(Error::NoSpace));
    assert_eq!(allocator.usage().available_blocks, 0);
    assert_eq!(take(false), 0);
    drop(reservation);
    assert_eq!(allocator.usage(), before);
    assert_eq!(take(false), before.available_blocks);
    allocator.set_privileged(true);
    let (root, last) = (16 * 1024 / 10, 16 * 1024 / 50);
    assert_eq!(take(false), root);
    assert_eq!(take(true), last);
    assert_eq!(allocator.usage().free_blocks, 0);
    assert!(!allocator.would_commit_help());
}

/// Reserved blocks go to the reserved user, to the reserved group unless that is root's, and to
/// root (`ext4_has_free_clusters`).
#[test]
fn reserved_blocks_are_the_callers_right() {
    // This image has no checksums: the superblock's would have to follow the change.
    let args = ["-b", "1024", "-m", "10", "-O", "^metadata_csum"];
    for (owner, group) in [(0, 0), (7, 0), (7, 30)] {
        let Some(image) = Image::make("16M", &args) else { return };
        image.write(1024 + 0x50, &u16::to_le_bytes(owner));
        image.write(1024 + 0x52, &u16::to_le_bytes(group));
        let allocator = Allocator::new(&image.volume()).unwrap();
        let usage = allocator.usage();
        let held = allocator.reserve(usage.available_blocks).unwrap();
        let may = |uid, gid| {
            let _acting = Caller { uid, gid }.act();
            let promised = allocator.reserve(1).is_ok();
            let taken = image.change_with(&allocator, |handle| {
                allocator.blocks(handle, want(1)).map(drop)?;
                Err::<(), _>(Error::NotFound)
            });
            assert_eq!(promised, taken == Err(Error::NotFound), "{uid} {gid}: {taken:?}");
            promised
        };
        for (uid, gid) in [(0, 0), (0, 9), (7, 9), (1000, 0), (1000, 30), (65_534, 65_534)] {
            let expected = uid == 0 || uid == u32::from(owner) || gid == 30 && group == 30;
            assert_eq!(may(uid, gid), expected, "{uid} {gid}, of {owner} {group}");
        }
        assert!(!may(Caller::NOBODY.uid, Caller::NOBODY.gid));
        // The process may not use them, nor may a caller if the mount does not go by callers.
        assert!(allocator.reserve(1).is_err());
        allocator.set_by_caller(false);
        assert!(!may(0, 0));
        allocator.set_privileged(true);
        assert!(may(1000, 1000) && allocator.reserve(1).is_ok());
        allocator.set_by_caller(true);
        assert!(!may(1000, 1000) && allocator.reserve(1).is_ok());
        // Promised blocks can be allocated by any caller. Root cannot use the last reserve.
        let mut held = held;
        let _acting = Caller::NOBODY.act();
        let taken = image.change_with(&allocator, |handle| {
            allocator.blocks(handle, Want { reservation: Some(&mut held), ..want(9) })
        });
        assert_eq!(taken.map(|taken| taken.end - taken.start), Ok(9));
        let _acting = Caller { uid: 0, gid: 0 }.act();
        let roots = allocator.reserve(16 * 1024 / 10).unwrap();
        assert_eq!(allocator.reserve(1).err(), Some(Error::NoSpace));
        drop((roots, held));
    }
}

#[test]
fn directories_of_the_root_are_spread_and_files_stay_with_them() {
    let Some(image) = Image::make("64M", &["-b", "1024", "-O", "^flex_bg"]) else { return };
    let allocator = Allocator::new(&image.volume()).unwrap();
    let volume = image.volume();
    let group = |ino: u32| (ino - 1) / volume.superblock().inodes_per_group();
    let inode = |parent, directory| {
        image.change_with(&allocator, |handle| allocator.inode(handle, parent, directory)).unwrap()
    };
    let directories: Vec<_> = (0..5).map(|_| inode(2, true)).collect();
    let groups: std::collections::BTreeSet<_> = directories.iter().map(|ino| group(*ino)).collect();
    assert!(groups.len() >= 4, "{groups:?}");
    for parent in directories {
        assert_eq!(group(inode(parent, false)), group(parent));
        assert_eq!(group(inode(parent, true)), group(parent));
    }
}

#[test]
fn a_bitmap_that_cannot_be_is_not_believed() {
    let args = ["-b", "1024", "-O", "^metadata_csum,^uninit_bg"];
    let Some(image) = Image::make("8M", &args) else { return };
    let group = image.volume().group(0).unwrap();
    let block = |number: u64| number * 1024;
    // The bitmap has one free block more than the descriptor says.
    let bits = image.volume().block(group.block_bitmap).unwrap();
    image.write(block(group.block_bitmap), &[bits[0] & 0xFE]);
    let allocator = Allocator::new(&image.volume()).unwrap();
    let damage = |result: Result<_, Error>| match result {
        Err(Error::Corrupt(corruption)) => corruption.defect,
        other => panic!("{other:?}"),
    };
    let taken = image.change_with(&allocator, |handle| allocator.blocks(handle, want(1)).map(drop));
    assert_eq!(damage(taken), Defect::FreeCount("free blocks"));
    // The count agrees, but the free block is the superblock's.
    let first = bitmap::first_free(&bits, 0..8192);
    let mut wrong = bits.to_vec();
    wrong[0] &= 0xFE;
    wrong[first as usize / 8] |= 1 << (first % 8);
    image.write(block(group.block_bitmap), &wrong);
    let goal = Want::node(12, None);
    let taken = image.change_with(&allocator, |handle| allocator.blocks(handle, goal).map(drop));
    assert_eq!(damage(taken), Defect::BlockUnmarked);
    // A block of the file system's own is not freed.
    let own = group.inode_table..group.inode_table + 1;
    let freed = image.change_with(&allocator, |handle| allocator.free_blocks(handle, own));
    assert_eq!(damage(freed), Defect::BlockShared);
}

fn usage(volume: &Volume<&Image>) -> crate::Usage {
    volume.usage().unwrap()
}
