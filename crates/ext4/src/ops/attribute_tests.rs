//! Compares attributes with a model, with e2fsck's verdict, and with what the kernel reads.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{acl, attributes, metadata};
use crate::alloc::{AllocHandle, Allocator};
use crate::journal::tests::image::Image;
use crate::{Error, SetAttribute, Timestamp};
use meantime_ext4_format::ROOT_INO;
use meantime_ext4_format::edit::InodeEdit;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const FILES: usize = 3;

/// An image made with `args`, with files `f0`, … and directory `d`, and its allocator.
fn image(args: &[&str]) -> Option<(Image, Allocator)> {
    let dir = tempfile::tempdir().unwrap();
    for file in 0..FILES {
        std::fs::write(dir.path().join(format!("f{file}")), b"content").unwrap();
    }
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::os::unix::fs::symlink("f0", dir.path().join("link")).unwrap();
    let mut all = vec!["-d", dir.path().to_str().unwrap()];
    all.extend(args);
    let image = Image::make("8M", &all)?;
    let allocator = Allocator::new(&image.volume()).unwrap();
    Some((image, allocator))
}

fn ino(image: &Image, name: &str) -> u32 {
    let volume = image.volume();
    let root = volume.inode(ROOT_INO).unwrap();
    volume.lookup(&root, name.as_bytes()).unwrap().unwrap().0
}

fn change<T>(
    image: &Image,
    allocator: &Allocator,
    ino: u32,
    work: impl FnOnce(&mut AllocHandle<'_, '_>, &mut InodeEdit) -> Result<T, Error>,
) -> Result<T, Error> {
    image.change_with(allocator, |handle| {
        let handle = &mut AllocHandle::new(handle, allocator);
        let mut inode = handle.load_inode(ino)?;
        let result = work(handle, &mut inode)?;
        handle.store_inode(&inode, false)?;
        Ok(result)
    })
}

fn read(image: &Image, ino: u32) -> Model {
    let volume = image.volume();
    let inode = volume.inode(ino).unwrap();
    let all = volume.attributes(&inode).unwrap();
    let count = all.len();
    let model: Model = all.into_iter().collect();
    assert_eq!(model.len(), count);
    model
}

#[derive(Debug, Clone)]
struct Step {
    file: usize,
    name: Vec<u8>,
    /// The value to set, or `None` to remove the attribute.
    value: Option<Vec<u8>>,
    how: SetAttribute,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = prop_oneof![
        Just(b"user.a".to_vec()),
        Just(b"user.bb".to_vec()),
        Just(b"trusted.c".to_vec()),
        Just(b"security.selinux".to_vec()),
        Just(b"user.\xc3\xa4\xff".to_vec()),
        Just([&b"user."[..], &[b'x'; 200]].concat()),
    ];
    let bytes = prop_oneof![0..80_usize, 80..500_usize, 900..1100_usize, 3900..4200_usize];
    let value = prop_oneof![
        1 => Just(None),
        4 => (bytes, any::<u8>()).prop_map(|(bytes, fill)| Some(vec![fill; bytes])),
    ];
    let how = prop_oneof![
        4 => Just(SetAttribute::Any),
        1 => Just(SetAttribute::Create),
        1 => Just(SetAttribute::Replace),
    ];
    let step = (0..FILES, name, value, how).prop_map(|(file, name, value, how)| Step {
        file,
        name,
        value,
        how,
    });
    prop::collection::vec(step, 1..60)
}

/// The expected result of a step, apart from a lack of room.
fn expected(model: &Model, step: &Step) -> Result<(), Error> {
    match (model.contains_key(&step.name), &step.value, step.how) {
        (false, None, _) | (false, Some(_), SetAttribute::Replace) => Err(Error::NoAttribute),
        (true, Some(_), SetAttribute::Create) => Err(Error::Exists),
        _ => Ok(()),
    }
}

fn play(image: &Image, allocator: &Allocator, models: &mut [Model; FILES], steps: &[Step]) {
    let block_bytes = image.volume().block_bytes();
    for step in steps {
        let ino = ino(image, &format!("f{}", step.file));
        let model = &mut models[step.file];
        let result = change(image, allocator, ino, |handle, inode| match &step.value {
            Some(value) => attributes::set(handle, inode, &step.name, value, step.how),
            None => attributes::remove(handle, inode, &step.name),
        });
        let expected = expected(model, step);
        if result == Err(Error::NoSpace) {
            assert_eq!(expected, Ok(()));
            let value = step.value.as_ref().expect("what is taken away fits");
            let other: usize = model
                .iter()
                .filter(|(name, _)| **name != step.name)
                .map(|(name, value)| name.len() + value.len() + 19)
                .sum();
            // The value would not have fitted into the block with all others, even if the inode
            // held none.
            assert!(other + step.name.len() + value.len() + 19 + 36 > block_bytes, "{step:?}");
        } else {
            assert_eq!(result, expected, "{step:?}");
            match (&step.value, result) {
                (Some(value), Ok(())) => drop(model.insert(step.name.clone(), value.clone())),
                (None, Ok(())) => drop(model.remove(&step.name)),
                _ => {}
            }
        }
        assert_eq!(read(image, ino), *model, "{step:?}");
    }
}

#[test]
fn what_is_set_is_read_and_e2fsck_agrees() {
    for args in [
        &["-b", "1024"][..],
        &["-b", "1024", "-I", "128"],
        &["-b", "4096", "-I", "512"],
        &["-b", "1024", "-O", "^metadata_csum,uninit_bg"],
        &["-b", "2048", "-O", "metadata_csum_seed,^64bit"],
    ] {
        let mut runner =
            TestRunner::new(Config { cases: 6, failure_persistence: None, ..Config::default() });
        let run = runner.run(&steps(), |steps| {
            let Some((image, allocator)) = image(args) else { return Ok(()) };
            let free = allocator.usage().free_blocks;
            let mut models: [Model; FILES] = Default::default();
            play(&image, &allocator, &mut models, &steps);
            image.fsck();
            for file in 0..FILES {
                let ino = ino(&image, &format!("f{file}"));
                change(&image, &allocator, ino, attributes::release).unwrap();
                assert_eq!(read(&image, ino), Model::new());
            }
            assert_eq!(allocator.usage().free_blocks, free);
            image.fsck();
            Ok(())
        });
        run.unwrap();
    }
}

/// Runs `work` on the kernel's mount of the image. Returns `None` if it cannot be mounted.
fn mounted<T>(path: &Path, work: impl FnOnce(&Path) -> T) -> Option<T> {
    let dir = tempfile::tempdir().unwrap();
    let mount = Command::new("mount")
        .args(["-o", "loop,acl,user_xattr"])
        .arg(path)
        .arg(dir.path())
        .output();
    if !mount.is_ok_and(|output| output.status.success()) {
        println!("skipped: no mount on a loop device");
        return None;
    }
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(dir.path())));
    crate::journal::tests::image::unmount(dir.path());
    Some(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

fn kernels(path: &Path) -> Model {
    let mut names = [0; 8192];
    let bytes = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..bytes].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = [0; 8192];
        let bytes = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value[..bytes].to_vec()
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

#[test]
fn blocks_that_the_kernel_shares_are_copied() {
    for args in [&["-b", "1024"][..], &["-b", "1024", "-I", "128"]] {
        let Some((image, _)) = image(args) else { return };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        image.save(&path);
        let value = vec![7; 700];
        let set = mounted(&path, |at| {
            for file in 0..FILES {
                let file = at.join(format!("f{file}"));
                rustix::fs::lsetxattr(
                    &file,
                    "user.shared",
                    &value,
                    rustix::fs::XattrFlags::empty(),
                )
                .unwrap();
            }
        });
        if set.is_none() {
            return;
        }
        let image = Image::load(&path);
        let volume = image.volume();
        let files: Vec<_> = (0..FILES).map(|file| ino(&image, &format!("f{file}"))).collect();
        let blocks: Vec<_> =
            files.iter().map(|ino| volume.inode(*ino).unwrap().attribute_block()).collect();
        assert!(blocks[0] != 0 && blocks.iter().all(|block| *block == blocks[0]), "{blocks:?}");
        let allocator = Allocator::new(&volume).unwrap();
        let steps = |file, name: &[u8], value: Option<&[u8]>| Step {
            file,
            name: name.to_vec(),
            value: value.map(<[u8]>::to_vec),
            how: SetAttribute::Any,
        };
        let shared = Model::from([(b"user.shared".to_vec(), value.clone())]);
        let mut models = [shared.clone(), shared.clone(), shared];
        let todo = [
            steps(0, b"user.shared", Some(&[8; 600])),
            steps(1, b"user.\xe4", Some(&[9; 100])),
            steps(1, b"user.shared", None),
        ];
        for step in &todo {
            play(&image, &allocator, &mut models, std::slice::from_ref(step));
            image.fsck();
        }
        image.save(&path);
        mounted(&path, |at| {
            for (file, model) in models.iter().enumerate() {
                assert_eq!(kernels(&at.join(format!("f{file}"))), *model);
            }
        });
        change(&image, &allocator, files[2], attributes::release).unwrap();
        image.fsck();
    }
}

/// Encodes an ACL in the format of `setxattr`.
fn given(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut given = vec![2, 0, 0, 0];
    for (tag, permissions, id) in entries {
        given.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        given.extend(id.to_le_bytes());
    }
    given
}

const NOBODY: u32 = u32::MAX;
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Compares modes and ACLs after the same steps by the kernel and by this crate.
#[test]
fn acls_and_modes_are_as_the_kernel_makes_them() {
    let Some((image, allocator)) = image(&["-b", "1024"]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image.save(&path);
    let named = given(&[
        (1, 7, NOBODY),
        (2, 6, 1000),
        (4, 5, NOBODY),
        (8, 7, 77),
        (0x10, 6, NOBODY),
        (0x20, 1, NOBODY),
    ]);
    let plain = given(&[(1, 6, NOBODY), (4, 4, NOBODY), (0x20, 0, NOBODY)]);
    let modes = [0o4755_u16, 0o640, 0o2711];
    type Seen = (u32, u32, Model);
    let seen = |at: &Path| -> Seen {
        let stat = rustix::fs::lstat(at).unwrap();
        (stat.st_mode, stat.st_uid, kernels(at))
    };
    let none = rustix::fs::XattrFlags::empty();
    let by_kernel = mounted(&path, |at| {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
        let mut all = Vec::new();
        let (file, d) = (at.join("f0"), at.join("d"));
        rustix::fs::lsetxattr(&file, ACCESS, &named, none).unwrap();
        all.push(seen(&file));
        for mode in modes {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode.into())).unwrap();
            all.push(seen(&file));
        }
        rustix::fs::lsetxattr(
            &file,
            "security.capability",
            &[1, 0, 0, 2, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            none,
        )
        .unwrap();
        chown(&file, Some(5), None).unwrap();
        all.push(seen(&file));
        rustix::fs::lsetxattr(&file, ACCESS, &plain, none).unwrap();
        all.push(seen(&file));
        rustix::fs::lsetxattr(&d, DEFAULT, &named, none).unwrap();
        all.push(seen(&d));
        std::fs::DirBuilder::new().mode(0o751).create(d.join("new")).unwrap();
        all.push(seen(&d.join("new")));
        let made = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o4666)
            .open(d.join("file"));
        made.unwrap();
        all.push(seen(&d.join("file")));
        rustix::fs::lsetxattr(&d, DEFAULT, &plain, none).unwrap();
        std::fs::DirBuilder::new().mode(0o777).create(d.join("plain")).unwrap();
        all.push(seen(&d.join("plain")));
        all
    });
    let Some(by_kernel) = by_kernel else { return };

    let (f0, d) = (ino(&image, "f0"), ino(&image, "d"));
    let seen = |ino: u32| -> Seen {
        let metadata = image.volume().inode(ino).unwrap().metadata();
        (metadata.mode.into(), metadata.uid, read(&image, ino))
    };
    let any = SetAttribute::Any;
    let set = |ino, name: &str, value: &[u8]| {
        change(&image, &allocator, ino, |handle, inode| {
            attributes::set(handle, inode, name.as_bytes(), value, any)
        })
    };
    let mut all = Vec::new();
    set(f0, ACCESS, &named).unwrap();
    all.push(seen(f0));
    for mode in modes {
        change(&image, &allocator, f0, |handle, inode| metadata::set_mode(handle, inode, mode))
            .unwrap();
        all.push(seen(f0));
    }
    set(f0, "security.capability", &[1, 0, 0, 2, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        .unwrap();
    change(&image, &allocator, f0, |handle, inode| {
        metadata::set_owner(handle, inode, Some(5), None)
    })
    .unwrap();
    all.push(seen(f0));
    set(f0, ACCESS, &plain).unwrap();
    all.push(seen(f0));
    set(d, DEFAULT, &named).unwrap();
    all.push(seen(d));
    // This checks what new inodes inherit. Existing files stand in for new ones, and are restored
    // afterwards.
    let make = |file: &str, mode: u16| -> Seen {
        let ino = ino(&image, file);
        let mut seen = None;
        let undone = image.change(|handle| {
            let handle = &mut AllocHandle::new(handle, &allocator);
            let mut inode = handle.load_inode(ino)?;
            inode.set_mode(mode);
            // There is a default list, so the umask does not count.
            acl::inherit(handle, d, &mut inode, 0o777)?;
            let held = inode.parsed(handle.superblock())?;
            seen = Some((
                inode.mode().into(),
                0,
                handle.volume().attributes(&held)?.into_iter().collect(),
            ));
            Err::<(), _>(Error::NotFound)
        });
        assert_eq!(undone, Err(Error::NotFound));
        seen.unwrap()
    };
    all.push(make("f1", 0o040_751));
    all.push(make("f2", 0o104_666));
    set(d, DEFAULT, &plain).unwrap();
    all.push(make("f1", 0o040_777));
    for (step, (kernel, here)) in by_kernel.iter().zip(&all).enumerate() {
        assert_eq!(kernel, here, "step {step}");
    }
    assert_eq!(by_kernel.len(), all.len());
    image.fsck();
}

#[test]
fn what_cannot_be_is_refused() {
    let Some((image, allocator)) = image(&["-b", "1024"]) else { return };
    let set = |file: &str, name: &[u8], value: &[u8]| {
        change(&image, &allocator, ino(&image, file), |handle, inode| {
            attributes::set(handle, inode, name, value, SetAttribute::Any)
        })
    };
    assert_eq!(set("f0", b"", b""), Err(Error::Range));
    assert_eq!(set("f0", &[b'u'; 256], b""), Err(Error::Range));
    assert!(matches!(set("f0", b"user.", b""), Err(Error::Invalid(_))));
    assert!(matches!(set("f0", b"user.a\0b", b""), Err(Error::Invalid(_))));
    assert!(matches!(set("f0", b"system.data", b""), Err(Error::Unsupported(_))));
    assert!(matches!(set("f0", b"other.x", b""), Err(Error::Unsupported(_))));
    assert_eq!(set("f0", b"user.x", &[0; 65_537]), Err(Error::TooBig));
    assert_eq!(set("f0", b"user.x", &[0; 65_536]), Err(Error::NoSpace));
    assert_eq!(set("link", b"user.x", b""), Err(Error::NotPermitted));
    assert_eq!(set("link", b"trusted.x", b"y"), Ok(()));
    let acl = given(&[(1, 7, NOBODY), (4, 5, NOBODY), (0x20, 4, NOBODY)]);
    assert!(matches!(set("link", ACCESS.as_bytes(), &acl), Err(Error::Unsupported(_))));
    assert_eq!(set("f0", DEFAULT.as_bytes(), &acl), Err(Error::NotPermitted));
    let immutable = ino(&image, "f1");
    change(&image, &allocator, immutable, |_, inode| {
        inode.set_flags(inode.flags() | 0x10);
        Ok(())
    })
    .unwrap();
    assert_eq!(set("f1", b"user.x", b""), Err(Error::NotPermitted));
    image.fsck();
    // The link keeps its target, even with an attribute in a block of its own.
    assert_eq!(set("link", b"trusted.long", &[1; 500]), Ok(()));
    let volume = image.volume();
    assert_eq!(volume.read_link(&volume.inode(ino(&image, "link")).unwrap()).unwrap(), b"f0");
    image.fsck();
}

#[test]
fn times_are_the_nearest_that_can_be_told() {
    for (args, last) in
        [(&["-b", "1024"][..], 15_032_385_535), (&["-b", "1024", "-I", "128"], 0x7FFF_FFFF)]
    {
        let Some((image, allocator)) = image(args) else { return };
        let ino = ino(&image, "f0");
        let set = |accessed, modified| {
            let times =
                |seconds: Option<i64>| seconds.map(|seconds| Timestamp { seconds, nanoseconds: 7 });
            change(&image, &allocator, ino, |handle, inode| {
                metadata::set_times(handle, inode, times(accessed), times(modified));
                Ok(())
            })
            .unwrap();
            image.volume().inode(ino).unwrap().metadata()
        };
        let told = set(Some(i64::MAX), Some(-5_000_000_000));
        assert_eq!((told.accessed.seconds, told.modified.seconds), (last, -0x8000_0000));
        let told = set(None, Some(1_000));
        assert_eq!((told.accessed.seconds, told.modified.seconds), (last, 1_000));
        assert_eq!(told.modified.nanoseconds, if last > 0x7FFF_FFFF { 7 } else { 0 });
        assert_eq!(told.changed.seconds, 1_000_000_000);
        image.fsck();
    }
}
