//! Changes of files and directories by path, on a new file system.

use std::io::{Read, Write};
use std::path::Path;

use meantime_block::{self as block, Device};
use meantime_ext4::format::mkfs::MakeOptions;
use meantime_ext4::{
    Errno, Error, FileSystem, FileType, MountOptions, OpenOptions, Timestamp, mkfs,
};

fn made() -> FileSystem {
    let device: Device = block::open("mem:32M", &block::OpenOptions::default()).unwrap();
    let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    mkfs::make(&device, &MakeOptions::new([7; 32], now)).unwrap();
    FileSystem::mount(device, &MountOptions { write: true, ..MountOptions::default() }).unwrap()
}

fn names(fs: &FileSystem, path: &str) -> Vec<String> {
    let entries =
        fs.read_dir(path).unwrap().map(|entry| entry.unwrap().name.into_string().unwrap());
    let mut names: Vec<String> = entries.filter(|name| name != "." && name != "..").collect();
    names.sort();
    names
}

#[test]
fn as_std_fs_does() {
    let fs = made();
    fs.create_dir_all("/a/b/c").unwrap();
    fs.create_dir_all("a/./b/../b/c").unwrap();
    assert_eq!(fs.create_dir("/a").unwrap_err(), Error::Exists);
    assert_eq!(fs.create_dir("/none/x").unwrap_err(), Error::NotFound);
    let make = OpenOptions { write: true, create: true, mode: 0o640, ..OpenOptions::default() };
    let mut file = fs.open_with("/a/f", &make).unwrap();
    file.write_all(b"text").unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs.create_dir("/a/f/x").unwrap_err(), Error::NotDirectory);
    assert_eq!(fs.create_dir_all("/a/f/x").unwrap_err(), Error::NotDirectory);
    fs.hard_link("/a/f", "/a/b/g").unwrap();
    fs.symlink("f", "/a/link").unwrap();
    fs.remove_file("/a/f").unwrap();
    assert_eq!(fs.metadata("/a/link").unwrap_err(), Error::NotFound);
    assert_eq!(fs.symlink_metadata("/a/link").unwrap().file_type, FileType::Symlink);
    fs.rename("/a/b/g", "/a/f").unwrap();
    let mut text = String::new();
    fs.open("/a/link").unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    assert_eq!(names(&fs, "/a"), ["b", "f", "link"]);
    assert_eq!(fs.remove_dir("/a/b").unwrap_err(), Error::NotEmpty);
    assert_eq!(fs.remove_file("/a/b").unwrap_err(), Error::IsDirectory);
    fs.remove_dir("/a/b/c").unwrap();
    fs.remove_dir("/a/b").unwrap();
    assert_eq!(names(&fs, "/a"), ["f", "link"]);
    fs.unmount().unwrap();
}

#[test]
fn content_and_attributes_as_std_fs_has_them() {
    let fs = made();
    fs.create_dir_all("/a/b").unwrap();
    fs.write("/a/f", "text").unwrap();
    assert_eq!(fs.metadata("/a/f").unwrap().mode & 0o7777, 0o644);
    assert_eq!(fs.read("/a/f").unwrap(), b"text");
    fs.write("/a/f", [0xFF; 3]).unwrap();
    assert_eq!(fs.read("/a/f").unwrap(), [0xFF; 3]);
    assert!(matches!(fs.read_to_string("/a/f"), Err(Error::Invalid(_))));
    assert_eq!(fs.read("/a").unwrap_err(), Error::IsDirectory);
    assert_eq!(fs.write("/a", "").unwrap_err(), Error::IsDirectory);
    assert_eq!(fs.read("/a/none").unwrap_err(), Error::NotFound);
    // Content in two pieces with a hole between, and after.
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let file = fs.open_with("/a/f", &options).unwrap();
    file.write_at(&[1; 5000], 0).unwrap();
    file.write_at(&[2; 5000], 300_000).unwrap();
    file.set_len(1_000_000).unwrap();
    fs.set_permissions("/a/f", 0o4751).unwrap();
    assert_eq!(fs.copy("/a/f", "/a/g").unwrap(), 1_000_000);
    assert!(fs.read("/a/f").unwrap() == fs.read("/a/g").unwrap());
    let (from, to) = (fs.metadata("/a/f").unwrap(), fs.metadata("/a/g").unwrap());
    assert_eq!((to.mode, to.size, to.blocks_512), (from.mode, from.size, from.blocks_512));
    // To an existing name, and to itself.
    fs.write("/a/small", "small").unwrap();
    assert_eq!(fs.copy("/a/small", "/a/g").unwrap(), 5);
    assert_eq!(fs.read_to_string("/a/g").unwrap(), "small");
    fs.hard_link("/a/g", "/a/same").unwrap();
    assert!(matches!(fs.copy("/a/g", "/a/same"), Err(Error::Invalid(_))));
    assert_eq!(fs.read_to_string("/a/g").unwrap(), "small");
    assert_eq!(fs.copy("/a", "/x").unwrap_err(), Error::IsDirectory);
    assert!(!fs.exists("/x").unwrap());
    // Links.
    fs.symlink("../b/../f", "/a/b/link").unwrap();
    fs.symlink("/a/b", "/short").unwrap();
    fs.symlink("none", "/dangling").unwrap();
    assert_eq!(fs.read_link("/short").unwrap(), Path::new("/a/b"));
    assert!(matches!(fs.read_link("/a"), Err(Error::Invalid(_))));
    assert!(!fs.exists("/dangling").unwrap() && fs.exists("/a/b/link").unwrap());
    for (path, expected) in [
        ("/", "/"),
        ("..", "/"),
        ("/a/../a/./b/", "/a/b"),
        ("/short", "/a/b"),
        ("/short/../f", "/a/f"),
        ("a//f", "/a/f"),
    ] {
        assert_eq!(fs.canonicalize(path).unwrap(), Path::new(expected), "{path}");
    }
    assert_eq!(fs.canonicalize("/dangling").unwrap_err(), Error::NotFound);
    assert_eq!(fs.canonicalize("/a/f/").unwrap_err(), Error::NotDirectory);
    // A tree with links out of it.
    fs.create_dir_all("/t/1/2/3").unwrap();
    for n in 0..300 {
        fs.write(format!("/t/1/2/file-{n}"), [1]).unwrap();
    }
    fs.symlink("/a", "/t/1/out").unwrap();
    assert_eq!(fs.remove_dir_all("/short").unwrap_err(), Error::NotDirectory);
    assert_eq!(fs.remove_dir_all("/a/f").unwrap_err(), Error::NotDirectory);
    assert_eq!(fs.remove_dir_all("/none").unwrap_err(), Error::NotFound);
    let free = fs.usage().unwrap().free_inodes;
    fs.remove_dir_all("/t").unwrap();
    assert_eq!(fs.usage().unwrap().free_inodes, free + 305);
    assert!(!fs.exists("/t").unwrap() && fs.exists("/a/f").unwrap());
    fs.unmount().unwrap();
}

const OPERATIONS: [&str; 8] =
    ["mkdir", "rmdir", "unlink", "link", "symlink", "create", "rename from", "rename to"];

/// The errno, or 0, of `operation` on `path` (and `e`, or `f`, where it takes two), all in `dir`.
fn ours(fs: &FileSystem, dir: &str, operation: &str, path: &str) -> i32 {
    let at = |path: &str| format!("{dir}{path}");
    let path = at(path);
    let create = OpenOptions { write: true, create: true, mode: 0o600, ..OpenOptions::default() };
    let done = match operation {
        "mkdir" => fs.create_dir(path),
        "rmdir" => fs.remove_dir(path),
        "unlink" => fs.remove_file(path),
        "link" => fs.hard_link(at("f"), path),
        "symlink" => fs.symlink("f", path),
        "create" => fs.open_with(path, &create).map(drop),
        "rename from" => fs.rename(path, at("moved")),
        _ => fs.rename(at("f"), &path).and_then(|()| fs.rename(at("e"), &path)),
    };
    done.map_or_else(|error| Errno::from(&error).0, |()| 0)
}

/// The kernel's result, in `dir`.
fn kernels(dir: &Path, operation: &str, path: &str) -> i32 {
    // `join` is not used, since it normalises paths.
    let at = |path: &str| format!("{}/{path}", dir.display());
    let path = at(path);
    let done = match operation {
        "mkdir" => std::fs::create_dir(path),
        "rmdir" => std::fs::remove_dir(path),
        "unlink" => std::fs::remove_file(path),
        "link" => std::fs::hard_link(at("f"), path),
        "symlink" => std::os::unix::fs::symlink("f", path),
        "create" => std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map(drop),
        "rename from" => std::fs::rename(path, at("moved")),
        _ => std::fs::rename(at("f"), &path).and_then(|()| std::fs::rename(at("e"), &path)),
    };
    done.map_or_else(|error| error.raw_os_error().unwrap(), |()| 0)
}

/// The meaning of a path's end is the same as in Linux on any file system.
#[test]
fn ends_of_paths_mean_what_they_mean_to_linux() {
    let paths = [
        "f", "f/", "f//", "f/.", "f/..", "d", "d/", "d/.", "d/./", "d/..", "e", "e/", "e/.", "new",
        "new/", "new/.", "new/x", "f/x", "l", "l/", "l/.", "l/x", "dead", "dead/", "lf/", ".",
        "./", "d/../e/", "d/x/..", "d/x/../", "to/new", "to/new/", "to/to", "to/slash", "to/self",
        "to/up",
    ];
    let fs = made();
    for (operation, path) in OPERATIONS.into_iter().flat_map(|one| paths.map(|path| (one, path))) {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let here = format!("{operation} of {}/", path.replace('/', "|"));
        fs.create_dir(&here).unwrap();
        let at = |name: &str| (format!("{here}{name}"), dir.path().join(name));
        for name in ["d", "d/x", "e", "to"] {
            let (ours, kernels) = at(name);
            fs.create_dir(ours).unwrap();
            std::fs::create_dir(kernels).unwrap();
        }
        let (ours_f, kernels_f) = at("f");
        let make = OpenOptions { write: true, create: true, mode: 0o600, ..OpenOptions::default() };
        fs.open_with(ours_f, &make).unwrap();
        std::fs::write(kernels_f, "").unwrap();
        for (target, name) in [
            ("e", "l"),
            ("nowhere/at/all", "dead"),
            ("f", "lf"),
            ("made", "to/new"),
            ("../to/new", "to/to"),
            ("made/", "to/slash"),
            ("self", "to/self"),
            ("../d/made", "to/up"),
        ] {
            let (ours, kernels) = at(name);
            fs.symlink(target, ours).unwrap();
            std::os::unix::fs::symlink(target, kernels).unwrap();
        }
        let expected = kernels(dir.path(), operation, path);
        assert_eq!(ours(&fs, &here, operation, path), expected, "{operation} {path}");
        for (ours, kernels) in [at(""), at("d"), at("to")] {
            let Ok(entries) = std::fs::read_dir(kernels) else { continue };
            let mut there: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            there.sort();
            assert_eq!(names(&fs, &ours), there, "{operation} {path}");
        }
    }
}

/// The same result as the kernel's for `/` itself, which is left unchanged.
#[test]
fn the_root_stays() {
    let fs = made();
    for path in ["/", "//", "/.", "/.."] {
        let rmdir = match path {
            "/." => libc::EINVAL,
            "/.." => libc::ENOTEMPTY,
            _ => libc::EBUSY,
        };
        let (exists, busy, directory) = (libc::EEXIST, libc::EBUSY, libc::EISDIR);
        let errnos = [exists, rmdir, directory, libc::ENOENT, exists, directory, busy, busy];
        for (operation, errno) in OPERATIONS.into_iter().zip(errnos) {
            assert_eq!(ours(&fs, "", operation, path), errno, "{operation} {path}");
        }
    }
    assert_eq!(fs.create_dir("").unwrap_err(), Error::NotFound);
    assert_eq!(fs.create_dir("a/".repeat(2100)).unwrap_err(), Error::NameTooLong);
    assert_eq!(names(&fs, "/"), ["lost+found"]);
}
