//! Writing files: what was written is read by this crate, e2fsck and debugfs.

use std::fs;

use meantime_ext4::{
    Allocate, Error, File, FileSystem, MountOptions, NewNode, OpenOptions, RenameFlags,
    SetAttribute, SetMetadata, WriteOptions,
};

use meantime_testkit::Rng;
use meantime_testkit::filled::Image;

fn writable() -> MountOptions {
    MountOptions { write: true, background: false, cache_bytes: 4 << 20, ..MountOptions::default() }
}

fn read_write() -> OpenOptions {
    OpenOptions { read: true, write: true, ..OpenOptions::default() }
}

fn compare(file: &File, model: &[u8], what: &str) {
    assert_eq!(file.size(), model.len() as u64, "{what}");
    let mut all = vec![0xEE; model.len()];
    assert_eq!(file.read_at(&mut all, 0).unwrap(), model.len(), "{what}");
    if let Some(at) = all.iter().zip(model).position(|(got, wanted)| got != wanted) {
        panic!("{what}: byte {at} is {:#x}, not {:#x}", all[at], model[at]);
    }
}

/// Makes one random change of `file` and `model`. Returns its description.
fn step(random: &mut Rng, file: &File, model: &mut Vec<u8>, most: u64, byte: u8) -> String {
    let offset = random.below(most);
    let spread = random.below(18);
    let len = (random.below(1 << spread) + 1).min(most - offset) as usize;
    match random.below(20) {
        0..8 => {
            let direct = random.below(3) == 0;
            // An aligned write may be done in place.
            let aligned = direct && random.below(2) == 0 && len >= 512;
            let (offset, len) =
                if aligned { (offset / 512 * 512, len / 512 * 512) } else { (offset, len) };
            let data: Vec<u8> = (0..len).map(|at| byte ^ at as u8 | 1).collect();
            let options = WriteOptions { direct, ..WriteOptions::default() };
            assert_eq!(file.write_at_with(&data, offset, &options).unwrap(), len);
            let end = offset as usize + len;
            model.resize(model.len().max(end), 0);
            model[offset as usize..end].copy_from_slice(&data);
            format!("write {offset}+{len} direct {direct}")
        }
        8..11 => {
            let size = random.below(most);
            file.set_len(size).unwrap();
            model.resize(size as usize, 0);
            format!("set_len {size}")
        }
        11 => {
            file.append(&[byte | 1; 100]).unwrap();
            model.extend([byte | 1; 100]);
            "append".to_owned()
        }
        12..16 => {
            let how = [
                Allocate::Extend,
                Allocate::KeepSize,
                Allocate::Punch,
                Allocate::Zero,
                Allocate::ZeroKeepSize,
            ][random.below(5) as usize];
            file.allocate(offset, len as u64, how).unwrap();
            let end = offset as usize + len;
            if matches!(how, Allocate::Extend | Allocate::Zero) {
                model.resize(model.len().max(end), 0);
            }
            if matches!(how, Allocate::Punch | Allocate::Zero | Allocate::ZeroKeepSize) {
                let (begin, end) = (model.len().min(offset as usize), model.len().min(end));
                model[begin..end].fill(0);
            }
            format!("{how:?} {offset}+{len}")
        }
        16 => {
            file.sync_all().unwrap();
            "sync_all".to_owned()
        }
        17 => {
            file.sync_data().unwrap();
            "sync_data".to_owned()
        }
        18 => {
            file.sync_range(offset..offset + len as u64).unwrap();
            "sync_range".to_owned()
        }
        _ => {
            let mut some = vec![0; len];
            let options =
                meantime_ext4::ReadOptions { direct: random.below(2) == 0, ..Default::default() };
            let read = file.read_at_with(&mut some, offset, &options).unwrap();
            let begin = model.len().min(offset as usize);
            let wanted = &model[begin..model.len().min(begin + len)];
            assert!(some[..read] == *wanted, "read {offset}+{len} {options:?}");
            "read".to_owned()
        }
    }
}

fn exercise(options: &[&str], megabytes: u32, seed: u64, steps: u64) {
    let Some(image) =
        Image::make(options, megabytes, |root| fs::write(root.join("f"), b"").unwrap())
    else {
        return;
    };
    let most = 700_000;
    let mut random = Rng::new(seed);
    let mut model = Vec::new();
    let mut done = Vec::new();
    for _ in 0..3 {
        let fs = image.mount("", &writable());
        let file = fs.open_with("/f", &read_write()).unwrap();
        compare(&file, &model, &format!("{options:?}: after a mount, {done:?}"));
        for n in 0..steps {
            done.push(step(&mut random, &file, &mut model, most, n as u8));
            if n % 5 == 0 {
                let last = &done[done.len().saturating_sub(12)..];
                compare(&file, &model, &format!("{options:?}, seed {seed}, step {n}: {last:#?}"));
            }
        }
        drop(file);
        fs.unmount().unwrap();
        image.check();
        assert!(
            image.dump("/f") == model,
            "{options:?}, seed {seed}: debugfs reads something else"
        );
        let reader = image.mount("", &MountOptions::default());
        compare(&reader.open("/f").unwrap(), &model, "mounted for reading");
    }
}

#[test]
fn a_file_is_what_was_written() {
    for (seed, block_bytes) in [(1, "4096"), (2, "1024"), (3, "2048"), (4, "4096"), (5, "1024")] {
        exercise(&["-b", block_bytes], 32, seed, 100);
    }
}

#[test]
fn blocks_larger_than_pages() {
    for (seed, block_bytes) in [(1, "8192"), (2, "16384")] {
        exercise(&["-b", block_bytes], 64, seed, 100);
    }
}

#[test]
fn without_checksums_or_flexible_groups() {
    exercise(&["-O", "^metadata_csum,^64bit,^flex_bg"], 32, 9, 100);
}

/// The sorted names in directory `path`.
fn names(fs: &FileSystem, path: &str) -> Vec<String> {
    let mut names: Vec<String> = fs
        .read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().name.into_string().unwrap())
        .collect();
    names.sort();
    names.retain(|name| name != "." && name != "..");
    names
}

#[test]
fn names_come_and_go() {
    let Some(image) = Image::make(&[], 32, |_| {}) else { return };
    let fs = image.mount("", &writable());
    let root = fs.root().unwrap();
    let new = NewNode { mode: 0o755, uid: 7, gid: 8, umask: 0 };
    let dir = fs.mkdir(&root, "dir".as_ref(), &new).unwrap();
    let file = fs.create(&dir, "file".as_ref(), &new).unwrap();
    assert_eq!(fs.create(&dir, "file".as_ref(), &new).unwrap_err(), Error::Exists);
    assert_eq!(fs.metadata("/dir/file").unwrap().uid, 7);
    let open = fs.open_node_with(&file, &read_write()).unwrap();
    open.write_at(&[5; 10_000], 0).unwrap();
    fs.link(&file, &root, "second".as_ref()).unwrap();
    assert_eq!(file.metadata().links, 2);
    fs.symlink_at(&root, "to".as_ref(), "dir/file".as_ref(), &new).unwrap();
    assert_eq!(fs.open("/to").unwrap().size(), 10_000);
    assert_eq!(fs.rmdir(&root, "dir".as_ref()).unwrap_err(), Error::NotEmpty);
    fs.rename_at(&dir, "file".as_ref(), &root, "moved".as_ref(), RenameFlags::default()).unwrap();
    assert_eq!(fs.lookup(&dir, "file".as_ref()).unwrap_err(), Error::NotFound);
    fs.rmdir(&root, "dir".as_ref()).unwrap();
    assert_eq!(fs.create(&dir, "late".as_ref(), &new).unwrap_err(), Error::NotFound);
    drop(dir);
    fs.unlink(&root, "second".as_ref()).unwrap();
    fs.unlink(&root, "moved".as_ref()).unwrap();
    // The file has no name, but still exists.
    let mut bytes = [0; 10];
    assert_eq!(open.read_at(&mut bytes, 9_990).unwrap(), 10);
    assert_eq!(bytes, [5; 10]);
    open.write_at(&[6; 5000], 20_000).unwrap();
    open.sync_all().unwrap();
    let free = fs.usage().unwrap().free_inodes;
    drop((open, file));
    assert_eq!(fs.usage().unwrap().free_inodes, free + 1);
    let nameless = fs.tmpfile(&root, &new).unwrap();
    let kept = fs.tmpfile(&root, &new).unwrap();
    fs.open_node_with(&kept, &read_write()).unwrap().write_at(b"kept", 0).unwrap();
    fs.link(&kept, &root, "kept".as_ref()).unwrap();
    fs.set_metadata(&kept, &SetMetadata { mode: Some(0o600), ..SetMetadata::default() }).unwrap();
    fs.set_attribute(&kept, b"user.a", b"value", SetAttribute::Any).unwrap();
    assert_eq!(fs.attribute(&kept, b"user.a").unwrap(), b"value");
    for n in 0..300 {
        fs.create(&root, format!("name-{n}").as_ref(), &new).unwrap();
    }
    for n in (0..300).step_by(2) {
        fs.unlink(&root, format!("name-{n}").as_ref()).unwrap();
    }
    assert_eq!(names(&fs, "/").len(), 150 + 3);
    // A file that is open without a name is deleted when the mount ends.
    drop(kept);
    fs.unmount().unwrap();
    drop((nameless, root));
    image.check();
    let fs = image.mount("", &MountOptions::default());
    assert_eq!(names(&fs, "/").len(), 150 + 3);
    assert_eq!(fs.metadata("/kept").unwrap().mode & 0o777, 0o600);
}

#[test]
fn threads_write_and_read() {
    let Some(image) = Image::make(&[], 64, |_| {}) else { return };
    let fs =
        image.mount("", &MountOptions { background: true, commit_interval_ms: 20, ..writable() });
    let root = fs.root().unwrap();
    let shared = fs
        .create(&root, "shared".as_ref(), &NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 })
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (fs, root, shared) = (fs.clone(), root.clone(), shared.clone());
            scope.spawn(move || {
                let shared = fs.open_node_with(&shared, &read_write()).unwrap();
                let new = NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 };
                for turn in 0..40u64 {
                    let name = format!("{thread}-{turn}");
                    let node = fs.create(&root, name.as_ref(), &new).unwrap();
                    let own = fs.open_node_with(&node, &read_write()).unwrap();
                    let data = vec![thread + 1; 30_000];
                    own.write_at(&data, turn * 1000).unwrap();
                    // Each writer writes whole pages, so each page read is of one writer.
                    let at = (u64::from(thread) + 4 * (turn % 16)) * 4096;
                    shared.write_at(&[thread + 1; 4096], at).unwrap();
                    if turn % 3 == 0 {
                        own.sync_all().unwrap();
                        shared.sync_data().unwrap();
                    }
                    let mut page = vec![0; 4096];
                    shared.read_at(&mut page, at).unwrap();
                    assert!(
                        page.iter().all(|byte| *byte == thread + 1),
                        "thread {thread}, turn {turn}"
                    );
                    let mut all = vec![0; 40_000 + turn as usize * 1000];
                    let read = own.read_at(&mut all, 0).unwrap();
                    assert_eq!(read, 30_000 + turn as usize * 1000);
                    assert!(all[turn as usize * 1000..read] == data);
                    if turn % 2 == 0 {
                        fs.unlink(&root, name.as_ref()).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(names(&fs, "/").len(), 4 * 20 + 2);
    drop(shared);
    fs.unmount().unwrap();
    image.check();
}

#[test]
fn a_full_disk_says_so_and_is_sound() {
    let Some(image) = Image::make(&["-b", "1024"], 8, |_| {}) else { return };
    let fs = image.mount("", &writable());
    let root = fs.root().unwrap();
    let node = fs
        .create(&root, "large".as_ref(), &NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 })
        .unwrap();
    let file = fs.open_node_with(&node, &read_write()).unwrap();
    let mut written = 0;
    let error = loop {
        match file.write_at(&[9; 50_000], written) {
            Ok(bytes) => written += bytes as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::NoSpace);
    // There is room for everything that the writes accepted.
    file.sync_all().unwrap();
    assert_eq!(file.size(), written);
    let mut all = vec![0; written as usize];
    assert_eq!(file.read_at(&mut all, 0).unwrap() as u64, written);
    assert!(all.iter().all(|byte| *byte == 9));
    file.set_len(10).unwrap();
    file.write_at(&[7; 1_000_000], 10).unwrap();
    file.sync_all().unwrap();
    drop((file, node));
    fs.unlink(&root, "large".as_ref()).unwrap();
    fs.unmount().unwrap();
    image.check();
}
