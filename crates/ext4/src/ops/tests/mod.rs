//! Compares changed files with a model; `e2fsck` checks the image.

mod steps;
mod trees;

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Progress, extents, orphans, truncate};
use crate::Error;
use crate::alloc::{AllocHandle, Allocator, Want};
use crate::journal::tests::image::Image;
use meantime_ext4_format::edit::{InodeEdit, NodeEdit};
use meantime_ext4_format::{MappedExtent, ROOT_INO};

/// A file system with a file `f`.
struct Bench {
    image: Image,
    allocator: Allocator,
    ino: u32,
    dir: tempfile::TempDir,
}

/// The file system has blocks of 1 KiB, and so nodes of 84 entries.
const PLAIN: &[&str] = &["-b", "1024", "-O", "metadata_csum,64bit"];

/// The blocks of a file by logical block: the block on the device, and whether it is unwritten.
type Model = BTreeMap<u32, (u64, bool)>;

impl Bench {
    fn new(size: &str, args: &[&str]) -> Option<Self> {
        Self::with(size, args, |_| {})
    }

    fn with(size: &str, args: &[&str], fill: impl FnOnce(&std::fs::File)) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        fill(&std::fs::File::create(root.join("f")).unwrap());
        let image = Image::make(size, &[args, &["-d", root.to_str().unwrap()]].concat())?;
        let ino = {
            let volume = image.volume();
            let root = volume.inode(ROOT_INO).unwrap();
            volume.lookup(&root, b"f").unwrap().unwrap().0
        };
        let allocator = Allocator::new(&image.volume()).unwrap();
        Some(Self { image, allocator, ino, dir })
    }

    fn change<T>(
        &self,
        work: impl FnOnce(&mut AllocHandle<'_, '_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.image.change_with(&self.allocator, |handle| {
            work(&mut AllocHandle::new(handle, &self.allocator))
        })
    }

    /// Returns a second bench with the same content, as after a crash.
    fn crashed(&self) -> Self {
        let path = self.dir.path().join("crashed");
        self.image.save(&path);
        let image = Image::load(&path);
        let allocator = Allocator::new(&image.volume()).unwrap();
        Self { image, allocator, ino: self.ino, dir: tempfile::tempdir().unwrap() }
    }

    /// Finishes all orphans, as the next mount does.
    fn recover(&self) {
        let found = self.change(|handle| orphans::list(handle)).unwrap();
        for ino in found {
            while self.change(|handle| orphans::finish(handle, ino, 8)).unwrap() == Progress::More {
            }
        }
        assert!(self.change(|handle| orphans::list(handle)).unwrap().is_empty());
    }

    fn edit<T>(
        &self,
        work: impl FnOnce(&mut AllocHandle<'_, '_>, &mut InodeEdit) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.change(|handle| {
            let mut inode = handle.load_inode(self.ino)?;
            let result = work(handle, &mut inode)?;
            handle.store_inode(&inode, true)?;
            Ok(result)
        })
    }

    fn model(&self) -> Model {
        let volume = self.image.volume();
        let map = volume.extent_map(&volume.inode(self.ino).unwrap()).unwrap();
        assert!(map.is_complete());
        let blocks = |extent: &MappedExtent| {
            let extent = *extent;
            (0..extent.blocks).map(move |at| {
                (extent.logical + at, (extent.physical + u64::from(at), extent.unwritten))
            })
        };
        map.extents().iter().flat_map(blocks).collect()
    }

    fn depth(&self) -> u16 {
        let volume = self.image.volume();
        NodeEdit::of(&volume.inode(self.ino).unwrap().block_area()[..]).unwrap().depth()
    }

    /// Returns the number of free blocks, and that of the file's blocks with its tree's nodes.
    fn free_and_own(&self) -> (u64, u64) {
        let volume = self.image.volume();
        let own = volume.inode(self.ino).unwrap().metadata().blocks_512 * 512
            / volume.block_bytes() as u64;
        (self.allocator.usage().free_blocks, own)
    }

    /// Allocates the holes of `range` in one change.
    fn insert(&self, model: &mut Model, range: Range<u32>, unwritten: bool) {
        let mut from = range.start;
        while from < range.end {
            let hole =
                (from..range.end).take_while(|block| !model.contains_key(block)).count() as u32;
            if hole == 0 {
                from += 1;
                continue;
            }
            let found = self.edit(|handle, inode| {
                let found = self.allocator.blocks(handle, Want::data(self.ino, None, hole))?;
                let blocks = (found.end - found.start) as u32;
                let extent =
                    MappedExtent { logical: from, blocks, physical: found.start, unwritten };
                extents::insert(handle, inode, extent)?;
                Ok(found)
            });
            for physical in found.unwrap() {
                model.insert(from, (physical, unwritten));
                from += 1;
            }
        }
    }

    fn remove(&self, model: &mut Model, range: Range<u32>, budget: usize) {
        let progress =
            || self.edit(|handle, inode| extents::remove(handle, inode, range.clone(), budget));
        while progress().unwrap() == Progress::More {}
        model.retain(|block, _| !range.contains(block));
    }

    fn set_written(&self, model: &mut Model, range: Range<u32>, written: bool) {
        self.edit(|handle, inode| extents::set_written(handle, inode, range.clone(), written))
            .unwrap();
        model.range_mut(range).for_each(|(_, (_, unwritten))| *unwritten = !written);
    }

    /// Grows the file so that all of its blocks are before its end.
    fn grow(&self) {
        let grown = self.change(|handle| truncate::set_size(handle, self.ino, 1 << 30, 8));
        assert_eq!(grown, Ok(Progress::Done));
    }
}
