//! The cost of reading a file beyond reading the device: `cargo bench -p meantime --bench ext4_read
//! [BENCH...] [MODEL]`.
//!
//! - `misses`: 4 KiB that are not in the cache, against the same bytes from a raw channel, with and
//!   without a copy to the user; and the share of deferrable work done in the gap.
//! - `steps`: each switch of the overlap alone, none, and all.
//! - `sizes`: 4 to 128 KiB: raw, raw and copied, through the cache, past it.
//! - `hits`: 4 KiB and 8 B from the cache, beside a plain copy.
//! - `stream`: 128 KiB at a time in order, against a raw channel with one and with 16 under way.
//! - `scaling`: hits by two threads, two tasks on one thread, misses with sleeping waits from two
//!   threads.
//!
//! Figures are medians of alternating turns (`MEANTIME_TURNS`, 9), on a software SSD in memory;
//! ratios are of the same turn.

use meantime_block::{AsyncChannel, BlockChannel, BlockDevice, Channel, ChannelOptions, Request};
use meantime_completion::Policy;
use meantime_ext4::{
    Advice, AsyncFileSystem, File, FileSystem, MountOptions, Overlap, ReadOptions, SegmentKind,
};
use meantime_hw::{Clock, DmaBuf, cpu};

mod common;

use common::{PAGE, Result, device, median, turns};

/// Size of the file that is read.
const FILE_BYTES: u64 = 96 << 20;
const PAGES: u64 = FILE_BYTES / PAGE;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// An image with one file, `data`.
fn image() -> Result<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let root = dir.path().join("root");
    std::fs::create_dir(&root)?;
    let mut random = Random(99);
    let data: Vec<u8> =
        (0..FILE_BYTES / 8).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect();
    std::fs::write(root.join("data"), data)?;
    common::image(dir.path(), 160, &["-d", root.to_str().ok_or("a path that is no text")?])
}

/// A mounted file, and a raw channel to the same bytes.
struct Rig {
    fs: FileSystem,
    file: File,
    raw: Channel,
    /// First block of the device of each page.
    lbas: Vec<u64>,
    clock: Clock,
    random: Random,
    next: usize,
    order: Vec<u64>,
}

impl Rig {
    fn new(image: &[u8], model: &str, options: &MountOptions) -> Result<Self> {
        let fs = FileSystem::mount(device(image, model, false)?, options)?;
        let file = fs.open("data")?;
        let raw = fs.device().channel(&ChannelOptions {
            depth: 32,
            policy: Some(Policy::Poll),
            ..ChannelOptions::default()
        })?;
        let mut lbas = Vec::new();
        for segment in file.segments()? {
            let SegmentKind::Data(place) = segment.kind else {
                return Err("a hole in the file".into());
            };
            lbas.extend(
                (0..segment.bytes / PAGE)
                    .map(|page| (place + page * PAGE) / u64::from(raw.info().block_bytes)),
            );
        }
        let mut random = Random(4242);
        let mut order: Vec<u64> = (0..PAGES).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        file.advise(0, 0, Advice::Random)?;
        Ok(Self { fs, file, raw, lbas, clock: Clock::real(), random, next: 0, order })
    }

    /// `count` pages, `pages` apart, that were not read recently.
    fn fresh(&mut self, count: usize, pages: u64) -> Result<Vec<u64>> {
        let mut fresh = Vec::with_capacity(count);
        while fresh.len() < count {
            if self.next == self.order.len() {
                self.next = 0;
                self.file.advise(0, 0, Advice::DontNeed)?;
            }
            let page = self.order[self.next] / pages * pages;
            self.next += 1;
            let contiguous = (1..pages).all(|n| {
                self.lbas
                    .get((page + n) as usize)
                    .is_some_and(|lba| *lba == self.lbas[page as usize] + n * self.per_page())
            });
            if contiguous {
                fresh.push(page);
            }
        }
        Ok(fresh)
    }

    fn per_page(&self) -> u64 {
        PAGE / u64::from(self.raw.info().block_bytes)
    }

    /// Median time of a read by `read` of each of `pages`, in ns.
    fn time(
        &mut self,
        pages: &[u64],
        mut read: impl FnMut(&mut Self, u64) -> Result<()>,
    ) -> Result<f64> {
        let mut times = Vec::with_capacity(pages.len());
        for page in pages {
            let start_ns = self.clock.now_ns();
            read(self, *page)?;
            times.push((self.clock.now_ns() - start_ns) as f64);
        }
        Ok(median(times.split_off(times.len() / 10)))
    }

    /// One raw read, and its copy to `to` if there is one.
    fn read_raw(
        &mut self,
        page: u64,
        buf: &mut Option<DmaBuf>,
        to: Option<&mut [u8]>,
    ) -> Result<()> {
        let request =
            Request::read(self.lbas[page as usize], buf.take().ok_or("the buffer is there")?);
        let ticket = self.raw.submit(request).map_err(|rejected| rejected.error)?;
        let done = self.raw.wait(ticket);
        done.result?;
        if let (Some(to), Some(buf)) = (to, &done.buf) {
            to.copy_from_slice(buf);
        }
        *buf = done.buf;
        Ok(())
    }

    /// Medians of a turn: raw, raw and copied, through the cache, past it.
    fn turn(&mut self, bytes: usize, reads: usize) -> Result<[f64; 4]> {
        let pages = bytes as u64 / PAGE;
        let mut user = vec![0u8; bytes];
        let mut buf = Some(self.raw.alloc(bytes)?);
        let fresh = self.fresh(4 * reads, pages)?;
        let mut parts = fresh.chunks(reads);
        let mut part = || parts.next().unwrap_or_default();
        let raw = self.time(part(), |rig, page| rig.read_raw(page, &mut buf, None))?;
        let copied =
            self.time(part(), |rig, page| rig.read_raw(page, &mut buf, Some(&mut user)))?;
        let cached = self.time(part(), |rig, page| {
            rig.file.read_at(&mut user, page * PAGE)?;
            Ok(())
        })?;
        let direct = ReadOptions { direct: true, ..ReadOptions::default() };
        let past = self.time(part(), |rig, page| {
            rig.file.read_at_with(&mut user, page * PAGE, &direct)?;
            Ok(())
        })?;
        Ok([raw, copied, cached, past])
    }
}

fn small_cache() -> MountOptions {
    MountOptions { cache_bytes: 32 << 20, ..MountOptions::default() }
}

fn misses(image: &[u8], models: &[String]) -> Result<()> {
    println!(
        "4 KiB misses, at random, ns        raw   raw+copy     cached (over raw, over raw+copy)   direct   hidden"
    );
    for model in models {
        let mut rig = Rig::new(image, model, &small_cache())?;
        // Until the cache is full and has to evict pages.
        let warm = rig.fresh(9_000, 1)?;
        let mut user = vec![0; 4096];
        rig.time(&warm, |rig, page| Ok(rig.file.read_at(&mut user, page * PAGE).map(drop)?))?;
        let mut turned = Vec::new();
        for _ in 0..turns() {
            turned.push(rig.turn(4096, 1_000)?);
        }
        rig.fs.time_deferrable(true);
        let before = rig.fs.counters();
        let pages = rig.fresh(2_000, 1)?;
        rig.time(&pages, |rig, page| Ok(rig.file.read_at(&mut user, page * PAGE).map(drop)?))?;
        let after = rig.fs.counters();
        let hidden = (after.hidden_ns - before.hidden_ns) as f64
            / (after.deferrable_ns - before.deferrable_ns) as f64;
        let column = |what: &dyn Fn(&[f64; 4]) -> f64| median(turned.iter().map(what).collect());
        println!(
            "  {model:<28} {:>8.0} {:>10.0} {:>10.0} ({:>+6.0}, {:>+6.0}) {:>20.0} {:>7.1} % of {:.0} ns",
            column(&|t| t[0]),
            column(&|t| t[1]),
            column(&|t| t[2]),
            column(&|t| t[2] - t[0]),
            column(&|t| t[2] - t[1]),
            column(&|t| t[3]),
            hidden * 100.0,
            (after.deferrable_ns - before.deferrable_ns) as f64
                / (after.misses - before.misses).max(1) as f64,
        );
    }
    Ok(())
}

fn steps(image: &[u8], models: &[String]) -> Result<()> {
    let none = Overlap::NONE;
    let each = [
        ("none", none),
        ("preload", Overlap { preload: true, ..none }),
        ("pool", Overlap { pool: true, ..none }),
        ("lazy-insert", Overlap { lazy_insert: true, ..none }),
        ("all", Overlap::ALL),
    ];
    for model in &models[..1] {
        println!("4 KiB misses on {model}: time over the raw read's, ns");
        let mut rigs = Vec::new();
        for (name, overlap) in each {
            let mut rig = Rig::new(image, model, &MountOptions { overlap, ..small_cache() })?;
            let warm = rig.fresh(9_000, 1)?;
            let mut user = vec![0; 4096];
            rig.time(&warm, |rig, page| Ok(rig.file.read_at(&mut user, page * PAGE).map(drop)?))?;
            rigs.push((name, rig, Vec::new()));
        }
        for _ in 0..turns() {
            for (_, rig, over) in &mut rigs {
                let turn = rig.turn(4096, 500)?;
                over.push((turn[2] - turn[0], turn[2] - turn[1]));
            }
        }
        let base = median(rigs[0].2.iter().map(|over| over.0).collect());
        for (name, _, over) in rigs {
            let over_raw = median(over.iter().map(|over| over.0).collect());
            let over_copy = median(over.iter().map(|over| over.1).collect());
            println!(
                "  {name:<12} {over_raw:>8.0}, over raw and copy {over_copy:>8.0}: {:.2} x of none's",
                over_raw / base
            );
        }
    }
    Ok(())
}

fn sizes(image: &[u8], models: &[String]) -> Result<()> {
    for model in models {
        let mut rig = Rig::new(image, model, &small_cache())?;
        println!(
            "misses on {model}, us    raw   raw+copy   cached   direct   cached/raw direct/raw"
        );
        for kib in [4, 8, 16, 32, 64, 128] {
            let mut turned = Vec::new();
            for _ in 0..turns() {
                turned.push(rig.turn(kib << 10, 100)?);
            }
            let column =
                |what: &dyn Fn(&[f64; 4]) -> f64| median(turned.iter().map(what).collect());
            println!(
                "  {kib:>4} KiB {:>18.2} {:>10.2} {:>8.2} {:>8.2} {:>10.2} {:>10.2}",
                column(&|t| t[0]) / 1e3,
                column(&|t| t[1]) / 1e3,
                column(&|t| t[2]) / 1e3,
                column(&|t| t[3]) / 1e3,
                column(&|t| t[2] / t[0]),
                column(&|t| t[3] / t[0]),
            );
        }
    }
    Ok(())
}

/// Mean time of a call of `read`, in ns.
fn mean(clock: &Clock, count: u32, mut read: impl FnMut() -> Result<()>) -> Result<f64> {
    let start_ns = clock.now_ns();
    for _ in 0..count {
        read()?;
    }
    Ok((clock.now_ns() - start_ns) as f64 / f64::from(count))
}

fn hits(image: &[u8], models: &[String]) -> Result<()> {
    let mut rig = Rig::new(image, &models[0], &MountOptions::default())?;
    let mut user = vec![0u8; 4096];
    const HOT: u64 = 128;
    for page in 0..HOT {
        rig.file.read_at(&mut user, page * PAGE)?;
    }
    let other = vec![1u8; (HOT * PAGE) as usize];
    let (mut whole, mut eight, mut plain, mut stat) = (vec![], vec![], vec![], vec![]);
    for _ in 0..turns() {
        let Rig { file, clock, random, fs, .. } = &mut rig;
        whole.push(mean(clock, 20_000, || {
            file.read_at(&mut user, random.below(HOT) * PAGE)?;
            Ok(())
        })?);
        eight.push(mean(clock, 20_000, || {
            file.read_at(&mut user[..8], random.below(HOT * 512) * 8)?;
            Ok(())
        })?);
        plain.push(mean(clock, 20_000, || {
            let at = (random.below(HOT) * PAGE) as usize;
            std::hint::black_box(&mut user).copy_from_slice(&other[at..at + 4096]);
            Ok(())
        })?);
        stat.push(mean(clock, 20_000, || {
            std::hint::black_box(fs.metadata("/data")?);
            Ok(())
        })?);
    }
    println!(
        "hits, ns: 4 KiB {:.0}, 8 B {:.0}; a plain copy of 4 KiB {:.0}; stat of /data {:.0}",
        median(whole),
        median(eight),
        median(plain),
        median(stat)
    );
    Ok(())
}

/// Bytes a second of the raw device, in order, with `depth` requests of 128 KiB under way.
fn raw_stream(rig: &mut Rig, depth: usize) -> Result<f64> {
    const STEP: u64 = 32;
    let mut free: Vec<DmaBuf> =
        (0..depth).map(|_| rig.raw.alloc(128 << 10)).collect::<std::result::Result<_, _>>()?;
    let (mut next, mut bytes) = (0, 0);
    let start_ns = rig.clock.now_ns();
    loop {
        while next + STEP <= PAGES
            && let Some(buf) = free.pop()
        {
            rig.raw
                .enqueue(Request::read(rig.lbas[next as usize], buf))
                .map_err(|rejected| rejected.error)?;
            next += STEP;
        }
        let Some(done) = rig.raw.wait_done() else { break };
        done.result?;
        bytes += 128 << 10;
        free.extend(done.buf);
    }
    Ok(bytes as f64 * 1e9 / (rig.clock.now_ns() - start_ns) as f64)
}

fn stream(image: &[u8], models: &[String]) -> Result<()> {
    for model in models {
        let mut rig = Rig::new(image, model, &small_cache())?;
        rig.file.advise(0, 0, Advice::Normal)?;
        let mut user = vec![0u8; 128 << 10];
        let mut turned = Vec::new();
        for _ in 0..turns() {
            let (one, many) = (raw_stream(&mut rig, 1)?, raw_stream(&mut rig, 16)?);
            rig.file.advise(0, 0, Advice::DontNeed)?;
            let start_ns = rig.clock.now_ns();
            for place in (0..FILE_BYTES).step_by(128 << 10) {
                rig.file.read_at(&mut user, place)?;
            }
            let buffered = FILE_BYTES as f64 * 1e9 / (rig.clock.now_ns() - start_ns) as f64;
            turned.push([one, many, buffered]);
        }
        let column = |what: &dyn Fn(&[f64; 3]) -> f64| median(turned.iter().map(what).collect());
        println!(
            "in order on {model}, 128 KiB at a time, MB/s: raw, one {:.0}, 16 {:.0}; buffered {:.0}: {:.2} and {:.2} of those",
            column(&|t| t[0]) / 1e6,
            column(&|t| t[1]) / 1e6,
            column(&|t| t[2]) / 1e6,
            column(&|t| t[2] / t[0]),
            column(&|t| t[2] / t[1]),
        );
    }
    Ok(())
}

/// Reads a second by `threads` threads on `cpus`, each of which does `count` of `read`.
fn rate(
    clock: &Clock,
    cpus: &[usize],
    threads: u64,
    count: u64,
    read: impl Fn(&mut Random) + Sync,
) -> f64 {
    let start_ns = clock.now_ns();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let read = &read;
            scope.spawn(move || {
                let _ = cpu::bind(&[cpus[thread as usize % cpus.len()]]);
                let mut random = Random(thread + 1);
                (0..count).for_each(|_| read(&mut random));
            });
        }
    });
    (threads * count) as f64 * 1e9 / (clock.now_ns() - start_ns) as f64
}

fn scaling(image: &[u8], models: &[String]) -> Result<()> {
    let cpus = cpu::allowed();
    let rig = Rig::new(image, &models[0], &MountOptions::default())?;
    let mut user = vec![0u8; 4096];
    const HOT: u64 = 128;
    for page in 0..HOT {
        rig.file.read_at(&mut user, page * PAGE)?;
    }
    let hit = |random: &mut Random| {
        let mut user = [0u8; 4096];
        let _ = rig.file.read_at(&mut user, random.below(HOT) * PAGE);
        std::hint::black_box(&user);
    };
    let ratios = (0..turns()).map(|_| {
        rate(&rig.clock, &cpus, 2, 200_000, hit) / rate(&rig.clock, &cpus, 1, 200_000, hit)
    });
    println!("hits by two threads: {:.2} x of one's", median(ratios.collect()));

    let options = MountOptions { policy: Some(Policy::Interrupt), ..small_cache() };
    // Both on the first CPU, since the software SSD has the last: they sleep most of the time.
    let slow = Rig::new(image, "nand", &options)?;
    let miss = |random: &mut Random| {
        let mut user = [0u8; 4096];
        let _ = slow.file.read_at(&mut user, random.below(PAGES) * PAGE);
    };
    let ratios = (0..turns()).map(|_| {
        let _ = slow.file.advise(0, 0, Advice::DontNeed);
        let one = rate(&slow.clock, &cpus[..1], 1, 1_500, miss);
        let _ = slow.file.advise(0, 0, Advice::DontNeed);
        rate(&slow.clock, &cpus[..1], 2, 1_500, miss) / one
    });
    println!(
        "misses on nand with sleeping waits by two threads: {:.2} x of one's",
        median(ratios.collect())
    );

    let channel =
        AsyncChannel::new(rig.fs.device().channel(&ChannelOptions {
            policy: Some(Policy::Poll),
            ..ChannelOptions::default()
        })?);
    let fs = AsyncFileSystem::new(rig.fs.clone(), channel.clone())?;
    let mut ratios = Vec::new();
    for _ in 0..turns() {
        let mut rates = Vec::new();
        for tasks in [1, 2] {
            rig.file.advise(0, 0, Advice::DontNeed)?;
            let start_ns = rig.clock.now_ns();
            let executor = async_executor::LocalExecutor::new();
            for task in 0..tasks {
                let fs = fs.clone();
                let reads = async move {
                    let file = fs.open("data").await.expect("a file");
                    file.advise(0, 0, Advice::Random).expect("advice");
                    let (mut random, mut user) = (Random(task + 1), vec![0; 4096]);
                    for _ in 0..4_000 {
                        let offset = random.below(PAGES) * PAGE;
                        file.read_at(&mut user, offset).await.expect("read");
                    }
                };
                executor.spawn(reads).detach();
            }
            while !executor.is_empty() {
                executor.try_tick();
            }
            rates.push((tasks * 4_000) as f64 / (rig.clock.now_ns() - start_ns) as f64);
        }
        ratios.push(rates[1] / rates[0]);
    }
    println!("misses by two tasks of one thread: {:.2} x of one's", median(ratios));
    Ok(())
}

fn main() -> Result<()> {
    let benches = ["misses", "steps", "sizes", "hits", "stream", "scaling"];
    let (chosen, mut models) = common::arguments(&benches);
    let chosen = if chosen.is_empty() { benches.map(str::to_owned).to_vec() } else { chosen };
    let cpus = common::bind()?;
    let image = image()?;
    let given = !models.is_empty();
    for bench in chosen {
        if !given {
            let usual: &[&str] =
                if bench == "misses" { &["optane", "zssd", "null"] } else { &["optane"] };
            models = usual.iter().map(|model| (*model).to_owned()).collect();
        }
        match bench.as_str() {
            "misses" => misses(&image, &models)?,
            "steps" => steps(&image, &models)?,
            "sizes" => sizes(&image, &models)?,
            "hits" => hits(&image, &models)?,
            "stream" => stream(&image, &models)?,
            _ => {
                cpu::bind(&cpus)?;
                scaling(&image, &models)?;
            }
        }
    }
    Ok(())
}
