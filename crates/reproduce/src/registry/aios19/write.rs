//! Writes that are made durable.

use std::fmt::Write as _;

use meantime_report::reproduction::Unit;

use super::{Image, add_gain};
use crate::document::Document;
use crate::experiment::{Claim, Expect, Experiment, Leg, Mark, Plot, Series, ratio, value};
use crate::runner::{Bench, RunError};

pub(super) fn experiments() -> Vec<Experiment> {
    vec![anatomy(), levels(), sizes(), threads()]
}

/// Appends blocks of `kib` to a new file, each followed by an fsync, with these waits moved.
fn append(
    bench: &mut Bench<'_>,
    image: &Image,
    name: &str,
    kib: &str,
    waits: &str,
) -> Result<(), RunError> {
    let bs = format!("{kib}k");
    // A cache that is full by the end of the warm-up: new memory from a hypervisor may take longer
    // than the write.
    let args = ["--rw", "write", "--bs", &bs, "--size", "384m", "--fsync", "1", "--cache", "8m"];
    let args = [&args[..], &["--commit-overlap", waits]].concat();
    let file = name.replace(['/', ' ', '+', ','], "");
    let device = image.file("optane", &file);
    bench.bench(name, &device, "poll", &args)?;
    // Room for the next.
    bench.text(&["fs", "rm", &device])?;
    Ok(())
}

fn anatomy() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::make(bench, "fsync", "512M")?;
        let args = ["--rw", "randwrite", "--bs", "4k"];
        bench.bench("raw", "mem:64M?model=optane&vwc=0", "poll", &args)?;
        for order in ["none", "all"] {
            append(bench, &image, order, "4", order)?;
            let of = |key: &str| bench.last(&format!("{order}/poll/{key}"));
            let (write, whole) = (of("typical_ns"), of("durable_ns"));
            if let Some((write, whole)) = write.zip(whole) {
                bench.add(format!("{order}/write_ns"), write);
                bench.add(format!("{order}/fsync_ns"), whole - write);
            }
            let of = |key: &str| bench.last(&format!("{order}/poll/{key}"));
            let blocks = of("log_blocks_count").zip(of("commits_count").filter(|n| *n > 0.0));
            if let Some((blocks, commits)) = blocks {
                bench.add(format!("{order}/log_blocks_per_commit_count"), blocks / commits);
            }
        }
        Ok(())
    }
    let order = |name: &str, order: &str| {
        Series::new(
            name,
            [
                Mark::new("write", format!("{order}/write_ns")),
                Mark::new("fsync", format!("{order}/fsync_ns")).there(if order == "none" {
                    "fsync/vanilla"
                } else {
                    "fsync/aios"
                }),
            ],
        )
    };
    Experiment {
        id: "aios19-fsync",
        document: Document::Aios19,
        place: "slides 11 to 23",
        title: "Anatomy of a write + fsync",
        question: "How much shorter is an fsync, if the journal is written while the data are on \
                   their way?",
        there: "4 KiB written and fsynced on ext4 in ordered mode: 53.94 µs. The data (12.73 µs), \
                the log (10.72) and the commit block (12.57) are written and waited for one after \
                the other, by the caller and the journal's thread. The asynchronous stack prepares \
                and writes the log while the data are on their way, and prepares the commit block \
                while the log is: 38.03 µs.",
        here: "4 KiB appended to a file and fsynced, by polling, on a software SSD with Optane's \
               times that needs no flush. The classic order waits for the data first, prepares the \
               commit block last, and has a thread of the journal commit. The figures are the \
               write's own time and the fsync's, without the slowest tenth.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "A write + fsync takes at most 70 % of the classic order's time",
                ratio("all/poll/durable_ns", "none/poll/durable_ns"),
                Expect::AtMost(0.70),
            )
            .there(ratio("fsync/aios", "fsync/vanilla")),
            Claim::new(
                "Both orders write about as many blocks of the log for each commit: nothing is \
                 left out",
                ratio("all/log_blocks_per_commit_count", "none/log_blocks_per_commit_count"),
                Expect::Within(0.7, 1.4),
            )
            .ours(),
        ],
        plot: Plot::Stacks(
            Unit::Time,
            vec![
                order("classic order", "none"),
                order("overlapped", "all"),
                Series::new("bare device", [Mark::new("a write", "raw/poll/typical_ns")]),
            ],
        ),
    }
}

const LEVELS: [(&str, &str); 4] = [
    ("classic", "none"),
    ("+ no journal thread", "direct"),
    ("+ log beside the data", "direct,data"),
    ("+ commit block prepared", "all"),
];

fn levels() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::make(bench, "write-levels", "512M")?;
        for (name, waits) in LEVELS {
            append(bench, &image, name, "4", waits)?;
        }
        Ok(())
    }
    let of = |name: &str| format!("{name}/poll/durable_ns");
    Experiment {
        id: "aios19-write-levels",
        document: Document::Aios19,
        place: "write latency by level",
        title: "A write + fsync, one step after the other",
        question: "What does each step of the optimisation bring?",
        there: "Latency of write + fsync of 4 to 128 KiB against the unchanged kernel's: with the \
                lightweight block layer (LBIO), and with the asynchronous fsync (AIOS).",
        here: "The steps that our journal has, added one after the other, for 4 KiB appended and \
               fsynced: the caller commits instead of a thread of the journal's, the log is \
               written beside the data, the commit block is prepared while the log is on its way. \
               The block layer is missing at every level.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Without the hand-over to a thread an fsync is shorter",
                ratio(of("+ no journal thread"), of("classic")),
                Expect::AtMost(1.0),
            )
            .ours(),
            Claim::new(
                "With the log written beside the data an fsync is shorter again",
                ratio(of("+ log beside the data"), of("+ no journal thread")),
                Expect::AtMost(1.0),
            ),
            Claim::new(
                "All steps together leave at most 70 % of the classic order's write + fsync",
                ratio(of("+ commit block prepared"), of("classic")),
                Expect::AtMost(0.70),
            )
            .there(ratio("fsync/aios", "fsync/vanilla")),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![Series::new(
                "4 KiB write + fsync",
                LEVELS.map(|(name, _)| Mark::new(name, of(name))),
            )],
        ),
    }
}

const KIB: [&str; 4] = ["4", "16", "64", "128"];

fn sizes() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::make(bench, "fsync-size", "512M")?;
        for kib in KIB {
            for order in ["none", "all"] {
                append(bench, &image, &format!("{kib}/{order}"), kib, order)?;
            }
            let of = |order: &str| bench.last(&format!("{kib}/{order}/poll/durable_ns"));
            if let Some((none, all)) = of("none").zip(of("all")) {
                bench.add(format!("{kib}/saved_ratio"), 1.0 - all / none);
            }
        }
        Ok(())
    }
    let line = |name: &str, order: &'static str| {
        let mark = move |kib: &str| Mark::new(kib, format!("{kib}/{order}/poll/durable_ns"));
        Series::new(name, KIB.map(mark))
    };
    Experiment {
        id: "aios19-fsync-size",
        document: Document::Aios19,
        place: "fio random write and fsync",
        title: "Write + fsync by size",
        question: "By how much is a write + fsync of 4 to 128 KiB shorter?",
        there: "fio's writes of 4 to 128 KiB with one thread, an fsync after each: up to 26 % \
                shorter.",
        here: "The same sizes, appended to a file and fsynced, in the classic order and \
               overlapped. The gain is the part of the classic order's time that is saved.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Of a 4 KiB write + fsync at least as much is saved as in the document",
                value("4/saved_ratio"),
                Expect::AtLeastThere,
            )
            .there(value("fio/fsync-gain")),
            Claim::new(
                "Of a 128 KiB write + fsync time is saved",
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

const THREADS: [&str; 3] = ["1", "4", "16"];

fn threads() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = Image::make(bench, "fsync-threads", "512M")?;
        for threads in THREADS {
            for order in ["none", "all"] {
                // Each thread has a file of its own.
                let mut text = format!(
                    "[global]\nrw=write\nbs=4k\nsize=16m\nfsync=1\ngroup_reporting=1\n\
                     commit_overlap={order}\n"
                );
                for thread in 0..threads.parse().unwrap_or(1) {
                    let file = image.file("optane", &format!("file{thread}"));
                    let _ = writeln!(text, "[t{thread}]\nfilename={file}");
                }
                let path = bench.file(&format!("fsync-{threads}-{order}.fio"), &text)?;
                let args = ["--completion", "interrupt"];
                bench.jobs(&format!("{threads}/{order}"), &path, &args)?;
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
    Experiment {
        id: "aios19-fsync-threads",
        document: Document::Aios19,
        place: "fio random write and fsync",
        title: "Write + fsync by threads",
        question: "Do several threads do more write + fsync per second?",
        there: "fio's writes of 4 KiB with 1 to 16 threads, an fsync after each: up to 27 % more \
                per second.",
        here: "1, 4 and 16 threads, each of which writes 4 KiB to a file of its own and fsyncs it, \
               by interrupt, in both orders. Fsyncs at the same time share a commit in both.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "One thread does as many more write + fsync per second as in the document",
                value("1/gain_ratio"),
                Expect::AtLeastThere,
            )
            .there(value("fio/fsync-iops-gain")),
            Claim::new(
                "16 threads do more write + fsync per second if they overlap",
                value("16/gain_ratio"),
                Expect::AtLeast(0.0),
            )
            .unless(
                "With many threads a commit has many fsyncs, and the CPUs are busy: there is less \
                 to wait for.",
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
