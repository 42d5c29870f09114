//! Names that fast commits changed, which are in no block on a mount for reading: they are listed
//! at their hashes.

use std::ffi::OsStr;
use std::path::Path;

use meantime_ext4::{Entry, FileSystem, MountOptions, NewNode, RenameFlags};

use meantime_testkit::image::{READ_WRITE, mkfs, mount, scratch, tools, writable};

fn list(fs: &FileSystem, path: &str) -> Vec<Entry> {
    fs.read_dir(path).unwrap().map(Result::unwrap).collect()
}

#[test]
fn names_of_fast_commits_are_in_their_places() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let image = mkfs(dir.path(), "fast.img", "32M", &["-b", "1024", "-O", "fast_commit"]);
    let fs = mount(&image, &MountOptions { fast_commit: true, ..writable() });
    let new = NewNode { mode: 0o755, uid: 0, gid: 0, umask: 0 };
    let root = fs.root().unwrap();
    for (path, count) in [("small", 8), ("large", 400)] {
        let node = fs.mkdir(&root, OsStr::new(path), &new).unwrap();
        for n in 0..count {
            fs.create(&node, OsStr::new(&format!("name-{n}")), &new).unwrap();
        }
    }
    fs.sync().unwrap();
    let copy = dir.path().join("copy.img");
    for path in ["small", "large"] {
        let node = fs.resolve(&root, path, true).unwrap();
        for n in 0..6 {
            let name = |what: &str| format!("{what}-{n}");
            fs.unlink(&node, OsStr::new(&name("name"))).unwrap();
            fs.create(&node, OsStr::new(&name("added")), &new).unwrap();
            let file = fs.open_with(Path::new(path).join(name("added")), &READ_WRITE).unwrap();
            file.write_at(b"content", 0).unwrap();
            file.sync_all().unwrap();
        }
        fs.rename_at(
            &node,
            OsStr::new("added-0"),
            &node,
            OsStr::new("moved"),
            RenameFlags::default(),
        )
        .unwrap();
        fs.open_with(Path::new(path).join("moved"), &READ_WRITE).unwrap().sync_all().unwrap();
    }
    // A power cut. A checkpoint beside the last sync can make that a full commit.
    let read = (0..20).find_map(|n| {
        fs.create(&root, OsStr::new(&format!("more-{n}")), &new).unwrap();
        fs.open_with(Path::new(&format!("more-{n}")), &READ_WRITE).unwrap().sync_all().unwrap();
        std::fs::copy(&image, &copy).unwrap();
        let read = mount(&copy, &MountOptions::default());
        let recovered = read.info().recovered;
        recovered.is_some_and(|found| found.fast_commits > 0).then_some(read)
    });
    let read = read.expect("a fast commit");
    let before = ["/small", "/large"].map(|path| list(&read, path));
    for (entries, node) in before.iter().zip(["/small", "/large"]) {
        assert!(entries.iter().any(|entry| entry.name == "moved"));
        // The rest follows from each cookie.
        for (at, entry) in entries.iter().enumerate() {
            let mut rest = read.read_dir(node).unwrap();
            rest.seek(entry.cookie);
            assert_eq!(rest.map(Result::unwrap).collect::<Vec<_>>(), entries[at + 1..]);
        }
    }
    drop(read);
    let written = mount(&copy, &writable());
    for (path, before) in ["/small", "/large"].into_iter().zip(before) {
        let now = list(&written, path);
        let names = |entries: &[Entry]| -> Vec<_> {
            entries.iter().map(|entry| (entry.name.clone(), entry.ino, entry.file_type)).collect()
        };
        assert_eq!(names(&before), names(&now), "{path}");
    }
    written.unmount().unwrap();
}
