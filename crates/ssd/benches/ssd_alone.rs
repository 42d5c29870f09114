//! The SSD's own speed: a raw initiator on one CPU that does only the ring work, the SSD with the
//! `null` model on another. Prints IOPS at depth 32 and latencies at depth 1, with the cache-line
//! round trip between the two CPUs measured before and after each, since a hypervisor moves them.
//!
//! `cargo bench -p meantime-ssd --bench ssd_alone -- [ROUNDS [INITIATOR_CPU SSD_CPU]]`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use meantime_nvme_spec::cqe::phase_of_high_word;
use meantime_nvme_spec::sqe::Sqe;
use meantime_ssd::{Medium, MonotonicClock, Rng, Ssd};
use meantime_testkit::host::{BASE, Host, config, ok};

const MEDIUM_BYTES: u64 = 1 << 30;
const DEPTH: u32 = 32;
const ENTRIES: u32 = 1024;
const QID: u16 = 1;
/// Long enough that the SSD never parks during a measurement; the probe, which needs the SSD's CPU,
/// waits for it to park.
const PARK_AFTER: Duration = Duration::from_millis(20);

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).expect("the CPU exists");
}

/// The round trip of a cache line, in ns: the median of batches.
fn round_trip_ns(cpu: usize) -> f64 {
    const BATCH: u64 = 2000;
    const BATCHES: u64 = 51;
    std::thread::sleep(PARK_AFTER * 2);
    let flag = Arc::new(AtomicU64::new(0));
    let other = Arc::clone(&flag);
    let echo = std::thread::spawn(move || {
        pin(cpu);
        for i in 0..BATCH * BATCHES {
            while other.load(Ordering::Acquire) != 2 * i + 1 {
                std::hint::spin_loop();
            }
            other.store(2 * i + 2, Ordering::Release);
        }
    });
    let mut times = Vec::new();
    for batch in 0..BATCHES {
        let start = Instant::now();
        for i in batch * BATCH..(batch + 1) * BATCH {
            flag.store(2 * i + 1, Ordering::Release);
            while flag.load(Ordering::Acquire) != 2 * i + 2 {
                std::hint::spin_loop();
            }
        }
        times.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    echo.join().expect("the echo ends");
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The queue pair, with all pointers looked up in advance.
struct Initiator<'a> {
    host: &'a Host,
    sq: usize,
    cq: usize,
    tail_bell: &'a AtomicU32,
    head_bell: &'a AtomicU32,
    tail: u32,
    head: u32,
    phase: bool,
    buffers: u64,
    rng: Rng,
    block_bytes: u64,
}

impl Initiator<'_> {
    /// Writes a random read into the queue, with the buffer of slot `cid`.
    #[inline(always)]
    fn put(&mut self, cid: u16) {
        let lba = (self.rng.next_u64() >> 32) % (MEDIUM_BYTES / 512 / (self.block_bytes / 512));
        let nlb = (self.block_bytes / 512) as u32;
        let buffer = self.buffers + u64::from(cid) * 4096;
        let words = Sqe::read(cid, 1, lba * u64::from(nlb), nlb, buffer, 0).to_words();
        let at = self.sq + self.tail as usize * 64;
        for (i, word) in words.into_iter().enumerate() {
            self.host.arena.word(at + i * 8).store(word, Ordering::Relaxed);
        }
        self.tail = (self.tail + 1) % ENTRIES;
    }

    /// Rings without the fence and the load of `parked` that a driver needs: the SSD stays awake
    /// during the measurement.
    #[inline(always)]
    fn ring(&self) {
        self.tail_bell.store(self.tail, Ordering::Release);
    }

    fn wake(&self) {
        if self.host.bells.parking().must_wake() {
            self.host.port.wake();
        }
    }

    /// The CID of the next completion, if it is there.
    #[inline(always)]
    fn reap(&mut self) -> Option<u16> {
        let high =
            self.host.arena.word(self.cq + self.head as usize * 16 + 8).load(Ordering::Acquire);
        if phase_of_high_word(high) != self.phase {
            return None;
        }
        assert_eq!(high >> 49, 0, "status");
        self.head += 1;
        if self.head == ENTRIES {
            self.head = 0;
            self.phase = !self.phase;
        }
        Some((high >> 32) as u16)
    }

    /// I/Os per second at `depth`, over `time`.
    fn iops(&mut self, depth: u32, time: Duration) -> f64 {
        self.wake();
        for cid in 0..depth {
            self.put(cid as u16);
        }
        self.ring();
        self.wake();
        let start = Instant::now();
        let (mut done, mut outstanding) = (0u64, depth);
        let mut rounds = 0u32;
        while outstanding > 0 {
            let mut reaped = 0;
            while let Some(cid) = self.reap() {
                reaped += 1;
                if rounds != u32::MAX {
                    self.put(cid);
                } else {
                    outstanding -= 1;
                }
            }
            if reaped == 0 {
                continue;
            }
            done += reaped;
            self.head_bell.store(self.head, Ordering::Release);
            if rounds == u32::MAX {
                continue;
            }
            self.ring();
            rounds += 1;
            if rounds.is_multiple_of(256) && start.elapsed() > time {
                rounds = u32::MAX;
            }
        }
        done as f64 / start.elapsed().as_secs_f64()
    }

    /// Median latency at depth 1 in ns, over `n` I/Os in batches of 64.
    fn latency_ns(&mut self, n: usize) -> f64 {
        let mut times = Vec::with_capacity(n / 64);
        self.ring();
        self.wake();
        for _ in 0..n / 64 {
            let start = Instant::now();
            for _ in 0..64 {
                self.put(0);
                self.ring();
                while self.reap().is_none() {
                    std::hint::spin_loop();
                }
                self.head_bell.store(self.head, Ordering::Release);
            }
            times.push(start.elapsed().as_nanos() as f64 / 64.0);
        }
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}

fn main() {
    // `cargo bench` adds `--bench`.
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let rounds = numbers.first().copied().unwrap_or(5);
    let (initiator_cpu, ssd_cpu) = match numbers[..] {
        [_, a, b, ..] => (a, b),
        _ => (0, 1),
    };
    pin(initiator_cpu);
    let mut config = config(MEDIUM_BYTES, 512);
    config.cpu = Some(ssd_cpu);
    config.park_after_ns = PARK_AFTER.as_nanos() as u64;
    let medium = Medium::dram(MEDIUM_BYTES).expect("memory");
    let ssd = Ssd::start(config, medium, MonotonicClock::new()).expect("the SSD starts");
    let mut host = Host::new(ssd.port());
    host.enable();
    host.create_queues(QID, ENTRIES, None);
    fill(&mut host);

    let buffers = host.alloc(u64::from(DEPTH) * 4096);
    let (sq, cq, tail, head, phase) = {
        let q = host.queue(QID);
        ((q.sq_iova - BASE) as usize, (q.cq_iova - BASE) as usize, q.tail, q.head, q.phase)
    };
    let bells = Arc::clone(&host.bells);
    let (tail_bell, head_bell) =
        (bells.sq_tail(QID).expect("exists"), bells.cq_head(QID).expect("exists"));
    let rng = Rng::new(1);
    let mut initiator = Initiator {
        host: &host,
        sq,
        cq,
        tail_bell,
        head_bell,
        tail,
        head,
        phase,
        buffers,
        rng,
        block_bytes: 512,
    };

    println!(
        "round  rtt ns         512 B, depth 32   512 B, depth 1   4 KiB, depth 1   4 KiB, depth 32"
    );
    let mut best = [0.0_f64, f64::MAX, f64::MAX, 0.0];
    for round in 0..rounds {
        let before = round_trip_ns(ssd_cpu);
        initiator.block_bytes = 512;
        let iops = initiator.iops(DEPTH, Duration::from_millis(300));
        let small = initiator.latency_ns(100_000);
        initiator.block_bytes = 4096;
        let large = initiator.latency_ns(100_000);
        let large_iops = initiator.iops(DEPTH, Duration::from_millis(300));
        let after = round_trip_ns(ssd_cpu);
        println!(
            "{round:5}  {before:4.0} to {after:4.0}   {:7.2} M IOPS     {small:7.0} ns       {large:7.0} ns       {:7.2} M IOPS",
            iops / 1e6,
            large_iops / 1e6
        );
        best = [best[0].max(iops), best[1].min(small), best[2].min(large), best[3].max(large_iops)];
    }
    let [iops, small, large, large_iops] = best;
    println!(
        " best                {:7.2} M IOPS     {small:7.0} ns       {large:7.0} ns       {:7.2} M IOPS",
        iops / 1e6,
        large_iops / 1e6
    );
}

/// Writes the whole medium, so that no page is the kernel's shared zero page.
fn fill(host: &mut Host) {
    const BYTES: u64 = 1 << 20;
    let data = host.alloc(BYTES);
    let list = host.alloc(4096);
    for i in 1..BYTES / 4096 {
        host.write(list + (i - 1) * 8, &(data + i * 4096).to_le_bytes());
    }
    for offset in (0..MEDIUM_BYTES).step_by(BYTES as usize) {
        host.write(data, &[offset as u8 | 1; 4096]);
        let sqe = Sqe::write(0, 1, offset / 512, (BYTES / 512) as u32, data, list, false);
        ok(host.io(QID, sqe));
    }
}
