//! Where a file has data, as programs that copy holes as holes see it. Dirty pages are data.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use meantime_ext4::{
    Allocate, Error, File, MountOptions, OpenOptions, ReadOptions, SegmentKind, WriteOptions,
};

use meantime_testkit::Rng;
use meantime_testkit::filled::Image;

const PAGE: u64 = 4096;

fn writable() -> MountOptions {
    MountOptions { write: true, background: false, cache_bytes: 8 << 20, ..MountOptions::default() }
}

fn read_write() -> OpenOptions {
    OpenOptions { read: true, write: true, ..OpenOptions::default() }
}

/// The ranges of data by `lseek`.
fn by_seeking(file: &File) -> Vec<(u64, u64)> {
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        let begin = match file.seek_data(at) {
            Ok(begin) => begin,
            Err(Error::NotFound) => return found,
            Err(error) => panic!("{error}"),
        };
        let end = file.seek_hole(begin).unwrap();
        assert!(
            begin >= at && end > begin && end <= file.size(),
            "data at {begin}, a hole at {end}"
        );
        // Seeking from the middle of the range gives the same.
        let middle = begin + (end - begin) / 2;
        assert_eq!((file.seek_data(middle), file.seek_hole(middle)), (Ok(middle), Ok(end)));
        found.push((begin, end));
        at = end;
    }
}

/// The same by the file's segments.
fn by_segments(file: &File) -> Vec<(u64, u64)> {
    let (mut found, mut at): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
    for segment in file.segments().unwrap() {
        assert_eq!(segment.offset, at, "without gaps");
        assert!(segment.bytes > 0);
        at += segment.bytes;
        let (begin, end) = (segment.offset, at.min(file.size()));
        if !segment.kind.is_data() || begin >= end {
            continue;
        }
        match found.last_mut() {
            Some(last) if last.1 == begin => last.1 = end,
            _ => found.push((begin, end)),
        }
    }
    assert!(at >= file.size());
    found
}

/// The result of a program that copies only `data` of `file`.
fn copied(file: &File, data: &[(u64, u64)]) -> Vec<u8> {
    let mut copy = vec![0; file.size() as usize];
    for (begin, end) in data {
        let part = &mut copy[*begin as usize..*end as usize];
        assert_eq!(file.read_at(part, *begin).unwrap(), part.len());
    }
    copy
}

/// The expected file.
struct Model {
    content: Vec<u8>,
    /// Units of `unit` bytes, each one or more blocks and pages, that were written since they were
    /// zeroes.
    touched: BTreeSet<u64>,
    unit: u64,
}

impl Model {
    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        self.content.resize(self.content.len().max(end as usize), 0);
        self.content[offset as usize..end as usize].copy_from_slice(data);
        self.touched.extend(offset / self.unit..end.div_ceil(self.unit));
    }

    fn set_len(&mut self, size: u64) {
        self.content.resize(size as usize, 0);
        self.touched.split_off(&size.div_ceil(self.unit));
    }

    fn zero(&mut self, offset: u64, end: u64) {
        let size = self.content.len() as u64;
        let (begin, end) = (offset.min(size), end.min(size));
        self.content[begin as usize..end as usize].fill(0);
        let end = if end == size { end.next_multiple_of(self.unit) } else { end };
        for unit in offset.div_ceil(self.unit)..end / self.unit {
            self.touched.remove(&unit);
        }
    }

    fn check(&self, file: &File, when: &str) {
        assert_eq!(file.size(), self.content.len() as u64, "{when}");
        let found = by_seeking(file);
        assert_eq!(found, by_segments(file), "{when}");
        assert!(
            copied(file, &found) == self.content,
            "{when}: a copy without holes is another: {found:?}"
        );
        for (begin, end) in found {
            for unit in begin / self.unit..end.div_ceil(self.unit) {
                assert!(
                    self.touched.contains(&unit),
                    "{when}: nobody wrote to what is at {}",
                    unit * self.unit
                );
            }
        }
    }
}

fn step(random: &mut Rng, file: &File, model: &mut Model, byte: u8) -> String {
    const MOST: u64 = 1 << 20;
    let offset = random.below(MOST) / if random.below(2) == 0 { 1 } else { model.unit } % MOST;
    let spread = random.below(17);
    let len = (random.below(1 << spread) + 1).min(MOST - offset);
    let end = offset + len;
    match random.below(10) {
        0..5 => {
            let direct = random.below(4) == 0;
            let data = vec![byte | 1; len as usize];
            let options = WriteOptions { direct, ..WriteOptions::default() };
            assert_eq!(file.write_at_with(&data, offset, &options).unwrap(), data.len());
            model.write(offset, &data);
            format!("write {offset}+{len} direct {direct}")
        }
        5 => {
            file.set_len(offset).unwrap();
            model.set_len(offset);
            format!("set_len {offset}")
        }
        6 | 7 => {
            let all =
                [Allocate::Extend, Allocate::KeepSize, Allocate::Zero, Allocate::ZeroKeepSize];
            let how = all[random.below(4) as usize];
            file.allocate(offset, len, how).unwrap();
            if matches!(how, Allocate::Extend | Allocate::Zero)
                && end as usize > model.content.len()
            {
                model.content.resize(end as usize, 0);
            }
            if matches!(how, Allocate::Zero | Allocate::ZeroKeepSize) {
                model.zero(offset, end);
            }
            format!("{how:?} {offset}+{len}")
        }
        8 => {
            file.allocate(offset, len, Allocate::Punch).unwrap();
            model.zero(offset, end);
            format!("Punch {offset}+{len}")
        }
        _ => {
            file.sync_range(offset..end).unwrap();
            format!("sync_range {offset}+{len}")
        }
    }
}

#[test]
fn what_was_written_is_data_before_and_after_it_is_written_back() {
    for (seed, block_bytes) in [(1, 4096), (2, 1024), (3, 4096), (4, 2048), (5, 16_384), (6, 4096)]
    {
        let size = block_bytes.to_string();
        let make = |root: &std::path::Path| fs::write(root.join("f"), b"").unwrap();
        let Some(image) = Image::make(&["-b", &size], 64, make) else { return };
        let mut random = Rng::new(seed);
        let unit = PAGE.max(block_bytes);
        let mut model = Model { content: Vec::new(), touched: BTreeSet::new(), unit };
        for _ in 0..2 {
            let fs = image.mount("", &writable());
            let file = fs.open_with("/f", &read_write()).unwrap();
            let mut done = Vec::new();
            for n in 0..120 {
                done.push(step(&mut random, &file, &mut model, n));
                let last = &done[done.len().saturating_sub(8)..];
                model.check(
                    &file,
                    &format!("blocks of {block_bytes}, seed {seed}, step {n}: {last:#?}"),
                );
                if n % 30 == 29 {
                    file.sync_all().unwrap();
                    model.check(
                        &file,
                        &format!("blocks of {block_bytes}, seed {seed}, synced in step {n}"),
                    );
                    let waits =
                        |segment: &meantime_ext4::Segment| segment.kind == SegmentKind::Delayed;
                    assert!(!file.segments().unwrap().iter().any(waits), "all of it has a place");
                }
            }
            drop(file);
            fs.unmount().unwrap();
            image.check();
            let reader = image.mount("", &MountOptions::default());
            model.check(&reader.open("/f").unwrap(), "mounted for reading");
        }
    }
}

/// `truncate -s 1M a; dd of=a bs=4096 count=10 seek=100 conv=notrunc`, over a hole and over
/// preallocated blocks.
#[test]
fn what_is_new_in_a_hole_or_in_room_set_aside() {
    let Some(image) =
        Image::make(&["-b", "4096"], 32, |root| fs::write(root.join("f"), b"").unwrap())
    else {
        return;
    };
    let fs = image.mount("", &writable());
    let file = fs.open_with("/f", &read_write()).unwrap();
    file.set_len(1 << 20).unwrap();
    assert_eq!(file.seek_data(0), Err(Error::NotFound));
    file.allocate(200 * PAGE, 20 * PAGE, Allocate::KeepSize).unwrap();
    assert_eq!(file.seek_data(0), Err(Error::NotFound), "room reads as zeroes");
    file.write_at(&[7; 10 * 4096], 100 * PAGE).unwrap();
    file.write_at(&[8; 100], 205 * PAGE + 10).unwrap();
    let data = [(100 * PAGE, 110 * PAGE), (205 * PAGE, 206 * PAGE)];
    assert_eq!(by_seeking(&file), data);
    let kinds: Vec<_> = file
        .segments()
        .unwrap()
        .iter()
        .map(|segment| (segment.kind.is_data(), segment.bytes))
        .collect();
    assert_eq!(
        kinds,
        [
            (false, 100 * PAGE),
            (true, 10 * PAGE),
            (false, 90 * PAGE),
            (false, 5 * PAGE),
            (true, PAGE),
            (false, 14 * PAGE),
            (false, 36 * PAGE)
        ]
    );
    assert_eq!(file.segments().unwrap()[1].kind, SegmentKind::Delayed);
    assert_eq!(file.segments().unwrap()[4].kind, SegmentKind::Delayed);
    file.sync_all().unwrap();
    assert_eq!(by_seeking(&file), data);
    assert!(matches!(file.segments().unwrap()[1].kind, SegmentKind::Data(_)));
    drop(file);
    fs.unmount().unwrap();
    image.check();
}

/// A page is data from its write on, at every stage of writeback.
#[test]
fn data_stay_data_while_they_are_written_back() {
    for block_bytes in ["4096", "1024", "16384"] {
        let make = |root: &std::path::Path| fs::write(root.join("f"), b"").unwrap();
        let Some(image) = Image::make(&["-b", block_bytes], 64, make) else { return };
        let fs = image.mount("", &writable());
        let file = fs.open_with("/f", &read_write()).unwrap();
        file.set_len(1 << 20).unwrap();
        file.allocate(128 * PAGE, 128 * PAGE, Allocate::KeepSize).unwrap();
        let unit = PAGE.max(block_bytes.parse().unwrap());
        let (ended, mut looks) = (AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    file.sync_range(0..1 << 20).unwrap();
                }
            });
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for turn in 0..300_u64 {
                    // The writes are in a hole, and in preallocated blocks.
                    let at = turn * 7 % (1 << 20) / unit * unit
                        + if turn % 2 == 0 { 0 } else { 128 * PAGE };
                    let at = at % (1 << 20);
                    file.write_at(&[1; 4096], at).unwrap();
                    for _ in 0..30 {
                        assert_eq!(file.seek_data(at), Ok(at), "turn {turn}");
                        assert!(file.seek_hole(at).unwrap() > at, "turn {turn}");
                        let is_there = |data: &(u64, u64)| data.0 <= at && at < data.1;
                        assert!(by_segments(&file).iter().any(is_there), "turn {turn}");
                        looks += 1;
                    }
                    file.allocate(
                        at,
                        unit,
                        if turn % 2 == 0 { Allocate::Punch } else { Allocate::Zero },
                    )
                    .unwrap();
                    assert_ne!(file.seek_data(at), Ok(at), "turn {turn}");
                }
            }));
            ended.store(true, Ordering::Relaxed);
            checked.unwrap();
        });
        println!("blocks of {block_bytes}: looked {looks} times");
        let mut byte = [1];
        file.read_at_with(&mut byte, 0, &ReadOptions::default()).unwrap();
        drop(file);
        fs.unmount().unwrap();
        image.check();
    }
}
