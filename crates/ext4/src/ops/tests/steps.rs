//! Tests changes in steps, with a crash after any of them.

use std::os::unix::fs::FileExt;
use std::process::Command;

use super::{Bench, Model};
use crate::alloc::AllocHandle;
use crate::ops::{Progress, extents, fallocate, names, orphans, truncate};
use crate::{Error, FileType};
use meantime_ext4_format::ROOT_INO;
use meantime_ext4_format::edit::{InodeEdit, NodeEdit};
use meantime_ext4_format::inode::flags;

/// Places of orphans: a list, a file, and both without checksums.
const FEATURES: [&str; 4] = [
    "metadata_csum,64bit",
    "metadata_csum,orphan_file",
    "^metadata_csum,^64bit",
    "^metadata_csum,orphan_file",
];

const REGULAR: u16 = 0x81A4;
const DIRECTORY: u16 = 0x41ED;
const SYMLINK: u16 = 0xA1FF;
const DEVICE: u16 = 0x21A4;

impl Bench {
    /// Makes a file system with `features`, if mke2fs knows them.
    fn with_features(size: &str, features: &str) -> Option<Self> {
        Self::new(size, &["-b", "1024", "-O", features])
    }

    /// Creates an inode without a name.
    fn orphan(&self, mode: u16) -> u32 {
        let made = self.change(|handle| {
            let ino = self.allocator.inode(handle, ROOT_INO, mode == DIRECTORY)?;
            let mut inode = InodeEdit::new(handle.superblock(), ino, 77);
            inode.set_mode(mode);
            if mode == SYMLINK {
                inode.block_area_mut()[..4].copy_from_slice(b"/tmp");
                inode.set_size(4);
            } else if mode != DEVICE {
                inode.set_flags(flags::EXTENTS);
                NodeEdit::format(&mut inode.block_area_mut()[..], 0);
                inode.set_size(1 << 29);
            }
            orphans::add(handle, &mut inode)?;
            handle.store_inode(&inode, true)?;
            Ok(ino)
        });
        made.unwrap()
    }

    fn finish(&self, ino: u32, budget: usize) -> Progress {
        self.change(|handle| {
            let progress = orphans::finish(handle, ino, budget)?;
            let changes = handle.changes();
            // Allows for changed nodes on the way up, a bitmap and a descriptor.
            assert!(changes.blocks.len() + changes.forgotten.len() < budget + 16);
            Ok(progress)
        })
        .unwrap()
    }

    /// Finishes orphan `ino` in steps, and checks the result of a crash after some of them. Returns
    /// the number of steps.
    fn finish_with_crashes(
        &self,
        ino: u32,
        budget: usize,
        each: usize,
        check: impl Fn(&Bench),
    ) -> usize {
        for step in 0.. {
            if step % each == 0 {
                let crashed = self.crashed();
                crashed.recover();
                check(&crashed);
                crashed.image.fsck();
            }
            if self.finish(ino, budget) == Progress::Done {
                check(self);
                self.image.fsck();
                return step;
            }
        }
        unreachable!()
    }

    fn set_size(&self, size: u64, budget: usize) -> Progress {
        self.change(|handle| truncate::set_size(handle, self.ino, size, budget)).unwrap()
    }

    fn is_orphan(&self) -> bool {
        self.change(|handle| orphans::contains(handle, self.ino)).unwrap()
    }
}

#[test]
fn an_inode_is_deleted_whatever_happens() {
    for features in FEATURES {
        for (budget, each) in [(1, 90), (4, 1)] {
            let Some(mut bench) = Bench::with_features("8M", features) else { return };
            let (free, inodes) = (bench.free_and_own().0, bench.allocator.usage().free_inodes);
            bench.ino = bench.orphan(REGULAR);
            let mut model = Model::new();
            for block in 0..400 {
                bench.insert(&mut model, 2 * block..2 * block + 1, block % 3 == 0);
            }
            assert_eq!((bench.model(), bench.depth()), (model, 2));
            let gone = |bench: &Bench| {
                assert_eq!(
                    (bench.free_and_own().0, bench.allocator.usage().free_inodes),
                    (free, inodes)
                );
            };
            let steps = bench.finish_with_crashes(bench.ino, budget, each, gone);
            assert!(steps >= if budget == 1 { 390 } else { 1 }, "{steps}");
        }
    }
}

#[test]
fn whatever_an_inode_is_it_can_go() {
    for features in FEATURES {
        let Some(mut bench) = Bench::with_features("8M", features) else { return };
        let usage = || (bench.allocator.usage().free_blocks, bench.allocator.usage().free_inodes);
        let before = usage();
        let orphans = [SYMLINK, DEVICE, REGULAR, DIRECTORY].map(|mode| bench.orphan(mode));
        assert_ne!(usage(), before);
        for ino in [orphans[1], orphans[0], orphans[2]] {
            assert_eq!(bench.finish(ino, 5), Progress::Done);
        }
        // The blocks of a directory were in the journal.
        bench.ino = orphans[3];
        let mut model = Model::new();
        bench.insert(&mut model, 0..3, false);
        bench.insert(&mut model, 5..6, false);
        bench
            .change(|handle| {
                assert_eq!(orphans::finish(handle, bench.ino, 90)?, Progress::Done);
                let forgotten: Vec<u64> = handle.changes().forgotten.iter().copied().collect();
                let mut had: Vec<u64> = model.values().map(|(block, _)| *block).collect();
                had.sort_unstable();
                assert_eq!(forgotten, had);
                Ok(())
            })
            .unwrap();
        assert_eq!(
            (bench.allocator.usage().free_blocks, bench.allocator.usage().free_inodes),
            before
        );
        bench.image.fsck();
    }
}

/// A file without names gets its first name during a truncation. After a crash it has no written
/// blocks past its size, and keeps preallocated ones only if no truncation was under way.
#[test]
fn a_name_comes_in_the_middle_of_a_truncation() {
    for features in FEATURES {
        for is_cut_off in [true, false] {
            let Some(mut bench) = Bench::with_features("8M", features) else { return };
            bench.ino = bench.orphan(REGULAR);
            let mut model = Model::new();
            for block in 0..300 {
                bench.insert(&mut model, 2 * block..2 * block + 1, false);
            }
            bench
                .edit(|_, inode| {
                    inode.set_size(599 << 10);
                    Ok(())
                })
                .unwrap();
            bench.insert(&mut model, 700..720, true);
            if is_cut_off {
                assert_eq!(bench.set_size(5000, 1), Progress::More);
            }
            bench.change(|handle| names::link(handle, bench.ino, ROOT_INO, b"g")).unwrap();
            let crashed = bench.crashed();
            assert_eq!(crashed.is_orphan(), is_cut_off);
            crashed.recover();
            if is_cut_off {
                model.retain(|block, _| *block < 5);
            }
            assert_eq!((crashed.model(), crashed.is_orphan()), (model, false), "{features}");
            crashed.image.fsck();
            while is_cut_off
                && bench.change(|handle| truncate::go_on(handle, bench.ino, 8)).unwrap()
                    == Progress::More
            {}
            assert_eq!((bench.model(), bench.is_orphan()), (crashed.model(), false), "{features}");
            bench.image.fsck();
        }
    }
}

#[test]
fn orphans_leave_in_any_order() {
    for (features, file) in
        [("metadata_csum", ""), ("metadata_csum,orphan_file", "orphan_file_size=2048")]
    {
        let args = ["-b", "1024", "-N", "2048", "-O", features, "-E", file];
        let args = if file.is_empty() { &args[..6] } else { &args };
        let Some(bench) = Bench::new("8M", args) else { return };
        // These are more than fit into the orphan file.
        let mut all: Vec<u32> = (0..600).map(|_| bench.orphan(DEVICE)).collect();
        let listed = |bench: &Bench| {
            let mut listed = bench.change(|handle| orphans::list(handle)).unwrap();
            listed.sort_unstable();
            listed
        };
        assert_eq!(listed(&bench), all);
        let mut at = 0;
        while !all.is_empty() {
            at = (at + 389) % all.len();
            assert_eq!(bench.finish(all.remove(at), 5), Progress::Done);
            if all.len().is_multiple_of(60) {
                assert_eq!(listed(&bench), all);
            }
        }
        bench.image.fsck();
        let none = bench.change(|handle| {
            let mut inode = handle.load_inode(bench.ino)?;
            orphans::remove(handle, &mut inode)
        });
        assert!(matches!(none, Err(Error::Corrupt(_))));
    }
}

#[test]
fn e2fsck_finds_the_orphans() {
    for features in FEATURES {
        let Some(mut bench) = Bench::with_features("8M", features) else { return };
        bench.change(|handle| orphans::set_present(handle, true)).unwrap();
        bench.grow();
        let mut model = Model::new();
        bench.insert(&mut model, 0..400, false);
        let budget = 1;
        assert_eq!((bench.set_size(5000, budget), bench.is_orphan()), (Progress::Done, false));
        let file = bench.ino;
        let orphans = [DEVICE, REGULAR, DIRECTORY].map(|mode| bench.orphan(mode));
        bench.ino = orphans[1];
        bench.insert(&mut Model::new(), 7..30, true);
        let path = bench.dir.path().join("checked");
        bench.image.save(&path);
        let output = Command::new("e2fsck").arg("-fy").arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for ino in orphans {
            assert!(text.contains(&format!("Clearing orphaned inode {ino} ")), "{text}");
        }
        assert!(!text.contains(&format!("inode {file} ")), "{text}");
        let output = Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        orphans.iter().for_each(|ino| while bench.finish(*ino, 50) == Progress::More {});
        bench.change(|handle| orphans::set_present(handle, false)).unwrap();
        bench.image.fsck();
    }
}

#[test]
fn a_truncation_ends_whatever_happens() {
    for features in FEATURES {
        let Some(bench) = Bench::with_features("8M", features) else { return };
        bench.grow();
        let mut model = Model::new();
        for block in 0..500 {
            bench.insert(&mut model, 3 * block..3 * block + 2, false);
        }
        let size = 301 * 1024 + 5;
        assert_eq!(bench.set_size(size, 3), Progress::More);
        assert!(bench.is_orphan());
        // The size is set again, as after a failure.
        assert_eq!(bench.set_size(size, 3), Progress::More);
        model.retain(|block, _| *block < 302);
        let cut = |bench: &Bench| {
            assert_eq!(bench.model(), model);
            assert!(!bench.is_orphan());
            assert_eq!(bench.image.volume().inode(bench.ino).unwrap().size(), size);
        };
        assert!(bench.finish_with_crashes(bench.ino, 3, 1, cut) >= 1);
        // Preallocated blocks past the end are freed, too, but not when a file grows.
        let set_aside =
            bench.change(|handle| fallocate::allocate(handle, bench.ino, 400..500, None, 90));
        assert_eq!(set_aside, Ok(500));
        assert_eq!(
            (bench.set_size(size + 7, 90), bench.model().len()),
            (Progress::Done, model.len() + 100)
        );
        assert_eq!(
            (bench.set_size(size + 7, 90), bench.model().len()),
            (Progress::Done, model.len())
        );
        assert_eq!((bench.set_size(0, 90), bench.free_and_own().1), (Progress::Done, 0));
        bench.image.fsck();
        assert_eq!(bench.set_size(5 << 30, 90), Progress::Done);
        bench.image.fsck();
        let longest = (u64::from(u32::MAX)) << 10;
        assert_eq!(bench.set_size(longest, 90), Progress::Done);
        let too_long =
            bench.change(|handle| truncate::set_size(handle, bench.ino, longest + 1, 90));
        assert_eq!(too_long, Err(Error::FileTooBig));
    }
}

#[test]
fn a_file_that_loses_its_name_while_it_is_truncated_is_an_orphan_once() {
    for features in FEATURES {
        let Some(bench) = Bench::with_features("8M", features) else { return };
        bench.grow();
        for block in 0..400 {
            bench.insert(&mut Model::new(), 2 * block..2 * block + 1, false);
        }
        assert_eq!(bench.set_size(1000, 1), Progress::More);
        let first = bench.orphan(DEVICE);
        let set_links = |links: u16| {
            bench.edit(|handle, inode| {
                inode.set_links(links);
                if links == 0 {
                    orphans::add(handle, inode)
                } else {
                    orphans::remove(handle, inode)
                }
            })
        };
        set_links(0).unwrap();
        let listed = || bench.change(|handle| orphans::list(handle)).unwrap();
        assert_eq!(listed().iter().filter(|ino| **ino == bench.ino).count(), 1);
        let go_on = || bench.change(|handle| truncate::go_on(handle, bench.ino, 5)).unwrap();
        while go_on() == Progress::More {}
        // While the file is open, it keeps its blocks.
        assert_eq!((bench.model().len(), bench.is_orphan()), (1, true));
        set_links(1).unwrap();
        assert_eq!((bench.finish(first, 9), listed()), (Progress::Done, vec![]));
        bench.image.fsck();
    }
}

/// Makes a file with blocks on every level of its block map.
fn mapped(features: &str) -> Option<Bench> {
    Bench::with("16M", &["-b", "1024", "-O", features], |file| {
        for (at, bytes) in
            [(0, 40_000), (250_000, 50_000), (4 << 20, 1 << 20), (70 << 20, 3_000_000)]
        {
            file.write_all_at(&vec![7; bytes], at).unwrap();
        }
    })
}

#[test]
fn a_file_with_a_map_loses_its_blocks() {
    for features in ["^extent,^64bit,metadata_csum", "^extent,^64bit,^metadata_csum,^flex_bg"] {
        let Some(bench) = mapped(features) else { return };
        let mut model = bench.model();
        assert!(model.len() > 4000);
        bench.image.fsck();
        for hole in [100..260, 5..7, 4000..5000, 71_900..74_000] {
            let punched = || {
                bench.change(|handle| fallocate::punch(handle, bench.ino, hole.clone(), 5)).unwrap()
            };
            while punched() == Progress::More {
                bench.image.fsck();
            }
            model.retain(|block, _| !hole.contains(block));
            assert_eq!(bench.model(), model);
            bench.image.fsck();
        }
        let given = bench.edit(|handle, inode| {
            let extent = meantime_ext4_format::MappedExtent {
                logical: 5,
                blocks: 1,
                physical: 9000,
                unwritten: false,
            };
            extents::insert(handle, inode, extent)
        });
        assert!(matches!(given, Err(Error::Unsupported(_))));
        for size in
            [(72 << 20) + 5, (70 << 20) + 100_000, 5_000_000, 280_000, 14_000, 12 << 10, 2000, 0]
        {
            let blocks = u64::div_ceil(size, 1024);
            model.retain(|block, _| u64::from(*block) < blocks);
            if bench.set_size(size, 7) == Progress::More {
                bench
                    .finish_with_crashes(bench.ino, 7, 3, |bench| assert_eq!(bench.model(), model));
            }
            // e2fsck also finds blocks past the end, which a block map does not show.
            assert_eq!(bench.model(), model, "{size}");
            bench.image.fsck();
        }
        assert_eq!(bench.free_and_own().1, 0);
    }
}

#[test]
fn a_file_with_a_map_is_deleted() {
    let Some(mut bench) = mapped("^extent,^64bit") else { return };
    let (free, own) = bench.free_and_own();
    let ino = bench.orphan(DEVICE);
    // The blocks move to an inode without a name.
    bench
        .edit(|handle, inode| {
            let mut other = handle.load_inode(ino)?;
            other.set_mode(REGULAR);
            other.set_size(inode.size());
            other.set_blocks(handle.superblock(), own);
            *other.block_area_mut() = *inode.block_area();
            handle.store_inode(&other, true)?;
            inode.set_size(0);
            inode.set_blocks(handle.superblock(), 0);
            inode.block_area_mut().fill(0);
            Ok(())
        })
        .unwrap();
    bench.ino = ino;
    bench.finish_with_crashes(ino, 10, 1, |bench| assert_eq!(bench.free_and_own().0, free + own));
}

#[test]
fn room_is_set_aside_and_released() {
    for features in ["metadata_csum", "^metadata_csum"] {
        let Some(bench) = Bench::with_features("16M", features) else { return };
        let all = bench.free_and_own().0;
        bench.grow();
        let mut model = Model::new();
        for block in 0..200 {
            bench.insert(&mut model, 10 * block..10 * block + 5, block % 2 == 0);
        }
        let steps = |zero: bool, range: std::ops::Range<u32>| {
            let mut from = range.start;
            let mut steps = 0;
            while from < range.end {
                let step = |handle: &mut AllocHandle<'_, '_>| {
                    let work = if zero { fallocate::zero } else { fallocate::allocate };
                    work(handle, bench.ino, from..range.end, None, 4)
                };
                let next = bench.change(step).unwrap();
                assert!(next > from);
                (from, steps) = (next, steps + 1);
                bench.image.fsck();
            }
            steps
        };
        assert!(steps(false, 3..905) > 2);
        let now = bench.model();
        assert!((3..905).all(|block| match model.get(&block) {
            Some(there) => now[&block] == *there,
            None => now[&block].1,
        }));
        steps(true, 507..1203);
        let zeroed = bench.model();
        assert!((507..1203).all(|block| zeroed[&block].1));
        assert!(now.iter().all(|(block, there)| zeroed[block].0 == there.0));
        // The size grows as soon as blocks are allocated.
        assert_eq!(bench.set_size(700, 90), Progress::Done);
        let set_aside = || {
            let range = 0..3000;
            bench
                .change(|handle| fallocate::allocate(handle, bench.ino, range, Some(2_999_999), 90))
        };
        assert_eq!(set_aside(), Ok(3000));
        assert_eq!(bench.image.volume().inode(bench.ino).unwrap().size(), 2_999_999);
        bench.image.fsck();
        // With too few free blocks, earlier allocations stay.
        let mut from = 3000;
        let failed = loop {
            let step = bench
                .change(|handle| fallocate::allocate(handle, bench.ino, from..60_000, None, 10));
            match step {
                Ok(next) => from = next,
                Err(error) => break error,
            }
        };
        assert_eq!(failed, Error::NoSpace);
        bench.image.fsck();
        bench.image.commit();
        while bench.change(|handle| fallocate::punch(handle, bench.ino, 0..60_000, 10)).unwrap()
            == Progress::More
        {}
        assert_eq!(bench.free_and_own(), (all, 0));
        bench.image.fsck();
    }
}

#[test]
fn nothing_is_done_to_what_is_no_file() {
    let Some(mut bench) = Bench::with_features("8M", "metadata_csum,inline_data") else { return };
    bench.ino = ROOT_INO;
    let set_size =
        |bench: &Bench| bench.change(|handle| truncate::set_size(handle, bench.ino, 0, 9));
    assert_eq!(set_size(&bench), Err(Error::IsDirectory));
    bench.ino = bench.orphan(DEVICE);
    assert_eq!(set_size(&bench), Err(Error::Special));
    let Some(bench) = Bench::with("8M", &["-I", "256", "-O", "inline_data"], |file| {
        file.write_all_at(b"in the inode", 0).unwrap();
    }) else {
        return;
    };
    assert!(bench.image.volume().inode(bench.ino).unwrap().is_inline());
    assert!(matches!(set_size(&bench), Err(Error::Unsupported(_))));
    // Deletion does not treat its bytes as pointers.
    bench
        .edit(|handle, inode| {
            orphans::add(handle, inode)?;
            handle.store_inode(inode, false)?;
            assert_eq!(inode.file_type(), Some(FileType::Regular));
            assert_eq!(orphans::finish(handle, inode.ino(), 9)?, Progress::Done);
            inode.set_deletion_time(0);
            Ok(())
        })
        .unwrap();
    bench.image.fsck();
}
