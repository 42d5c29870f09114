//! Random operations of several threads on trees of their own, each with a model, and on a shared
//! one; and trees that the kernel wrote, or was stopped in, are continued here.
//!
//! `MEANTIME_TREE_OPS=n` sets the operations of each thread (default 400), `MEANTIME_TREE_SEED=n`
//! the first seed.

use std::ffi::OsStr;

use crate::device::{Config, e2fsck, make};
use crate::drive::{Kernels, Ours};
use crate::model::{self, Model};
use crate::ops::{Op, Shown, random};
use crate::tree::{self, Tree};
use meantime_block as block;
use meantime_ext4::{Error, FileSystem, MountOptions, NewNode, OpenOptions, RenameFlags};
use meantime_testkit::image::{Mounted, scratch};
use meantime_testkit::{Rng, setting};

fn mount(image: &std::path::Path, background: bool) -> FileSystem {
    let uri = format!("file:{}?model=null&lba=512", image.display());
    let device = block::open(&uri, &block::OpenOptions::default()).unwrap();
    let options = MountOptions {
        write: true,
        background,
        commit_interval_ms: 30,
        cache_bytes: 4 << 20,
        ..MountOptions::default()
    };
    FileSystem::mount(device, &options).unwrap()
}

/// Executes `ops`. Each must have the model's result.
fn exercise(fs: &FileSystem, root: &str, model: &mut Model, ops: &[Op]) {
    for (number, op) in ops.iter().enumerate() {
        let done = Ours { fs, root }.apply(op, model);
        match (model.apply(op), done) {
            (Ok(()), Ok(())) | (Err(_), Err(_)) => {}
            (expected, done) => panic!(
                "{root}, operation {number}, {op:?}: {done:?}, instead of {expected:?}: {}",
                Shown(&ops[..=number])
            ),
        }
    }
}

fn silent(image: &std::path::Path) {
    let (code, said) = e2fsck(image, "-fn");
    assert!(code == 0 && said.is_empty(), "e2fsck: {code}, {said:?}");
}

/// Operations of one thread on the shared tree: each succeeds or fails as allowed, whatever other
/// threads do, and the tree stays sound.
fn share(fs: &FileSystem, rng: &mut Rng, thread: u64, count: u64) -> u64 {
    let top = fs.resolve(&fs.root().unwrap(), "/shared", true).unwrap();
    let new = NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 };
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut done = 0;
    for _ in 0..count {
        let name = |rng: &mut Rng| OsStr::new(names[rng.below(6) as usize]);
        let (one, two) = (name(rng), name(rng));
        let result = match rng.below(9) {
            0 | 1 => fs.create(&top, one, &new).map(drop),
            2 => fs.mkdir(&top, one, &new).map(drop),
            3 => fs.unlink(&top, one),
            4 => fs.rmdir(&top, one),
            5 => fs.rename_at(&top, one, &top, two, RenameFlags::default()),
            6 => fs.lookup(&top, one).and_then(|node| fs.link(&node, &top, two)),
            7 => fs.lookup(&top, one).and_then(|node| fs.sync_node(&node)),
            _ => fs.lookup(&top, one).and_then(|node| {
                let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
                let file = fs.open_node_with(&node, &options)?;
                // A block of one thread's letter: none may mix two threads' letters.
                let data = [b'A' + thread as u8; 4096];
                file.write_at(&data, 4096 * rng.below(4)).map(drop)
            }),
        };
        match result {
            Ok(()) => done += 1,
            Err(
                Error::NotFound
                | Error::Exists
                | Error::NotDirectory
                | Error::IsDirectory
                | Error::NotEmpty
                | Error::Invalid(_)
                | Error::NotPermitted
                | Error::Special
                | Error::Loop,
            ) => {}
            Err(error) => panic!("in the shared directory: {error}"),
        }
    }
    done
}

#[test]
fn trees_from_four_threads() {
    let roots = ["t0", "t1", "t2", "t3", "shared"];
    for (round, config) in
        [Config::PLAIN, Config { block_bytes: 1024, ..Config::PLAIN }].iter().enumerate()
    {
        let Some(base) = make(config, &roots) else { return };
        let dir = scratch();
        let image = dir.path().join("image");
        std::fs::write(&image, base.bytes).unwrap();
        let fs = mount(&image, round == 0);
        let count = setting("MEANTIME_TREE_OPS").unwrap_or(400);
        let seed = setting("MEANTIME_TREE_SEED").unwrap_or(1) * 1000;
        let models: Vec<Model> = std::thread::scope(|scope| {
            let fs = &fs;
            let threads: Vec<_> = (0..4u64)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed + thread);
                        let root = roots[thread as usize];
                        let mut model = Model::new(config.block_bytes as u64);
                        let mut done = 0;
                        for _ in 0..count / 20 {
                            let ops: Vec<Op> = (0..20)
                                .map(|_| random(&mut rng, true))
                                .map(|op| if op == Op::Remount { Op::Sync } else { op })
                                .collect();
                            exercise(fs, root, &mut model, &ops);
                            done += share(fs, &mut rng, thread, 10);
                        }
                        assert!(done > 0);
                        model
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let shared = Tree::ours(&fs, "shared").unwrap();
        fs.unmount().unwrap();
        silent(&image);
        let at = dir.path().join("mnt");
        let Some(mounted) = Mounted::new(&image, &at, "ro") else { return };
        for (mut model, root) in models.into_iter().zip(roots) {
            model.apply(&Op::Sync).unwrap();
            let found = Tree::kernels(&at.join(root)).unwrap();
            assert_eq!(model.check(&found, model.len(), model.len()), Ok(model.len()), "{root}");
        }
        assert_eq!(Tree::kernels(&at.join("shared")).unwrap().difference(&shared), None);
        drop(mounted);
        // No thread writes below the initial directory.
        for (_, ino) in shared.names.iter().filter(|(name, _)| !name.contains('/')) {
            let tree::Kind::File(content) = &shared.inodes[ino].kind else { continue };
            for (number, block) in
                content.chunks(4096).enumerate().filter(|(_, block)| block.len() == 4096)
            {
                let old = model::content(model::beginning_id("a"), number as u64 * 4096, 64);
                let is_old = block[..64] == old[..];
                assert!(
                    is_old || block.iter().all(|byte| *byte == block[0]),
                    "a block of two threads' letters"
                );
            }
        }
    }
}

/// The kernel writes and is stopped midway; this crate mounts the result for writing and continues,
/// and then the kernel does again.
#[test]
fn taking_turns_with_the_kernel() {
    let config = Config::PLAIN;
    let Some(base) = make(&config, &[""]) else { return };
    let dir = scratch();
    let image = dir.path().join("image");
    for seed in 0..setting("MEANTIME_TREE_TURNS").unwrap_or(6) {
        let mut rng = Rng::new(setting("MEANTIME_TREE_SEED").unwrap_or(1) * 7919 + seed);
        std::fs::write(&image, &base.bytes).unwrap();
        let mut model = Model::new(config.block_bytes as u64);
        for turn in 0..4 {
            let mut ops: Vec<Op> = (0..25)
                .map(|_| random(&mut rng, true))
                .map(|op| if op == Op::Remount { Op::Sync } else { op })
                .collect();
            ops.push(Op::Sync);
            if turn % 2 == 1 {
                let fs = mount(&image, false);
                let found = Tree::ours(&fs, "").unwrap();
                let checked = model.check(&found, model.len(), model.len());
                assert_eq!(checked, Ok(model.len()), "seed {seed}, turn {turn}");
                exercise(&fs, "", &mut model, &ops);
                fs.unmount().unwrap();
                silent(&image);
                continue;
            }
            let at = dir.path().join("mnt");
            let Some(mounted) = Mounted::new(&image, &at, "noatime,commit=300") else { return };
            let found = Tree::kernels(&at).unwrap();
            assert_eq!(
                model.check(&found, model.len(), model.len()),
                Ok(model.len()),
                "seed {seed}, turn {turn}"
            );
            for op in &ops {
                let done = Kernels { root: &at }.apply(op, &model);
                match (model.apply(op), done) {
                    (Ok(()), Ok(())) | (Err(_), Err(_)) => {}
                    (expected, done) => {
                        panic!("{op:?}: the kernel {done:?}, instead of {expected:?}")
                    }
                }
            }
            // The image of a kernel that is killed right after its sync: its journal is not empty.
            let bytes = std::fs::read(&image).unwrap();
            drop(mounted);
            if seed % 2 == 0 {
                std::fs::write(&image, bytes).unwrap();
            }
        }
    }
}
