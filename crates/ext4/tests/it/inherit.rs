//! New inodes get the permissions and ACLs that the kernel gives them, by mode, umask and the
//! directory's default ACL.

use std::ffi::OsStr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use meantime_ext4::{FileType, NewNode, SetAttribute};
use rustix::fs::{Mode, XattrFlags, lgetxattr, lsetxattr};

use meantime_testkit::image::{
    Mounted, mkfs, mount_after_kernel, run_for, scratch, tools, writable,
};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const NOBODY: u32 = u32::MAX;

fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list
}

/// The mode, the access ACL and the default ACL.
type Seen = (u32, Option<Vec<u8>>, Option<Vec<u8>>);

fn by_kernel(path: &Path) -> Seen {
    let attribute = |name| {
        let mut value = vec![0; 4096];
        let bytes = lgetxattr(path, name, &mut value).ok()?;
        value.truncate(bytes);
        Some(value)
    };
    (path.symlink_metadata().unwrap().mode(), attribute(ACCESS), attribute(DEFAULT))
}

const KINDS: [FileType; 4] =
    [FileType::Regular, FileType::Directory, FileType::Fifo, FileType::Symlink];

fn make_by_kernel(path: &Path, kind: FileType, mode: u32) {
    match kind {
        FileType::Directory => std::fs::DirBuilder::new().mode(mode).create(path).unwrap(),
        FileType::Regular => {
            std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(path)
                .map(drop)
                .unwrap();
        }
        FileType::Symlink => std::os::unix::fs::symlink("there", path).unwrap(),
        _ => rustix::fs::mknodat(
            rustix::fs::CWD,
            path,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(mode),
            0,
        )
        .unwrap(),
    }
}

#[test]
fn permissions_are_inherited_as_the_kernel_does() {
    if !tools() {
        return;
    }
    let lists = [
        None,
        Some(list(&[(1, 7, NOBODY), (4, 5, NOBODY), (0x20, 1, NOBODY)])),
        Some(list(&[
            (1, 6, NOBODY),
            (2, 7, 1000),
            (4, 7, NOBODY),
            (0x10, 5, NOBODY),
            (0x20, 4, NOBODY),
        ])),
        Some(list(&[
            (1, 7, NOBODY),
            (4, 6, NOBODY),
            (8, 7, 5),
            (0x10, 7, NOBODY),
            (0x20, 7, NOBODY),
        ])),
    ];
    let dir = scratch();
    let image = mkfs(dir.path(), "inherit.img", "16M", &["-b", "4096"]);
    let at = dir.path().join("mnt");
    let cases = || {
        (0..lists.len()).flat_map(|list| {
            [0o022, 0o077, 0, 0o777].into_iter().flat_map(move |umask| {
                [0o666, 0o4777, 0o2750, 0o1123].into_iter().flat_map(move |mode: u16| {
                    KINDS.map(|kind| {
                        // mkdir(2) uses no more bits of a mode.
                        let most = if kind == FileType::Directory { 0o1777 } else { 0o7777 };
                        let name = format!("{umask:o}-{mode:o}-{kind:?}");
                        (list, umask, mode & most, kind, name)
                    })
                })
            })
        })
    };
    let mut expected = Vec::new();
    {
        let Some(_mounted) = Mounted::new(&image, &at, "noatime") else { return };
        for (number, list) in lists.iter().enumerate() {
            for who in ["kernel", "ours"] {
                let path = at.join(format!("{who}{number}"));
                std::fs::create_dir(&path).unwrap();
                if let Some(list) = list {
                    lsetxattr(&path, DEFAULT, list, XattrFlags::empty()).unwrap();
                }
            }
        }
        let before = rustix::process::umask(Mode::empty());
        for (list, umask, mode, kind, name) in cases() {
            let path = at.join(format!("kernel{list}")).join(name);
            rustix::process::umask(Mode::from_raw_mode(umask));
            make_by_kernel(&path, kind, mode.into());
            rustix::process::umask(before);
            expected.push(by_kernel(&path));
        }
    }
    let fs = mount_after_kernel(&image, &writable());
    let root = fs.root().unwrap();
    for (list, umask, mode, kind, name) in cases() {
        let parent = fs.lookup(&root, OsStr::new(&format!("ours{list}"))).unwrap();
        let new = NewNode { mode, uid: 0, gid: 0, umask: umask as u16 };
        let name = OsStr::new(&name);
        match kind {
            FileType::Directory => fs.mkdir(&parent, name, &new),
            FileType::Regular => fs.create(&parent, name, &new),
            FileType::Symlink => fs.symlink_at(&parent, name, OsStr::new("there"), &new),
            _ => fs.mknod(&parent, name, &new, kind, (0, 0)),
        }
        .unwrap();
    }
    // The same for a file without a name.
    let parent = fs.lookup(&root, OsStr::new("ours0")).unwrap();
    let node = fs.tmpfile(&parent, &NewNode { mode: 0o666, uid: 0, gid: 0, umask: 0o027 }).unwrap();
    assert_eq!(node.metadata().mode & 0o7777, 0o640);
    fs.set_attribute(&parent, DEFAULT.as_bytes(), lists[1].as_ref().unwrap(), SetAttribute::Any)
        .unwrap();
    let node = fs.tmpfile(&parent, &NewNode { mode: 0o666, uid: 0, gid: 0, umask: 0o777 }).unwrap();
    assert_eq!(node.metadata().mode & 0o7777, 0o640);
    fs.remove_attribute(&parent, DEFAULT.as_bytes()).unwrap();
    drop((node, parent, root));
    fs.unmount().unwrap();
    run_for("e2fsck", &["-fn", image.to_str().unwrap()], &[0]);
    let Some(_mounted) = Mounted::new(&image, &at, "ro") else { return };
    for ((list, umask, mode, kind, name), expected) in cases().zip(expected) {
        let ours = by_kernel(&at.join(format!("ours{list}")).join(&name));
        assert_eq!(ours, expected, "list {list}, umask {umask:o}, mode {mode:o}, {kind:?}");
    }
}
