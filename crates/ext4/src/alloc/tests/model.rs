//! Random allocation on file systems of many shapes: no block is allocated twice, and at the end
//! `e2fsck` finds no error.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::{Allocator, Want};
use super::attach::{Made, attach};
use crate::Error;
use crate::journal::Handle;
use crate::journal::tests::image::Image;
use crate::space::Who;

/// An operation; numbers are taken modulo the number of candidates.
#[derive(Debug, Clone)]
enum Op {
    /// Takes blocks for a file: after its last one, near its inode, or anywhere.
    Take { file: usize, blocks: u32, goal: Goal, metadata: bool, reserved: bool },
    /// Frees the end of a run of a file.
    Free { file: usize, run: usize, blocks: u64 },
    /// Makes a file or directory.
    Make { parent: usize, directory: bool },
    /// Removes a file or directory without blocks.
    Remove { file: usize },
    /// Commits the transaction.
    Commit,
    /// Makes a new allocator, which has no hints.
    Forget,
}

#[derive(Debug, Clone)]
enum Goal {
    Append,
    None,
    At(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let goal = prop_oneof![
        4 => Just(Goal::Append),
        2 => Just(Goal::None),
        2 => any::<u64>().prop_map(Goal::At),
    ];
    let blocks = prop_oneof![3 => 1u32..4, 3 => 1u32..300, 1 => 1u32..20_000];
    let take = (any::<usize>(), blocks, goal, any::<bool>(), any::<bool>()).prop_map(
        |(file, blocks, goal, metadata, reserved)| Op::Take {
            file,
            blocks,
            goal,
            metadata,
            reserved,
        },
    );
    let free = (any::<usize>(), any::<usize>(), prop_oneof![1u64..10, 1u64..20_000])
        .prop_map(|(file, run, blocks)| Op::Free { file, run, blocks });
    let make = (any::<usize>(), any::<bool>())
        .prop_map(|(parent, directory)| Op::Make { parent, directory });
    prop_oneof![
        8 => take,
        6 => free,
        4 => make,
        1 => any::<usize>().prop_map(|file| Op::Remove { file }),
        2 => Just(Op::Commit),
        1 => Just(Op::Forget),
    ]
}

/// The image and its expected state.
struct Model {
    image: Image,
    allocator: Allocator,
    made: Vec<(u32, Made)>,
    used: BTreeSet<u64>,
    held: BTreeSet<u64>,
}

/// Fills what was never written with garbage: unused slots of inode tables, uninitialized bitmaps.
fn litter(image: &Image) {
    let volume = image.volume();
    let superblock = volume.superblock();
    let block = |number: u64| number * u64::from(superblock.block_bytes());
    let garbage = |bytes: u64| vec![0xA5; bytes as usize];
    for number in 0..superblock.groups() {
        let group = volume.group(number).unwrap();
        let table = superblock.inode_table_blocks() * u64::from(superblock.block_bytes());
        let known = superblock.inodes_per_group() - group.unused_inodes;
        let known = u64::from(known * superblock.inode_bytes());
        image.write(block(group.inode_table) + known, &garbage(table - known));
        if group.inode_uninit {
            image.write(block(group.inode_bitmap), &garbage(block(1)));
        }
        if group.block_uninit {
            image.write(block(group.block_bitmap), &garbage(block(1)));
        }
    }
}

impl Model {
    fn new(image: Image) -> Self {
        litter(&image);
        let allocator = Allocator::new(&image.volume()).unwrap();
        allocator.set_privileged(true);
        Self { image, allocator, made: Vec::new(), used: BTreeSet::new(), held: BTreeSet::new() }
    }

    fn file(&self, number: usize) -> Option<usize> {
        let files: Vec<_> = (0..self.made.len()).filter(|at| !self.made[*at].1.directory).collect();
        (!files.is_empty()).then(|| files[number % files.len()])
    }

    /// Changes the image by `work`: first in a handle that fails, then in one that succeeds.
    fn change<T>(&self, work: impl Fn(&mut Handle<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let before = self.allocator.usage();
        let refused: Result<(), Error> = self.image.change_with(&self.allocator, |handle| {
            work(handle)?;
            Err(Error::Busy)
        });
        assert!(refused.is_err());
        assert_eq!(self.allocator.usage(), before);
        self.image.change_with(&self.allocator, work)
    }

    fn take(&mut self, file: usize, blocks: u32, goal: &Goal, metadata: bool, reserved: bool) {
        let Some(at) = self.file(file) else { return };
        let (ino, made) = &self.made[at];
        let ino = *ino;
        // One level of nodes cannot map more.
        if made.runs.len() >= 200 {
            return;
        }
        let goal = match goal {
            Goal::Append => made.runs.last().map(|run| run.end),
            Goal::None => None,
            Goal::At(block) => Some(block % self.image.volume().block_count()),
        };
        let reservation =
            if reserved { self.allocator.reserve(u64::from(blocks)).ok() } else { None };
        let reservation = std::cell::RefCell::new(reservation);
        let taken = self.change(|handle| {
            let mut reservation = reservation.borrow_mut();
            let reservation = reservation.as_mut();
            let who = if metadata { Who::Need } else { Who::Caller };
            self.allocator.blocks(handle, Want { ino, goal, blocks, reservation, metadata, who })
        });
        let left = reservation.into_inner().map(|reservation| reservation.blocks());
        match taken {
            Ok(taken) => {
                let count = taken.end - taken.start;
                assert!((1..=u64::from(blocks)).contains(&count), "{taken:?} of {blocks}");
                assert!(left.is_none_or(|left| left == u64::from(blocks) - count));
                for block in taken.clone() {
                    assert!(
                        !self.held.contains(&block),
                        "block {block} was freed and has not committed"
                    );
                    assert!(self.used.insert(block), "block {block} is in use");
                }
                self.made[at].1.runs.push(taken);
            }
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                let free = self.image.volume().usage().unwrap().free_blocks;
                // Everything that is free is held, or kept for metadata.
                let kept = if metadata { 0 } else { self.allocator.pool.kept_back() };
                assert!(free <= (self.held.len() as u64).max(kept), "{free} are free");
                if free > kept {
                    assert!(self.allocator.would_commit_help());
                }
            }
        }
    }

    fn free(&mut self, file: usize, run: usize, blocks: u64) {
        let Some(at) = self.file(file) else { return };
        let made = &mut self.made[at].1;
        if made.runs.is_empty() {
            return;
        }
        let run = run % made.runs.len();
        let range = made.runs[run].clone();
        let freed = range.end - blocks.min(range.end - range.start)..range.end;
        made.runs[run].end = freed.start;
        if made.runs[run].is_empty() {
            made.runs.remove(run);
        }
        self.change(|handle| self.allocator.free_blocks(handle, freed.clone())).unwrap();
        for block in freed.clone() {
            assert!(self.used.remove(&block));
            self.held.insert(block);
        }
        // A second free of the same blocks fails.
        let again = self
            .image
            .change_with(&self.allocator, |handle| self.allocator.free_blocks(handle, freed));
        assert!(matches!(again, Err(Error::Corrupt(_))));
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Take { file, blocks, goal, metadata, reserved } => {
                self.take(*file, *blocks, goal, *metadata, *reserved);
            }
            Op::Free { file, run, blocks } => self.free(*file, *run, *blocks),
            Op::Make { parent, directory } => {
                if self.made.len() >= 60 {
                    return;
                }
                let parents: Vec<_> = self
                    .made
                    .iter()
                    .filter(|(_, made)| made.directory)
                    .map(|(ino, _)| *ino)
                    .collect();
                let parent = parents.get(parent % (parents.len() + 1)).copied().unwrap_or(2);
                let ino =
                    self.change(|handle| self.allocator.inode(handle, parent, *directory)).unwrap();
                assert!(ino > 11 && self.made.iter().all(|(made, _)| *made != ino));
                self.made.push((ino, Made { directory: *directory, runs: Vec::new() }));
            }
            Op::Remove { file } => {
                if self.made.is_empty() {
                    return;
                }
                let at = file % self.made.len();
                if self.made[at].1.runs.is_empty() {
                    let (ino, made) = self.made.swap_remove(at);
                    self.change(|handle| self.allocator.free_inode(handle, ino, made.directory))
                        .unwrap();
                }
            }
            Op::Commit => {
                self.image.commit();
                self.held.clear();
            }
            Op::Forget => {
                let told = self.allocator.usage();
                self.allocator = Allocator::new(&self.image.volume()).unwrap();
                self.allocator.set_privileged(true);
                assert_eq!(self.allocator.usage(), told);
            }
        }
    }

    fn finish(self) {
        let Self { image, allocator, made, .. } = self;
        image.commit();
        let volume = image.volume();
        for (ino, _) in &made {
            // As in the kernel: the bitmap is initialized, and shows the inode table as in use.
            let group = volume.group((ino - 1) / volume.superblock().inodes_per_group()).unwrap();
            assert!(!group.block_uninit && !group.inode_uninit);
        }
        // The nodes of the model's extent trees need room.
        let told = image.volume().usage().unwrap();
        if told.free_blocks < 300 {
            return;
        }
        attach(&image, &allocator, &made);
        image.change_with(&allocator, |handle| allocator.write_superblock_counts(handle)).unwrap();
        image.fsck_all();
    }
}

/// Runs random changes on images made with `args`.
fn random(cases: u32, size: &str, args: &[&str]) {
    if Image::make(size, args).is_none() {
        return;
    }
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let ops = prop::collection::vec(op(), 1..250);
    runner
        .run(&ops, |ops| {
            let mut model = Model::new(Image::make(size, args).unwrap());
            for op in &ops {
                model.apply(op);
            }
            model.finish();
            Ok(())
        })
        .unwrap();
}

#[test]
fn small_blocks() {
    random(6, "20M", &["-b", "1024"]);
}

#[test]
fn almost_no_room() {
    random(6, "6M", &["-b", "1024", "-O", "^has_journal", "-m", "1"]);
}

#[test]
fn many_small_groups_of_the_usual_blocks() {
    random(6, "48M", &["-b", "4096", "-g", "1024"]);
}

#[test]
fn groups_that_keep_their_metadata() {
    random(4, "24M", &["-b", "1024", "-O", "^flex_bg", "-N", "8192"]);
}

#[test]
fn descriptors_all_over_the_place() {
    random(4, "40M", &["-b", "1024", "-g", "1024", "-O", "meta_bg,^resize_inode"]);
}

#[test]
fn older_checksums() {
    random(4, "20M", &["-b", "1024", "-O", "^metadata_csum,uninit_bg,^64bit"]);
}

#[test]
fn no_checksums() {
    random(4, "20M", &["-b", "2048", "-O", "^metadata_csum,^uninit_bg"]);
}

#[test]
fn a_seed_of_its_own_and_two_backups() {
    random(4, "20M", &["-b", "1024", "-O", "metadata_csum_seed,sparse_super2"]);
}

#[test]
fn huge_blocks() {
    random(2, "128M", &["-b", "65536", "-g", "512", "-N", "1024"]);
}
