use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::alloc::Allocator;
use crate::journal::tests::image::Image;
use crate::ops::{Name, Progress, attributes, rename};
use crate::{RenameFlags, SetAttribute};
use meantime_ext4_format::features::compat;
use meantime_ext4_format::{ROOT_INO, Volume};

mod growth;
mod model;

pub(super) const NEW: NewNode = NewNode { mode: 0o644, uid: 1000, gid: 100, umask: 0 };

/// An image with its allocator.
pub(super) struct Rig {
    pub image: Image,
    pub allocator: Allocator,
}

impl Rig {
    /// Makes a file system by mke2fs and changes it by debugfs. Returns `None` without e2fsprogs.
    fn new(size: &str, args: &[&str], debugfs: &[&str]) -> Option<Self> {
        let mut image = Image::make(size, args)?;
        if !debugfs.is_empty() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("image");
            image.save(&path);
            for request in debugfs {
                let output = Command::new("debugfs")
                    .args(["-w", "-R", request])
                    .arg(&path)
                    .output()
                    .unwrap();
                assert!(output.status.success());
            }
            image = Image::load(&path);
        }
        let allocator = Allocator::new(&image.volume()).unwrap();
        Some(Self { image, allocator })
    }

    pub(super) fn change<T>(
        &self,
        work: impl FnOnce(&mut AllocHandle<'_, '_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.image.change_with(&self.allocator, |handle| {
            work(&mut AllocHandle::new(handle, &self.allocator))
        })
    }

    /// Finishes orphan `ino`, as when it is no longer open.
    pub(super) fn finish(&self, ino: u32) {
        while self.change(|handle| orphans::finish(handle, ino, 20)).unwrap() == Progress::More {}
    }
}

/// Changes inode `ino` by `work`.
fn change_stored(
    handle: &mut AllocHandle<'_, '_>,
    ino: u32,
    work: impl FnOnce(&mut AllocHandle<'_, '_>, &mut InodeEdit) -> Result<(), Error>,
) -> Result<(), Error> {
    let inode = handle.load_inode(ino)?;
    change_inode(handle, inode, work)
}

/// Returns the names in directory `ino` without `.` and `..`. Each is also looked up.
pub(super) fn names(volume: &Volume<&Image>, ino: u32) -> BTreeMap<Vec<u8>, u32> {
    let dir = volume.linked_inode(ino).unwrap();
    let mut found = BTreeMap::new();
    let mut cookie = 0;
    loop {
        let some = volume.entries(&dir, cookie).unwrap();
        let Some(last) = some.last() else { break };
        assert!(last.cookie > cookie);
        cookie = last.cookie;
        for entry in some {
            assert_eq!(
                found.insert(entry.name.clone(), entry.ino),
                None,
                "{}",
                entry.name.escape_ascii()
            );
        }
    }
    for (name, ino) in &found {
        let looked_up = volume.lookup(&dir, name).unwrap();
        assert_eq!(looked_up.map(|(ino, _)| ino), Some(*ino), "{}", name.escape_ascii());
    }
    volume.check_index(&dir).unwrap();
    assert_eq!(found.remove(&b"."[..]), Some(ino));
    found.remove(&b".."[..]).unwrap();
    found
}

/// Calls `work` with the path of the kernel's mount of the image, if mounting is permitted. The
/// image then has what the kernel wrote.
pub(super) fn with_kernel(rig: &mut Rig, options: &str, work: impl FnOnce(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let (file, at) = (dir.path().join("image"), dir.path().join("mount"));
    rig.image.save(&file);
    std::fs::create_dir(&at).unwrap();
    let output = Command::new("mount")
        .args(["-t", "ext4", "-o", &format!("loop,{options}")])
        .args([&file, &at])
        .output();
    if !output.as_ref().is_ok_and(|output| output.status.success()) {
        println!("skipped: no mount on a loop device ({output:?})");
        return;
    }
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&at)));
    crate::journal::tests::image::unmount(Path::new(&at));
    if let Err(failure) = result {
        std::panic::resume_unwind(failure);
    }
    rig.image = Image::load(&file);
    rig.allocator = Allocator::new(&rig.image.volume()).unwrap();
}

/// Makes a name of about `bytes` bytes. Some names are not ASCII; their hashes depend on the sign
/// of `char`.
fn name(number: u32, bytes: usize) -> Vec<u8> {
    let mut name = format!("{number:x}-").into_bytes();
    while name.len() < bytes {
        name.push(if number.is_multiple_of(3) {
            0xC0 | (number >> (name.len() % 8)) as u8 & 0x3F
        } else {
            b'n'
        });
    }
    name
}

#[test]
fn what_is_made_is_as_the_kernel_makes_it() {
    let Some(mut rig) = Rig::new("16M", &[], &[]) else { return };
    let long = [b'l'; 300];
    rig.change(|handle| {
        let dir = mkdir(
            handle,
            ROOT_INO,
            b"dir",
            &NewNode { mode: 0o2755, uid: 1, gid: 70_000, umask: 0 },
        )?;
        change_stored(handle, dir, |_, inode| {
            // The flags are: no dump, synchronous directory, no access times.
            inode.set_flags(inode.flags() | 0x40 | 0x1_0000 | 0x80);
            Ok(())
        })?;
        mkdir(handle, dir, b"below", &NEW)?;
        let file = create(handle, dir, b"file", &NEW)?;
        link(handle, file, dir, b"other")?;
        symlink(handle, dir, b"short", &long[..59], &NEW)?;
        symlink(handle, dir, b"long", &long[..60], &NEW)?;
        symlink(handle, dir, b"longer", &long, &NEW)?;
        mknod(handle, dir, b"pipe", &NEW, FileType::Fifo, (0, 0))?;
        mknod(handle, dir, b"socket", &NEW, FileType::Socket, (0, 0))?;
        mknod(handle, dir, b"small", &NEW, FileType::Block, (8, 17))?;
        mknod(handle, dir, b"large", &NEW, FileType::Character, (259, 0x12345))?;
        let (old, new) =
            (Name { parent: dir, name: b"other" }, Name { parent: dir, name: b"moved" });
        let flags = RenameFlags { whiteout: true, ..RenameFlags::default() };
        rename(handle, old, new, (flags, &NEW), MAYBE_USED)?;
        Ok(())
    })
    .unwrap();
    rig.image.fsck();
    let volume = rig.image.volume();
    let dir = names(&volume, ROOT_INO)[&b"dir"[..]];
    let all = names(&volume, dir);
    let inode = |name: &str| volume.linked_inode(all[name.as_bytes()]).unwrap();
    assert_eq!(volume.read_link(&inode("short")).unwrap(), &long[..59]);
    assert_eq!(volume.read_link(&inode("long")).unwrap(), &long[..60]);
    assert!(inode("short").is_fast_symlink() && !inode("long").is_fast_symlink());
    assert_eq!(inode("small").metadata().device, (8, 17));
    assert_eq!(inode("large").metadata().device, (259, 0x12345));
    let told = inode("below").metadata();
    assert_eq!((told.mode, told.uid, told.gid, told.links), (0o042_644, 1000, 70_000, 2));
    assert_eq!(inode("file").flags(), flags::EXTENTS | 0x40 | 0x80);
    assert_eq!(inode("below").flags(), flags::EXTENTS | 0x40 | 0x80 | 0x1_0000);
    assert_eq!(inode("pipe").flags(), 0x40 | 0x80);
    assert_eq!((inode("file").metadata().links, all[&b"moved"[..]]), (2, all[&b"file"[..]]));
    assert_eq!(
        (inode("other").metadata().device, inode("other").metadata().mode),
        ((0, 0), 0o020_000)
    );
    drop(volume);
    with_kernel(&mut rig, "ro", |at| {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        let told = |name: &str| std::fs::symlink_metadata(at.join("dir").join(name)).unwrap();
        assert_eq!(std::fs::read_link(at.join("dir/longer")).unwrap().as_os_str().len(), 300);
        assert_eq!(std::fs::read_link(at.join("dir/short")).unwrap().as_os_str().len(), 59);
        assert!(told("pipe").file_type().is_fifo() && told("socket").file_type().is_socket());
        assert_eq!((told("small").rdev(), told("file").nlink()), (8 << 8 | 17, 2));
        let times = (told(".").mtime(), told(".").ctime_nsec(), told("file").atime());
        assert_eq!(times, (1_000_000_000, 42, 1_000_000_000));
    });
}

#[test]
fn default_access_lists_are_inherited() {
    let Some(rig) = Rig::new("16M", &[], &[]) else { return };
    // The entries are for the owner, user 1000, group, mask and others, each with tag, permissions
    // and number.
    let entries = [(1_u16, 7_u16, !0_u32), (2, 7, 1000), (4, 5, !0), (0x10, 7, !0), (0x20, 5, !0)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, number) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(number.to_le_bytes());
    }
    let (file, dir, link) = rig
        .change(|handle| {
            let name = b"system.posix_acl_default";
            change_stored(handle, ROOT_INO, |handle, root| {
                attributes::set(handle, root, name, &list, SetAttribute::Any)
            })?;
            let file = create(handle, ROOT_INO, b"file", &NewNode { mode: 0o640, ..NEW })?;
            let dir = mkdir(handle, ROOT_INO, b"dir", &NewNode { mode: 0o755, ..NEW })?;
            Ok((file, dir, symlink(handle, ROOT_INO, b"link", b"target", &NEW)?))
        })
        .unwrap();
    let volume = rig.image.volume();
    let lists = |ino| {
        let all = volume.attributes(&volume.linked_inode(ino).unwrap()).unwrap();
        all.len()
    };
    assert_eq!((lists(file), lists(dir), lists(link)), (1, 2, 0));
    let mode = |ino| volume.linked_inode(ino).unwrap().metadata().mode & 0o777;
    assert_eq!((mode(file), mode(dir), mode(link)), (0o640, 0o755, 0o777));
    rig.image.fsck();
}

#[test]
fn subdirectories_are_counted_to_65000() {
    let Some(rig) = Rig::new("16M", &["-b", "1024"], &[]) else { return };
    let make = |name: &[u8]| rig.change(|handle| mkdir(handle, ROOT_INO, name, &NEW));
    let set = |links| {
        rig.change(|handle| {
            change_stored(handle, ROOT_INO, |_, inode| {
                inode.set_links(links);
                Ok(())
            })
        })
        .unwrap();
    };
    let links = || rig.image.volume().linked_inode(ROOT_INO).unwrap().metadata().links;
    set(LINKS_MAX);
    // The directory has one block and no index yet.
    assert_eq!(make(b"first"), Err(Error::TooManyLinks));
    set(3);
    for number in 0..60 {
        make(&name(number, 30)).unwrap();
    }
    set(LINKS_MAX - 1);
    make(b"second").unwrap();
    assert_eq!(links(), u32::from(LINKS_MAX));
    make(b"third").unwrap();
    assert_eq!(links(), 1);
    make(b"fourth").unwrap();
    rig.finish(rig.change(|handle| rmdir(handle, ROOT_INO, b"third", MAYBE_USED)).unwrap().ino);
    assert_eq!(links(), 1);
    rig.image.fsck();
    // A file is limited to the same number of names.
    let file = rig.change(|handle| create(handle, ROOT_INO, b"file", &NEW)).unwrap();
    rig.change(|handle| {
        change_stored(handle, file, |_, inode| {
            inode.set_links(LINKS_MAX);
            Ok(())
        })
    })
    .unwrap();
    let more = rig.change(|handle| link(handle, file, ROOT_INO, b"more"));
    assert_eq!(more, Err(Error::TooManyLinks));
}

/// The change that removes the last name deletes an unused inode, which never becomes an orphan.
#[test]
fn what_nobody_has_is_deleted_with_its_last_name() {
    let features = ["-b", "1024", "-O", "metadata_csum,64bit,dir_index"];
    let Some(rig) = Rig::new("8M", &features, &[]) else { return };
    let free = rig.allocator.usage();
    let make = |name: &[u8]| rig.change(|handle| create(handle, ROOT_INO, name, &NEW)).unwrap();
    let file = make(b"file");
    rig.change(|handle| link(handle, file, ROOT_INO, b"link")).unwrap();
    rig.change(|handle| mkdir(handle, ROOT_INO, b"dir", &NEW)).unwrap();
    let orphans = || rig.change(|handle| orphans::list(handle)).unwrap();
    // The inode has another name, so `unused` is not called.
    let lost = rig.change(|handle| {
        unlink(handle, ROOT_INO, b"file", &|_| unreachable!("it is no last name"))
    });
    assert!(!lost.unwrap().is_last);
    let delete = |handle: &mut AllocHandle<'_, '_>, lost: Unlinked| {
        assert!(lost.is_last && lost.is_unused);
        orphans::delete(handle, lost.ino, 20)
    };
    // A change that fails afterwards has removed nothing.
    let failed = rig.change(|handle| {
        let lost = unlink(handle, ROOT_INO, b"link", &|ino| ino == file)?;
        let _ = delete(handle, lost)?;
        Err::<(), _>(Error::Aborted)
    });
    assert_eq!(failed, Err(Error::Aborted));
    rig.image.fsck();
    for take in [
        (|handle| unlink(handle, ROOT_INO, b"link", &|_| true))
            as fn(&mut AllocHandle<'_, '_>) -> Result<Unlinked, Error>,
        |handle| rmdir(handle, ROOT_INO, b"dir", &|_| true),
    ] {
        let done = rig.change(|handle| {
            let lost = take(handle)?;
            delete(handle, lost)
        });
        assert_eq!((done, orphans()), (Ok(Progress::Done), Vec::new()));
    }
    // This inode is the target of a rename.
    let (old, new) = (make(b"old"), make(b"new"));
    let name = |name| Name { parent: ROOT_INO, name };
    let how = (RenameFlags::default(), &NEW);
    rig.change(|handle| {
        let unused = |ino| ino == new;
        let ends = (name(b"old"), name(b"new"));
        let moved = rename(handle, ends.0, ends.1, how, &unused)?;
        delete(handle, moved.replaced.unwrap())
    })
    .map(|progress| assert_eq!(progress, Progress::Done))
    .unwrap();
    rig.image.fsck();
    let lost = rig.change(|handle| unlink(handle, ROOT_INO, b"new", MAYBE_USED)).unwrap();
    assert_eq!((lost.ino, lost.is_last, lost.is_unused), (old, true, false));
    assert_eq!(orphans(), [old]);
    rig.finish(old);
    assert_eq!(rig.allocator.usage(), free);
    rig.image.fsck();
}

#[test]
fn what_may_not_be_is_refused() {
    let Some(rig) = Rig::new("16M", &[], &[]) else { return };
    let (dir, below, file) = rig
        .change(|handle| {
            let dir = mkdir(handle, ROOT_INO, b"dir", &NEW)?;
            let below = mkdir(handle, dir, b"below", &NEW)?;
            Ok((dir, below, create(handle, dir, b"file", &NEW)?))
        })
        .unwrap();
    let before = names(&rig.image.volume(), dir);
    let moved = |old, new, flags| {
        rig.change(|handle| rename(handle, old, new, (flags, &NEW), MAYBE_USED)).unwrap_err()
    };
    let none = RenameFlags::default();
    let exchange = RenameFlags { exchange: true, ..none };
    let at = |parent, name| Name { parent, name };
    assert!(matches!(moved(at(ROOT_INO, b"dir"), at(below, b"x"), none), Error::Invalid(_)));
    assert!(matches!(moved(at(ROOT_INO, b"dir"), at(dir, b"x"), none), Error::Invalid(_)));
    assert!(matches!(moved(at(ROOT_INO, b"dir"), at(dir, b"below"), exchange), Error::Invalid(_)));
    assert!(matches!(moved(at(dir, b"below"), at(ROOT_INO, b"dir"), exchange), Error::Invalid(_)));
    assert_eq!(moved(at(dir, b"below"), at(ROOT_INO, b"dir"), none), Error::NotEmpty);
    assert_eq!(moved(at(dir, b"file"), at(ROOT_INO, b"dir"), none), Error::NotEmpty);
    assert_eq!(moved(at(dir, b"file"), at(dir, b"below"), none), Error::IsDirectory);
    assert_eq!(moved(at(dir, b"below"), at(dir, b"file"), none), Error::NotDirectory);
    assert_eq!(moved(at(dir, b"file"), at(dir, b"x"), exchange), Error::NotFound);
    assert_eq!(moved(at(dir, b"x"), at(dir, b"file"), none), Error::NotFound);
    let no_replace = RenameFlags { no_replace: true, ..none };
    assert_eq!(moved(at(dir, b"file"), at(dir, b"below"), no_replace), Error::Exists);
    let both = RenameFlags { no_replace: true, ..exchange };
    assert!(matches!(moved(at(dir, b"file"), at(dir, b"below"), both), Error::Invalid(_)));
    assert!(matches!(moved(at(dir, b"file"), at(dir, b".."), none), Error::Invalid(_)));
    assert_eq!(moved(at(dir, b"file"), at(dir, &[b'x'; 256]), none), Error::NameTooLong);
    assert_eq!(moved(at(file, b"file"), at(dir, b"x"), none), Error::NotDirectory);
    let refused = |name: &[u8]| rig.change(|handle| create(handle, dir, name, &NEW));
    assert_eq!(refused(b"."), Err(Error::Exists));
    assert_eq!(refused(b""), Err(Error::NotFound));
    assert!(matches!(refused(b"a/b"), Err(Error::Invalid(_))));
    assert_eq!(refused(b"file"), Err(Error::Exists));
    let gone = |parent, name: &'static [u8], is_dir: bool| {
        rig.change(|handle| {
            if is_dir {
                rmdir(handle, parent, name, MAYBE_USED)
            } else {
                unlink(handle, parent, name, MAYBE_USED)
            }
        })
        .unwrap_err()
    };
    assert_eq!(gone(ROOT_INO, b"dir", true), Error::NotEmpty);
    assert_eq!(gone(ROOT_INO, b"dir", false), Error::IsDirectory);
    assert_eq!(gone(dir, b"file", true), Error::NotDirectory);
    assert!(matches!(gone(dir, b"..", true), Error::Invalid(_)));
    let linked = rig.change(|handle| link(handle, below, dir, b"x"));
    assert_eq!(linked, Err(Error::NotPermitted));
    let flag = |ino, flag| {
        rig.change(|handle| {
            change_stored(handle, ino, |_, inode| {
                inode.set_flags(inode.flags() & !0x30 | flag);
                Ok(())
            })
        })
        .unwrap();
    };
    for (ino, bits) in [
        (file, flags::IMMUTABLE),
        (file, flags::APPEND),
        (dir, flags::IMMUTABLE),
        (dir, flags::APPEND),
    ] {
        flag(ino, bits);
        assert_eq!(gone(dir, b"file", false), Error::NotPermitted);
        assert_eq!(moved(at(dir, b"file"), at(dir, b"x"), none), Error::NotPermitted);
        assert_eq!(refused(b"new").is_err(), bits == flags::IMMUTABLE && ino == dir, "{bits:#x}");
        flag(ino, 0);
        if let Ok(removed) = rig.change(|handle| unlink(handle, dir, b"new", MAYBE_USED)) {
            rig.finish(removed.ino);
        }
    }
    assert_eq!(names(&rig.image.volume(), dir), before);
    rig.image.fsck();
}

#[test]
fn a_file_without_a_name_gets_one() {
    for args in [&["-O", "orphan_file"][..], &[]] {
        let Some(rig) = Rig::new("16M", args, &[]) else { return };
        let make = || rig.change(|handle| tmpfile(handle, ROOT_INO, &NEW)).unwrap();
        let (kept, dropped) = (make(), make());
        rig.change(|handle| link(handle, kept, ROOT_INO, b"kept")).unwrap();
        assert_eq!(rig.change(|handle| orphans::list(handle)), Ok(vec![dropped]));
        rig.finish(dropped);
        assert_eq!(names(&rig.image.volume(), ROOT_INO)[&b"kept"[..]], kept);
        rig.image.fsck();
    }
}

/// An inode that cannot be deleted keeps its last name. Otherwise it would stay an orphan forever.
#[test]
fn what_cannot_be_deleted_keeps_its_last_name() {
    let Some(mut rig) = Rig::new("16M", &["-b", "1024", "-O", "ea_inode"], &[]) else { return };
    let mut is_made = false;
    with_kernel(&mut rig, "user_xattr", |at| {
        let large = |path: &Path| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(path, "user.large", &[7; 20_000], flags).unwrap();
        };
        for name in ["file", "other"] {
            std::fs::write(at.join(name), b"content").unwrap();
        }
        for name in ["dir", "empty"] {
            std::fs::create_dir(at.join(name)).unwrap();
        }
        large(&at.join("file"));
        large(&at.join("dir"));
        std::fs::hard_link(at.join("file"), at.join("second")).unwrap();
        is_made = true;
    });
    if !is_made {
        return;
    }
    let cannot =
        |result: Result<Unlinked, Error>| assert!(matches!(result, Err(Error::Unsupported(_))));
    let renamed = |rig: &Rig, old: &[u8], new: &[u8]| {
        let [old, new] = [old, new].map(|name| Name { parent: ROOT_INO, name });
        let flags = RenameFlags::default();
        let owner = NewNode::default();
        let done = rig.change(|handle| rename(handle, old, new, (flags, &owner), MAYBE_USED));
        done.map(|done| done.replaced.unwrap())
    };
    let before = rig.image.bytes();
    cannot(rig.change(|handle| rmdir(handle, ROOT_INO, b"dir", MAYBE_USED)));
    cannot(renamed(&rig, b"empty", b"dir"));
    assert!(rig.image.bytes() == before, "nothing has changed");
    // One of two names may be removed.
    let first = rig.change(|handle| unlink(handle, ROOT_INO, b"second", MAYBE_USED)).unwrap();
    assert!(!first.is_last);
    let before = rig.image.bytes();
    cannot(rig.change(|handle| unlink(handle, ROOT_INO, b"file", MAYBE_USED)));
    cannot(renamed(&rig, b"other", b"file"));
    assert!(rig.image.bytes() == before, "nothing has changed");
    assert_eq!(rig.change(|handle| orphans::list(handle)), Ok(Vec::new()));
    rig.image.fsck();
}
