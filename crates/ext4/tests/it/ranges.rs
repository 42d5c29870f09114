//! Extents as FIEMAP reports them, and copies inside the file system.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use meantime_ext4::{
    Allocate, Error, Extent, File, FileSystem, MountOptions, OpenOptions, extent_flags,
};

use meantime_testkit::Rng;
use meantime_testkit::filled::Image;
use meantime_testkit::image::{Mounted, mkfs, mount_after_kernel, run, scratch, tools, writable};

fn mounted(image: &Image) -> FileSystem {
    image.mount("", &MountOptions { write: true, background: false, ..MountOptions::default() })
}

fn open(fs: &FileSystem, path: &str) -> File {
    let options = OpenOptions {
        read: true,
        write: true,
        create: true,
        mode: 0o644,
        ..OpenOptions::default()
    };
    fs.open_with(path, &options).unwrap()
}

/// Offset, place, length and flags by `filefrag -e`, with blocks of 4 KiB.
fn by_filefrag(path: &Path) -> Vec<Extent> {
    let text = run("filefrag", &["-e", "-b4096", path.to_str().unwrap()]);
    let mut found = Vec::new();
    for line in text.lines() {
        // `   0:        0..       2:      34816..     34818:      3:             unwritten`
        let fields: Vec<&str> = line.split([':', '.']).map(str::trim).collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let (Some(_), Some(first), Some(place)) = (number(0), number(1), number(4)) else {
            continue;
        };
        let Some(blocks) = number(7) else { continue };
        let words = line.rsplit(':').next().unwrap_or_default();
        let flag = |word: &str, flag| if words.contains(word) { flag } else { 0 };
        let flags = flag("last", extent_flags::LAST) | flag("unwritten", extent_flags::UNWRITTEN);
        found.push(Extent { offset: first << 12, place: place << 12, bytes: blocks << 12, flags });
    }
    found
}

#[test]
fn extents_are_those_of_the_kernel() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let image = mkfs(dir.path(), "fiemap.img", "32M", &["-b", "4096"]);
    let at = dir.path().join("mnt");
    let names = ["whole", "holes", "aside", "after", "nothing"];
    let expected: Vec<Vec<Extent>> = {
        let Some(_mounted) = Mounted::new(&image, &at, "noatime") else { return };
        let file = |name: &str| {
            fs::OpenOptions::new().write(true).create(true).truncate(true).open(at.join(name))
        };
        file("whole").unwrap().write_all_at(&[1; 50_000], 0).unwrap();
        let holes = file("holes").unwrap();
        for n in [3, 4, 9, 30, 31, 32, 100] {
            holes.write_all_at(&[2; 4096], n << 12).unwrap();
        }
        let aside = file("aside").unwrap();
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&aside, flags, 0, 100_000).unwrap();
        aside.write_all_at(&[3; 9000], 30_000).unwrap();
        let after = file("after").unwrap();
        after.write_all_at(&[4; 5000], 0).unwrap();
        let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&after, flags, 0, 40_000).unwrap();
        file("nothing").unwrap();
        rustix::fs::sync();
        names.iter().map(|name| by_filefrag(&at.join(name))).collect()
    };
    let fs = mount_after_kernel(&image, &writable());
    for (name, expected) in names.iter().zip(expected) {
        let found = fs.open(name).unwrap().extents(0..u64::MAX).unwrap();
        assert_eq!(found, expected, "{name}");
    }
    fs.unmount().unwrap();
}

#[test]
fn what_is_in_memory_only_is_among_the_extents() {
    let Some(image) = Image::make(&["-b", "4096"], 32, |_| {}) else { return };
    let fs = mounted(&image);
    let file = open(&fs, "/file");
    file.write_at(&[1; 10_000], 0).unwrap();
    file.sync_all().unwrap();
    file.write_at(&[2; 8192], 40_960).unwrap();
    let extents = file.extents(0..u64::MAX).unwrap();
    let delayed = extent_flags::DELAYED | extent_flags::UNKNOWN | extent_flags::LAST;
    assert_eq!(extents.len(), 2);
    assert_eq!((extents[0].offset, extents[0].bytes, extents[0].flags), (0, 12_288, 0));
    assert_eq!(extents[1], Extent { offset: 40_960, place: 0, bytes: 8192, flags: delayed });
    assert_eq!(file.extents(12_288..40_960).unwrap(), []);
    assert_eq!(file.extents(0..40_961).unwrap(), extents);
    assert_eq!(file.extents(20_000..40_961).unwrap(), extents[1..]);
    file.sync_range(0..u64::MAX).unwrap();
    let written = file.extents(40_960..50_000).unwrap();
    assert_eq!((written.len(), written[0].flags), (1, extent_flags::LAST));
    drop(file);
    fs.unmount().unwrap();
    image.check();
}

/// Compares random copies within one file and between two, with some dirty pages, with bytes in
/// memory.
#[test]
fn copies_are_right_over_dirty_pages_and_holes() {
    let Some(image) = Image::make(&["-b", "1024"], 64, |_| {}) else { return };
    let fs = mounted(&image);
    let files = [open(&fs, "/a"), open(&fs, "/b")];
    let mut model = [Vec::new(), Vec::new()];
    let mut rng = Rng::new(7);
    let most = 400_000;
    let put = |model: &mut Vec<u8>, at: usize, data: &[u8]| {
        if data.is_empty() {
            return;
        }
        let end = at + data.len();
        if model.len() < end {
            model.resize(end, 0);
        }
        model[at..end].copy_from_slice(data);
    };
    for turn in 0..600_u64 {
        let which = rng.below(2) as usize;
        let (at, bytes) = (rng.below(most), 1 + rng.below(60_000));
        match rng.below(8) {
            0 | 1 => {
                let data: Vec<u8> = (0..bytes).map(|n| (n + turn) as u8).collect();
                files[which].write_at(&data, at).unwrap();
                put(&mut model[which], at as usize, &data);
            }
            2 => {
                files[which].allocate(at, bytes, Allocate::Punch).unwrap();
                let len = model[which].len();
                let range = (at as usize).min(len)..((at + bytes) as usize).min(len);
                model[which][range].fill(0);
            }
            3 if turn % 5 == 0 => {
                files[which].set_len(at).unwrap();
                model[which].resize(at as usize, 0);
            }
            4 if turn % 7 == 0 => files[which].sync_all().unwrap(),
            _ => {
                let to = rng.below(2) as usize;
                let to_at = rng.below(most);
                let copied = files[which].copy_range(at, &files[to], to_at, bytes);
                let len = model[which].len() as u64;
                let left = bytes.min(len.saturating_sub(at));
                if which == to && left > 0 && at < to_at + left && to_at < at + left {
                    assert!(matches!(copied, Err(Error::Invalid(_))), "turn {turn}");
                    continue;
                }
                assert_eq!(copied, Ok(left), "turn {turn}");
                let data = model[which].get(at as usize..(at + left) as usize);
                let data = data.unwrap_or_default().to_vec();
                put(&mut model[to], to_at as usize, &data);
            }
        }
        for (file, model) in files.iter().zip(&model) {
            assert_eq!(file.size(), model.len() as u64, "turn {turn}");
        }
        if turn % 20 == 0 {
            for (path, model) in ["/a", "/b"].iter().zip(&model) {
                assert!(fs.read(path).unwrap() == *model, "turn {turn}");
            }
        }
    }
    drop(files);
    fs.unmount().unwrap();
    image.check();
    assert!(image.dump("/a") == model[0] && image.dump("/b") == model[1]);
}
