//! Allocation against e2fsck's opinion.

mod attach;
mod model;

use super::{Allocator, Want};
use crate::ext4::Error;
use crate::ext4::format::Volume;
use crate::ext4::journal::testing::Image;

fn want(blocks: u32) -> Want<'static> {
    Want { ino: 12, goal: None, blocks, reservation: None, metadata: false }
}

#[test]
fn what_is_freed_is_nobodys_before_the_commit() {
    let Some(image) = Image::make("8M", &["-b", "1024"]) else { return };
    let allocator = Allocator::new(&image.volume()).unwrap();
    allocator.set_privileged(true);
    let before = allocator.usage();
    assert_eq!(before, image.volume().usage().unwrap());
    let taken = image.change_with(&allocator, |handle| allocator.blocks(handle, want(100))).unwrap();
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

#[test]
fn a_change_that_fails_takes_nothing() {
    let Some(image) = Image::make("8M", &["-b", "1024"]) else { return };
    let allocator = Allocator::new(&image.volume()).unwrap();
    let before = allocator.usage();
    let mut reservation = allocator.reserve(50).unwrap();
    let failed: Result<(), Error> = image.change_with(&allocator, |handle| {
        let taken = allocator.blocks(handle, Want { reservation: Some(&mut reservation), ..want(30) })?;
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
        image.change_with(&allocator, |handle| allocator.free_inode(handle, *ino, *directory)).unwrap();
        let again = image.change_with(&allocator, |handle| allocator.free_inode(handle, *ino, *directory));
        assert!(matches!(again, Err(Error::Corrupt(_))));
    }
    image.fsck();
    assert_eq!(usage(&image.volume()), allocator.usage());
}

fn usage(volume: &Volume<&Image>) -> crate::ext4::Usage {
    volume.usage().unwrap()
}
