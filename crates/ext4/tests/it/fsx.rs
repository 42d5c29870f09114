//! Random operations on one file, compared with an array of bytes that changes alike: reads, writes
//! (also past the cache), truncations, holes, syncs, and remounts. At the end e2fsck finds no
//! problem, and the kernel reads the same bytes.
//!
//! `MEANTIME_FSX_OPS=1000000` is the long run (default 20,000, over all seeds and block sizes),
//! `MEANTIME_FSX_SEED=n` sets the first seed.

use std::ffi::OsStr;
use std::path::Path;

use meantime_block::{self as block, OpenOptions as DeviceOptions};
use meantime_ext4::{
    Allocate, Error, File, FileSystem, MountOptions, NewNode, ReadOptions, WriteOptions,
};

use meantime_testkit::image::{self, Mounted, READ_WRITE, mkfs, run_for, scratch, tools};
use meantime_testkit::{Rng, setting};

/// The largest size of the file, in bytes.
const MOST: u64 = 300 << 10;

struct Exercise {
    fs: Option<FileSystem>,
    file: Option<File>,
    uri: String,
    options: MountOptions,
    model: Vec<u8>,
    rng: Rng,
    /// The latest operations.
    log: Vec<String>,
}

impl Exercise {
    fn new(image: &Path, lba: u32, seed: u64) -> Self {
        let uri = format!("file:{}?model=null&lba={lba}", image.display());
        let mut rng = Rng::new(seed);
        let options = MountOptions {
            write: true,
            background: rng.one_in(2),
            cache_bytes: [1 << 20, 8 << 20][rng.below(2) as usize],
            commit_interval_ms: 20,
            dirty_bytes: [0, 64 << 10][rng.below(2) as usize],
            ..MountOptions::default()
        };
        let mut all =
            Self { fs: None, file: None, uri, options, model: Vec::new(), rng, log: Vec::new() };
        all.mount();
        let fs = all.fs.as_ref().unwrap();
        let new = NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 };
        fs.create(&fs.root().unwrap(), OsStr::new("file"), &new).unwrap();
        all.open();
        all
    }

    fn mount(&mut self) {
        let device = block::open(&self.uri, &DeviceOptions::default()).unwrap();
        self.fs = Some(FileSystem::mount(device, &self.options).unwrap());
    }

    fn open(&mut self) {
        self.file = Some(self.fs.as_ref().unwrap().open_with("/file", &READ_WRITE).unwrap());
    }

    fn file(&self) -> &File {
        self.file.as_ref().unwrap()
    }

    /// Generates `bytes` bytes.
    fn data(&mut self, bytes: u64) -> Vec<u8> {
        let begin = self.rng.next();
        (0..bytes)
            .map(|at| (begin.wrapping_add(at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1)
            .collect()
    }

    fn place(&mut self) -> (u64, u64) {
        let offset = match self.rng.below(4) {
            0 => self.rng.below(MOST / 4096) * 4096,
            1 => self.model.len() as u64,
            2 => self.rng.below(self.model.len() as u64 + 1),
            _ => self.rng.below(MOST),
        };
        let most = [16, 600, 5000, 70_000][self.rng.below(4) as usize];
        let bytes = match self.rng.below(3) {
            0 => (1 + self.rng.below(6)) * 4096,
            _ => 1 + self.rng.below(most),
        };
        let offset = offset.min(MOST - 1);
        (offset, bytes.min(MOST - offset))
    }

    fn check(&mut self, offset: u64, bytes: u64, direct: bool) {
        let mut found = vec![0xEE; bytes as usize];
        let options = ReadOptions { direct, ..ReadOptions::default() };
        let read = self.file().read_at_with(&mut found, offset, &options).unwrap();
        let size = self.model.len() as u64;
        let expected = size.saturating_sub(offset).min(bytes) as usize;
        assert_eq!(read, expected, "a read of {bytes} at {offset} of {size}: {}", self.tail());
        let wanted = &self.model[(offset.min(size)) as usize..][..expected];
        if let Some(at) = (0..read).find(|at| found[*at] != wanted[*at]) {
            let wrong = (at..read).take_while(|at| found[*at] != wanted[*at]).count();
            panic!(
                "byte {} of {size} is {:#x}, not {:#x} ({wrong} wrong); direct {direct}: {}",
                offset + at as u64,
                found[at],
                wanted[at],
                self.tail()
            );
        }
    }

    fn tail(&self) -> String {
        self.log[self.log.len().saturating_sub(30)..].join("\n  ")
    }

    fn write(&mut self, offset: u64, data: &[u8], options: &WriteOptions) {
        let written = self.file().write_at_with(data, offset, options);
        let written = written.unwrap_or_else(|error| panic!("{error}: {}", self.tail()));
        assert_eq!(written, data.len(), "{}", self.tail());
        let end = offset as usize + data.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[offset as usize..end].copy_from_slice(data);
    }

    fn step(&mut self) {
        let (offset, bytes) = self.place();
        let kind = self.rng.below(100);
        self.log.push(format!("{kind}: {offset} + {bytes}, of {}", self.model.len()));
        match kind {
            0..=29 => {
                let data = self.data(bytes);
                self.write(offset, &data, &WriteOptions::default());
            }
            30..=39 => {
                let data = self.data(bytes);
                // Aligned writes go past the cache; others only ask to.
                let offset = if self.rng.one_in(4) { offset } else { offset / 4096 * 4096 };
                self.write(
                    offset,
                    &data,
                    &WriteOptions { direct: true, ..WriteOptions::default() },
                );
            }
            40..=42 => {
                let data = self.data(bytes.min(9000));
                let sync = self.rng.one_in(2);
                self.write(
                    offset,
                    &data,
                    &WriteOptions { sync, dsync: !sync, ..WriteOptions::default() },
                );
            }
            43..=46 => {
                let data = self.data(bytes);
                let size = self.model.len() as u64;
                if size + bytes <= MOST {
                    self.write(
                        size,
                        &data,
                        &WriteOptions { append: true, ..WriteOptions::default() },
                    );
                }
            }
            47..=54 => {
                let size = if self.rng.one_in(12) { 0 } else { offset };
                self.file()
                    .set_len(size)
                    .unwrap_or_else(|error| panic!("{error}: {}", self.tail()));
                self.model.resize(size as usize, 0);
            }
            55..=66 => {
                let how = match kind {
                    55..=58 => Allocate::Punch,
                    59 | 60 => Allocate::Zero,
                    61 | 62 => Allocate::ZeroKeepSize,
                    63 | 64 => Allocate::Extend,
                    _ => Allocate::KeepSize,
                };
                self.file()
                    .allocate(offset, bytes, how)
                    .unwrap_or_else(|error| panic!("{error}: {}", self.tail()));
                let end = (offset + bytes) as usize;
                if matches!(how, Allocate::Zero | Allocate::Extend) && self.model.len() < end {
                    self.model.resize(end, 0);
                }
                if matches!(how, Allocate::Punch | Allocate::Zero | Allocate::ZeroKeepSize) {
                    let size = self.model.len();
                    self.model[(offset as usize).min(size)..end.min(size)].fill(0);
                }
            }
            67..=92 => {
                let direct = self.rng.one_in(3);
                self.check(offset, bytes, direct);
            }
            93 => self.file().sync_all().unwrap(),
            94 => self.file().sync_data().unwrap(),
            95 => self.file().sync_range(offset..offset + bytes).unwrap(),
            96 => drop(self.fs.as_ref().unwrap().background_step().unwrap()),
            97 => {
                self.file = None;
                self.open();
            }
            98 => self.check(0, MOST, false),
            _ if self.rng.one_in(5) => {
                self.file = None;
                self.fs.take().unwrap().unmount().unwrap();
                self.mount();
                self.open();
                self.check(0, MOST, false);
            }
            _ => self.fs.as_ref().unwrap().sync().unwrap(),
        }
        let size = self.file().size();
        assert_eq!(size, self.model.len() as u64, "the size: {}", self.tail());
    }
}

#[test]
fn one_file_is_as_an_array_of_bytes() {
    if !tools() {
        return;
    }
    let shapes: [(&[&str], u32); 5] = [
        (&["-b", "4096"], 512),
        (&["-b", "4096"], 4096),
        (&["-b", "1024"], 512),
        (&["-b", "2048", "-O", "^metadata_csum"], 512),
        (&["-b", "16384"], 512),
    ];
    let runs = 10;
    let each = setting("MEANTIME_FSX_OPS").unwrap_or(20_000) / runs;
    for run in 0..runs {
        let dir = scratch();
        let (arguments, lba) = shapes[run as usize % shapes.len()];
        let seed = setting("MEANTIME_FSX_SEED").unwrap_or(1) * 1000 + run;
        println!("{arguments:?}, seed {seed}");
        // A journal has at least 1,024 blocks.
        let (size, journal) =
            if arguments[1] == "16384" { ("64M", "size=16") } else { ("24M", "size=4") };
        let image = mkfs(dir.path(), "image", size, &[arguments, &["-J", journal]].concat());
        let mut exercise = Exercise::new(&image, lba, seed);
        for _ in 0..each {
            exercise.step();
        }
        exercise.check(0, MOST, false);
        let Exercise { fs, file, model, .. } = exercise;
        drop(file);
        fs.unwrap().unmount().unwrap();
        run_for("e2fsck", &["-fn", image.to_str().unwrap()], &[0]);
        let at = dir.path().join("mnt");
        if let Some(mounted) = Mounted::new(&image, &at, "ro") {
            let found = std::fs::read(at.join("file")).unwrap();
            assert_eq!(found.len(), model.len());
            assert!(
                found == model,
                "the kernel reads something else, from byte {:?} on",
                (0..found.len()).find(|at| found[*at] != model[*at])
            );
            drop(mounted);
        }
    }
}

/// Filling the holes of a file fails for lack of space, and no written data are lost.
#[test]
fn a_full_disk_loses_nothing() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let image = mkfs(dir.path(), "image", "8M", &["-b", "1024", "-J", "size=1"]);
    let fs = image::mount(&image, &image::writable());
    let root = fs.root().unwrap();
    let mut written: Vec<(String, Vec<u8>)> = Vec::new();
    let mut full = 0;
    for number in 0..400 {
        let name = format!("file-{number}");
        let data = vec![number as u8 | 1; 30_000 + number * 10];
        let new = NewNode { mode: 0o600, uid: 1000, gid: 1000, umask: 0 };
        let made = fs.create(&root, OsStr::new(&name), &new);
        let done = made.and_then(|node| {
            let file = fs.open_node_with(&node, &READ_WRITE)?;
            match file.write_at(&data, 0) {
                Ok(bytes) if bytes == data.len() => Ok(()),
                Ok(_) => Err(Error::NoSpace),
                Err(error) => Err(error),
            }
        });
        match done {
            Ok(()) => written.push((name, data)),
            Err(Error::NoSpace) => full += 1,
            Err(error) => panic!("{name}: {error}"),
        }
    }
    assert!(full > 100 && written.len() > 100, "{full} did not fit, {} did", written.len());
    fs.sync().unwrap();
    for (name, data) in &written {
        let file = fs.open(name).unwrap();
        let mut found = vec![0; data.len() + 1];
        let read = file.read_at(&mut found, 0).unwrap();
        assert!(found[..read] == data[..], "{name}");
    }
    drop(root);
    fs.unmount().unwrap();
    run_for("e2fsck", &["-fn", image.to_str().unwrap()], &[0]);
    let at = dir.path().join("mnt");
    if let Some(mounted) = Mounted::new(&image, &at, "ro") {
        for (name, data) in &written {
            assert!(std::fs::read(at.join(name)).unwrap() == *data, "{name}");
        }
        drop(mounted);
    }
}
