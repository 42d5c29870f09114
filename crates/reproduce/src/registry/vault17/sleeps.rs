//! How long to sleep before polling.

use meantime_report::reproduction::Unit;

use super::{READS, made_device, trace};
use crate::document::Document;
use crate::experiment::{Claim, Expect, Experiment, Leg, Mark, Plot, Quantity, Series, ratio};
use crate::runner::{Bench, RunError};

pub(super) fn experiments() -> Vec<Experiment> {
    vec![fixed(), fixed_simulated(), sizes(), sizes_simulated()]
}

const FIXED_THERE: &str = "The kernel sleeps for a fixed time before it polls. With 2 µs a read is \
                           as quick as by polling alone, with 4 µs as slow as by interrupt, with 3 \
                           µs in between; the CPU load falls. Half the mean device time takes 4.5 \
                           µs, as polling alone, at 58 % of a CPU instead of 100 %.";

/// Why a sleep may be late where everything is ten times as long.
const LATE_HERE: &str = "A sleep ends up to 20 µs late on a virtual machine, and later if the \
                         hypervisor has something else to do.";
/// Why half the mean may be late in the simulator.
const SIMULATED_LATE: &str = "A sleeper runs 1.5 to 3 µs after its time in the simulator, so that a \
                              sleep of half the mean, 2.2 µs, often ends after the completion. On \
                              the talk's machine a sleep of half the mean was not late.";

/// The claims about sleeps of 2, 3 and 4 µs, which are the ways `at`; `late` says why a sleep may
/// end late.
fn fixed_claims(label: &str, at: [&str; 3], late: &'static str) -> Vec<Claim> {
    let of = |way: &str, key: &str| format!("{label}/{way}/{key}");
    let mean = |one: &str, other: &str| ratio(of(one, "mean_ns"), of(other, "mean_ns"));
    let cpu = |one: &str, other: &str| ratio(of(one, "cpu_percent"), of(other, "cpu_percent"));
    vec![
        Claim::new(
            "Sleeping for 2 of 4.5 µs is nearly as quick as polling alone",
            mean(at[0], "poll"),
            Expect::AtMost(1.1),
        )
        .unless(late),
        Claim::new(
            "Sleeping for 3 of 4.5 µs is slower than for 2 µs",
            mean(at[1], at[0]),
            Expect::AtLeast(1.0),
        ),
        Claim::new(
            "Sleeping for 3 of 4.5 µs is quicker than the interrupt",
            mean(at[1], "interrupt"),
            Expect::AtMost(1.0),
        )
        .unless(late),
        Claim::new(
            "Sleeping for 4 of 4.5 µs is as slow as the interrupt",
            mean(at[2], "interrupt"),
            Expect::AtLeast(0.9),
        )
        .unless("Where a sleep ends earlier than an interrupt arrives, it is still quicker."),
        Claim::new(
            "Sleeping for 4 of 4.5 µs uses less CPU than for 2 µs",
            cpu(at[2], at[0]),
            Expect::AtMost(1.0),
        ),
        Claim::new(
            "Sleeping for half the mean device time is as quick as polling alone",
            mean("hybrid", "poll"),
            Expect::AtMost(1.05),
        )
        .there(ratio("latency/hybrid", "latency/poll"))
        .unless(late),
        Claim::new(
            "Sleeping for half the mean takes 42 % off polling's CPU, or more",
            cpu("hybrid", "poll"),
            Expect::AtMostThere,
        )
        .there(ratio("cpu/hybrid", "cpu/poll"))
        .unless(
            "The CPU of the sleep itself, and of an oversleep that the rule learns from, is in it.",
        ),
    ]
}

/// Plots the latency of each way to wait. The fixed sleeps take `times`, in µs.
fn fixed_plot(label: &str, times: [&'static str; 4], with_there: bool) -> Plot {
    let mark = |name: String, way: &str| Mark::new(name, format!("{label}/{way}/mean_ns"));
    let known = |name: &str, way: &str| {
        let mark = mark(name.to_owned(), way);
        if with_there { mark.there(format!("latency/{way}")) } else { mark }
    };
    let mut marks = vec![known("interrupt", "interrupt"), known("poll", "poll")];
    marks.extend(times.map(|us| mark(format!("{us} µs"), &format!("hybrid={us}us"))));
    marks.push(known("half the mean", "hybrid"));
    marks.push(mark("adaptive (ours)".to_owned(), "adaptive"));
    Plot::Bars(Unit::Time, vec![Series::new("512 B", marks)])
}

fn fixed() -> Experiment {
    const WAYS: &str =
        "poll,hybrid=10us,hybrid=20us,hybrid=30us,hybrid=40us,hybrid,adaptive,interrupt";
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = made_device(bench, "ten-times", &[(512, 45_000)], 4, 0)?;
        bench.input(
            "The device and the sleeps take ten times what they take in the talk, since a wake-up \
             on a virtual machine does, too",
        );
        bench.bench("f", &device, WAYS, &READS)
    }
    Experiment {
        id: "vault17-fixed-sleeps",
        document: Document::Vault17,
        place: "hybrid polling",
        title: "Fixed sleeps, ten times as long",
        question: "How long may a thread sleep before it polls, and what does that save?",
        there: FIXED_THERE,
        here: "A wake-up takes about ten times as long on a virtual machine as on the talk's. So \
               everything is ten times as long here: a software SSD that answers in 45 µs, where \
               the talk saw 4.5 µs, and sleeps of 10 to 40 µs for those of 1 to 4 µs.",
        leg: Leg::Machine,
        measure,
        claims: fixed_claims("f", ["hybrid=20us", "hybrid=30us", "hybrid=40us"], LATE_HERE),
        plot: fixed_plot("f", ["10", "20", "30", "40"], false),
    }
}

fn fixed_simulated() -> Experiment {
    const WAYS: &str =
        "interrupt,poll,hybrid,hybrid=1us,hybrid=2us,hybrid=3us,hybrid=4us,hybrid-bucket,adaptive";
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        bench.input("The device takes 4.1 µs; polling then takes 4.4 µs, in the talk 4.5 µs");
        bench.replay("s", WAYS, ("4.1", "constant"), &trace(false))
    }
    Experiment {
        id: "vault17-fixed-sleeps-simulated",
        document: Document::Vault17,
        place: "hybrid polling",
        title: "Fixed sleeps from 1 to 4 µs, simulated",
        question: "How long may a thread sleep before it polls, and what does that save?",
        there: FIXED_THERE,
        here: "Simulated: the same rules in virtual time, with the costs of waking up of a server \
               without a hypervisor and a device as quick as the talk's.",
        leg: Leg::Simulated,
        measure,
        claims: fixed_claims(
            "s/4.1us-constant",
            ["hybrid=2us", "hybrid=3us", "hybrid=4us"],
            SIMULATED_LATE,
        ),
        plot: fixed_plot("s/4.1us-constant", ["1", "2", "3", "4"], true),
    }
}

/// Sizes of the small I/Os, for the axis and for the command.
const SMALL: [(&str, &str); 4] = [("0.5", "512"), ("4", "4k"), ("16", "16k"), ("64", "64k")];

fn sizes() -> Experiment {
    const WAYS: [&str; 3] = ["interrupt", "poll", "hybrid"];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        for (kib, size) in SMALL {
            let sizes = format!("{size},128k");
            let args = ["--rw", "randrw", "--bs", &sizes];
            bench.bench(kib, &device, &WAYS.join(","), &args)?;
            let of = |way: &str| bench.last(&format!("{kib}/{way}/read/p50_ns"));
            if let Some((hybrid, poll)) = of("hybrid").zip(of("poll")) {
                bench.add(format!("{kib}/loss_percent"), (hybrid / poll - 1.0) * 100.0);
            }
        }
        Ok(())
    }
    let line = |way: &'static str| {
        let mark = move |(kib, _): (&str, &str)| Mark::new(kib, format!("{kib}/{way}/read/p50_ns"));
        Series::new(way, SMALL.map(mark))
    };
    Experiment {
        id: "vault17-sizes",
        document: Document::Vault17,
        place: "sleep time by I/O size",
        title: "Small I/Os among large ones",
        question: "What does one sleep time for all sizes do to the small I/Os?",
        there: "Half the mean device time fits one size only. With mixed sizes the large I/Os make \
                the mean longer, and small ones sleep past their completion: they get as slow as \
                by interrupt.",
        here: "One thread alternates at random between reads of one size and writes of 128 KiB, so \
               that the two have figures of their own; shown is the median of the reads. The \
               device's times are the talk's: 3 µs for 512 B, 78 µs for 128 KiB.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "A 512 B read that sleeps half the mean is as slow as by interrupt, or slower",
                ratio("0.5/hybrid/read/p50_ns", "0.5/interrupt/read/p50_ns"),
                Expect::AtLeast(1.0),
            ),
            Claim::new(
                "A 64 KiB read loses less of what polling gains than a 512 B read does",
                ratio("64/loss_percent", "0.5/loss_percent"),
                Expect::AtMost(1.0),
            ),
        ],
        plot: Plot::Lines(Unit::Time, "size of the reads, KiB", true, WAYS.map(line).to_vec()),
    }
}

fn sizes_simulated() -> Experiment {
    const WAYS: [&str; 5] = ["interrupt", "poll", "hybrid", "hybrid-bucket", "adaptive"];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        bench.replay("s", &WAYS.join(","), ("4.1", "constant"), &trace(false))?;
        bench.replay("s", &WAYS.join(","), ("4.1", "sizes"), &trace(true))
    }
    let series = |title: &str, cell: &str| {
        let mark = |way: &str| Mark::new(way, format!("s/4.1us-{cell}/{way}/p50_ns"));
        Series::new(title, WAYS.map(mark))
    };
    let p50 = |cell: &str, one: &str, other: &str| -> Quantity {
        let of = |way: &str| format!("s/4.1us-{cell}/{way}/p50_ns");
        ratio(of(one), of(other))
    };
    Experiment {
        id: "vault17-sizes-simulated",
        document: Document::Vault17,
        place: "sleep time by I/O size",
        title: "Small I/Os among large ones, simulated",
        question: "What does one sleep time for all sizes do to the small I/Os, where a sleep of \
                   microseconds can end in time?",
        there: "Half the mean device time fits one size only: small I/Os are overslept, and get as \
                slow as by interrupt.",
        here: "Simulated: reads of 4 KiB only, and reads of 512 B to 128 KiB of which three in \
               five have 4 KiB or less, with the costs of a server without a hypervisor. Shown is \
               the median, which is that of a 4 KiB read in both.",
        leg: Leg::Simulated,
        measure,
        claims: vec![
            Claim::new(
                "With one size, half the mean as the sleep is as quick as polling",
                p50("constant", "hybrid", "poll"),
                Expect::AtMost(1.05),
            )
            .there(ratio("latency/hybrid", "latency/poll"))
            .unless(SIMULATED_LATE),
            Claim::new(
                "With mixed sizes a 4 KiB read is as slow as by interrupt, or slower",
                p50("sizes", "hybrid", "interrupt"),
                Expect::AtLeast(1.0),
            ),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![series("one size", "constant"), series("mixed sizes", "sizes")],
        ),
    }
}
