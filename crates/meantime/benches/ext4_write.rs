//! The cost of `fsync` beyond the device: `cargo bench -p meantime --bench ext4_write [BENCH...]
//! [MODEL]`.
//!
//! - `fsync`: 4 KiB appended and fsynced, overwritten and fsynced, overwritten and fdatasynced:
//!   with every wait in its classic place, each step alone, all of them, and by fast commits;
//!   compared with the device's own time for the same writes, sent bare. The overwritten data is in
//!   the CPU's cache (256 KiB of a file), or, `cold`, is not (4 MiB of each of six files in turn):
//!   then a copy of 4 KiB takes memory time.
//! - `cached`: the same on a device with a volatile cache, where a commit needs a FLUSH and FUA.
//! - `sizes`: 4 to 128 KiB appended and fsynced, classic, overlapped, bare.
//! - `group`: eight threads that append and fsync, each to its own file, against one; fsyncs per
//!   commit, and their times.
//!
//! - `append`, `overwrite`, `overwrite-data`, `append-fast`, `overwrite-fast`: one variant only,
//!   repeatedly, for a profiler.
//!
//! Figures are medians of alternating turns (`MEANTIME_TURNS`, 9), on a software SSD in memory;
//! ratios are of the same turn.

use std::error::Error;
use std::ffi::OsStr;

use meantime_block::{BlockChannel, BlockDevice, Channel, ChannelOptions, Request, Ticket};
use meantime_completion::Policy;
use meantime_ext4::{
    self as ext4, CommitOverlap, File, FileSystem, MountOptions, NewNode, SegmentKind,
};
use meantime_hw::{Clock, DmaBuf};

mod common;

use common::{PAGE, Result, device, median, turns};

/// Size of the file that is overwritten, and of the one whose blocks are written bare.
const FILE_PAGES: u64 = 1024;
/// Pages overwritten if they are to be in the CPU's cache.
const WARM_PAGES: u64 = 64;
/// Repetitions per turn.
const TIMES: u64 = 200;

/// An empty file system.
fn image(fast: bool) -> Result<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let fast = if fast { &["-O", "fast_commit"][..] } else { &[] };
    common::image(dir.path(), 256, &[&["-E", "lazy_itable_init=0"], fast].concat())
}

/// The operation measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Append,
    Overwrite,
    OverwriteData,
    OverwriteCold,
    OverwriteDataCold,
}

impl What {
    fn is_cold(self) -> bool {
        matches!(self, What::OverwriteCold | What::OverwriteDataCold)
    }

    fn name(self) -> &'static str {
        match self {
            What::Append => "append",
            What::Overwrite => "overwrite",
            What::OverwriteData => "overwrite, data",
            What::OverwriteCold => "overwrite, cold",
            What::OverwriteDataCold => "data, cold",
        }
    }
}

/// A variant: its name, the waits that are moved, and whether there are fast commits.
type Way = (&'static str, CommitOverlap, bool);

const NONE: Way = ("classic", CommitOverlap::NONE, false);
const ALL: Way = ("overlapped", CommitOverlap::ALL, false);
const FAST: Way = ("fast commit", CommitOverlap::ALL, true);

/// A mounted file system with files to write, and a raw channel to the same device.
struct Rig {
    way: Way,
    /// Dropped before its device is.
    raw: Channel,
    /// Blocks of the device that may be written bare, one for each page of a file.
    places: Vec<u64>,
    appended: File,
    overwritten: File,
    clock: Clock,
    /// Number of measurements so far.
    round: u64,
    fs: FileSystem,
    has_cache: bool,
}

/// A time, and the log blocks used.
struct Took {
    ns: f64,
    log_blocks: u64,
}

fn new_file(fs: &FileSystem, name: &str) -> Result<File> {
    let node = fs.create(
        &fs.root()?,
        OsStr::new(name),
        &NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 },
    )?;
    Ok(fs
        .open_node_with(&node, &meantime_ext4::OpenOptions { write: true, ..Default::default() })?)
}

impl Rig {
    fn new(images: &[Vec<u8>; 2], model: &str, way: Way, has_cache: bool) -> Result<Self> {
        let (_, commit_overlap, fast_commit) = way;
        let image = &images[usize::from(fast_commit)];
        let options =
            MountOptions { write: true, commit_overlap, fast_commit, ..MountOptions::default() };
        let fs = FileSystem::mount(device(image, model, has_cache)?, &options)?;
        let (bare, appended, overwritten) =
            (new_file(&fs, "bare")?, new_file(&fs, "appended")?, new_file(&fs, "overwritten")?);
        for file in [&bare, &overwritten] {
            file.write_at(&vec![1; (FILE_PAGES * PAGE) as usize], 0)?;
        }
        fs.sync()?;
        let raw = fs.device().channel(&ChannelOptions {
            depth: 64,
            policy: Some(Policy::Poll),
            ..ChannelOptions::default()
        })?;
        let block_bytes = u64::from(raw.info().block_bytes);
        let mut places = Vec::new();
        for segment in bare.segments()? {
            let SegmentKind::Data(place) = segment.kind else {
                return Err("a hole in the file".into());
            };
            places
                .extend((0..segment.bytes / PAGE).map(|page| (place + page * PAGE) / block_bytes));
        }
        let clock = Clock::real();
        Ok(Self { way, raw, places, appended, overwritten, clock, round: 0, fs, has_cache })
    }

    fn log_blocks(&self) -> u64 {
        let counters = self.fs.journal_counters().unwrap_or_default();
        counters.log_blocks + counters.fast_blocks
    }

    /// Times `what` with `bytes`, several times.
    fn time(&mut self, what: What, bytes: usize) -> Result<Took> {
        let data = vec![self.round as u8; bytes];
        self.round += 1;
        let mut times = Vec::new();
        // Keeps it from growing without limit.
        if what == What::Append && self.appended.size() > 32 << 20 {
            self.appended.set_len(0)?;
            self.appended.sync_all()?;
        }
        let before = self.log_blocks();
        let count = if bytes > 4096 { TIMES / 4 } else { TIMES };
        for n in 0..count {
            let start_ns = self.clock.now_ns();
            match what {
                What::Append => {
                    self.appended.append(&data)?;
                    self.appended.sync_all()?;
                }
                _ => {
                    let pages = if what.is_cold() { FILE_PAGES } else { WARM_PAGES };
                    let page = (self.round * 7919 + n * 104_729) % (pages - bytes as u64 / PAGE);
                    self.overwritten.write_at(&data, page * PAGE)?;
                    if matches!(what, What::Overwrite | What::OverwriteCold) {
                        self.overwritten.sync_all()?;
                    } else {
                        self.overwritten.sync_data()?;
                    }
                }
            }
            times.push((self.clock.now_ns() - start_ns) as f64);
        }
        let log_blocks = (self.log_blocks() - before + count / 2) / count;
        Ok(Took { ns: median(times), log_blocks })
    }

    fn send(&mut self, at: usize, buf: DmaBuf, fua: bool) -> Result<Ticket> {
        let mut request = Request::write(self.places[at], buf);
        request.fua = fua;
        Ok(self.raw.submit(request).map_err(|rejected| rejected.error)?)
    }

    /// Times the bare writes: data of `bytes` and `log_blocks` blocks, all at once or all but one,
    /// in pieces like the journal's, followed by the last.
    fn time_bare(&mut self, bytes: usize, log_blocks: u64, at_once: bool) -> Result<f64> {
        let log_bytes = (log_blocks.saturating_sub(u64::from(!at_once)) * PAGE) as usize;
        let mut sizes = vec![bytes];
        let copies = (log_bytes / PAGE as usize).saturating_sub(1);
        if copies > 0 {
            let most = ext4::log_piece_blocks(copies);
            let pieces = (0..copies).step_by(most).map(|at| most.min(copies - at));
            sizes.extend(pieces.chain([1]).map(|blocks| blocks * PAGE as usize));
        } else if log_bytes > 0 {
            sizes.push(log_bytes);
        }
        let mut bufs = Vec::new();
        for size in &sizes {
            bufs.push(self.raw.alloc(*size)?);
        }
        let mut last = Some(self.raw.alloc(PAGE as usize)?);
        let mut times = Vec::new();
        let mut at = 0;
        for _ in 0..TIMES / 2 {
            let start_ns = self.clock.now_ns();
            let mut tickets = Vec::with_capacity(bufs.len());
            for buf in bufs.drain(..) {
                let pages = buf.len() / PAGE as usize;
                at = if at + pages >= self.places.len() { 0 } else { at };
                tickets.push(self.send(at, buf, false)?);
                at += pages;
            }
            for ticket in tickets {
                let done = self.raw.wait(ticket);
                done.result?;
                bufs.extend(done.buf);
            }
            if self.has_cache {
                self.raw.flush()?;
            }
            if log_blocks > 0 && !at_once {
                let buf = last.take().ok_or("the buffer is there")?;
                let ticket = self.send(at, buf, self.has_cache)?;
                let done = self.raw.wait(ticket);
                done.result?;
                last = done.buf;
            }
            times.push((self.clock.now_ns() - start_ns) as f64);
        }
        Ok(median(times))
    }
}

/// The table of `fsync` and `cached`.
fn steps(images: &[Vec<u8>; 2], models: &[String], has_cache: bool) -> Result<()> {
    let ways = [
        NONE,
        ("direct", CommitOverlap { caller_commits: true, ..CommitOverlap::NONE }, false),
        ("direct, data", CommitOverlap { caller_commits: true, data: true, prepare: false }, false),
        (
            "direct, prepare",
            CommitOverlap { caller_commits: true, prepare: true, data: false },
            false,
        ),
        ALL,
        FAST,
    ];
    for model in models {
        let cache = if has_cache { " with a volatile cache" } else { "" };
        println!(
            "4 KiB and made durable on {model}{cache}, us    time  x classic    bare  x bare   over  blocks"
        );
        let mut rigs = ways
            .iter()
            .map(|way| Rig::new(images, model, *way, has_cache))
            .collect::<Result<Vec<_>>>()?;
        for what in [
            What::Append,
            What::Overwrite,
            What::OverwriteData,
            What::OverwriteCold,
            What::OverwriteDataCold,
        ] {
            let mut took: Vec<Vec<(Took, f64)>> = rigs.iter().map(|_| Vec::new()).collect();
            for turn in 0..turns() + 1 {
                for (rig, took) in rigs.iter_mut().zip(&mut took) {
                    let this = rig.time(what, PAGE as usize)?;
                    let bare = rig.time_bare(
                        PAGE as usize,
                        this.log_blocks,
                        rig.way.2 && what != What::Append,
                    )?;
                    // The first turn warms the caches.
                    if turn > 0 {
                        took.push((this, bare));
                    }
                }
            }
            for (n, rig) in rigs.iter().enumerate() {
                let column = |f: &dyn Fn(usize) -> f64| median((0..turns()).map(f).collect());
                println!(
                    "  {:<16} {:<22} {:>9.2} {:>8.2} {:>9.2} {:>6.2} {:>7.2} {:>6}",
                    what.name(),
                    rig.way.0,
                    column(&|t| took[n][t].0.ns / 1e3),
                    column(&|t| took[n][t].0.ns / took[0][t].0.ns),
                    column(&|t| took[n][t].1 / 1e3),
                    column(&|t| took[n][t].0.ns / took[n][t].1),
                    column(&|t| (took[n][t].0.ns - took[n][t].1) / 1e3),
                    took[n][0].0.log_blocks,
                );
            }
        }
        for rig in rigs {
            let Rig { raw, appended, overwritten, fs, .. } = rig;
            drop((raw, appended, overwritten));
            fs.unmount()?;
        }
    }
    Ok(())
}

/// The times of all variants, and the bare one, of a turn.
type Row = (Vec<Took>, f64);

fn sizes(images: &[Vec<u8>; 2], models: &[String]) -> Result<()> {
    for model in models {
        println!(
            "appended and fsynced on {model}, us    classic  overlapped  x classic   fast commit  x classic    bare"
        );
        let mut rigs = [NONE, ALL, FAST]
            .iter()
            .map(|way| Rig::new(images, model, *way, false))
            .collect::<Result<Vec<_>>>()?;
        for kib in [4, 8, 16, 32, 64, 128] {
            let mut took = Vec::new();
            for turn in 0..turns() + 1 {
                let mut row = Vec::new();
                for rig in &mut rigs {
                    row.push(rig.time(What::Append, kib << 10)?);
                }
                let bare = rigs[1].time_bare(kib << 10, row[1].log_blocks, false)?;
                if turn > 0 {
                    took.push((row, bare));
                }
            }
            let column = |f: &dyn Fn(&Row) -> f64| median(took.iter().map(f).collect());
            println!(
                "  {kib:>4} KiB {:>34.2} {:>11.2} {:>10.2} {:>13.2} {:>10.2} {:>7.2}",
                column(&|t| t.0[0].ns / 1e3),
                column(&|t| t.0[1].ns / 1e3),
                column(&|t| t.0[1].ns / t.0[0].ns),
                column(&|t| t.0[2].ns / 1e3),
                column(&|t| t.0[2].ns / t.0[0].ns),
                column(&|t| t.1 / 1e3),
            );
        }
    }
    Ok(())
}

/// `threads` threads append 4 KiB and fsync, `count` times each. Returns fsyncs per second, fsyncs
/// per commit, and the time of each in ns.
fn many(fs: &FileSystem, files: &[File], count: usize) -> Result<(f64, f64, Vec<f64>)> {
    let clock = Clock::real();
    let commits = |fs: &FileSystem| {
        let counters = fs.journal_counters().unwrap_or_default();
        counters.commits + counters.fast_commits
    };
    let (before, start_ns) = (commits(fs), clock.now_ns());
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = files
            .iter()
            .map(|file| {
                let clock = &clock;
                scope.spawn(move || {
                    let data = vec![7; PAGE as usize];
                    let mut times = Vec::with_capacity(count);
                    for _ in 0..count {
                        let start_ns = clock.now_ns();
                        file.append(&data)?;
                        file.sync_all()?;
                        times.push((clock.now_ns() - start_ns) as f64);
                    }
                    Ok::<_, meantime_ext4::Error>(times)
                })
            })
            .collect();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    let syncs = (files.len() * count) as f64;
    let rate = syncs * 1e9 / (clock.now_ns() - start_ns) as f64;
    Ok((rate, syncs / (commits(fs) - before) as f64, all))
}

fn group(images: &[Vec<u8>; 2], models: &[String]) -> Result<()> {
    for model in models {
        for (name, commit_overlap, fast_commit) in [NONE, ALL, FAST] {
            let options = MountOptions {
                write: true,
                commit_overlap,
                fast_commit,
                ..MountOptions::default()
            };
            let fs = FileSystem::mount(
                device(&images[usize::from(fast_commit)], model, false)?,
                &options,
            )?;
            let files =
                (0..8).map(|n| new_file(&fs, &format!("file{n}"))).collect::<Result<Vec<_>>>()?;
            let mut took = Vec::new();
            for turn in 0..turns() + 1 {
                for file in &files {
                    file.set_len(0)?;
                    file.sync_all()?;
                }
                let row = (many(&fs, &files[..1], 1600)?, many(&fs, &files, 200)?);
                if turn > 0 {
                    took.push(row);
                }
            }
            let ratio = median(took.iter().map(|(one, eight)| eight.0 / one.0).collect());
            let a_commit = median(took.iter().map(|(_, eight)| eight.1).collect());
            println!(
                "{name} on {model}: 8 threads fsync at {ratio:.2} x the rate of one; {a_commit:.1} fsyncs a commit"
            );
            for (threads, times) in [
                (1, took.iter().flat_map(|(one, _)| one.2.clone()).collect::<Vec<_>>()),
                (8, took.iter().flat_map(|(_, eight)| eight.2.clone()).collect()),
            ] {
                let mut times = times;
                times.sort_by(f64::total_cmp);
                let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize] / 1e3;
                let [p1, p50, p90, p99, p999, most] = [0.01, 0.5, 0.9, 0.99, 0.999, 1.0].map(at);
                println!(
                    "  {threads} thread(s), us: p1 {p1:.1}, p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}, p99.9 {p999:.1}, most {most:.1}"
                );
            }
            drop(files);
            fs.unmount()?;
        }
    }
    Ok(())
}

/// Repeats one variant, for a profiler.
fn profile(images: &[Vec<u8>; 2], models: &[String], way: Way, what: What) -> Result<()> {
    let mut rig = Rig::new(images, &models[0], way, false)?;
    for _ in 0..turns() {
        let took = rig.time(what, PAGE as usize)?;
        println!(
            "{what:?}, {}: {:.2} us, {} blocks of the log",
            way.0,
            took.ns / 1e3,
            took.log_blocks
        );
    }
    Ok(())
}

fn main() -> Result<()> {
    let benches = [
        "fsync",
        "cached",
        "sizes",
        "group",
        "append",
        "overwrite",
        "append-fast",
        "overwrite-fast",
        "overwrite-data",
    ];
    let (chosen, mut models) = common::arguments(&benches);
    let chosen = if chosen.is_empty() {
        benches[..4].iter().map(|bench| (*bench).to_owned()).collect()
    } else {
        chosen
    };
    common::bind()?;
    let images = [image(false)?, image(true)?];
    if models.is_empty() {
        models.push("optane".to_owned());
    }
    for bench in chosen {
        match bench.as_str() {
            "fsync" => steps(&images, &models, false)?,
            "cached" => steps(&images, &models, true)?,
            "sizes" => sizes(&images, &models)?,
            "append" => profile(&images, &models, ALL, What::Append)?,
            "overwrite" => profile(&images, &models, ALL, What::Overwrite)?,
            "append-fast" => profile(&images, &models, FAST, What::Append)?,
            "overwrite-fast" => profile(&images, &models, FAST, What::Overwrite)?,
            "overwrite-data" => profile(&images, &models, ALL, What::OverwriteData)?,
            _ => group(&images, &models)?,
        }
    }
    Ok(())
}
