//! Reads.

use meantime_report::reproduction::Unit;

use super::{Image, READS, add_gain, add_over};
use crate::document::Document;
use crate::experiment::{Claim, Expect, Experiment, Leg, Mark, Plot, Series, ratio, value};
use crate::runner::{Bench, RunError};

pub(super) fn experiments() -> Vec<Experiment> {
    vec![
        anatomy(),
        levels(),
        sizes("optane"),
        sizes("zssd"),
        threads("optane"),
        threads("zssd"),
        poll(),
        duplicates(),
        unmap(),
        extents(),
    ]
}

/// Measures reads of the bare device behind an image.
fn raw(bench: &mut Bench<'_>, image: &Image, model: &str) -> Result<(), RunError> {
    let args = ["--rw", "randread", "--bs", "4k", "--offset", "25%", "--size", "50%"];
    bench.bench("raw", &image.device(model), "poll", &args)
}

/// Measures 4 KiB reads with these steps overlapped, and how much longer they take than bare ones.
fn with_steps(
    bench: &mut Bench<'_>,
    image: &Image,
    name: &str,
    steps: &str,
) -> Result<(), RunError> {
    let args = [&READS[..], &["--overlap", steps]].concat();
    bench.bench(name, &image.file("optane", "data"), "poll", &args)?;
    let (one, software) = (format!("{name}/poll/typical_ns"), format!("{name}/software_ns"));
    add_over(bench, &software, &one, "raw/poll/typical_ns");
    Ok(())
}

fn anatomy() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::with_data(bench, "read")?;
        raw(bench, &image, "optane")?;
        with_steps(bench, &image, "none", "none")?;
        with_steps(bench, &image, "all", "all")?;
        let args = [&READS[..], &["--deferrable=1"]].concat();
        bench.bench("timed", &image.file("optane", "data"), "poll", &args)?;
        let of = |key: &str| bench.last(&format!("timed/poll/{key}"));
        if let (Some(hidden), Some(all), Some(reads)) =
            (of("hidden_ns"), of("deferrable_ns"), of("cache_misses_count"))
        {
            bench.add("hidden_percent", hidden / all * 100.0);
            bench.add("hidden_ns_per_read_ns", hidden / reads);
            bench.add("late_ns_per_read_ns", (all - hidden) / reads);
        }
        Ok(())
    }
    let order = |name: &str, order: &str, there: &str| {
        Series::new(
            name,
            [
                Mark::new("device", "raw/poll/typical_ns").there("read/device"),
                Mark::new("software", format!("{order}/software_ns"))
                    .there(format!("read/software-{there}")),
            ],
        )
    };
    Experiment {
        id: "aios19-read",
        document: Document::Aios19,
        place: "slides 11 to 23",
        title: "Anatomy of a read",
        question: "How much of a read's software leaves the critical path, if it is done while the \
                   device works?",
        there: THERE_READ,
        here: "A 4 KiB random read that is not in the page cache, by polling, in both orders. \
               Device is a bare read of the same software SSD (Optane's times) by the same \
               program, with our driver's submission and completion. Software is what the file's \
               read takes beyond that: look-up, page, insertion, the copy. Times are means without \
               the slowest tenth. A further run times the steps that can be deferred \
               (deferrable=1): the share that is done while the device works.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Overlapping takes at least 40 % of the classic order's software time off the \
                 critical path: what a read takes beyond a bare read of the device",
                ratio("all/software_ns", "none/software_ns"),
                Expect::AtMost(0.60),
            )
            .there(ratio("read/software-aios", "read/software-vanilla"))
            .unless(
                "The classic order here is our own code with its steps moved back. It has no block \
                 layer, whose request is a third of what the document saves (0.96 of 2.72 µs). \
                 What stays in both orders is the copy, of data that are not in this CPU's caches.",
            ),
            Claim::new(
                "Overlapping makes the read as a whole shorter",
                ratio("all/poll/typical_ns", "none/poll/typical_ns"),
                Expect::AtMost(1.0),
            )
            .there(ratio("read/aios", "read/vanilla")),
            Claim::new(
                "Most of a read's work that can be deferred is done while the device works",
                value("hidden_percent"),
                Expect::AtLeast(50.0),
            ),
        ],
        plot: Plot::Stacks(
            Unit::Time,
            vec![
                order("classic order", "none", "vanilla"),
                order("overlapped", "all", "aios"),
                Series::new(
                    "steps that can be deferred",
                    [
                        Mark::new("while the device works", "hidden_ns_per_read_ns"),
                        Mark::new("later", "late_ns_per_read_ns"),
                    ],
                ),
            ],
        ),
    }
}

const THERE_READ: &str = "A 4 KiB read by the Linux kernel (5.0.5, on a 2.6 GHz Xeon): 12.82 µs, \
                          of which the device has 7.26. Look-up, page allocation (0.19 µs), \
                          insertion into the page cache (0.33), the search of the block (0.09), \
                          submission (1.09), mapping for DMA (0.29 and 0.23) and completion come \
                          one after the other. The asynchronous stack allocates, inserts and \
                          unmaps while the device works: 10.10 µs, with 2.84 instead of 5.56 µs \
                          of software.";

/// The levels, each with the step before it.
const LEVELS: [(&str, &str); 4] = [
    ("classic", "none"),
    ("+ preload", "preload"),
    ("+ page pool", "preload,pool"),
    ("+ lazy insertion", "preload,pool,lazy-insert"),
];

fn levels() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::with_data(bench, "levels")?;
        raw(bench, &image, "optane")?;
        for (name, steps) in LEVELS {
            with_steps(bench, &image, name, steps)?;
        }
        // DMA is unmapped late where a user's buffer is lent to the device: in direct reads.
        for (name, steps) in [("direct", "preload,pool,lazy-insert"), ("+ late unmapping", "all")] {
            let args =
                ["--rw", "randread", "--bs", "32k", "--cache", "8m", "--direct=1", "--overlap"];
            let args = [&args[..], &[steps]].concat();
            bench.bench(name, &image.file("optane", "data"), "poll", &args)?;
        }
        Ok(())
    }
    let over = |name: &str| format!("{name}/software_ns");
    Experiment {
        id: "aios19-read-levels",
        document: Document::Aios19,
        place: "read latency by level",
        title: "A read, one step after the other",
        question: "What does each step of the optimisation bring?",
        there: "Latency of reads of 4 to 128 KiB against the unchanged kernel's, with one step \
                more each: extents read before they are needed (preload), no scheduler (MQ \
                bypass), the lightweight block layer (LBIO), pages from a pool and inserted late \
                (async page), mapping for DMA beforehand and unmapping late (async DMA).",
        here: "The steps that our stack has, added one after the other: 4 KiB reads by polling, \
               less the bare device's time. A scheduler and a block layer it has at no level, so \
               these two steps have no counterpart. Late unmapping is about direct reads: 32 KiB \
               without and with it.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Preloaded extents shorten the software's part of a read",
                ratio(over("+ preload"), over("classic")),
                Expect::AtMost(1.0),
            ),
            Claim::new(
                "A pool of mapped pages shortens the software's part",
                ratio(over("+ page pool"), over("+ preload")),
                Expect::AtMost(1.0),
            ),
            Claim::new(
                "Inserting a page into the cache while the device works shortens the software's \
                 part",
                ratio(over("+ lazy insertion"), over("+ page pool")),
                Expect::AtMost(1.0),
            ),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![
                Series::new("4 KiB: software", LEVELS.map(|(name, _)| Mark::new(name, over(name)))),
                Series::new(
                    "32 KiB, direct: whole read",
                    [
                        Mark::new("unmapped before it returns", "direct/poll/typical_ns"),
                        Mark::new("unmapped late", "+ late unmapping/poll/typical_ns"),
                    ],
                ),
            ],
        ),
    }
}

const KIB: [&str; 4] = ["4", "16", "64", "128"];

fn sizes(model: &'static str) -> Experiment {
    fn measure(bench: &mut Bench<'_>, model: &str) -> Result<(), RunError> {
        let image = Image::with_data(bench, "sizes")?;
        for kib in KIB {
            let bs = format!("{kib}k");
            for order in ["none", "all"] {
                let args = ["--rw", "randread", "--cache", "8m", "--bs", &bs, "--overlap", order];
                let label = format!("{kib}/{order}");
                bench.bench(&label, &image.file(model, "data"), "poll", &args)?;
            }
            let of = |order: &str| bench.last(&format!("{kib}/{order}/poll/typical_ns"));
            if let Some((none, all)) = of("none").zip(of("all")) {
                bench.add(format!("{kib}/saved_ratio"), 1.0 - all / none);
            }
        }
        Ok(())
    }
    let line = |name: &str, order: &'static str| {
        let mark = move |kib: &str| Mark::new(kib, format!("{kib}/{order}/poll/typical_ns"));
        Series::new(name, KIB.map(mark))
    };
    let is_optane = model == "optane";
    Experiment {
        id: if is_optane { "aios19-read-size-optane" } else { "aios19-read-size-zssd" },
        document: Document::Aios19,
        place: "fio random read",
        title: if is_optane {
            "Random reads by size, on Optane"
        } else {
            "Random reads by size, on a Z-SSD"
        },
        question: "By how much are reads of 4 to 128 KiB shorter?",
        there: "fio's random reads with one thread, 4 to 128 KiB, on Z-SSD and Optane: up to 23 % \
                shorter.",
        here: "`meantime bench` with one thread, random reads of a file that are not in the page \
               cache, by polling, in the classic order and overlapped. The gain is the part of the \
               classic order's time that is saved.",
        leg: Leg::Machine,
        measure: if is_optane {
            |bench| measure(bench, "optane")
        } else {
            |bench| measure(bench, "zssd")
        },
        claims: vec![
            Claim::new(
                if is_optane {
                    "Overlapping makes a read of 4 KiB from Optane shorter"
                } else {
                    "Overlapping makes a read of 4 KiB from a Z-SSD shorter"
                },
                value("4/saved_ratio"),
                Expect::AtLeast(0.0),
            )
            .there(value("fio/read-gain"))
            .unless(
                "Both orders are our own code, without block layer and context switch. What is \
                 left to save is a few per cent of the time.",
            ),
            Claim::new(
                if is_optane {
                    "Overlapping makes a read of 128 KiB from Optane shorter"
                } else {
                    "Overlapping makes a read of 128 KiB from a Z-SSD shorter"
                },
                value("128/saved_ratio"),
                Expect::AtLeast(0.0),
            ),
        ],
        plot: Plot::Lines(
            Unit::Time,
            "KiB",
            true,
            vec![line("classic order", "none"), line("overlapped", "all")],
        ),
    }
}

const THREADS: [&str; 4] = ["1", "4", "16", "64"];

fn threads(model: &'static str) -> Experiment {
    fn measure(bench: &mut Bench<'_>, model: &str) -> Result<(), RunError> {
        let image = Image::with_data(bench, "threads")?;
        for threads in THREADS {
            for order in ["none", "all"] {
                let args = [&READS[..], &["--numjobs", threads, "--overlap", order]].concat();
                let label = format!("{threads}/{order}");
                bench.bench(&label, &image.file(model, "data"), "interrupt", &args)?;
            }
            let of = |order: &str| format!("{threads}/{order}/interrupt/rate_iops");
            add_gain(bench, &format!("{threads}/gain_ratio"), &of("all"), &of("none"));
        }
        Ok(())
    }
    let line = |name: &str, order: &'static str| {
        let mark = move |n: &str| Mark::new(n, format!("{n}/{order}/interrupt/rate_iops"));
        Series::new(name, THREADS.map(mark))
    };
    let is_optane = model == "optane";
    Experiment {
        id: if is_optane { "aios19-read-threads-optane" } else { "aios19-read-threads-zssd" },
        document: Document::Aios19,
        place: "fio random read",
        title: if is_optane {
            "Random reads by threads, on Optane"
        } else {
            "Random reads by threads, on a Z-SSD"
        },
        question: "Do several threads do more reads per second?",
        there: "fio's random reads of 4 KiB with 1 to 128 threads on 8 cores, on Z-SSD and Optane: \
                up to 26 % more I/Os per second. From some 32 threads on the SSD is the limit.",
        here: "1, 4, 16 and 64 threads that read 4 KiB of a file at random, by interrupt, in both \
               orders. All threads share the CPUs that the software SSD leaves.",
        leg: Leg::Machine,
        measure: if is_optane {
            |bench| measure(bench, "optane")
        } else {
            |bench| measure(bench, "zssd")
        },
        claims: vec![
            Claim::new(
                if is_optane {
                    "One thread does more overlapped reads of Optane per second"
                } else {
                    "One thread does more overlapped reads of a Z-SSD per second"
                },
                value("1/gain_ratio"),
                Expect::AtLeast(0.0),
            )
            .there(value("fio/read-iops-gain"))
            .unless(
                "By interrupt a read here takes as long as the wake-up, some tens of microseconds \
                 in a virtual machine; the steps that overlap take less than 1 µs.",
            ),
            Claim::new(
                if is_optane {
                    "64 threads read Optane no slower in the overlapped order"
                } else {
                    "64 threads read a Z-SSD no slower in the overlapped order"
                },
                value("64/gain_ratio"),
                Expect::AtLeast(-0.05),
            )
            .unless(
                "With many threads the CPU is always busy: overlapping moves work, and saves \
                     none.",
            ),
        ],
        plot: Plot::Lines(
            Unit::Rate,
            "threads",
            true,
            vec![line("classic order", "none"), line("overlapped", "all")],
        ),
    }
}

fn poll() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::with_data(bench, "poll")?;
        raw(bench, &image, "optane")?;
        for order in ["none", "all"] {
            let args = [&READS[..], &["--overlap", order]].concat();
            // Not in one run: the second would find what the first left in the page cache.
            for way in ["interrupt", "poll"] {
                bench.bench(order, &image.file("optane", "data"), way, &args)?;
            }
        }
        Ok(())
    }
    Experiment {
        id: "aios19-poll",
        document: Document::Aios19,
        place: "slide 32",
        title: "The asynchronous stack, polled",
        question: "What does polling bring beside overlapping?",
        there: "A 4 KiB read takes 10.10 µs with the asynchronous stack by interrupt. A label of \
                7.6 µs is presumably the same stack polling.",
        here: "4 KiB reads of a file that are not in the page cache, in both orders, each by \
               interrupt and by polling. What overlaps is done first; the thread polls or sleeps \
               for the rest of the device's time.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Polling shortens the overlapped read at least as much as in the document",
                ratio("all/poll/typical_ns", "all/interrupt/typical_ns"),
                Expect::AtMostThere,
            )
            .there(ratio("read/poll", "read/aios")),
            Claim::new(
                "By polling, too, the overlapped read is shorter than the classic one",
                ratio("all/poll/typical_ns", "none/poll/typical_ns"),
                Expect::AtMost(1.0),
            )
            .ours(),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![
                Series::new(
                    "interrupt",
                    [
                        Mark::new("classic order", "none/interrupt/typical_ns")
                            .there("read/vanilla"),
                        Mark::new("overlapped", "all/interrupt/typical_ns").there("read/aios"),
                    ],
                ),
                Series::new(
                    "poll",
                    [
                        Mark::new("classic order", "none/poll/typical_ns"),
                        Mark::new("overlapped", "all/poll/typical_ns").there("read/poll"),
                        Mark::new("bare device", "raw/poll/typical_ns"),
                    ],
                ),
            ],
        ),
    }
}

fn duplicates() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::with_data(bench, "duplicates")?;
        // All read the same pages in the same order, and nothing is read ahead.
        let args = ["--rw", "read", "--fadvise-hint", "random", "--numjobs", "8", "--bs", "4k"];
        let args = [&args[..], &["--cache", "8m"]].concat();
        bench.bench("hot", &image.file("optane", "data"), "interrupt", &args)?;
        let of = |key: &str| bench.last(&format!("hot/interrupt/{key}"));
        let misses = of("cache_misses_count").filter(|misses| *misses > 0.0);
        // A counter that is 0 is left out.
        let twice = of("read_past_cache_count").unwrap_or(0.0);
        let waits = of("cache_waits_count").unwrap_or(0.0);
        if let Some(misses) = misses {
            bench.add("duplicate_percent", twice / misses * 100.0);
            bench.add("avoided_percent", waits / misses * 100.0);
        }
        Ok(())
    }
    Experiment {
        id: "aios19-duplicate",
        document: Document::Aios19,
        place: "slide 14",
        title: "Pages read twice",
        question: "If a page becomes visible only while the device works, how often do two threads \
                   read it twice?",
        there: "The page is put into the page cache after its request was submitted. Two threads \
                that miss it at the same time may both read it. That is harmless and rare: the \
                second one throws its page away.",
        here: "A page is claimed before its request is sent, with a lock on one hash bucket; only \
               its queues and counters are kept later. So nobody reads it twice: the second thread \
               waits for the first. The exception is a thread that waits for so long that it reads \
               past the cache. Eight threads read the same pages in the same order, the worst \
               case, through a cache of 8 MiB; both are counted, in percent of the pages read.",
        leg: Leg::Machine,
        measure,
        claims: vec![Claim::new(
            "Fewer than 1 in 100 pages are read twice",
            value("duplicate_percent"),
            Expect::AtMost(1.0),
        )
        .unless(
            "A thread that lost its CPU while it read a page keeps the others waiting: on few CPUs \
             they give up and read past the cache.",
        )],
        plot: Plot::Bars(
            Unit::Percent,
            vec![Series::new(
                "of the pages read",
                [
                    Mark::new("read twice", "duplicate_percent"),
                    Mark::new("waited for instead", "avoided_percent"),
                ],
            )],
        ),
    }
}

fn unmap() -> Experiment {
    const WAYS: [(&str, &str); 2] =
        [("before the read returns", "preload,pool,lazy-insert"), ("late", "all")];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::with_data(bench, "unmap")?;
        for kib in ["256", "1024"] {
            for (name, steps) in WAYS {
                let bs = format!("{kib}k");
                let args = ["--rw", "randread", "--cache", "8m", "--direct=1", "--bs", &bs];
                let args = [&args[..], &["--overlap", steps]].concat();
                let label = format!("{kib}/{name}");
                bench.bench(&label, &image.file("optane", "data"), "poll", &args)?;
            }
        }
        Ok(())
    }
    let of = |kib: &str, name: &str| format!("{kib}/{name}/poll/typical_ns");
    let bars = ["256", "1024"].map(|kib| {
        Series::new(format!("{kib} KiB"), WAYS.map(|(name, _)| Mark::new(name, of(kib, name))))
    });
    Experiment {
        id: "aios19-unmap",
        document: Document::Aios19,
        place: "slide 16",
        title: "Unmapping late is optional",
        question: "What does it cost to unmap a buffer before the read returns?",
        there: "Unmapping for DMA (0.23 µs) is done later, while the device works for another \
                read. Until then a faulty device could still write there. So it can be switched \
                off: safety against 0.35 µs that overlap.",
        here: "Direct reads of 256 KiB and 1 MiB, whose buffers are lent to the device: with the \
               lease ended before the read returns, and with it ended in the gap of a later read \
               (lazy-unmap), when the same buffer may still be lent. Here it is no IOMMU that is \
               told, but the software SSD's own table. (If the lease has to end first, smaller \
               reads are copied, which takes less time than lending.)",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "A direct read of 256 KiB is shorter if the buffer is unmapped late",
                ratio(of("256", "late"), of("256", "before the read returns")),
                Expect::AtMost(1.0),
            )
            .unless("Ending a lease is a lock and a look-up here: less than the noise."),
            Claim::new(
                "Unmapping before the read returns, for safety, costs no more than 5 % at 1 MiB",
                ratio(of("1024", "before the read returns"), of("1024", "late")),
                Expect::AtMost(1.05),
            )
            .ours(),
        ],
        plot: Plot::Bars(Unit::Time, bars.to_vec()),
    }
}

fn extents() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::make(bench, "extents", "192M")?;
        // Random places, a hundred at a time: as many extents as blocks, almost.
        let args = ["--rw", "randwrite", "--bs", "4k", "--size", "96m", "--fsync", "100"];
        image.write(bench, &args)?;
        for (name, steps) in [("searched", "pool,lazy-insert"), ("preloaded", "all")] {
            let args = [&READS[..], &["--overlap", steps]].concat();
            bench.bench(name, &image.file("optane", "data"), "poll", &args)?;
        }
        Ok(())
    }
    let of = |name: &str, key: &str| format!("{name}/poll/{key}");
    let bar = |title: &str, key: &str| {
        Series::new(
            title,
            [
                Mark::new("searched at each read", of("searched", key)),
                Mark::new("preloaded", of("preloaded", key)),
            ],
        )
    };
    Experiment {
        id: "aios19-extents",
        document: Document::Aios19,
        place: "slide 40",
        title: "Where a block is, if the file has many extents",
        question: "What does a read wait for, if the extent that it needs is not in memory?",
        there: "If the look-up of a block misses the memory of extents, the read waits for \
                another read, of the extent tree. With all extents loaded when the file is opened \
                no look-up misses.",
        here: "A file of 96 MiB with some 20,000 extents: it was written at random, and synced \
               after each hundred writes. 4 KiB reads with the tree searched at each read, through \
               a cache of metadata, and with the extents loaded at open (preload).",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "With preloaded extents a read of a fragmented file is shorter",
                ratio(of("preloaded", "typical_ns"), of("searched", "typical_ns")),
                Expect::AtMost(1.0),
            )
            // (Of the look-up alone.)
            .there(ratio("read/lba-aios", "read/lba-vanilla")),
            Claim::new(
                "With preloaded extents the slowest 1 in 100 reads of a fragmented file is shorter",
                ratio(of("preloaded", "p99_ns"), of("searched", "p99_ns")),
                Expect::AtMost(1.0),
            )
            .ours()
            .unless(
                "A few hundred blocks of the tree are in memory soon after the beginning; later \
                 look-ups search them and wait for nothing.",
            ),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![bar("mean", "typical_ns"), bar("slowest 1 in 100", "p99_ns")],
        ),
    }
}
