//! Where the time goes: device, file system, submission, memory, CPU.

use meantime_report::reproduction::Unit;

use super::{Image, READS};
use crate::document::Document;
use crate::experiment::{
    Claim, Expect, Experiment, Leg, Mark, Plot, Series, difference, ratio, value,
};
use crate::runner::{Bench, RunError};

pub(super) fn experiments() -> Vec<Experiment> {
    vec![shares(), user_level(), submission(), memory(), cpu()]
}

/// Software SSDs by speed, with their names.
const MODELS: [(&str, &str); 3] = [("NAND", "nand"), ("Z-SSD", "zssd"), ("Optane", "optane")];

fn shares() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::with_data(bench, "shares")?;
        for (_, model) in MODELS {
            let raw = format!("{model}/raw");
            let args = ["--rw", "randread", "--bs", "4k", "--offset", "25%", "--size", "50%"];
            bench.bench(&raw, &image.device(model), "poll", &args)?;
            let file = format!("{model}/file");
            let args = [&READS[..], &["--overlap", "none"]].concat();
            bench.bench(&file, &image.file(model, "data"), "poll", &args)?;
            let of = |name: &str| bench.last(&format!("{name}/poll/typical_ns"));
            if let Some((raw, file)) = of(&raw).zip(of(&file)) {
                bench.add(format!("{model}/read/device_share_percent"), raw / file * 100.0);
                bench.add(format!("{model}/read/software_share_percent"), {
                    (file - raw) / file * 100.0
                });
            }
            if model == "zssd" {
                continue;
            }
            // A software SSD of its own, since writing past the file system would destroy it.
            let writes = format!("{model}/raw-write");
            let device = format!("mem:64M?model={model}&vwc=0");
            bench.bench(&writes, &device, "poll", &["--rw", "randwrite", "--bs", "4k"])?;
            let file = format!("{model}/fsync");
            let args = ["--rw", "write", "--bs", "4k", "--size", "32m", "--fsync", "1"];
            let args = [&args[..], &["--commit-overlap", "none"]].concat();
            bench.bench(&file, &image.file(model, &format!("new-{model}")), "poll", &args)?;
            let raw = bench.last(&format!("{writes}/poll/typical_ns"));
            let all = bench.last(&format!("{file}/poll/durable_ns"));
            if let Some((raw, all)) = raw.zip(all) {
                bench.add(format!("{model}/fsync/software_share_percent"), {
                    (all - 3.0 * raw) / all * 100.0
                });
                bench.add(format!("{model}/fsync/device_share_percent"), 300.0 * raw / all);
            }
        }
        Ok(())
    }
    let bar = |what: &str, (name, model): (&str, &str)| {
        let mark = |part: &str| Mark::new(part, format!("{model}/{what}/{part}_share_percent"));
        Series::new(format!("{what}, {name}"), ["device", "software"].map(mark))
    };
    let mut bars = MODELS.map(|model| bar("read", model)).to_vec();
    bars.extend([MODELS[0], MODELS[2]].map(|model| bar("fsync", model)));
    let share = |model: &str, what: &str| format!("{model}/{what}/software_share_percent");
    Experiment {
        id: "aios19-shares",
        document: Document::Aios19,
        place: "slide 3",
        title: "Shares of device and software",
        question: "How much of an I/O's time is software, the faster the device?",
        there: "Shares of device, kernel and user in a 4 KiB read and in a 4 KiB write + fsync, on \
                four SSDs. The faster the SSD, the larger is the kernel's share.",
        here: "A 4 KiB read of a file that is not in the page cache, in the classic order, against \
               the same read of the bare device; what is more is software. For a write + fsync the \
               device's part is three bare writes, since the classic order waits for data, log and \
               commit block one after the other. There is no kernel in the path: all software is \
               ours.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Software has a larger share of a read on Optane than on NAND",
                difference(share("optane", "read"), share("nand", "read")),
                Expect::AtLeast(0.0),
            ),
            Claim::new(
                "Software has a larger share of a write + fsync on Optane than on NAND",
                difference(share("optane", "fsync"), share("nand", "fsync")),
                Expect::AtLeast(0.0),
            )
            .unless(
                "The hand-over to the journal's thread sleeps. If the wake-up takes long, it \
                 outweighs the devices' difference.",
            ),
        ],
        plot: Plot::Stacks(Unit::Percent, bars),
    }
}

const SIZES: [&str; 4] = ["4", "16", "64", "128"];

fn user_level() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::with_data(bench, "user")?;
        let (device, file) = (image.device("optane"), image.file("optane", "data"));
        for kib in SIZES {
            let bs = format!("{kib}k");
            let raw = ["--rw", "randread", "--bs", &bs, "--offset", "25%", "--size", "50%"];
            bench.bench(&format!("{kib}/raw"), &device, "poll", &raw)?;
            let read = ["--rw", "randread", "--bs", &bs, "--cache", "8m"];
            let direct = [&read[..], &["--direct=1"]].concat();
            bench.bench(&format!("{kib}/direct"), &file, "poll", &direct)?;
            bench.bench(&format!("{kib}/cached"), &file, "poll", &read)?;
        }
        Ok(())
    }
    let line = |name: &str, way: &'static str| {
        let mark = move |kib: &str| Mark::new(kib, format!("{kib}/{way}/poll/typical_ns"));
        Series::new(name, SIZES.map(mark))
    };
    let of = |kib: &str, way: &str| format!("{kib}/{way}/poll/typical_ns");
    Experiment {
        id: "aios19-user-level",
        document: Document::Aios19,
        place: "slides 36 and 45",
        title: "Against a stack in user space",
        question: "How close does a read of a file come to a bare read from user space?",
        there: "The asynchronous stack in the kernel beside SPDK, which polls from user space and \
                has no file system, by size. SPDK is shorter by what the kernel adds; with the \
                copy that a file's reader needs, the two come close. The figures are read off a \
                plot there, and not in our table.",
        here: "The bare device from user space, as SPDK reads it: no file system and no copy. A \
               direct read of a file, which has no copy from 8 KiB on. A read through the page \
               cache, which has one. All by polling, on a software SSD with Optane's times. A \
               large read of a file is several requests side by side, which the SSD does sooner \
               than the one of the bare read.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "A read through the page cache takes at most 1.5 times as long as a bare read, \
                 at 4 KiB",
                ratio(of("4", "cached"), of("4", "raw")),
                Expect::AtMost(1.5),
            )
            .ours(),
            Claim::new(
                "A read of 128 KiB through the page cache takes at most 1.5 times as long as a \
                 bare one",
                ratio(of("128", "cached"), of("128", "raw")),
                Expect::AtMost(1.5),
            )
            .ours(),
            Claim::new(
                "Without the copy a file's read is close to the bare one: a direct read of 16 KiB \
                 takes at most 1.1 times as long",
                ratio(of("16", "direct"), of("16", "raw")),
                Expect::AtMost(1.1),
            )
            .ours(),
        ],
        plot: Plot::Lines(
            Unit::Time,
            "KiB",
            true,
            vec![
                line("bare device", "raw"),
                line("file, direct", "direct"),
                line("file, page cache", "cached"),
            ],
        ),
    }
}

fn submission() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("optane");
        bench.anatomy("a", &device, "poll", &["--bs", "4k,32k", "--competitor", "none"])
    }
    let of = |bytes: u64| format!("a/poll/{bytes}/typical_submit_ns");
    Experiment {
        id: "aios19-submission",
        document: Document::Aios19,
        place: "submission latency",
        title: "The time of a submission",
        question: "How long does it take to hand a request to the device?",
        there: "The distribution of the submission's latency at 4 and 32 KiB. The kernel's block \
                layer needs 1.09 µs (0.72 for the request, 0.37 for the driver). The lightweight \
                layer (LBIO) needs 0.13 µs: it has a request of its own, and no merging or \
                scheduling.",
        here: "Our driver, from the call until the doorbell is rung, with the request's pages \
               described: the distribution, and the typical read (`meantime anatomy`). There is \
               no block layer above it, as with LBIO, and no system call.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Submitting 4 KiB without a block layer takes less time than the block layer did \
                 on the document's machine",
                value(of(4096)),
                Expect::AtMostThere,
            )
            .there(value("read/submit-vanilla")),
            Claim::new(
                "Submitting 4 KiB takes no longer than with LBIO",
                value(of(4096)),
                Expect::AtMostThere,
            )
            .there(value("read/submit-aios"))
            .unless(
                "Two readings of the clock are in it. The doorbell of a software SSD is a cache \
                 line that its thread reads all the time; it comes from another CPU first. A \
                 write to a PCIe device does not wait.",
            ),
            Claim::new(
                "Submitting 32 KiB takes at most twice as long as 4 KiB",
                ratio(of(32_768), of(4096)),
                Expect::AtMost(2.0),
            )
            .ours(),
        ],
        plot: Plot::Distribution(vec![
            ("4 KiB".to_owned(), "a/poll/4096/submit".to_owned()),
            ("32 KiB".to_owned(), "a/poll/32768/submit".to_owned()),
        ]),
    }
}

fn memory() -> Experiment {
    const MORE: f64 = 3.0;
    const IN_FLIGHT: f64 = 32.0;
    const REQUEST: f64 = 131_072.0;
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::with_data(bench, "memory")?;
        let file = image.file("optane", "data");
        for threads in ["1", "4"] {
            // A small cache is full at once, and counts the same for one thread and for four.
            let args = ["--rw", "randread", "--bs", "4k", "--cache", "1m", "--numjobs", threads];
            bench.bench(threads, &file, "interrupt", &args)?;
        }
        let of = |threads: &str| bench.last(&format!("{threads}/dma_bytes"));
        if let Some((one, four)) = of("1").zip(of("4")) {
            bench.add("thread_bytes", (four - one) / MORE);
        }
        let device = bench.device("optane");
        for depth in ["1", "33"] {
            let args = ["--rw", "randread", "--bs", "128k", "--iodepth", depth];
            bench.bench(&format!("request/{depth}"), &device, "poll", &args)?;
        }
        let of = |depth: &str| bench.last(&format!("request/{depth}/dma_bytes"));
        if let Some((one, many)) = of("1").zip(of("33")) {
            bench.add("request_bytes", (many - one) / IN_FLIGHT - REQUEST);
        }
        Ok(())
    }
    Experiment {
        id: "aios19-memory",
        document: Document::Aios19,
        place: "memory table",
        title: "The memory that it costs",
        question: "How much memory does the stack need for each CPU and for each request?",
        there: "For each CPU the kernel's block layer has 412 KiB of requests. The asynchronous \
                stack has 192 KiB of requests (LBIO) and 256 KiB of free pages. A request of 128 \
                KiB takes 6,104 bytes in the kernel's block layer, and 4,800 in LBIO.",
        here: "Memory that the device may reach, counted by its allocator: four threads that read \
               a file, less one thread, divided by three. That is the two queue pairs of a thread \
               (one is polled, one has an interrupt), its pool of mapped pages and its buffers. A \
               request: 33 of 128 KiB in flight less one, divided by 32, without the data. The \
               driver's slots in ordinary memory are not counted; they have some 200 bytes each.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "A thread needs at most twice the memory that the kernel has for a CPU",
                value("thread_bytes"),
                Expect::AtMost(2.0 * 421_888.0),
            )
            .ours()
            .there(value("memory/core-vanilla")),
            Claim::new(
                "A request of 128 KiB takes no more memory than the document's",
                value("request_bytes"),
                Expect::AtMostThere,
            )
            .there(value("memory/request-aios")),
        ],
        plot: Plot::Bars(
            Unit::Bytes,
            vec![
                Series::new(
                    "for a thread or CPU",
                    [
                        Mark::new("here", "thread_bytes"),
                        Mark::theirs("the kernel", "memory/core-vanilla"),
                        Mark::theirs("LBIO", "memory/core-lbio"),
                        Mark::theirs("AIOS' pages", "memory/core-pool"),
                    ],
                ),
                Series::new(
                    "for a request of 128 KiB",
                    [
                        Mark::new("here", "request_bytes"),
                        Mark::theirs("the kernel", "memory/request-vanilla"),
                        Mark::theirs("LBIO", "memory/request-aios"),
                    ],
                ),
            ],
        ),
    }
}

fn cpu() -> Experiment {
    const WAYS: [(&str, &str, &str); 4] = [
        ("classic, interrupt", "none", "interrupt"),
        ("overlapped, interrupt", "all", "interrupt"),
        ("classic, poll", "none", "poll"),
        ("overlapped, poll", "all", "poll"),
    ];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::with_data(bench, "cpu")?;
        let file = image.file("optane", "data");
        for order in ["none", "all"] {
            let args = [&READS[..], &["--overlap", order]].concat();
            // Not in one run: the second would find what the first left in the page cache.
            for way in ["interrupt", "poll"] {
                bench.bench(order, &file, way, &args)?;
                let of = |key: &str| bench.last(&format!("{order}/{way}/{key}"));
                let rate = of("rate_iops").zip(of("cpu_percent"));
                if let Some((rate, cpu)) = rate.filter(|(rate, _)| *rate > 0.0) {
                    bench.add(format!("{order}/{way}/cost_ns"), cpu / 100.0 * 1e9 / rate);
                    bench.add(format!("{order}/{way}/idle_percent"), 100.0 - cpu);
                }
            }
        }
        Ok(())
    }
    let bar = |(name, order, way): (&str, &str, &str)| {
        let part = |part: &str, key: &str| Mark::new(part, format!("{order}/{way}/{key}_percent"));
        Series::new(name, [part("user", "usr"), part("kernel", "sys"), part("idle", "idle")])
    };
    Experiment {
        id: "aios19-cpu",
        document: Document::Aios19,
        place: "CPU utilisation",
        title: "What the CPU does meanwhile",
        question: "Does overlapping use more CPU for the same I/O?",
        there: "RocksDB with 8 threads: the CPU's time is split into idle, waiting for I/O, kernel \
                and user. The overlapped stack waits less and does more in the same time; it does \
                not need more CPU for an I/O.",
        here: "A thread that reads 4 KiB of a file at random, in both orders. Our stack is in user \
               space, so user time has it, and kernel time is what waiting costs. Idle is the \
               rest: it includes what the kernel would call waiting for I/O.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "By interrupt, an overlapped read uses no more CPU than a classic one",
                ratio("all/interrupt/cost_ns", "none/interrupt/cost_ns"),
                Expect::AtMost(1.05),
            )
            .ours(),
            Claim::new(
                "By interrupt, the CPU is idle for less of the time if reads overlap: the next one \
                 begins sooner",
                difference("all/interrupt/idle_percent", "none/interrupt/idle_percent"),
                Expect::AtMost(0.0),
            )
            .unless(
                "The steps that overlap are a few hundred nanoseconds of some 30 µs. They are \
                 done while the thread would have slept.",
            ),
        ],
        plot: Plot::Stacks(Unit::Percent, WAYS.map(bar).to_vec()),
    }
}
