//! Runs random operations and compares the results with a tree in memory.

use std::collections::BTreeMap;
use std::mem::discriminant;

use proptest::prelude::*;

use super::*;

type Tree = BTreeMap<Vec<u8>, u32>;

#[derive(Debug, Default)]
struct Inode {
    links: u32,
    /// A directory's names and its parent.
    dir: Option<(Tree, u32)>,
}

/// The expected inodes.
#[derive(Debug)]
struct Model(BTreeMap<u32, Inode>);

#[derive(Debug, Clone, Copy)]
enum Op {
    Create(usize, u32),
    Mkdir(usize, u32),
    Symlink(usize, u32),
    Link(usize, u32, usize, u32),
    Unlink(usize, u32),
    Rmdir(usize, u32),
    Rename(usize, u32, usize, u32, RenameFlags),
}

fn op() -> impl Strategy<Value = Op> {
    let dir = || 0..6_usize;
    let name = || 0..60_u32;
    let flags = prop_oneof![
        5 => Just((false, false, false)),
        3 => Just((false, true, false)),
        1 => Just((true, false, false)),
        2 => Just((false, false, true)),
    ]
    .prop_map(|(no_replace, exchange, whiteout)| RenameFlags {
        no_replace,
        exchange,
        whiteout,
    });
    prop_oneof![
        6 => (dir(), name()).prop_map(|(dir, name)| Op::Create(dir, name)),
        2 => (dir(), name()).prop_map(|(dir, name)| Op::Mkdir(dir, name)),
        2 => (dir(), name()).prop_map(|(dir, name)| Op::Symlink(dir, name)),
        2 => (dir(), name(), dir(), name()).prop_map(|(dir, name, to, other)| Op::Link(dir, name, to, other)),
        3 => (dir(), name()).prop_map(|(dir, name)| Op::Unlink(dir, name)),
        2 => (dir(), name()).prop_map(|(dir, name)| Op::Rmdir(dir, name)),
        7 => (dir(), name(), dir(), name(), flags)
            .prop_map(|(dir, name, to, other, flags)| Op::Rename(dir, name, to, other, flags)),
    ]
}

impl Model {
    fn tree(&mut self, dir: u32) -> &mut Tree {
        &mut self.0.get_mut(&dir).unwrap().dir.as_mut().unwrap().0
    }

    fn find(&self, dir: u32, name: &[u8]) -> Option<u32> {
        self.0[&dir].dir.as_ref().unwrap().0.get(name).copied()
    }

    fn is_dir(&self, ino: u32) -> bool {
        self.0[&ino].dir.is_some()
    }

    /// Returns whether directory `dir` is `above`, or below it.
    fn is_within(&self, dir: u32, above: u32) -> bool {
        let mut at = dir;
        while at != above && at != ROOT_INO {
            at = self.0[&at].dir.as_ref().unwrap().1;
        }
        at == above
    }

    fn absent(&self, dir: u32, name: &[u8]) -> Result<(), Error> {
        if self.find(dir, name).is_some() { Err(Error::Exists) } else { Ok(()) }
    }

    fn add(&mut self, dir: u32, name: &[u8], ino: u32) {
        assert_eq!(self.tree(dir).insert(name.to_vec(), ino), None);
        if let Some((_, parent)) = &mut self.0.get_mut(&ino).unwrap().dir {
            *parent = dir;
            self.0.get_mut(&dir).unwrap().links += 1;
        } else {
            self.0.get_mut(&ino).unwrap().links += 1;
        }
    }

    fn take(&mut self, dir: u32, name: &[u8]) -> u32 {
        let ino = self.tree(dir).remove(name).unwrap();
        let of = if self.is_dir(ino) { dir } else { ino };
        self.0.get_mut(&of).unwrap().links -= 1;
        ino
    }

    /// Removes the inode if it has no names.
    fn drop(&mut self, ino: u32) {
        if self.is_dir(ino) || self.0[&ino].links == 0 {
            self.0.remove(&ino);
        }
    }

    fn rename(
        &mut self,
        (old_dir, old): (u32, &[u8]),
        (new_dir, new): (u32, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Error> {
        let source = self.find(old_dir, old).ok_or(Error::NotFound)?;
        let target = self.find(new_dir, new);
        match target {
            Some(_) if flags.no_replace => return Err(Error::Exists),
            None if flags.exchange => return Err(Error::NotFound),
            _ => {}
        }
        let invalid = Err(Error::Invalid(""));
        if old_dir != new_dir && self.is_dir(source) && self.is_within(new_dir, source) {
            return invalid;
        }
        if let Some(target) = target {
            if old_dir != new_dir && self.is_dir(target) && self.is_within(old_dir, target) {
                return if flags.exchange { invalid } else { Err(Error::NotEmpty) };
            }
            if source == target {
                return Ok(());
            }
            if !flags.exchange {
                match (self.is_dir(source), self.is_dir(target)) {
                    (true, false) => return Err(Error::NotDirectory),
                    (false, true) => return Err(Error::IsDirectory),
                    (true, true) if !self.tree(target).is_empty() => return Err(Error::NotEmpty),
                    _ => {}
                }
            }
            self.take(new_dir, new);
        }
        self.take(old_dir, old);
        self.add(new_dir, new, source);
        match target {
            Some(target) if flags.exchange => self.add(old_dir, old, target),
            Some(target) => self.drop(target),
            None => {}
        }
        Ok(())
    }
}

/// Compares the image with the model.
fn compare(rig: &Rig, model: &Model) {
    let volume = rig.image.volume();
    let lost = names(&volume, ROOT_INO)[&b"lost+found"[..]];
    let mut used = 0;
    for (ino, inode) in &model.0 {
        let found = volume.linked_inode(*ino).unwrap();
        assert_eq!(found.metadata().links, inode.links, "inode {ino}");
        used += 1;
        let Some((tree, parent)) = &inode.dir else { continue };
        let mut seen = names(&volume, *ino);
        if *ino == ROOT_INO {
            assert_eq!(seen.remove(&b"lost+found"[..]), Some(lost));
        }
        assert_eq!(&seen, tree, "inode {ino}");
        assert_eq!(volume.lookup(&found, b"..").unwrap().unwrap().0, *parent);
    }
    let usage = rig.allocator.usage();
    // These inodes are outside the model: lost+found, the orphan file if there is one, and the
    // reserved inodes except the root.
    let orphan_file = volume.superblock().features().has_compat(compat::ORPHAN_FILE);
    let own = u64::from(volume.superblock().first_ino()) - 1 + u64::from(orphan_file);
    assert_eq!(usage.inodes - usage.free_inodes, used + own);
}

/// Returns names of many lengths, so that small blocks get full.
fn name_of(number: u32) -> Vec<u8> {
    name(number, [4, 30, 100, 250][number as usize % 4])
}

fn apply(rig: &Rig, model: &mut Model, op: Op) {
    let dirs: Vec<_> =
        model.0.iter().filter(|(_, inode)| inode.dir.is_some()).map(|(ino, _)| *ino).collect();
    let dir = |index: usize| dirs[index % dirs.len()];
    let put = |model: &mut Model, dir, name: &[u8], made: Result<u32, Error>, is_dir: bool| {
        let absent = model.absent(dir, name);
        assert_eq!(made.clone().map(|_| ()), absent);
        if let Ok(ino) = made {
            let inode = if is_dir {
                Inode { links: 2, dir: Some((Tree::new(), dir)) }
            } else {
                Inode::default()
            };
            assert!(model.0.insert(ino, inode).is_none());
            model.add(dir, name, ino);
        }
    };
    let gone = |model: &mut Model, dir: u32, name: &[u8], unlinked: Unlinked| {
        assert_eq!(model.take(dir, name), unlinked.ino);
        model.drop(unlinked.ino);
        assert_eq!(model.0.contains_key(&unlinked.ino), !unlinked.is_last);
        if unlinked.is_last {
            rig.finish(unlinked.ino);
        }
    };
    match op {
        Op::Create(at, number) => {
            let (dir, name) = (dir(at), name_of(number));
            let made = rig.change(|handle| create(handle, dir, &name, &NEW));
            put(model, dir, &name, made, false);
        }
        Op::Mkdir(at, number) => {
            let (dir, name) = (dir(at), name_of(number));
            let made = rig.change(|handle| mkdir(handle, dir, &name, &NEW));
            put(model, dir, &name, made, true);
        }
        Op::Symlink(at, number) => {
            let (dir, name) = (dir(at), name_of(number));
            let target = vec![b't'; name.len()];
            let made = rig.change(|handle| symlink(handle, dir, &name, &target, &NEW));
            put(model, dir, &name, made, false);
        }
        Op::Link(at, number, to, other) => {
            let (dir, to, name) = (dir(at), dir(to), name_of(other));
            let Some(ino) = model.find(dir, &name_of(number)) else { return };
            let linked = rig.change(|handle| link(handle, ino, to, &name));
            let may = if model.is_dir(ino) { Err(Error::NotPermitted) } else { Ok(()) };
            assert_eq!(linked, model.absent(to, &name).and(may));
            if linked.is_ok() {
                model.add(to, &name, ino);
            }
        }
        Op::Unlink(at, number) => {
            let (dir, name) = (dir(at), name_of(number));
            match (
                rig.change(|handle| unlink(handle, dir, &name, MAYBE_USED)),
                model.find(dir, &name),
            ) {
                (Ok(unlinked), Some(ino)) if !model.is_dir(ino) => {
                    gone(model, dir, &name, unlinked)
                }
                (Err(Error::IsDirectory), Some(ino)) if model.is_dir(ino) => {}
                (Err(Error::NotFound), None) => {}
                other => panic!("{op:?}: {other:?}"),
            }
        }
        Op::Rmdir(at, number) => {
            let (dir, name) = (dir(at), name_of(number));
            match (
                rig.change(|handle| rmdir(handle, dir, &name, MAYBE_USED)),
                model.find(dir, &name),
            ) {
                (Ok(unlinked), Some(ino)) if model.is_dir(ino) && model.tree(ino).is_empty() => {
                    gone(model, dir, &name, unlinked);
                }
                (Err(Error::NotEmpty), Some(ino))
                    if model.is_dir(ino) && !model.tree(ino).is_empty() => {}
                (Err(Error::NotDirectory), Some(ino)) if !model.is_dir(ino) => {}
                (Err(Error::NotFound), None) => {}
                other => panic!("{op:?}: {other:?}"),
            }
        }
        Op::Rename(from, number, to, other, flags) => {
            let (from, to) = (dir(from), dir(to));
            let (old, new) = (name_of(number), name_of(other));
            let result = rig.change(|handle| {
                let (old, new) =
                    (Name { parent: from, name: &old }, Name { parent: to, name: &new });
                rename(handle, old, new, (flags, &NEW), MAYBE_USED)
            });
            let expected = model.rename((from, &old), (to, &new), flags);
            match (result, expected) {
                (Ok(renamed), Ok(())) => {
                    assert_eq!(model.find(to, &new), Some(renamed.ino));
                    if let Some(whiteout) = renamed.whiteout {
                        model.0.insert(whiteout, Inode::default());
                        model.add(from, &old, whiteout);
                    }
                    if let Some(replaced) = renamed.replaced {
                        assert_eq!(model.0.contains_key(&replaced.ino), !replaced.is_last);
                        if replaced.is_last {
                            rig.finish(replaced.ino);
                        }
                    }
                }
                (Err(error), Err(expected)) => {
                    assert_eq!(
                        discriminant(&error),
                        discriminant(&expected),
                        "{op:?}: {error} {expected}"
                    );
                }
                other => panic!("{op:?}: {other:?}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_do_what_a_tree_in_memory_does(
        ops in prop::collection::vec(op(), 1..400),
        shape in 0..5_usize,
    ) {
        let shapes: [&[&str]; 5] = [
            &["-b", "1024"],
            &["-b", "4096", "-O", "orphan_file,metadata_csum_seed"],
            &["-b", "1024", "-O", "^metadata_csum,^dir_nlink"],
            &["-b", "1024", "-O", "^dir_index,^filetype"],
            &["-b", "2048", "-I", "128"],
        ];
        let Some(rig) = Rig::new("8M", shapes[shape], &[]) else { return Ok(()) };
        let root = Inode { links: 3, dir: Some((Tree::new(), ROOT_INO)) };
        let mut model = Model([(ROOT_INO, root)].into());
        for op in ops {
            apply(&rig, &mut model, op);
            rig.image.commit();
        }
        compare(&rig, &model);
        rig.image.fsck();
    }
}
