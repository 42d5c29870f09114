//! Files and directories changed by path, on a file system made here.

use std::io::{Read, Write};

use meantime::block::{self, Device};
use meantime::ext4::format::mkfs::MakeOptions;
use meantime::ext4::{Error, FileSystem, FileType, MountOptions, OpenOptions, Timestamp, mkfs};

fn made() -> FileSystem {
    let device: Device = block::open("mem:32M", &block::OpenOptions::default()).unwrap();
    let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    mkfs::make(&device, &MakeOptions::new([7; 32], now)).unwrap();
    FileSystem::mount(device, &MountOptions { write: true, ..MountOptions::default() }).unwrap()
}

fn names(fs: &FileSystem, path: &str) -> Vec<String> {
    let entries = fs.read_dir(path).unwrap().map(|entry| entry.unwrap().name.into_string().unwrap());
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
    assert!(fs.create_dir("/").is_err());
    let make = OpenOptions { write: true, create: true, mode: 0o640, ..OpenOptions::default() };
    let mut file = fs.open_with("/a/f", &make).unwrap();
    file.write_all(b"text").unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs.create_dir("/a/f/x").unwrap_err(), Error::NotDirectory);
    assert_eq!(fs.create_dir_all("/a/f/x").unwrap_err(), Error::NotDirectory);
    fs.hard_link("/a/f", "/a/b/g").unwrap();
    fs.symlink_path("f", "/a/link").unwrap();
    fs.remove_file("/a/f").unwrap();
    assert_eq!(fs.metadata("/a/link").unwrap_err(), Error::NotFound);
    assert_eq!(fs.symlink_metadata("/a/link").unwrap().file_type, FileType::Symlink);
    fs.rename_path("/a/b/g", "/a/f").unwrap();
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
