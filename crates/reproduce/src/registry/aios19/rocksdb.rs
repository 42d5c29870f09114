//! `RocksDB`.

use meantime_report::reproduction::Unit;

use super::{Image, add_gain};
use crate::document::Document;
use crate::experiment::{Claim, Expect, Experiment, Leg, Mark, Plot, Series, ratio, value};
use crate::runner::{Bench, RunError};

pub(super) fn experiments() -> Vec<Experiment> {
    vec![read(), write()]
}

const THREADS: [&str; 3] = ["1", "4", "16"];

/// Where `meantime run` mounts.
const DATABASE: &str = "--db=/mnt/meantime/db";

/// Orders, with the options of the mount.
const ORDERS: [(&str, &str, &str); 2] = [
    ("none", "classic order", "order=classic-thread,overlap=none,cache=8M"),
    ("all", "overlapped", "order=overlapped,overlap=all,cache=8M"),
];

/// Checks that the benchmark is there.
fn check(bench: &mut Bench<'_>) -> Result<(), RunError> {
    bench.program("db_bench", &["--version"]).map(drop).map_err(|error| match error {
        RunError::Missing(_) => {
            RunError::Missing("db_bench is not here: install the package rocksdb-tools".to_owned())
        }
        other => other,
    })
}

/// Arguments of `meantime run`, by how the database's calls get to the file system: by shared
/// memory, or by the kernel and FUSE.
const SHORT: &[&str] = &[];
const MOUNT: &[&str] = &["--no-short"];

/// Runs benchmarks under `meantime run`, and returns the operations per second of the last.
fn run(
    bench: &mut Bench<'_>,
    image: &Image,
    way: &[&str],
    options: &str,
    args: &[&str],
) -> Result<Option<f64>, RunError> {
    let device = image.device("optane");
    let run = ["--device", &device, "-o", options, "--", "db_bench", DATABASE];
    let same = ["--compression_type=none", "--value_size=400"];
    let text = bench.text(&[&["run"], way, &run, &same, args].concat())?;
    // readrandom : 12.345 micros/op 81000 ops/sec 0.123 seconds …
    let rate = |line: &str| line.split(" ops/sec").next()?.split_whitespace().last()?.parse().ok();
    Ok(text.lines().filter(|line| line.contains(" micros/op ")).filter_map(rate).next_back())
}

/// Checks that programs go the short way.
fn check_short(bench: &mut Bench<'_>, image: &Image) -> Result<(), RunError> {
    let device = image.device("optane");
    let said = bench.text(&[
        "run",
        "--device",
        &device,
        "--",
        "sh",
        "-c",
        "echo \"${MEANTIME_SHORT:+short}\"",
    ])?;
    if said.trim() == "short" {
        return Ok(());
    }
    Err(RunError::Missing(
        "the short way's library is not beside this command: build it (`make build`)".to_owned(),
    ))
}

/// Adds the gain of a label's overlapped order.
fn gains(bench: &mut Bench<'_>, label: &str) {
    let of = |order: &str| format!("{label}/{order}_per_second");
    add_gain(bench, &format!("{label}/gain_ratio"), &of("all"), &of("none"));
    // The document's numbers are of the whole, 1.272 for a gain of 27.2 %.
    bench.add_ratio(format!("{label}/times_ratio"), &of("all"), &of("none"));
}

/// The gains by threads, beside the document's.
fn line(title: &str, way: &str, benchmark: &str) -> Series {
    let mark = |threads: &str| {
        Mark::new(threads, format!("{way}/{threads}/times_ratio"))
            .there(format!("rocksdb/{benchmark}/{threads}"))
    };
    Series::new(title, THREADS.map(mark))
}

fn read() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        check(bench)?;
        let image = Image::make(bench, "readrandom", "384M")?;
        let fill = [
            "--num=60000",
            "--disable_wal=1",
            "--write_buffer_size=4194304",
            "--benchmarks=fillseq,flush",
        ];
        check_short(bench, &image)?;
        run(bench, &image, SHORT, "order=overlapped", &fill)?;
        for threads in THREADS {
            // (A tenth of a second of reads, or a whole one.)
            let all_reads = if bench.is_quick() { 3_000 } else { 30_000 };
            let reads = format!("--reads={}", all_reads / threads.parse::<u32>().unwrap_or(1));
            let all_threads = format!("--threads={threads}");
            for (order, _, options) in ORDERS {
                let args = [
                    "--use_existing_db=1",
                    "--cache_size=1048576",
                    "--num=60000",
                    &reads,
                    &all_threads,
                    "--benchmarks=readrandom",
                ];
                if let Some(rate) = run(bench, &image, SHORT, options, &args)? {
                    bench.add(format!("short/{threads}/{order}_per_second"), rate);
                }
            }
            gains(bench, &format!("short/{threads}"));
        }
        Ok(())
    }
    Experiment {
        id: "aios19-rocksdb-readrandom",
        document: Document::Aios19,
        place: "RocksDB, readrandom",
        title: "RocksDB: random reads",
        question: "Does a database read faster on the overlapped stack?",
        there: "db_bench's readrandom on a database of 64 GB: 27.2, 22.3, 22.9, 18.5 and 10.7 % \
                more operations per second with 1, 2, 4, 8 and 16 threads.",
        here: "db_bench (package rocksdb-tools) under `meantime run`, with reads in the classic \
               order and overlapped. The database has 25 MB and reads through our page cache of 8 \
               MiB, by shared memory (the short way). By FUSE it would read from the kernel's \
               cache, or past ours: in neither are there steps to overlap.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "RocksDB does more random reads per second with one thread, overlapped",
                value("short/1/times_ratio"),
                Expect::AtLeast(1.0),
            )
            .there(value("rocksdb/readrandom/1"))
            .unless(
                "RocksDB's own work, the way to the file system's process and the device take \
                 some 25 µs together. The steps that overlap take less than one.",
            ),
            Claim::new(
                "RocksDB reads no slower with 16 threads, overlapped",
                value("short/16/times_ratio"),
                Expect::AtLeast(0.97),
            )
            .there(value("rocksdb/readrandom/16"))
            .unless("With 16 threads on few CPUs the CPUs are the limit in both orders."),
        ],
        plot: Plot::Lines(
            Unit::Ratio,
            "threads",
            true,
            vec![line("overlapped over classic order", "short", "readrandom")],
        ),
    }
}

fn write() -> Experiment {
    const WAYS: [(&str, &[&str]); 2] = [("short", SHORT), ("mount", MOUNT)];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        check(bench)?;
        let image = Image::make(bench, "fillsync", "384M")?;
        check_short(bench, &image)?;
        // (A twentieth of a second, or half of one.)
        let all_writes = if bench.is_quick() { 1_000 } else { 10_000 };
        for threads in THREADS {
            let writes = format!("--writes={}", all_writes / threads.parse::<u32>().unwrap_or(1));
            let all_threads = format!("--threads={threads}");
            // (fillsync takes keys from a thousandth of this number.)
            let args = ["--sync=1", "--num=2000", &writes, &all_threads, "--benchmarks=fillsync"];
            for (name, way) in WAYS {
                for (order, _, options) in ORDERS {
                    if let Some(rate) = run(bench, &image, way, options, &args)? {
                        bench.add(format!("{name}/{threads}/{order}_per_second"), rate);
                    }
                }
                gains(bench, &format!("{name}/{threads}"));
            }
        }
        Ok(())
    }
    Experiment {
        id: "aios19-rocksdb-fillsync",
        document: Document::Aios19,
        place: "RocksDB, fillsync",
        title: "RocksDB: synced writes",
        question: "Does a database that syncs each write do more of them?",
        there: "db_bench's fillsync, 16 GB: 44.3, 38.9, 35.7, 30.6 and 23.6 % more operations per \
                second with 1, 2, 4, 8 and 16 threads.",
        here: "db_bench (package rocksdb-tools) under `meantime run`, with the journal in the \
               classic order and overlapped. Each operation appends to the database's log and \
               syncs it: by shared memory (the short way), or by the mount alone, where write and \
               sync are requests of FUSE.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "RocksDB does more synced writes per second with one thread, overlapped",
                value("short/1/times_ratio"),
                Expect::AtLeast(1.0),
            )
            .there(value("rocksdb/fillsync/1")),
            Claim::new(
                "By the mount alone, too",
                value("mount/1/times_ratio"),
                Expect::AtLeast(1.0),
            )
            .there(value("rocksdb/fillsync/1"))
            .unless("The way through FUSE is the same in both orders, and as long as a commit."),
            Claim::new(
                "RocksDB's gain in synced writes is smaller with 16 threads",
                ratio("short/16/times_ratio", "short/1/times_ratio"),
                Expect::AtMost(1.0),
            )
            .there(ratio("rocksdb/fillsync/16", "rocksdb/fillsync/1")),
        ],
        plot: Plot::Lines(
            Unit::Ratio,
            "threads",
            true,
            vec![
                line("overlapped over classic order, the short way", "short", "fillsync"),
                line("the mount alone", "mount", "fillsync"),
            ],
        ),
    }
}
