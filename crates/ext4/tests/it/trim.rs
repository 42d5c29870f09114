//! The device is told about free blocks, and about no others.

use std::fs;
use std::path::Path;

use meantime_ext4::{Error, FileSystem, MountOptions, OpenOptions};

use meantime_testkit::filled::Image;

fn mounted(image: &Image) -> FileSystem {
    image.mount("", &MountOptions { write: true, background: false, ..MountOptions::default() })
}

fn write(fs: &FileSystem, path: &str, byte: u8, bytes: usize) {
    fs.write(path, vec![byte; bytes]).unwrap();
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    fs.open_with(path, &options).unwrap().sync_all().unwrap();
}

/// The number of bytes of the image in blocks that contain only `byte`.
fn bytes_of(image: &Image, byte: u8) -> usize {
    let bytes = fs::read(image.path("image")).unwrap();
    bytes.chunks(1024).filter(|block| block.iter().all(|found| *found == byte)).count() << 10
}

#[test]
fn what_is_free_is_trimmed_and_nothing_else() {
    let fill = |root: &Path| fs::write(root.join("old"), vec![0xA1; 1 << 20]).unwrap();
    for block in ["1024", "4096"] {
        let Some(image) = Image::make(&["-b", block], 64, fill) else { return };
        let fs = mounted(&image);
        write(&fs, "/kept", 0xB2, 3 << 20);
        write(&fs, "/gone", 0xC3, 5 << 20);
        fs.remove_file("/gone").unwrap();
        // The removal is not committed yet: a crash would restore the file.
        let free = fs.usage().unwrap().free_blocks * u64::from(fs.info().block_bytes);
        let trimmed = fs.trim(0..u64::MAX, 0).unwrap();
        assert!(trimmed <= free - (5 << 20), "{trimmed} of {free}");
        assert_eq!(bytes_of(&image, 0xC3), 5 << 20);
        fs.sync().unwrap();
        let trimmed = fs.trim(0..u64::MAX, 0).unwrap();
        assert_eq!(trimmed, fs.usage().unwrap().free_blocks * u64::from(fs.info().block_bytes));
        assert_eq!(bytes_of(&image, 0xC3), 0);
        assert_eq!((bytes_of(&image, 0xA1), bytes_of(&image, 0xB2)), (1 << 20, 3 << 20));
        // Trimmed blocks can be used again, and used blocks are not trimmed.
        write(&fs, "/again", 0xD4, 5 << 20);
        fs.trim(0..u64::MAX, 0).unwrap();
        assert!(fs.read("/again").unwrap() == vec![0xD4; 5 << 20]);
        fs.unmount().unwrap();
        image.check();
        assert!(image.dump("/again") == vec![0xD4; 5 << 20]);
        assert!(image.dump("/old") == vec![0xA1; 1 << 20]);
    }
}

#[test]
fn a_range_and_the_least_run_count() {
    let Some(image) = Image::make(&["-b", "1024"], 64, |_| {}) else { return };
    let fs = mounted(&image);
    let all = fs.trim(0..u64::MAX, 0).unwrap();
    let parts = [0..20 << 20, 20 << 20..33 << 20, 33 << 20..u64::MAX];
    let parts: u64 = parts.into_iter().map(|part| fs.trim(part, 0).unwrap()).sum();
    assert_eq!(parts, all);
    assert!(fs.trim(0..u64::MAX, 4 << 20).unwrap() <= all);
    for (range, least) in [(1 << 40..u64::MAX, 0), (5..5, 0), (0..u64::MAX, 1 << 40)] {
        assert!(matches!(fs.trim(range, least), Err(Error::Invalid(_))));
    }
    // While another thread writes and frees.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..60_u8 {
                write(&fs, &format!("/file-{}", n % 7), n, 1 << 20);
                assert!(fs.read(format!("/file-{}", n % 7)).unwrap() == vec![n; 1 << 20]);
            }
        });
        while !writer.is_finished() {
            fs.trim(0..u64::MAX, 0).unwrap();
        }
        writer.join().unwrap();
    });
    fs.unmount().unwrap();
    image.check();
    for n in 53..60_u8 {
        assert!(image.dump(&format!("/file-{}", n % 7)) == vec![n; 1 << 20]);
    }
    let reader = image.mount("", &MountOptions::default());
    assert_eq!(reader.trim(0..u64::MAX, 0), Err(Error::ReadOnly));
}
