//! When Poll is Better than Interrupt.

use meantime_report::reproduction::Unit;

use crate::document::Document;
use crate::experiment::{
    Claim, Expect, Experiment, Leg, Mark, Plot, Quantity, Series, difference, ratio, value,
};
use crate::runner::{Bench, RunError};

/// The document's device and machine.
const THERE: &str = "A prototype of an NVMe SSD with DRAM as its medium (PCIe Gen2 x8), Linux \
                     2.6.33, Xeon at 2.93 GHz, random reads at depth 1. The polled driver is \
                     called directly, the interrupt-driven one by the block layer's queue, so its \
                     gain is that of polling and of a shorter path.";
/// The experiments.
pub(super) fn experiments() -> Vec<Experiment> {
    vec![
        table1(),
        projection(),
        figure1(),
        figure2(),
        refill(),
        figure3(),
        figure3_cpus(),
        saturation(),
        coalescing(),
        c_state(),
        break_even(),
    ]
}

const SIZES: [(&str, u64); 2] = [("512 B", 512), ("4 KiB", 4096)];

/// Adds the time from the doorbell until the thread has the completion: the document's device time
/// "without software".
fn add_gap(bench: &mut Bench<'_>, anatomy: &str, name: &str) {
    let part = |key: &str| bench.last(&format!("{anatomy}/typical_{key}_ns"));
    let parts = ["doorbell", "queue", "service", "wake", "cqe_seen"];
    let known: Vec<f64> = parts.iter().filter_map(|key| part(key)).collect();
    if known.len() == parts.len() {
        bench.add(name, known.iter().sum::<f64>());
    }
}

fn table1() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("fast12");
        let args = ["--bs", "512,4k", "--competitor", "none"];
        bench.anatomy("a", &device, "interrupt,poll", &args)?;
        for (_, bytes) in SIZES {
            for (way, name) in [("interrupt", "gap/interrupt"), ("poll", "poll")] {
                add_gap(bench, &format!("a/{way}/{bytes}"), &format!("{name}/{bytes}/mean_ns"));
            }
            // What leaving the idle state takes, in turns.
            let bs = bytes.to_string();
            let args = ["--rw", "randread", "--bs", &bs];
            limited(bench, &format!("idle/{bytes}"), &device, "interrupt", &args)?;
            let of = |limit: &str| bench.last(&format!("idle/{bytes}/interrupt/{limit}/mean_ns"));
            let exit_ns = of("none").zip(of("0")).map_or(0.0, |(free, held)| free - held);
            if let Some(gap_ns) = bench.last(&format!("gap/interrupt/{bytes}/mean_ns")) {
                bench.add(format!("interrupt-c-state/{bytes}/mean_ns"), gap_ns);
                bench.add(format!("interrupt/{bytes}/mean_ns"), gap_ns - exit_ns);
            }
        }
        Ok(())
    }
    let bars = SIZES.map(|(name, bytes)| {
        let ways = [
            ("interrupt, C-state", "interrupt-c-state"),
            ("interrupt", "interrupt"),
            ("poll", "poll"),
        ];
        Series::new(
            name,
            ways.map(|(name, way)| {
                Mark::new(name, format!("{way}/{bytes}/mean_ns"))
                    .there(format!("table1/{way}/{bytes}"))
            }),
        )
    });
    Experiment {
        id: "fast12-table1",
        document: Document::Fast12,
        place: "Table 1",
        title: "From the doorbell to the completion",
        question: "How long does it take from the doorbell until the software goes on?",
        there: THERE,
        here: "The gap of a 512 B or 4 KiB random read: from the doorbell until the thread has the \
               completion, by the time stamp counter (`meantime anatomy`). With the C-state: as it \
               is. Without: less what PM QoS at 0, which forbids idle states that take time to \
               leave, saves of the same reads.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Polling shortens the time from doorbell to completion at 4 KiB",
                ratio("poll/4096/mean_ns", "interrupt/4096/mean_ns"),
                Expect::AtMostThere,
            )
            .there(ratio("table1/poll/4096", "table1/interrupt/4096")),
            Claim::new(
                "At 512 B, too",
                Quantity::Ratio("poll/512/mean_ns".into(), "interrupt/512/mean_ns".into()),
                Expect::AtMostThere,
            )
            .there(ratio("table1/poll/512", "table1/interrupt/512")),
            Claim::new(
                "A CPU that enters a C-state adds to the interrupt's time",
                ratio("interrupt-c-state/4096/mean_ns", "interrupt/4096/mean_ns"),
                Expect::AtLeast(1.0),
            )
            .there(ratio("table1/interrupt-c-state/4096", "table1/interrupt/4096"))
            .unless("Without the right to set PM QoS, or without idle states, there is none."),
        ],
        plot: Plot::Bars(Unit::Time, bars.to_vec()),
    }
}

/// A model of the document's device behind a faster bus: its projected times.
const FASTER_BUS: &str = "name = \"fast12-8gb\"\nsource = \"FAST 2012, table 1: projection for 8 \
                          Gb/s lanes\"\nchannels = 3\nread = [[512, 900], [4096, 1500]]\nwrite = \
                          [[512, 900], [4096, 1500]]\nflush_ns = 1000\ntrim_ns = 1500\n";

fn projection() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let model = bench.file("fast12-8gb.toml", FASTER_BUS)?;
        let args = ["--bs", "512,4k", "--competitor", "none"];
        for (name, device) in
            [("gen2", bench.device("fast12")), ("8gb", format!("mem:256M?model={model}"))]
        {
            bench.anatomy(name, &device, "interrupt,poll", &args)?;
            for (_, bytes) in SIZES {
                for way in ["interrupt", "poll"] {
                    let of = format!("{name}/{way}/{bytes}");
                    add_gap(bench, &of, &format!("{of}/gap_mean_ns"));
                    let whole = bench.last(&format!("{of}/typical_total_ns"));
                    let device = bench.last(&format!("{of}/typical_service_ns"));
                    if let Some((whole, device)) = whole.zip(device) {
                        bench.add(format!("{of}/software_share_percent"), {
                            (whole - device) / whole * 100.0
                        });
                        bench.add(format!("{of}/whole_mean_ns"), whole);
                    }
                }
            }
            let of = |way: &str| bench.last(&format!("{name}/{way}/4096/whole_mean_ns"));
            if let Some((poll, interrupt)) = of("poll").zip(of("interrupt")) {
                bench.add(format!("{name}/part_percent"), poll / interrupt * 100.0);
            }
        }
        Ok(())
    }
    let bars = SIZES.map(|(name, bytes)| {
        Series::new(
            name,
            [("interrupt", "interrupt"), ("poll", "poll")].map(|(name, way)| {
                Mark::new(name, format!("8gb/{way}/{bytes}/gap_mean_ns"))
                    .there(format!("table1/{way}-8gb/{bytes}"))
            }),
        )
    });
    Experiment {
        id: "fast12-projection",
        document: Document::Fast12,
        place: "Table 1, Figure 2",
        title: "A faster bus against the same software",
        question: "How much does a faster bus shorten an I/O, if the software stays the same?",
        there: "A projection from the measured times to PCIe lanes of 8 Gb/s.",
        here: "Measured, not projected: a software SSD whose times are the document's projected \
               ones, beside the one with its measured times.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "The faster bus shortens the polled I/O as a whole",
                ratio("8gb/poll/4096/whole_mean_ns", "gen2/poll/4096/whole_mean_ns"),
                Expect::AtMost(0.9),
            )
            .there(ratio("figure2/poll-gen3", "figure2/poll")),
            Claim::new(
                "It does not shorten the interrupt's software: its share grows",
                difference(
                    "8gb/interrupt/4096/software_share_percent",
                    "gen2/interrupt/4096/software_share_percent",
                ),
                Expect::AtLeast(0.0),
            ),
            Claim::new(
                "With the faster bus polling has a smaller part of the interrupt's time than with \
                 the slower one (without software, there, 29 % less and 42 %)",
                difference("8gb/part_percent", "gen2/part_percent"),
                Expect::AtMost(0.0),
            ),
        ],
        plot: Plot::Bars(Unit::Time, bars.to_vec()),
    }
}

/// Measures with PM QoS at 0, and without, in turns. Returns false, and says so, if this user may not
/// set it.
fn limited(
    bench: &mut Bench<'_>,
    label: &str,
    device: &str,
    ways: &str,
    args: &[&str],
) -> Result<bool, RunError> {
    match bench.bench(label, device, ways, &[args, &["--pm-qos=none,0"]].concat()) {
        Err(RunError::Failed { message, .. }) => {
            bench.leave_out(format!(
                "PM QoS at 0: {message}; interrupts have the idle state's exit in them"
            ));
            Ok(false)
        }
        other => other.map(|()| true),
    }
}

fn figure1() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("fast12");
        for (_, bytes) in SIZES {
            let bs = bytes.to_string();
            let args = ["--rw", "randread", "--bs", &bs];
            let name = bytes.to_string();
            if limited(bench, &name, &device, "interrupt,poll", &args)? {
                for key in ["mean_ns", "sd_ns"] {
                    let of = |from: &str| bench.last(&format!("{bytes}/{from}/{key}"));
                    let all = [
                        ("interrupt-c-state", of("interrupt/none")),
                        ("interrupt", of("interrupt/0")),
                        ("poll", of("poll/none")),
                    ];
                    for (way, figure) in all {
                        if let Some(figure) = figure {
                            bench.add(format!("{bytes}/{way}/{key}"), figure);
                        }
                    }
                }
            } else {
                bench.bench(&name, &device, "interrupt,poll", &args)?;
            }
            let of = |way: &str| bench.last(&format!("{bytes}/{way}/mean_ns"));
            if let Some((poll, interrupt)) = of("poll").zip(of("interrupt")) {
                bench.add(format!("{bytes}/share_percent"), poll / interrupt * 100.0);
            }
        }
        Ok(())
    }
    let bars = SIZES.map(|(name, bytes)| {
        let mark = |name: &str, of: String| {
            Mark::new(name, format!("{of}/mean_ns")).deviation(format!("{of}/sd_ns"))
        };
        let there = |mark: Mark, way: &str| match bytes {
            4096 => mark.there(format!("figure1/{way}/4096")),
            _ => mark,
        };
        Series::new(
            name,
            [
                mark("interrupt, C-state", format!("{bytes}/interrupt-c-state")),
                there(mark("interrupt", format!("{bytes}/interrupt")), "interrupt"),
                there(mark("poll", format!("{bytes}/poll")), "poll"),
            ],
        )
    });
    Experiment {
        id: "fast12-figure1",
        document: Document::Fast12,
        place: "Figure 1",
        title: "Latency seen by the application",
        question: "By how much is a polled read faster than an interrupt-driven one?",
        there: THERE,
        here: "512 B and 4 KiB random reads at depth 1 on a software SSD with the document's \
               device times, in turns. The whiskers are one standard deviation. With the C-state: \
               as it is; without: with PM QoS at 0, which forbids idle states that take time to \
               leave.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Polling shortens a 4 KiB read at least as much as in the document",
                ratio("4096/poll/mean_ns", "4096/interrupt/mean_ns"),
                Expect::AtMostThere,
            )
            .there(ratio("figure1/poll/4096", "figure1/interrupt/4096")),
            Claim::new(
                "What polling leaves of the time is less at 512 B than at 4 KiB",
                // What polling leaves of the interrupt's time, at 512 B less at 4 KiB.
                difference("512/share_percent", "4096/share_percent"),
                Expect::AtMost(0.0),
            ),
            Claim::new(
                "Leaving a C-state adds to an interrupt-driven read of 4 KiB",
                ratio("4096/interrupt-c-state/mean_ns", "4096/interrupt/mean_ns"),
                Expect::AtLeast(1.0),
            ),
        ],
        plot: Plot::Bars(Unit::Time, bars.to_vec()),
    }
}

fn figure2() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("fast12");
        bench.anatomy("a", &device, "interrupt,poll", &["--bs", "4k", "--competitor", "tsc"])
    }
    let interrupt = |part: &str| format!("a/interrupt/4096/rival_{part}_ns");
    let part = |name: &str, key: &str| {
        Mark::new(name, interrupt(key)).there(format!("figure2/{}", key.replace('_', "-")))
    };
    let poll = Mark::new("polled path", "a/poll/4096/rival_total_ns").there("figure2/poll");
    Experiment {
        id: "fast12-figure2",
        document: Document::Fast12,
        place: "Figure 2",
        title: "Where the time goes, beside a competing process",
        question: "Does the interrupt give the CPU to others for longer than it costs?",
        there: "Ta: the path that does not overlap the device; Td: the device works; Tb: switching \
                to another process and back; Tu: what that process really gets. It reads the time \
                stamp counter in a loop on the same CPU.",
        here: "The same: a second process on the same CPU that reads the counter (`meantime \
               anatomy`). If the other process also runs after the device is done, until the \
               thread wakes up, Tu is longer than Td, Tb is less than 0, and the plot has none.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Ta + Tb of the interrupt is longer than the whole polled path: polling uses less \
                 CPU",
                ratio("a/poll/4096/rival_total_ns", interrupt("ta_tb")),
                Expect::AtMost(1.0),
            )
            .there(ratio("figure2/poll", "figure2/ta-tb")),
            Claim::new(
                "The other process gets less than the device's time (Tu < Td)",
                ratio(interrupt("tu"), interrupt("td")),
                Expect::AtMost(1.0),
            )
            .there(ratio("figure2/tu", "figure2/td"))
            .unless(
                "The wake-up takes longer than on the document's machine, and the other process \
                 runs during it: what it gets is the wake-up's time, paid for by the I/O.",
            ),
            Claim::new(
                "The interrupt-driven path, Ta + Td, takes longer than the polled one",
                Quantity::SumRatio(
                    interrupt("ta"),
                    interrupt("td"),
                    "a/poll/4096/rival_total_ns".into(),
                ),
                Expect::AtLeast(1.0),
            )
            .there(Quantity::SumRatio(
                "figure2/ta".into(),
                "figure2/td".into(),
                "figure2/poll".into(),
            )),
        ],
        plot: Plot::Stacks(
            Unit::Time,
            vec![
                Series::new("interrupt", [part("Ta", "ta"), part("Td", "td")]),
                Series::new("another process", [part("Tb", "tb"), part("Tu", "tu")]),
                Series::new("CPU by interrupt", [part("Ta + Tb", "ta_tb")]),
                Series::new("poll", [poll]),
            ],
        ),
    }
}

fn refill() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("fast12");
        for (name, kind) in [("tsc", "tsc"), ("walk", "walk=256k")] {
            let args = ["--bs", "4k", "--competitor", kind];
            bench.anatomy(name, &device, "interrupt", &args)?;
            let of = |key: &str| bench.last(&format!("{name}/interrupt/4096/rival_{key}_percent"));
            let alone = bench.last(&format!("{name}/rival_alone_percent"));
            // Work in the time that it ran, over work in the time that it ran with the CPU for
            // itself: what others take of the CPU, in either, is in neither.
            if let (Some(speed), Some(share), Some(alone)) = (of("speed"), of("share"), alone)
                && share > 0.0
            {
                bench.add(format!("{name}/pace_percent"), speed / share * alone);
            }
        }
        Ok(())
    }
    let series = |title: &str, name: &str| {
        let share = format!("{name}/interrupt/4096/rival_share_percent");
        let pace = format!("{name}/pace_percent");
        let marks = [Mark::new("share of the time", share), Mark::new("pace while it runs", pace)];
        Series::new(title, marks)
    };
    Experiment {
        id: "fast12-refill",
        document: Document::Fast12,
        place: "Figure 2, text",
        title: "What the other process makes of its time",
        question: "How much work does a process get done in the slices that interrupts leave it?",
        there: "Tu of 2.7 µs is 8,000 cycles, in which the other process first has to refill the \
                TLB and its caches.",
        here: "Two processes compete, each on the CPU of the I/O: one reads the time stamp \
               counter, which needs no cache; one walks a working set of 256 KiB, which fits a \
               core's cache. Shown are the share of the time that it runs, and its pace: the work \
               for each microsecond that it ran, in percent of what that is without the I/O.",
        leg: Leg::Machine,
        measure,
        claims: vec![Claim::new(
            "A process with a working set loses pace in the slices, compared with one that has \
             nothing to refill",
            ratio("walk/pace_percent", "tsc/pace_percent"),
            Expect::AtMost(1.0),
        )],
        plot: Plot::Bars(
            Unit::Percent,
            vec![series("reads the counter", "tsc"), series("walks 256 KiB", "walk")],
        ),
    }
}

fn figure3() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("fast12");
        for threads in ["1", "2", "4", "8"] {
            let args = ["--rw", "randread", "--bs", "512", "--numjobs", threads];
            let args = [&args[..], &["--group-reporting", "--cpus-allowed", "0"]].concat();
            let ways = if threads == "1" { "interrupt,poll" } else { "interrupt" };
            bench.bench(threads, &device, ways, &args)?;
        }
        let most = ["1", "2", "4", "8"]
            .iter()
            .filter_map(|threads| bench.last(&format!("{threads}/interrupt/rate_iops")));
        let most = most.fold(0.0, f64::max);
        bench.add("interrupt/best_iops", most);
        Ok(())
    }
    let line = |threads: &&str| Mark::new(*threads, format!("{threads}/interrupt/rate_iops"));
    Experiment {
        id: "fast12-figure3",
        document: Document::Fast12,
        place: "Figure 3",
        title: "I/Os per second of one CPU, by threads",
        question: "How many threads does a CPU need by interrupt to do what one thread does by \
                   polling?",
        there: "512 B random reads on 1 to 8 CPUs; every CPU is busy all the time. Polling: one \
                thread for each CPU. Interrupts: up to 8 threads for each.",
        here: "One CPU (the software SSD needs the other): one polling thread, and 1 to 8 threads \
               by interrupt, each with a queue of its own.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Interrupts reach no more than 70 % of polling's rate, even with 8 threads",
                ratio("interrupt/best_iops", "1/poll/rate_iops"),
                Expect::AtMost(0.7),
            )
            .there(Quantity::Value("figure3/interrupt-share-high".into())),
            Claim::new(
                "More threads raise the rate by interrupt",
                ratio("interrupt/best_iops", "1/interrupt/rate_iops"),
                Expect::AtLeast(1.05),
            ),
        ],
        plot: Plot::Lines(
            Unit::Rate,
            "threads on one CPU",
            true,
            vec![
                Series::new("interrupt", ["1", "2", "4", "8"].iter().map(line)),
                Series::new("poll", [Mark::new("1", "1/poll/rate_iops")]),
            ],
        ),
    }
}

/// The rate of a device that does at most this many I/Os, in I/Os per second: the document's.
const DEVICE_LIMIT_IOPS: f64 = 2e6;

fn figure3_cpus() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        bench.simulate("s", "interrupt,poll", "1.5", "constant")?;
        bench.input(
            "The device does 2 M I/Os per second at most; CPUs do not disturb each other; an \
             interrupt costs its CPU what the simulator charges, and all of that is spent",
        );
        let of = |way: &str, key: &str| bench.last(&format!("s/1.5us-constant/{way}/{key}"));
        let rates = [
            ("poll", of("poll", "rate_iops")),
            ("interrupt", {
                // Threads enough to keep the CPU busy: the rate at which it is used up.
                of("interrupt", "rate_iops")
                    .zip(of("interrupt", "cpu_percent"))
                    .map(|(rate, cpu)| rate / cpu * 100.0)
            }),
        ];
        for (way, rate) in rates {
            for cpus in 1..=8u32 {
                if let Some(rate) = rate {
                    let all = (rate * f64::from(cpus)).min(DEVICE_LIMIT_IOPS);
                    bench.add(format!("{cpus}/{way}/rate_iops"), all);
                }
            }
        }
        Ok(())
    }
    let line = |way: &'static str| {
        let mark = move |cpus: u32| Mark::new(cpus.to_string(), format!("{cpus}/{way}/rate_iops"));
        Series::new(way, (1..=8).map(mark))
    };
    Experiment {
        id: "fast12-figure3-cpus",
        document: Document::Fast12,
        place: "Figure 3",
        title: "I/Os per second by CPUs",
        question: "How do the rates grow with the number of CPUs?",
        there: "512 B random reads; polling grows with the CPUs to 2 M I/Os per second, which is \
                the device's limit; interrupts with 8 threads a CPU reach 60 to 70 % of that.",
        here: "Simulated: one CPU with the costs of a server without a hypervisor, times the \
               number of CPUs, up to the device's limit.",
        leg: Leg::Simulated,
        measure,
        claims: vec![
            Claim::new(
                "Interrupts reach 60 to 70 % of polling's rate on one CPU",
                ratio("1/interrupt/rate_iops", "1/poll/rate_iops"),
                Expect::AtMost(0.8),
            )
            .there(value("figure3/interrupt-share-high"))
            .unless(
                "The simulator charges 1.2 µs of CPU for what an interrupt adds to an I/O, and \
                 threads use all the rest. With the document's 6.3 µs for all of it a CPU would do \
                 160,000 I/Os per second by interrupt, a quarter of what it does by polling.",
            ),
        ],
        plot: Plot::Lines(Unit::Rate, "CPUs", false, vec![line("poll"), line("interrupt")]),
    }
}

fn saturation() -> Experiment {
    const DEPTHS: [&str; 4] = ["1", "4", "16", "32"];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("fast12");
        for depth in DEPTHS {
            let args = ["--rw", "randread", "--bs", "512", "--iodepth", depth];
            bench.bench(depth, &device, "interrupt,poll", &args)?;
            for way in ["interrupt", "poll"] {
                let of = |key: &str| bench.last(&format!("{depth}/{way}/{key}"));
                if let Some((rate, cpu)) = of("rate_iops").zip(of("cpu_percent")) {
                    let name = format!("{depth}/{way}/cost_mean_ns");
                    bench.add(name, cpu / 100.0 * 1e9 / rate);
                }
            }
        }
        Ok(())
    }
    let line = |way: &'static str| {
        Series::new(way, DEPTHS.map(|depth| Mark::new(depth, format!("{depth}/{way}/rate_iops"))))
    };
    Experiment {
        id: "fast12-saturation",
        document: Document::Fast12,
        place: "section 3",
        title: "Interrupts at a high rate",
        question: "Does a CPU saturate with interrupts before the device does?",
        there: "Named as a cost of interrupts: at a high rate a CPU does nothing but handle them.",
        here: "512 B random reads from one thread, 1 to 32 in flight; the rate, and the CPU of an \
               I/O.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "At depth 32 a polling thread does more I/Os per second than one by interrupt",
                ratio("32/poll/rate_iops", "32/interrupt/rate_iops"),
                Expect::AtLeast(1.0),
            )
            .unless(
                "One thread that finds many completions after each interrupt loses little: the \
                 saturation that the document names is that of an interrupt for each I/O.",
            ),
            Claim::new(
                "An I/O by interrupt costs more CPU at depth 1 than at depth 32",
                ratio("1/interrupt/cost_mean_ns", "32/interrupt/cost_mean_ns"),
                Expect::AtLeast(1.0),
            )
            .ours(),
        ],
        plot: Plot::Lines(
            Unit::Rate,
            "I/Os in flight",
            true,
            vec![line("interrupt"), line("poll")],
        ),
    }
}

fn coalescing() -> Experiment {
    const SETTINGS: [(&str, &str); 3] = [
        ("none", ""),
        ("4 or 100 µs", "&coalesce=4/100us"),
        ("16 or 200 µs", "&coalesce=16/200us"),
    ];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        for (name, parameter) in SETTINGS {
            let device = format!("{}{parameter}", bench.device("fast12"));
            let args = ["--rw", "randread", "--bs", "512", "--iodepth", "16"];
            bench.bench(name, &device, "interrupt", &args)?;
            bench.bench(
                &format!("{name}/1"),
                &device,
                "interrupt",
                &["--rw", "randread", "--bs", "512"],
            )?;
        }
        Ok(())
    }
    let series = |title: &str, depth: &str| {
        let mark =
            |(name, _): (&str, &str)| Mark::new(name, format!("{name}{depth}/interrupt/mean_ns"));
        Series::new(title, SETTINGS.map(mark))
    };
    Experiment {
        id: "fast12-coalescing",
        document: Document::Fast12,
        place: "section 3",
        title: "Coalesced interrupts",
        question: "What does it cost in latency to have fewer interrupts?",
        there: "Named as the usual cure for interrupt saturation: it saves CPU and costs latency.",
        here: "NVMe's Interrupt Coalescing on the software SSD: an interrupt for so many \
               completions or after so long; 512 B random reads at depth 1 and 16.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Coalescing makes I/Os slower at depth 1",
                ratio("16 or 200 µs/1/interrupt/mean_ns", "none/1/interrupt/mean_ns"),
                Expect::AtLeast(1.2),
            ),
            Claim::new(
                "Coalescing saves CPU at depth 16",
                ratio("4 or 100 µs/interrupt/cpu_percent", "none/interrupt/cpu_percent"),
                Expect::AtMost(1.0),
            )
            .unless(
                "A thread that needs tens of microseconds to wake up finds several completions \
                 anyway: the wake-up coalesces.",
            ),
        ],
        plot: Plot::Bars(Unit::Time, vec![series("depth 1", "/1"), series("depth 16", "")]),
    }
}

fn c_state() -> Experiment {
    const IDLE: [(&str, u64); 3] = [("20 µs", 20), ("100 µs", 100), ("1 ms", 1000)];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let args: &[&str] = if bench.is_quick() { &["--quick"] } else { &[] };
        let report = bench.json(&[&["calibrate"], args].concat())?;
        for (group, name) in
            [(&report["eventfd_wake"], "free"), (&report["pm_qos"]["eventfd_wake"], "held")]
        {
            for row in group.as_array().into_iter().flatten() {
                if let (Some(idle_us), Some(ns)) =
                    (row["idle_us"].as_u64(), row["mean_ns"].as_f64())
                {
                    bench.add(format!("{name}/{idle_us}/mean_ns"), ns);
                }
            }
        }
        if report["pm_qos"]["held"].as_bool() != Some(true) {
            let why = report["pm_qos"]["refused"].as_str().unwrap_or("it cannot be held");
            bench.leave_out(format!("PM QoS at 0: {why}"));
        }
        Ok(())
    }
    let mark = |group: &'static str| {
        move |(name, us): (&str, u64)| Mark::new(name, format!("{group}/{us}/mean_ns"))
    };
    Experiment {
        id: "fast12-c-state",
        document: Document::Fast12,
        place: "Table 1, text",
        title: "The idle state's part of an interrupt",
        question: "How much of an interrupt's cost is leaving the idle state?",
        there: "The CPU's C-state adds 0.7 µs at 512 B and 0.5 µs at 4 KiB to the interrupt.",
        here: "The time from a signal to a thread on another CPU until it runs, after that CPU was \
               idle for a time; with PM QoS at 0, so that it enters no deep state, and without \
               (`meantime calibrate`).",
        leg: Leg::Machine,
        measure,
        claims: vec![Claim::new(
            "After a millisecond of idleness the deep state adds to a wake-up",
            ratio("free/1000/mean_ns", "held/1000/mean_ns"),
            Expect::AtLeast(1.0),
        )],
        plot: Plot::Bars(
            Unit::Time,
            vec![
                Series::new("as it is", IDLE.map(mark("free"))),
                Series::new("PM QoS 0", IDLE.map(mark("held"))),
            ],
        ),
    }
}

fn break_even() -> Experiment {
    const TIMES: [(&str, &str); 7] = [
        ("0.5", "0.5us-constant"),
        ("1", "1us-constant"),
        ("2.9", "2.9us-constant"),
        ("10", "10us-constant"),
        ("20", "20us-constant"),
        ("50", "50us-constant"),
        ("100", "100us-constant"),
    ];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        bench.simulate("s", "interrupt,poll", "0.5,1,2.9,10,20,50,100", "constant")?;
        for (_, cell) in TIMES {
            // CPU of an I/O: what it costs its thread.
            for way in ["interrupt", "poll"] {
                let of = |key: &str| bench.last(&format!("s/{cell}/{way}/{key}"));
                if let Some((rate, cpu)) = of("rate_iops").zip(of("cpu_percent")) {
                    bench.add(format!("{cell}/{way}/cost_ns"), cpu / 100.0 * 1e9 / rate);
                }
            }
        }
        Ok(())
    }
    let line = |way: &'static str| {
        let mark = move |(us, cell): (&str, &str)| Mark::new(us, format!("{cell}/{way}/cost_ns"));
        Series::new(way, TIMES.map(mark))
    };
    Experiment {
        id: "fast12-break-even",
        document: Document::Fast12,
        place: "section 2",
        title: "Break-even of interrupt and polling",
        question: "From which device time on does an interrupt use less CPU than polling?",
        there: "Below a device time of Tb, 1.4 µs, the interrupt gives no time to anybody; at 4.1 \
                µs polling still uses less CPU (4.38 against 6.3 µs).",
        here: "Simulated: the CPU of an I/O by both ways for device times from 0.5 to 100 µs, with \
               the costs of a server without a hypervisor.",
        leg: Leg::Simulated,
        measure,
        claims: vec![
            Claim::new(
                "A device of 100 µs costs less CPU by interrupt",
                ratio("100us-constant/interrupt/cost_ns", "100us-constant/poll/cost_ns"),
                Expect::AtMost(1.0),
            )
            .ours(),
            Claim::new(
                "With the document's device, 2.9 µs for 4 KiB, polling uses less CPU than the \
                 interrupt",
                ratio("2.9us-constant/poll/cost_ns", "2.9us-constant/interrupt/cost_ns"),
                Expect::AtMost(1.0),
            )
            .there(ratio("figure2/poll", "figure2/ta-tb"))
            .unless(
                "The simulator charges what an interrupt adds to a polled I/O, 1.2 µs of CPU. The \
                 document's Ta + Tb of 6.3 µs is the whole path of Linux 2.6.33; with that the \
                 break-even would lie above 2.9 µs, with ours it lies at about 1 µs.",
            ),
            Claim::new(
                "With a device of 1 µs an interrupt saves less than 70 % of polling's CPU",
                ratio("1us-constant/interrupt/cost_ns", "1us-constant/poll/cost_ns"),
                Expect::AtLeast(0.3),
            )
            .ours(),
        ],
        plot: Plot::Lines(
            Unit::Time,
            "device time, µs",
            true,
            vec![line("interrupt"), line("poll")],
        ),
    }
}
