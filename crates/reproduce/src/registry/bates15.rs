//! Having Fun at Queue Depth = 1.

use meantime_report::reproduction::Unit;

use crate::document::Document;
use crate::experiment::{Claim, Expect, Experiment, Leg, Mark, Plot, Series, ratio, value};
use crate::runner::{Bench, RunError};

/// The experiments.
pub(super) fn experiments() -> Vec<Experiment> {
    vec![split(), worst(), msix(), drivers(), load(), mixes(), stalls(), coalescing()]
}

const WAYS: [&str; 2] = ["interrupt", "poll"];

/// Measures the parts of a read.
fn parts(bench: &mut Bench<'_>) -> Result<(), RunError> {
    let device = bench.device("nvram");
    bench.anatomy("a", &device, "interrupt,poll", &["--bs", "4k", "--competitor", "none"])
}

fn split() -> Experiment {
    const PARTS: [(&str, &str, &[&str]); 4] = [
        ("host: submits", "submit", &["submit"]),
        ("device", "device", &["doorbell", "queue", "service"]),
        ("host: wakes up", "wake", &["wake"]),
        ("host: completes", "complete", &["cqe_seen", "complete"]),
    ];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        parts(bench)?;
        for way in WAYS {
            let mut sums = Vec::new();
            for (_, name, of) in PARTS {
                let part = |key: &&str| bench.last(&format!("a/{way}/4096/typical_{key}_ns"));
                let known: Vec<f64> = of.iter().filter_map(part).collect();
                if known.len() == of.len() {
                    let sum = known.iter().sum::<f64>();
                    bench.add(format!("{way}/{name}_ns"), sum);
                    sums.push(sum);
                }
            }
            if let [submit, _, wake, complete] = sums[..] {
                let host = submit + wake + complete;
                bench.add(format!("{way}/host_mean_ns"), host);
                bench.add(format!("{way}/wake_percent"), wake / host * 100.0);
            }
        }
        Ok(())
    }
    let stack = |way: &str| {
        Series::new(way, PARTS.map(|(title, name, _)| Mark::new(title, format!("{way}/{name}_ns"))))
    };
    Experiment {
        id: "bates15-split",
        document: Document::Bates15,
        place: "analyser trace",
        title: "A read in four parts",
        question: "What does the host add to the device's part of a read?",
        there: "A PCIe card with NVRAM, random reads, one at a time. A PCIe analyser sees the \
                doorbell, the device's transfers and the interrupt: the device's part is less than \
                9 µs on average, the host's 5 µs.",
        here: "4 KiB random reads, one at a time, on a software SSD whose time is set within \
               the document's bounds (8 µs and up to 2.5 µs more or less). It stamps every command by the clock \
               that the host reads, in place of an analyser (`meantime anatomy`). The device's \
               part is from the doorbell to the completion entry. Shown is the typical read: the \
               mean of the middle half.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "The software SSD keeps to its model, less than the document's 9 µs",
                value("interrupt/device_ns"),
                Expect::AtMostThere,
            )
            .ours()
            .there(value("device/mean")),
            Claim::new(
                "By interrupt the host's part is the document's 5 µs, or less",
                value("interrupt/host_mean_ns"),
                Expect::AtMostThere,
            )
            .there(value("host/mean"))
            .unless(
                "A virtual machine wakes an idle CPU through the hypervisor, which takes tens of \
                 microseconds.",
            ),
            Claim::new(
                "Most of the host's part is the way from the interrupt to the thread",
                value("interrupt/wake_percent"),
                Expect::AtLeast(50.0),
            )
            .ours(),
        ],
        plot: Plot::Stacks(Unit::Time, WAYS.map(stack).to_vec()),
    }
}

fn worst() -> Experiment {
    let series = |title: &str, way: &str, part: &str, there: bool| {
        let mark = |(name, key): (&str, &str)| {
            let mark = Mark::new(name, format!("a/{way}/4096/{part}_{key}_ns"));
            match key {
                "p99" => mark,
                key if there => mark.there(format!("{part}/{key}")),
                _ => mark,
            }
        };
        Series::new(title, [("mean", "mean"), ("99 %", "p99"), ("worst", "max")].map(mark))
    };
    Experiment {
        id: "bates15-worst",
        document: Document::Bates15,
        place: "analyser trace",
        title: "Mean and worst of device and host",
        question: "Are the slow reads the device's fault or the host's?",
        there: "The device's part of a random read is less than 9 µs on average and never as long \
                as 11 µs. The host's is 5 µs on average, and more than 30 µs at worst.",
        here: "The parts of each 4 KiB random read on a software SSD whose time is set to 8 µs and \
               up to 2.5 µs more or less, within the document's bounds. It is a thread, which the \
               scheduler may stop: then its worst is that of the scheduler.",
        leg: Leg::Machine,
        measure: parts,
        claims: vec![
            Claim::new(
                "The software SSD is never later than its model allows: the document's 11 µs",
                value("a/interrupt/4096/device_max_ns"),
                Expect::AtMostThere,
            )
            .ours()
            .there(value("device/max"))
            .unless("The software SSD is a thread, and a thread can be stopped; a card cannot."),
            Claim::new(
                "By interrupt the host's part is more than 30 µs at worst",
                value("a/interrupt/4096/host_max_ns"),
                Expect::AtLeastThere,
            )
            .there(value("host/max")),
            Claim::new(
                "The slowest reads are the host's fault: half or more of what they take beyond \
                 the mean",
                value("a/interrupt/4096/slowest_host_percent"),
                Expect::AtLeast(50.0),
            )
            .unless("The software SSD is a thread, and shares the fate of the host's threads."),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![
                series("device", "interrupt", "device", true),
                series("host, interrupt", "interrupt", "host", true),
                series("host, poll", "poll", "host", false),
            ],
        ),
    }
}

fn msix() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        parts(bench)?;
        for (part, way) in [("host", "interrupt"), ("host", "poll"), ("device", "interrupt")] {
            let of = |key: &str| bench.last(&format!("a/{way}/4096/{part}_{key}_ns"));
            if let Some((p50, p99)) = of("p50").zip(of("p99")) {
                bench.add(format!("{way}/{part}_spread_ns"), p99 - p50);
            }
        }
        Ok(())
    }
    let curve = |name: &str, curve: &str| (name.to_owned(), curve.to_owned());
    Experiment {
        id: "bates15-msix",
        document: Document::Bates15,
        place: "analyser trace",
        title: "The spread that interrupts make",
        question: "Is the host's part so variable because of interrupts?",
        there: "The variability of the host's part was traced to the handling of the MSI-X \
                interrupt, and to handing it on to the operating system.",
        here: "The distributions of the host's and the device's part of each 4 KiB random read, by \
               interrupt and by polling, which has no interrupt and is otherwise the same. The \
               spread is the time from the median to the slowest 1 %. An interrupt of the software \
               SSD is an eventfd, as one of a PCIe device is in user space; there is no MSI-X \
               message on a bus.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Without interrupts the host's part spreads half as far, or less",
                ratio("poll/host_spread_ns", "interrupt/host_spread_ns"),
                Expect::AtMost(0.5),
            ),
            Claim::new(
                "By interrupt the host's part spreads further than the device's, ± 2.5 µs",
                ratio("interrupt/host_spread_ns", "interrupt/device_spread_ns"),
                Expect::AtLeast(1.0),
            )
            .unless(
                "The software SSD is a thread: on a busy machine the scheduler stops it as often \
                 as the host's.",
            ),
        ],
        plot: Plot::Distribution(vec![
            curve("device", "a/interrupt/4096/device"),
            curve("host, interrupt", "a/interrupt/4096/host"),
            curve("host, poll", "a/poll/4096/host"),
        ]),
    }
}

/// The third column of the document's table is a driver in user space that polls. Ours is one with
/// either of the first two; our third column is what is between them.
const DRIVERS: [&str; 3] = ["interrupt", "poll", "adaptive"];

/// Compares the three drivers.
fn three(bench: &mut Bench<'_>) -> Result<(), RunError> {
    let args = ["--rw", "randread", "--bs", "4k"];
    bench.bench("d", &bench.device("nvram"), &DRIVERS.join(","), &args)
}

const TABLE: &str = "A table of three drivers (the kernel's with interrupts, the kernel's with \
                     polling, SPDK in user space) with latency, CPU load and throughput. SPDK and \
                     polling win in I/Os per second and in the tail, at a higher CPU load; polling \
                     is slightly behind SPDK.";

fn drivers() -> Experiment {
    let figure = |way: &str, key: &str| format!("d/{way}/{key}");
    let series = |(title, key): (&str, &str)| {
        Series::new(title, DRIVERS.map(|way| Mark::new(way, figure(way, key))))
    };
    let claim = |text, key, one, other, expect| {
        Claim::new(text, ratio(figure(one, key), figure(other, key)), expect)
    };
    Experiment {
        id: "bates15-drivers",
        document: Document::Bates15,
        place: "table of drivers",
        title: "Three drivers: latency and throughput",
        question: "What does a driver that polls gain in latency, in the tail and in I/Os per \
                   second?",
        there: TABLE,
        here: "4 KiB random reads, one at a time, on a software SSD whose time is set within \
               the document's bounds, by our driver, which is in user space as SPDK is: with interrupts, with \
               polling (the document's SPDK), and with `adaptive`, which sleeps while it can \
               afford that and then polls.",
        leg: Leg::Machine,
        measure: three,
        claims: vec![
            claim(
                "Polling does more I/Os per second",
                "rate_iops",
                "poll",
                "interrupt",
                Expect::AtLeast(1.05),
            ),
            claim(
                "Polling shortens the 99th percentile",
                "p99_ns",
                "poll",
                "interrupt",
                Expect::AtMost(0.95),
            ),
            claim(
                "`adaptive`, which the document does not have, does about as many as polling",
                "rate_iops",
                "adaptive",
                "poll",
                Expect::Within(0.9, 1.03),
            )
            .unless("A virtual machine ends some sleeps late, now and then by milliseconds.")
            .ours(),
        ],
        plot: Plot::Bars(
            Unit::Time,
            [("mean", "mean_ns"), ("99 %", "p99_ns"), ("99.9 %", "p999_ns")].map(series).to_vec(),
        ),
    }
}

fn load() -> Experiment {
    let cpu = |way: &str| format!("d/{way}/cpu_percent");
    Experiment {
        id: "bates15-load",
        document: Document::Bates15,
        place: "table of drivers",
        title: "Three drivers: CPU load",
        question: "What does the lower latency of a driver that polls cost in CPU?",
        there: TABLE,
        here: "The same three ways as for the latency. The load is user and system time of the \
               thread, over the time that passed. The kernel does not charge a sleeper for all of \
               what its sleep costs.",
        leg: Leg::Machine,
        measure: three,
        claims: vec![
            Claim::new(
                "Polling has the higher CPU load",
                ratio(cpu("poll"), cpu("interrupt")),
                Expect::AtLeast(1.0),
            ),
            Claim::new(
                "`adaptive`, which the document does not have, has no higher load than polling",
                ratio(cpu("adaptive"), cpu("poll")),
                Expect::AtMost(1.02),
            )
            .ours(),
        ],
        plot: Plot::Bars(
            Unit::Percent,
            vec![Series::new("load of one CPU", DRIVERS.map(|way| Mark::new(way, cpu(way))))],
        ),
    }
}

/// Percent of reads; all reads are a job of reads only.
const MIXES: [&str; 3] = ["100", "70", "50"];

/// The name of the reads of a mix.
fn reads_of(mix: &str, way: &str) -> String {
    if mix == "100" { format!("{mix}/{way}") } else { format!("{mix}/{way}/read") }
}

fn mixes() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("nand");
        for mix in MIXES {
            let rw: &[&str] = match mix {
                "100" => &["--rw", "randread"],
                mix => &["--rw", "randrw", "--rwmixread", mix],
            };
            bench.bench(mix, &device, "interrupt,poll", &[rw, &["--bs", "4k"]].concat())?;
        }
        Ok(())
    }
    let line = |title: &str, way: &str, key: &str| {
        let mark = |mix| {
            let writes = 100 - mix_percent(mix);
            Mark::new(writes.to_string(), format!("{}/{key}", reads_of(mix, way)))
        };
        Series::new(title, MIXES.map(mark))
    };
    let figure = |mix, way, key: &str| format!("{}/{key}", reads_of(mix, way));
    Experiment {
        id: "bates15-mixes",
        document: Document::Bates15,
        place: "comments",
        title: "Reads in mixes with writes",
        question: "What does a read take if writes are mixed in, and does polling still gain?",
        there: "Wanted, not measured: 70 % reads and 30 % writes on a preconditioned drive (the \
                author), and other mixes (a reader).",
        here: "4 KiB at random, one at a time, with 0, 30 and 50 % writes, on a software SSD with \
               times of flash memory, every block of which has been written before. Shown are the \
               reads only: the mean, and the 99.9th percentile.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "With 30 % writes the slowest 1 in 1,000 reads take longer than without",
                ratio(figure("70", "poll", "p999_ns"), figure("100", "poll", "p999_ns")),
                Expect::AtLeast(1.5),
            )
            .unless(
                "Where the scheduler stops the thread, or that of the software SSD, for \
                 milliseconds, the slowest reads are its own.",
            ),
            Claim::new(
                "With 50 % writes the mean read takes longer than without",
                ratio(figure("50", "poll", "mean_ns"), figure("100", "poll", "mean_ns")),
                Expect::AtLeast(1.0),
            )
            .unless("At depth 1 few reads meet a program: less than 1 in 100."),
            Claim::new(
                "With 30 % writes the median read is still faster by polling",
                ratio(figure("70", "poll", "p50_ns"), figure("70", "interrupt", "p50_ns")),
                Expect::AtMost(1.0),
            ),
        ],
        plot: Plot::Lines(
            Unit::Time,
            "percent of writes",
            false,
            vec![
                line("interrupt, mean", "interrupt", "mean_ns"),
                line("poll, mean", "poll", "mean_ns"),
                line("interrupt, 99.9 %", "interrupt", "p999_ns"),
                line("poll, 99.9 %", "poll", "p999_ns"),
            ],
        ),
    }
}

fn mix_percent(mix: &str) -> u32 {
    mix.parse().unwrap_or(100)
}

/// Reads on an idle drive, and beside a thread that overwrites the device. The drive is
/// overwritten first.
const STALLS: &str = "[global]\nbs=4k\n[precondition]\nrw=randwrite\nbs=64k\niodepth=8\n\
                      [alone]\nstonewall\nrw=randread\n[beside]\nstonewall\nrw=randread\n\
                      [writes]\nrw=randwrite\nbs=64k\niodepth=4\n";

fn stalls() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let job = bench.file("bates15-stalls.fio", STALLS)?;
        bench.bench("s", &bench.device("nand"), "interrupt", &[&job])
    }
    let figure = |job: &str, key: &str| format!("s/{job}/interrupt/{key}");
    let curve = |name: &str, job: &str| (name.to_owned(), format!("s/{job}/interrupt"));
    let slower = |text, key: &str, factor| {
        let quantity = ratio(figure("beside", key), figure("alone", key));
        Claim::new(text, quantity, Expect::AtLeast(factor))
    };
    Experiment {
        id: "bates15-stalls",
        document: Document::Bates15,
        place: "comments",
        title: "Reads behind writes and erases",
        question: "How long do reads wait behind writes and erases on a drive that has been \
                   written?",
        there: "Wanted, not measured: reads that are stalled behind writes and erases (a reader).",
        here: "4 KiB random reads, one at a time, first alone, then beside a thread that writes \
               64 KiB at random, four at a time. The software SSD has times of flash memory: a \
               read waits for a program (0.6 ms) or an erase (4 ms) of its die. Before that the \
               drive is overwritten at random.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            slower("Beside writes a read takes longer on average", "mean_ns", 1.5),
            slower(
                "Beside writes the slowest 1 % of reads take twice as long, or more",
                "p99_ns",
                2.0,
            ),
            Claim::new(
                "The worst read waits for an erase: 2 ms or more; programming a page takes 0.6 ms",
                value(figure("beside", "max_ns")),
                Expect::AtLeast(2e6),
            ),
        ],
        plot: Plot::Exceedance(vec![
            curve("reads alone", "alone"),
            curve("reads beside writes", "beside"),
        ]),
    }
}

fn coalescing() -> Experiment {
    const DEPTHS: [&str; 3] = ["1", "8", "32"];
    const SETTINGS: [(&str, &str, &str); 2] = [
        ("an interrupt for each", "each", ""),
        ("for 8, or after 100 µs", "eight", "&coalesce=8/100us"),
    ];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        for (_, name, parameter) in SETTINGS {
            let device = format!("{}{parameter}", bench.device("nvram"));
            for depth in DEPTHS {
                let label = format!("{name}/{depth}");
                let args = ["--rw", "randread", "--bs", "4k", "--iodepth", depth];
                bench.bench(&label, &device, "interrupt", &args)?;
                let of = |key: &str| bench.last(&format!("{label}/interrupt/{key}"));
                if let Some((rate, cpu)) = of("rate_iops").zip(of("cpu_percent")) {
                    bench.add(format!("{label}/cost_mean_ns"), cpu / 100.0 * 1e9 / rate);
                }
            }
        }
        Ok(())
    }
    let line = |(title, name, _): (&str, &str, &str)| {
        let mark = |depth| Mark::new(depth, format!("{name}/{depth}/interrupt/mean_ns"));
        Series::new(title, DEPTHS.map(mark))
    };
    Experiment {
        id: "bates15-coalescing",
        document: Document::Bates15,
        place: "comments",
        title: "Coalesced interrupts at higher load",
        question: "From which load on do coalesced interrupts pay?",
        there: "Wanted, not measured: coalescing of interrupts at a higher load than one I/O at a \
                time.",
        here: "NVMe's Interrupt Coalescing on a software SSD, 8 µs ± 2.5: an \
               interrupt for each completion, or one for 8 completions, at the latest after 100 \
               µs. 4 KiB random reads with 1, 8 and 32 in flight; shown is the mean latency.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "With one I/O in flight coalescing costs latency",
                ratio("eight/1/interrupt/mean_ns", "each/1/interrupt/mean_ns"),
                Expect::AtLeast(1.2),
            ),
            Claim::new(
                "With 32 in flight it costs a fifth of the latency at most",
                ratio("eight/32/interrupt/mean_ns", "each/32/interrupt/mean_ns"),
                Expect::AtMost(1.2),
            ),
            Claim::new(
                "With 32 in flight it saves CPU for each I/O",
                ratio("eight/32/cost_mean_ns", "each/32/cost_mean_ns"),
                Expect::AtMost(1.0),
            )
            .unless(
                "A thread that needs tens of microseconds to wake up finds several completions \
                 anyway: the wake-up coalesces.",
            ),
        ],
        plot: Plot::Lines(Unit::Time, "I/Os in flight", true, SETTINGS.map(line).to_vec()),
    }
}
