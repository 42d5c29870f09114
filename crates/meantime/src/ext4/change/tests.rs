//! Files that change, against what they should be; `e2fsck` has the last word.

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{Progress, extents, truncate};
use crate::ext4::Error;
use crate::ext4::alloc::{Allocator, Want};
use crate::ext4::format::edit::{InodeEdit, NodeEdit};
use crate::ext4::format::{MappedExtent, ROOT_INO};
use crate::ext4::journal::Handle;
use crate::ext4::journal::testing::Image;

/// A file system with a file, `f`, of its own.
struct Bench {
    image: Image,
    allocator: Allocator,
    ino: u32,
    dir: tempfile::TempDir,
}

/// What a file has, block by block: where, and whether that is unwritten.
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

    fn change<T>(&self, work: impl FnOnce(&mut Handle<'_>) -> Result<T, Error>) -> Result<T, Error> {
        self.image.change_with(&self.allocator, work)
    }

    fn edit<T>(
        &self,
        work: impl FnOnce(&mut Handle<'_>, &mut InodeEdit) -> Result<T, Error>,
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
            (0..extent.blocks)
                .map(move |at| (extent.logical + at, (extent.physical + u64::from(at), extent.unwritten)))
        };
        map.extents().iter().flat_map(blocks).collect()
    }

    fn depth(&self) -> u16 {
        let volume = self.image.volume();
        NodeEdit::of(&volume.inode(self.ino).unwrap().block_area()[..]).unwrap().depth()
    }

    /// Blocks that are free, and those that the file has, its tree's included.
    fn free_and_own(&self) -> (u64, u64) {
        let volume = self.image.volume();
        let own = volume.inode(self.ino).unwrap().metadata().blocks_512 * 512 / volume.block_bytes() as u64;
        (self.allocator.usage().free_blocks, own)
    }

    /// Allocates what is not there of `range`, in one change.
    fn insert(&self, model: &mut Model, range: Range<u32>, unwritten: bool) {
        let mut from = range.start;
        while from < range.end {
            let hole = (from..range.end).take_while(|block| !model.contains_key(block)).count() as u32;
            if hole == 0 {
                from += 1;
                continue;
            }
            let found = self.edit(|handle, inode| {
                let want =
                    Want { ino: self.ino, goal: None, blocks: hole, reservation: None, metadata: false };
                let found = self.allocator.blocks(handle, want)?;
                let blocks = (found.end - found.start) as u32;
                let extent = MappedExtent { logical: from, blocks, physical: found.start, unwritten };
                extents::insert(handle, &self.allocator, inode, extent)?;
                Ok(found)
            });
            for physical in found.unwrap() {
                model.insert(from, (physical, unwritten));
                from += 1;
            }
        }
    }

    fn remove(&self, model: &mut Model, range: Range<u32>, budget: usize) {
        let progress = || {
            self.edit(|handle, inode| extents::remove(handle, &self.allocator, inode, range.clone(), budget))
        };
        while progress().unwrap() == Progress::More {}
        model.retain(|block, _| !range.contains(block));
    }

    fn set_written(&self, model: &mut Model, range: Range<u32>, written: bool) {
        self.edit(|handle, inode| {
            extents::set_written(handle, &self.allocator, inode, range.clone(), written)
        })
        .unwrap();
        model.range_mut(range).for_each(|(_, (_, unwritten))| *unwritten = !written);
    }

    /// So that nothing is behind the end.
    fn grow(&self) {
        let grown = self.change(|handle| truncate::set_size(handle, &self.allocator, self.ino, 1 << 30, 8));
        assert_eq!(grown, Ok(Progress::Done));
    }
}

const PLAIN: &[&str] = &["-b", "1024", "-O", "metadata_csum,64bit"];

#[test]
fn trees_of_three_levels_come_and_go() {
    for (how, kind) in [("at the end", 0), ("before all", 1), ("anywhere", 2)] {
        let Some(bench) = Bench::new("48M", PLAIN) else { return };
        bench.grow();
        let mut model = Model::new();
        let count = 29_000;
        let mut at = 7919;
        for step in 0..count {
            let block = match kind {
                0 => 2 * step,
                1 => 2 * (count - step),
                _ => {
                    at = (at + 17_389) % count;
                    2 * at
                }
            };
            bench.insert(&mut model, block..block + 1, step % 3 == 0);
        }
        assert_eq!(model.len(), count as usize);
        assert_eq!(bench.model(), model, "{how}");
        let depth = bench.depth();
        assert!(depth >= if kind == 0 { 2 } else { 3 }, "{how}: {depth}");
        bench.image.fsck();
        // Again in few steps.
        bench.remove(&mut model, 10_001..count, 50);
        assert_eq!(bench.model(), model);
        bench.image.fsck();
        bench.remove(&mut model, 30..u32::MAX, 50);
        assert_eq!(bench.model(), model);
        bench.image.fsck();
        bench.remove(&mut model, 7..u32::MAX, 3);
        assert_eq!((bench.depth(), bench.free_and_own().1), (0, model.len() as u64));
        assert_eq!(bench.model(), model);
        bench.image.fsck();
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Range<u32>, bool),
    Remove(Range<u32>, usize),
    Set(Range<u32>, bool),
    /// Every other block: many extents at once.
    Comb(Range<u32>),
    Commit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = |longest: u32| (0u32..3000, 1..longest).prop_map(|(start, blocks)| start..start + blocks);
    let step = prop_oneof![
        4 => (range(60), any::<bool>()).prop_map(|(range, unwritten)| Step::Insert(range, unwritten)),
        2 => (range(400), 1usize..30).prop_map(|(range, budget)| Step::Remove(range, budget)),
        1 => (range(3000), 1usize..30).prop_map(|(range, budget)| Step::Remove(range, budget)),
        3 => (range(400), any::<bool>()).prop_map(|(range, written)| Step::Set(range, written)),
        2 => range(700).prop_map(Step::Comb),
        1 => Just(Step::Commit),
    ];
    prop::collection::vec(step, 1..40)
}

fn run(bench: &Bench, steps: &[Step]) -> Result<(), TestCaseError> {
    bench.grow();
    let mut model = Model::new();
    let (free, own) = bench.free_and_own();
    for step in steps {
        match step.clone() {
            Step::Insert(range, unwritten) => bench.insert(&mut model, range, unwritten),
            Step::Remove(range, budget) => bench.remove(&mut model, range, budget),
            Step::Set(range, written) => bench.set_written(&mut model, range, written),
            Step::Comb(range) => {
                for block in range.step_by(2) {
                    bench.insert(&mut model, block..block + 1, block % 4 == 0);
                }
            }
            Step::Commit => bench.image.commit(),
        }
        prop_assert_eq!(bench.model(), model.clone(), "{:?}", step);
        let now = bench.free_and_own();
        prop_assert_eq!(now.0 + now.1, free + own);
        prop_assert!(now.1 >= model.len() as u64);
    }
    bench.image.fsck();
    bench.remove(&mut model, 0..u32::MAX, 20);
    prop_assert_eq!((bench.free_and_own(), bench.depth()), ((free, own), 0));
    bench.image.fsck();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_file_is_what_was_made_of_it(
        steps in steps(),
        features in prop::sample::select(vec![
            "metadata_csum,64bit", "^metadata_csum,^64bit", "metadata_csum,metadata_csum_seed,^64bit,^flex_bg",
        ]),
    ) {
        let Some(bench) = Bench::new("16M", &["-b", "1024", "-O", features]) else { return Ok(()) };
        run(&bench, &steps)?;
    }
}
