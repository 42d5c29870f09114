//! The cost of allocating blocks and inodes of an ext4 file system: `cargo bench -p meantime
//! --bench ext4_alloc`.
//!
//! - `copies`: a handle that copies one block of descriptors and one bitmap, and is merged: the
//!   cost of each change without the allocator;
//! - `block`, `append`, `free`: a handle in which one block is taken near an inode, taken at the
//!   end of a file, freed;
//! - `run`: 256 blocks at once; `16 blocks`: sixteen in one handle, each;
//! - `inode`: an inode taken.
//!
//! Medians of `MEANTIME_TURNS` (9) turns, in ns, on an image in memory with 4 KiB blocks and
//! checksums.

use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::process::Command;
use std::sync::{Arc, RwLock};
use std::time::Instant;

use meantime_ext4::Timestamp;
use meantime_ext4::alloc::{Allocator, Want};
use meantime_ext4::format::{Source, SourceError, Volume, VolumeOptions};
use meantime_ext4::journal::{Handle, Held, Orphans};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROUNDS: u32 = 2000;

/// An image, and the newer blocks.
struct Base {
    image: Vec<u8>,
    newer: RwLock<HashMap<u64, Arc<[u8]>>>,
}

impl Source for Base {
    fn read(&self, offset: u64, bytes: usize) -> std::result::Result<Arc<[u8]>, SourceError> {
        let newer = self.newer.read().map_err(|_| SourceError::OutOfRange)?;
        if bytes == 4096
            && let Some(block) = newer.get(&(offset / 4096))
        {
            return Ok(Arc::clone(block));
        }
        let bytes = self.image.get(offset as usize..offset as usize + bytes);
        bytes.map(Arc::from).ok_or(SourceError::OutOfRange)
    }
}

struct Mount {
    base: Base,
    volume: Volume<()>,
    held: Held,
    orphans: Orphans,
    allocator: Allocator,
}

impl Mount {
    fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("image");
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-b", "4096"])
            .arg(&path)
            .arg("512M")
            .status()?;
        if !made.success() {
            return Err("mkfs.ext4 failed".into());
        }
        let base = Base { image: std::fs::read(&path)?, newer: RwLock::default() };
        let volume = Volume::open(&base, base.image.len() as u64, VolumeOptions::default());
        let volume = volume.map_err(|failure| format!("{failure:?}"))?;
        let allocator = Allocator::new(&volume)?;
        let volume = volume.with_source(());
        Ok(Self { base, volume, held: Held::default(), orphans: Orphans::default(), allocator })
    }

    fn change<T>(&self, work: impl FnOnce(&mut Handle<'_>) -> Result<T>) -> Result<T> {
        let now = Timestamp { seconds: 1, nanoseconds: 0 };
        let mut handle =
            Handle::new(self.volume.clone(), &self.base, &self.held, &self.orphans, now);
        let result = work(&mut handle)?;
        let changes = handle.into_changes();
        let mut newer = self.base.newer.write().map_err(|_| "poisoned")?;
        newer.extend(changes.blocks.iter().map(|(block, content)| (*block, Arc::clone(content))));
        drop(newer);
        self.allocator.completed(&changes);
        Ok(result)
    }
}

fn want(goal: Option<u64>, blocks: u32) -> Want<'static> {
    Want::data(12, goal, blocks)
}

/// ns of one of `ROUNDS` calls of `work`.
fn time(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        work()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS))
}

fn turn() -> Result<[(&'static str, f64); 7]> {
    let mount = Mount::new()?;
    let allocator = &mount.allocator;
    let group = mount.volume.with_source(&mount.base).group(0)?;
    let copies = time(|| {
        mount.change(|handle| {
            black_box(handle.edit(1)?[0]);
            black_box(handle.edit(group.block_bitmap)?[0]);
            Ok(())
        })
    })?;
    let mut taken = Vec::new();
    let block = time(|| {
        taken.push(mount.change(|handle| Ok(allocator.blocks(handle, want(None, 1))?))?);
        Ok(())
    })?;
    let mut goal = taken.last().map(|run| run.end);
    let append = time(|| {
        let run = mount.change(|handle| Ok(allocator.blocks(handle, want(goal, 1))?))?;
        goal = Some(run.end);
        Ok(())
    })?;
    let mut last = taken.into_iter();
    let free = time(|| {
        let run = last.next().ok_or("none left")?;
        mount.change(|handle| Ok(allocator.free_blocks(handle, run)?))
    })?;
    let many = time(|| {
        mount.change(|handle| {
            for _ in 0..16 {
                allocator.blocks(handle, want(None, 1))?;
            }
            Ok(())
        })
    })? / 16.0;
    let inode =
        time(|| mount.change(|handle| Ok(allocator.inode(handle, 2, false).map(|_| ())?)))?;
    let mount = Mount::new()?;
    let start = Instant::now();
    for _ in 0..256 {
        mount.change(|handle| Ok(mount.allocator.blocks(handle, want(None, 256))?))?;
    }
    let run = start.elapsed().as_nanos() as f64 / 256.0;
    Ok([
        ("copies", copies),
        ("block", block),
        ("append", append),
        ("free", free),
        ("16 blocks, each", many),
        ("run of 256", run),
        ("inode", inode),
    ])
}

fn main() -> Result<()> {
    let turns =
        std::env::var("MEANTIME_TURNS").ok().and_then(|text| text.parse().ok()).unwrap_or(9);
    let turns = (0..turns).map(|_| turn()).collect::<Result<Vec<_>>>()?;
    for (at, (name, _)) in turns.first().ok_or("no turns")?.iter().enumerate() {
        let mut values: Vec<_> = turns.iter().map(|turn| turn[at].1).collect();
        values.sort_by(f64::total_cmp);
        println!("{name:>16}: {:7.0} ns", values[values.len() / 2]);
    }
    Ok(())
}
