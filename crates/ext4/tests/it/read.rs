//! Reading files: the bytes are right on every path, the device is asked for a page once, and
//! errors affect only the reads that meet them.

use std::fs;
use std::io::{IoSliceMut, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use meantime_block::{
    self as block, BlockChannel as _, BlockDevice as _, ChannelOptions, OpenOptions, Request,
};
use meantime_completion::Policy;
use meantime_ext4::{
    Advice, Error, File, FileDevice, FileDeviceOptions, FileSystem, MountOptions, Overlap,
    ReadOptions, SegmentKind,
};

use meantime_testkit::Rng;
use meantime_testkit::filled::Image;

pub(crate) const PAGE: u64 = 4096;

/// The expected byte `at` of file `seed`.
pub(crate) fn byte(seed: u64, at: u64) -> u8 {
    let word = (at / 8).wrapping_add(seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> (at % 8 * 8)) as u8
}

pub(crate) fn content(seed: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| byte(seed, at)).collect()
}

/// Makes a file `data` of `bytes` bytes.
pub(crate) fn one_file(bytes: u64) -> impl FnOnce(&Path) {
    move |root| fs::write(root.join("data"), content(1, bytes)).unwrap()
}

fn quiet() -> MountOptions {
    MountOptions { read_ahead_bytes: 0, ..MountOptions::default() }
}

/// Reads `len` bytes at `offset` and compares them.
pub(crate) fn check(file: &File, seed: u64, offset: u64, len: usize, options: &ReadOptions) {
    let mut buf = vec![0xEE; len];
    let read = file.read_at_with(&mut buf, offset, options).unwrap();
    check_bytes(&buf, read, file.size(), seed, offset);
}

/// Checks the `read` bytes of a read into `buf`, which was filled with 0xEE before.
pub(crate) fn check_bytes(buf: &[u8], read: usize, size: u64, seed: u64, offset: u64) {
    let len = buf.len();
    let due = size.saturating_sub(offset).min(len as u64);
    assert_eq!(read as u64, due, "at {offset}, {len} bytes");
    for (at, got) in buf[..read].iter().enumerate() {
        let place = offset + at as u64;
        assert_eq!(*got, byte(seed, place), "byte {place} of a read of {len} bytes at {offset}");
    }
    assert!(buf[read..].iter().all(|rest| *rest == 0xEE), "written beyond what was read");
}

const SIZES: [u64; 10] = [0, 1, 511, 512, 1025, 4095, 4096, 4097, 70_000, 1_000_007];

#[test]
fn every_size_at_every_block_size() {
    for block_bytes in ["1024", "2048", "4096"] {
        let made = Image::make(&["-b", block_bytes], 16, |root| {
            for (seed, bytes) in SIZES.iter().enumerate() {
                fs::write(root.join(format!("f{seed}")), content(seed as u64, *bytes)).unwrap();
            }
        });
        let Some(image) = made else { return };
        for (direct, query) in [(false, ""), (true, ""), (false, "&lba=4096"), (true, "&lba=4096")]
        {
            let fs = image.mount(query, &MountOptions::default());
            let options = ReadOptions { direct, ..ReadOptions::default() };
            let mut random = Rng::new(5);
            for (seed, bytes) in SIZES.iter().enumerate() {
                let file = fs.open(format!("f{seed}")).unwrap();
                assert_eq!(file.size(), *bytes);
                check(&file, seed as u64, 0, *bytes as usize + 10, &options);
                for _ in 0..50 {
                    let offset = random.below(bytes + 10);
                    let most = random.below(19);
                    let len = random.below(1 << most) as usize;
                    check(&file, seed as u64, offset, len, &options);
                }
            }
        }
    }
}

#[test]
fn every_combination_of_overlaps() {
    let Some(image) = Image::make(&[], 16, one_file(2_000_123)) else { return };
    for bits in 0..16 {
        let bit = |n: u32| bits >> n & 1 == 1;
        let overlap =
            Overlap { preload: bit(0), pool: bit(1), lazy_insert: bit(2), lazy_unmap: bit(3) };
        let options = MountOptions { overlap, cache_bytes: 1 << 20, ..MountOptions::default() };
        let fs = image.mount("", &options);
        let file = fs.open("/data").unwrap();
        let mut random = Rng::new(77);
        for n in 0..120 {
            let direct = n % 3 == 0;
            let options = ReadOptions { direct, ..ReadOptions::default() };
            check(&file, 1, random.below(2_000_200), random.below(40_000) as usize, &options);
        }
        // Large enough for the memory to be lent.
        for len in [16 << 10, 65_536 + 4096, 150_000, 700_001, 2_000_200] {
            let options = ReadOptions { direct: true, ..ReadOptions::default() };
            check(&file, 1, random.below(4096) * 4, len, &options);
            check(&file, 1, random.below(1_000_000), len, &options);
        }
        assert!(fs.counters().lent > 0, "{:?}", fs.counters());
        // The same holds for reads in order.
        let mut offset = 0;
        while offset < file.size() {
            check(&file, 1, offset, 8192, &ReadOptions::default());
            offset += 8192;
        }
    }
}

#[test]
fn several_buffers_and_a_position() {
    let Some(image) = Image::make(&[], 8, one_file(30_000)) else { return };
    let fs = image.mount("", &MountOptions::default());
    let mut file = fs.open("data").unwrap();
    for direct in [false, true] {
        let options = ReadOptions { direct, ..ReadOptions::default() };
        let (mut a, mut b, mut c) = (vec![0; 5000], vec![0; 0], vec![0; 13]);
        let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b), IoSliceMut::new(&mut c)];
        assert_eq!(file.read_vectored_at(&mut bufs, 4090, &options).unwrap(), 5013);
        a.extend(c);
        assert_eq!(a, content(1, 30_000)[4090..4090 + 5013]);
    }
    let mut all = Vec::new();
    file.seek(SeekFrom::End(-100)).unwrap();
    file.read_to_end(&mut all).unwrap();
    assert_eq!(all, content(1, 30_000)[29_900..]);
    file.rewind().unwrap();
    all.clear();
    file.read_to_end(&mut all).unwrap();
    assert_eq!(all, content(1, 30_000));
    assert!(file.seek(SeekFrom::Current(-30_001)).is_err());
    assert_eq!(file.read_at(&mut [0; 8], u64::MAX).unwrap(), 0);
    assert_eq!(fs.open("/").unwrap().read_at(&mut [0; 8], 0), Err(Error::IsDirectory));
    assert_eq!(fs.open("/nothing").err(), Some(Error::NotFound));
}

#[test]
fn holes_are_zeroes_and_are_found() {
    let made = Image::make(&["-b", "4096"], 16, |root| {
        let file = fs::File::create(root.join("sparse")).unwrap();
        file.set_len(5_000_000).unwrap();
        for place in [0, 1_000_000 / PAGE * PAGE, 4_096_000] {
            file.write_all_at(&content(1, 5000), place).unwrap();
        }
    });
    let Some(image) = made else { return };
    let fs = image.mount("", &MountOptions::default());
    let file = fs.open("sparse").unwrap();
    let starts = [0, 1_000_000 / PAGE * PAGE, 4_096_000];
    for direct in [false, true] {
        let mut all = vec![1; 5_000_000];
        let options = ReadOptions { direct, ..ReadOptions::default() };
        assert_eq!(file.read_at_with(&mut all, 0, &options).unwrap(), all.len());
        for start in starts.map(|start| start as usize) {
            assert_eq!(all[start..start + 5000], content(1, 5000));
            all[start..start + 5000].fill(0);
        }
        assert!(all.iter().all(|byte| *byte == 0));
    }
    assert_eq!(file.seek_data(100), Ok(100));
    assert_eq!(file.seek_hole(0), Ok(8192));
    assert_eq!(file.seek_data(8192), Ok(starts[1]));
    assert_eq!(file.seek_data(4_500_000), Err(Error::NotFound));
    assert_eq!(file.seek_hole(4_500_000), Ok(4_500_000));
    assert_eq!(file.seek_hole(5_000_000), Err(Error::NotFound));
    let segments = file.segments().unwrap();
    assert_eq!(
        segments.iter().map(|segment| segment.bytes).sum::<u64>(),
        5_000_000_u64.next_multiple_of(PAGE)
    );
    assert!(segments.windows(2).all(|pair| pair[0].offset + pair[0].bytes == pair[1].offset));
    assert!(segments.iter().filter(|segment| segment.kind == SegmentKind::Hole).count() >= 3);
}

#[test]
fn small_files_in_their_inode() {
    let made = Image::make(&["-O", "inline_data"], 8, |root| {
        for bytes in [1_u64, 59, 60, 61, 100, 150] {
            fs::write(root.join(format!("f{bytes}")), content(bytes, bytes)).unwrap();
        }
    });
    let Some(image) = made else { return };
    let fs = image.mount("", &MountOptions::default());
    let mut inline = 0;
    for bytes in [1_u64, 59, 60, 61, 100, 150] {
        let file = fs.open(format!("f{bytes}")).unwrap();
        check(&file, bytes, 0, 200, &ReadOptions::default());
        check(
            &file,
            bytes,
            bytes / 2,
            200,
            &ReadOptions { direct: true, ..ReadOptions::default() },
        );
        if file.segments().unwrap()[0].kind == SegmentKind::Inline {
            inline += 1;
            assert_eq!((file.seek_data(0), file.seek_hole(0)), (Ok(0), Ok(bytes)));
        }
    }
    assert!(inline > 0, "mkfs.ext4 put no file into its inode");
}

/// When several threads read the same file, the device is asked for each page once.
#[test]
fn threads_share_the_pages() {
    const PAGES: u64 = 512;
    let Some(image) = Image::make(&[], 16, one_file(PAGES * PAGE)) else { return };
    for (model, read_ahead_bytes) in [("", 0), ("&lba=4096", 256 << 10)] {
        let fs = image.mount(model, &MountOptions { read_ahead_bytes, ..MountOptions::default() });
        let file = fs.open("data").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    let mut random = Rng::new(thread / 2 + 1);
                    for _ in 0..400 {
                        let page = random.below(PAGES - 8);
                        check(
                            file,
                            1,
                            page * PAGE,
                            (1 + random.below(8)) as usize * 4096,
                            &ReadOptions::default(),
                        );
                    }
                    for page in 0..PAGES {
                        check(file, 1, page * PAGE, 4096, &ReadOptions::default());
                    }
                });
            }
        });
        let counters = fs.counters();
        assert_eq!(counters.misses + counters.ahead, PAGES, "{counters:?}");
        assert_eq!(counters.requested_bytes, (PAGES + counters.private) * PAGE, "{counters:?}");
        assert_eq!(counters.failed, 0);
    }
}

#[test]
fn a_cache_smaller_than_the_file() {
    const BYTES: u64 = 6 << 20;
    let Some(image) = Image::make(&[], 16, one_file(BYTES)) else { return };
    for read_ahead_bytes in [0, 512 << 10] {
        let options = MountOptions {
            cache_bytes: 1 << 20,
            read_ahead_bytes,
            channels: 2,
            ..MountOptions::default()
        };
        let fs = image.mount("", &options);
        let file = fs.open("data").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let file = &file;
                scope.spawn(move || {
                    let mut random = Rng::new(thread + 1);
                    for _ in 0..600 {
                        check(
                            file,
                            1,
                            random.below(BYTES),
                            random.below(30_000) as usize,
                            &ReadOptions::default(),
                        );
                    }
                    for offset in (0..BYTES).step_by(64 << 10) {
                        check(file, 1, offset, 64 << 10, &ReadOptions::default());
                    }
                });
            }
        });
        // A read larger than the cache.
        check(&file, 1, 0, BYTES as usize, &ReadOptions::default());
    }
}

#[test]
fn read_ahead_is_for_those_who_read_in_order() {
    const PAGES: u64 = 1024;
    let Some(image) = Image::make(&[], 16, one_file(PAGES * PAGE)) else { return };
    let fs = image.mount("", &MountOptions::default());
    let file = fs.open("data").unwrap();
    for page in 0..PAGES {
        check(&file, 1, page * PAGE, 4096, &ReadOptions::default());
    }
    let counters = fs.counters();
    assert!(counters.ahead > PAGES * 9 / 10, "{counters:?}");
    assert!(counters.requests < PAGES / 8, "{counters:?}");
    assert_eq!(counters.misses + counters.ahead, PAGES);
    drop((file, fs));

    let fs = image.mount("", &MountOptions::default());
    let file = fs.open("data").unwrap();
    let mut random = Rng::new(3);
    for _ in 0..300 {
        check(&file, 1, (2 + random.below(PAGES - 2)) * PAGE, 4096, &ReadOptions::default());
    }
    let counters = fs.counters();
    assert!(counters.ahead < 40, "{counters:?}");
    // Even reads in order cause no readahead if the program announces random ones.
    file.advise(0, 0, Advice::DontNeed).unwrap();
    file.advise(0, 0, Advice::Random).unwrap();
    let before = fs.counters().ahead;
    for page in 0..100 {
        check(&file, 1, page * PAGE, 4096, &ReadOptions::default());
    }
    assert_eq!(fs.counters().ahead, before);
}

#[test]
fn what_is_there_is_not_read_from_the_device() {
    let Some(image) = Image::make(&[], 16, one_file(64 * PAGE)) else { return };
    let fs = image.mount("", &quiet());
    let file = fs.open("data").unwrap();
    let mut buf = vec![0; 3 * 4096];
    let mut read = |offset, len: usize| {
        file.read_at_where(&mut buf[..len], offset, &ReadOptions::default()).unwrap()
    };
    assert_eq!(read(0, 2 * 4096), (2 * 4096, false));
    assert_eq!(read(0, 2 * 4096), (2 * 4096, true));
    assert_eq!(read(64 * PAGE, 4096), (0, true));
    // Read ahead on advice, and dropped on advice.
    file.advise(0, 0, Advice::WillNeed).unwrap();
    check(&file, 1, 0, 64 * 4096, &ReadOptions::default());
    let counters = fs.counters();
    assert_eq!((counters.misses, counters.ahead), (2, 62), "{counters:?}");
    file.advise(4096, 4096, Advice::DontNeed).unwrap();
    assert_eq!((read(0, 4096), read(4096, 4096)), ((4096, true), (4096, false)));
    file.advise(0, 0, Advice::DontNeed).unwrap();
    assert_eq!((read(8192, 4096), read(8192, 4096)), ((4096, false), (4096, true)));
    check(&file, 1, 0, 64 * 4096, &ReadOptions::default());
}

/// The device block of byte 0 of the file, in blocks of 512 bytes.
fn first_lba(file: &File) -> u64 {
    match file.segments().unwrap()[0].kind {
        SegmentKind::Data(place) => place / 512,
        kind => panic!("no data: {kind:?}"),
    }
}

#[test]
fn an_error_of_the_device_is_that_reads_alone() {
    let Some(image) = Image::make(&[], 16, one_file(64 * PAGE)) else { return };
    let lba = first_lba(&image.mount("", &quiet()).open("data").unwrap());
    for direct in [false, true] {
        let plan = format!(
            "[[fault]]\nfault = \"status\"\nstatus = \"unrecovered-read-error\"\ndnr = true\nopcode = \"read\"\n\
             lba = \"{}-{}\"\ntimes = 2\n",
            lba + 8 * 16,
            lba + 8 * 16 + 7,
        );
        fs::write(image.path("plan.toml"), plan).unwrap();
        let fs = image.mount(&format!("&faults={}", image.path("plan.toml").display()), &quiet());
        let file = fs.open("data").unwrap();
        let options = ReadOptions { direct, ..ReadOptions::default() };
        let mut buf = vec![0; 64 * 4096];
        assert!(matches!(
            file.read_at_with(&mut buf[..4096], 16 * PAGE, &options),
            Err(Error::Io(_))
        ));
        // The bytes before the failure are returned.
        let read = file.read_at_with(&mut buf, 0, &options).unwrap();
        assert!(read > 0 && read <= 16 * 4096 && read.is_multiple_of(512), "{read}");
        assert_eq!(buf[..read], content(1, 64 * PAGE)[..read]);
        // Nothing of the failure remains.
        check(&file, 1, 0, 64 * 4096, &options);
        if !direct {
            assert!(fs.counters().failed >= 2, "{:?}", fs.counters());
        }
    }
}

#[test]
fn any_way_to_wait() {
    let Some(image) = Image::make(&[], 16, one_file(64 * PAGE)) else { return };
    for mounted in [Policy::Poll, Policy::Interrupt, Policy::ADAPTIVE] {
        let fs = image.mount("", &MountOptions { policy: Some(mounted), ..quiet() });
        let file = fs.open("data").unwrap();
        let ways = [Policy::Poll, Policy::Interrupt, Policy::HybridFixed(1000), Policy::ADAPTIVE];
        for (n, policy) in ways.into_iter().enumerate() {
            for direct in [false, true] {
                let options = ReadOptions { policy: Some(policy), direct };
                check(&file, 1, n as u64 * 8 * PAGE, 7 * 4096, &options);
            }
        }
    }
}

#[test]
fn a_file_as_a_device() {
    let Some(image) = Image::make(&[], 16, one_file(64 * PAGE + 100)) else { return };
    let fs = image.mount("", &MountOptions::default());
    for direct in [false, true] {
        let options =
            FileDeviceOptions { direct, block_bytes: 4096, ..FileDeviceOptions::default() };
        let device = FileDevice::new(fs.open("data").unwrap(), options).unwrap();
        assert_eq!(device.info().blocks, 64);
        let mut channel =
            device.channel(&ChannelOptions { depth: 4, ..ChannelOptions::default() }).unwrap();
        let mut buf = channel.alloc(8192).unwrap();
        for lba in [0, 62, 5] {
            buf = channel.read(lba, buf).unwrap();
            assert_eq!(*buf, content(1, 64 * PAGE)[lba as usize * 4096..][..8192]);
        }
        assert!(channel.read(63, buf).is_err());
        let write = Request::write(0, channel.alloc(4096).unwrap());
        assert!(channel.submit(write).unwrap_err().error.to_string().contains("read only"));
        for lba in 0..4 {
            let request = Request::read(lba, channel.alloc(4096).unwrap()).user_data(lba);
            channel.enqueue(request).unwrap();
        }
        assert!(channel.enqueue(Request::read(9, channel.alloc(4096).unwrap())).is_err());
        let mut seen = 0;
        while let Some(done) = channel.wait_done() {
            done.result.unwrap();
            assert_eq!(
                *done.buf.unwrap(),
                content(1, 64 * PAGE)[done.user_data as usize * 4096..][..4096]
            );
            seen += 1;
        }
        assert_eq!(seen, 4);
    }
}

/// On the kernel's own block stack.
#[test]
fn on_a_file_of_the_kernels() {
    let Some(image) = Image::make(&[], 16, one_file(100 * PAGE + 9)) else { return };
    let uri = format!("kernel:{}", image.path("image").display());
    let device = match block::open(&uri, &OpenOptions::default()) {
        Ok(device) => device,
        Err(error) => return println!("skipped: {error}"),
    };
    let options = MountOptions { policy: Some(Policy::Interrupt), ..MountOptions::default() };
    let fs = match FileSystem::mount(device, &options) {
        Ok(fs) => fs,
        Err(error) if error.to_string().contains("io_uring") => {
            return println!("skipped: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    let file = fs.open("data").unwrap();
    let mut random = Rng::new(9);
    for n in 0..200 {
        let options = ReadOptions { direct: n % 2 == 0, ..ReadOptions::default() };
        check(&file, 1, random.below(file.size()), random.below(90_000) as usize, &options);
    }
}
