//! Direct reads into the caller's memory: the right bytes and no others, whatever the address, the
//! size and the way of unmapping, and no memory stays mapped longer than it should.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use meantime_block::{self as block, OpenOptions};
use meantime_ext4::{Error, File, FileSystem, MountOptions, Overlap, ReadOptions, SegmentKind};
use meantime_hw::DmaHeap;
use meantime_testkit::{Rng, filled};

const FILE_BYTES: usize = (2 << 20) + 777;

fn content() -> Vec<u8> {
    let byte = |at: usize| {
        let word = (at as u64 / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (word >> (at % 8 * 8)) as u8
    };
    (0..FILE_BYTES).map(byte).collect()
}

/// An image with one file.
struct Image {
    filled: filled::Image,
    content: Vec<u8>,
}

impl Image {
    fn make() -> Option<Self> {
        let content = content();
        let filled = filled::Image::make(&["-b", "4096"], 16, |root| {
            std::fs::write(root.join("data"), &content).unwrap();
        })?;
        Some(Self { filled, content })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.filled.path(name)
    }

    fn mount(&self, query: &str, lazy_unmap: bool) -> (FileSystem, DmaHeap) {
        let uri = format!("file:{}?model=null{query}", self.path("image").display());
        let device = block::open(&uri, &OpenOptions::default()).unwrap();
        let overlap = Overlap { lazy_unmap, ..Overlap::ALL };
        let options = MountOptions { overlap, cache_bytes: 1 << 20, ..MountOptions::default() };
        let heap = device.heap().clone();
        (FileSystem::mount(device, &options).unwrap(), heap)
    }

    /// Reads `len` bytes at `offset` of the file to `skip` bytes after a page boundary, and checks
    /// the bytes around them, too.
    fn check(&self, file: &File, memory: &mut [u8], skip: usize, offset: usize, len: usize) {
        let start = memory.as_ptr().align_offset(4096) + skip;
        let whole = start..start + len;
        memory[..whole.end + 64].fill(0xEE);
        let read = file.read_at_with(&mut memory[whole.clone()], offset as u64, &direct()).unwrap();
        let there = self.content.len().saturating_sub(offset).min(len);
        assert_eq!(read, there, "{len} bytes at {offset}");
        let wrong = (0..there).find(|&at| memory[start + at] != self.content[offset + at]);
        assert_eq!(wrong, None, "{len} bytes at {offset}, {skip} bytes into a page");
        let touched =
            (0..start).chain(start + there..whole.end + 64).find(|&at| memory[at] != 0xEE);
        assert_eq!(
            touched, None,
            "written beyond {len} bytes at {offset}, {skip} bytes into a page"
        );
    }
}

fn direct() -> ReadOptions {
    ReadOptions { direct: true, ..ReadOptions::default() }
}

const SIZES: [usize; 14] = [
    1,
    511,
    4096,
    4097,
    16 << 10,
    20_000,
    64 << 10,
    (64 << 10) + 4096,
    128 << 10,
    (128 << 10) + 8191,
    300_001,
    1 << 20,
    (1 << 20) + 5000,
    FILE_BYTES + 9,
];

#[test]
fn any_size_at_any_address() {
    let Some(image) = Image::make() else { return };
    let mut memory = vec![0; FILE_BYTES + 3 * 4096];
    for lazy in [false, true] {
        for query in ["", "&lba=4096"] {
            let (fs, heap) = image.mount(query, lazy);
            let file = fs.open("data").unwrap();
            let mut random = Rng::new(11);
            for len in SIZES {
                for skip in [0, 1, 2, 4, 16, 511, 512, 2048, 4095, random.below(4096) as usize] {
                    for offset in
                        [0, 512, 4096, 8192 + 16, random.below(FILE_BYTES as u64) as usize]
                    {
                        image.check(&file, &mut memory, skip, offset, len);
                        assert!(lazy || heap.lent_bytes() == 0, "still mapped");
                    }
                }
            }
            assert!(fs.counters().lent > 100, "{:?}", fs.counters());
            drop((file, fs));
            assert_eq!(heap.lent_bytes(), 0, "mapped after the end of the mount");
            assert_eq!(heap.quarantined_bytes(), 0);
        }
    }
}

#[test]
fn what_is_cheaper_to_copy_is_copied() {
    let Some(image) = Image::make() else { return };
    let mut memory = vec![0; 1 << 20];
    for lazy in [false, true] {
        let (fs, heap) = image.mount("", lazy);
        let file = fs.open("data").unwrap();
        for len in [1, 4096, 8191, 1, 4096, 8191] {
            image.check(&file, &mut memory, 0, 0, len);
        }
        // The first time; with lazy unmapping, any time.
        image.check(&file, &mut memory, 0, 0, 64 << 10);
        assert_eq!((fs.counters().lent, heap.lent_bytes()), (0, 0));
        image.check(&file, &mut memory, 0, 0, 64 << 10);
        let again = u64::from(lazy);
        assert_eq!(
            (fs.counters().lent, heap.lent_bytes()),
            (2 * again, usize::from(lazy) * (64 << 10)),
            "two requests"
        );
        image.check(&file, &mut memory, 0, 4096, 8 << 10);
        assert_eq!(fs.counters().lent, 3 * again);
        // Large enough for a mapping of its own.
        image.check(&file, &mut memory, 2048, 0, 300 << 10);
        assert!(fs.counters().lent >= 3 * again + 4, "{:?}", fs.counters());
    }
}

#[test]
fn memory_may_go_after_a_read() {
    let Some(image) = Image::make() else { return };
    let (fs, heap) = image.mount("", true);
    let file = fs.open("data").unwrap();
    let mut random = Rng::new(3);
    for _ in 0..200 {
        // Large enough for a memory mapping of its own, which is unmapped with it; the next buffer
        // may get its address.
        let len = (128 << 10) + random.below(600_000) as usize;
        let mut memory = vec![0; len + 3 * 4096];
        image.check(&file, &mut memory, random.below(1024) as usize * 4, 0, len);
        drop(memory);
    }
    assert!(heap.lent_bytes() <= 4 << 20, "a few mappings at most");
    // Other reads undo the mappings.
    let mut memory = vec![0; 3 * 4096];
    (0..100).for_each(|_| image.check(&file, &mut memory, 0, 0, 4096));
    assert_eq!(heap.lent_bytes(), 0);
}

#[test]
fn two_threads() {
    let Some(image) = Image::make() else { return };
    let image = Arc::new(image);
    for lazy in [false, true] {
        let (fs, heap) = image.mount("", lazy);
        let threads: Vec<_> = (0..2u64)
            .map(|n| {
                let (image, file) = (Arc::clone(&image), fs.open("data").unwrap());
                std::thread::spawn(move || {
                    let (mut memory, mut random) = (vec![0; 600_000], Rng::new(n + 1));
                    for _ in 0..300 {
                        let (skip, offset) = (
                            random.below(1024) as usize * 4,
                            random.below(FILE_BYTES as u64) as usize,
                        );
                        image.check(
                            &file,
                            &mut memory,
                            skip,
                            offset,
                            random.below(500_000) as usize,
                        );
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(fs.counters().lent > 100 && (lazy || heap.lent_bytes() == 0));
        drop(fs);
        assert_eq!(heap.lent_bytes(), 0);
    }
}

fn plan(path: &Path, text: &str) -> String {
    std::fs::write(path, text).unwrap();
    format!("&faults={}", path.display())
}

#[test]
fn an_error_of_the_device_ends_the_loan() {
    let Some(image) = Image::make() else { return };
    let segments = image.mount("", true).0.open("data").unwrap().segments().unwrap();
    let lba = match segments[0].kind {
        SegmentKind::Data(place) => place / 512,
        kind => panic!("no data: {kind:?}"),
    };
    let text = format!(
        "[[fault]]\nfault = \"status\"\nstatus = \"unrecovered-read-error\"\ndnr = true\nopcode = \"read\"\n\
         lba = \"{}-{}\"\n",
        lba + 8 * 40,
        lba + 8 * 40 + 7,
    );
    for lazy in [false, true] {
        let mut memory = vec![0; (1 << 20) + 8192];
        let start = memory.as_ptr().align_offset(4096);
        for skip in [0, 16, 512, 4000] {
            let (fs, heap) = image.mount(&plan(&image.path("plan.toml"), &text), lazy);
            let file = fs.open("data").unwrap();
            let buf = &mut memory[start + skip..start + skip + (512 << 10)];
            buf.fill(0);
            let read = file.read_at_with(buf, 0, &direct()).unwrap();
            assert!(read > 0 && read <= 40 * 4096, "{read}");
            assert_eq!(buf[..read], image.content[..read]);
            assert_eq!(heap.lent_bytes(), 0, "a device that fails is cut off at once");
            let failed = file.read_at_with(buf, 40 * 4096, &direct());
            assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
            assert!(lazy || heap.lent_bytes() == 0);
            // Reads elsewhere succeed.
            image.check(&file, &mut memory, skip, 41 * 4096, 512 << 10);
            assert!(fs.counters().lent > 0);
        }
    }
}

#[test]
fn a_device_that_leaves_the_bus_keeps_nothing() {
    let Some(image) = Image::make() else { return };
    let segments = image.mount("", true).0.open("data").unwrap().segments().unwrap();
    let lba = match segments[0].kind {
        SegmentKind::Data(place) => place / 512 + 8 * 40,
        kind => panic!("no data: {kind:?}"),
    };
    let text = format!(
        "[[fault]]\nfault = \"surprise-removal\"\nopcode = \"read\"\nlba = \"{lba}-{lba}\"\n"
    );
    for lazy in [false, true] {
        let (fs, heap) = image.mount(&plan(&image.path("gone.toml"), &text), lazy);
        let file = fs.open("data").unwrap();
        let mut memory = vec![0; 600_000];
        image.check(&file, &mut memory, 0, 64 * 4096, 300_000);
        let start = memory.as_ptr().align_offset(4096);
        let read = file.read_at_with(&mut memory[start..start + (512 << 10)], 0, &direct());
        let had = read.unwrap_or(0);
        assert!(had <= 40 * 4096, "{had}");
        assert_eq!(memory[start..start + had], image.content[..had]);
        // A read that met the removal after its first blocks ended short. If the SSD's thread did not
        // get to run for long, the one above timed out before it, and this one is the first.
        let mut ends = || file.read_at_with(&mut memory, 0, &direct());
        assert!((0..3).any(|_| ends().is_err()), "a read of a device that is gone");
        drop((file, fs));
        assert_eq!(heap.lent_bytes(), 0);
    }
}

#[test]
fn locked_memory_is_not_lent() {
    let Some(image) = Image::make() else { return };
    let mut memory = vec![0; 1 << 20];
    let uri = format!("file:{}?model=null&lock=1", image.path("image").display());
    // Without locked memory there is nothing to test.
    let Ok(device) = block::open(&uri, &OpenOptions::default()) else { return };
    let fs = FileSystem::mount(device, &MountOptions::default()).unwrap();
    image.check(&fs.open("data").unwrap(), &mut memory, 0, 0, 500_000);
    assert_eq!(fs.counters().lent, 0);
}
