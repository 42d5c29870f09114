//! A better estimate of the device time.

use meantime_report::reproduction::Unit;

use super::{WAKES_LATE, trace};
use crate::document::Document;
use crate::experiment::{Claim, Expect, Experiment, Leg, Mark, Plot, Series, ratio};
use crate::runner::{Bench, RunError};

pub(super) fn experiments() -> Vec<Experiment> {
    vec![live(), simulated()]
}

const WAYS: [&str; 5] = ["interrupt", "poll", "hybrid", "hybrid-bucket", "adaptive"];
const QUESTION: &str = "Can a sleep fit every size, so that it saves CPU and no I/O is late?";
const THERE: &str = "Wanted: an estimate of the device time that is right for mixed sizes. One mean \
                     for all oversleeps the small I/Os.";

fn live() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        let args = ["--rw", "randrw", "--bs", "512,128k"];
        bench.bench("m", &device, &WAYS.join(","), &args)
    }
    let read = |way: &str| format!("m/{way}/read/p50_ns");
    let series = |title: &str, direction: &str| {
        let mark = |way: &str| Mark::new(way, format!("m/{way}/{direction}/p50_ns"));
        Series::new(title, WAYS.map(mark))
    };
    Experiment {
        id: "vault17-estimate",
        document: Document::Vault17,
        place: "open questions",
        title: "A better estimate for mixed sizes",
        question: QUESTION,
        there: THERE,
        here: "Reads of 512 B and writes of 128 KiB at random, on a software SSD with the talk's \
               times: 3 and 78 µs. `hybrid` has one mean for all; `hybrid-bucket`, Linux since \
               4.12, one for each direction and size; `adaptive` is ours, which also knows how \
               late sleeps end on this machine, and does not sleep where that does not pay.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "One mean for all makes the small reads as late as by interrupt, or later",
                ratio(read("hybrid"), read("interrupt")),
                Expect::AtLeast(1.0),
            ),
            Claim::new(
                "A mean for each size makes small reads quicker than one mean for all",
                ratio(read("hybrid-bucket"), read("hybrid")),
                Expect::AtMost(1.0),
            )
            .ours(),
            Claim::new(
                "With a mean for each size small reads are as quick as by polling",
                ratio(read("hybrid-bucket"), read("poll")),
                Expect::AtMost(1.1),
            )
            .ours()
            .unless(WAKES_LATE),
            Claim::new(
                "With an estimate that knows the machine small reads are as quick as by polling",
                ratio(read("adaptive"), read("poll")),
                Expect::AtMost(1.1),
            )
            .ours(),
            Claim::new(
                "An estimate that knows the machine uses less CPU than polling",
                ratio("m/adaptive/cpu_percent", "m/poll/cpu_percent"),
                Expect::AtMost(0.9),
            )
            .ours(),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![series("512 B reads", "read"), series("128 KiB writes", "write")],
        ),
    }
}

fn simulated() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        bench.replay("s", &WAYS.join(","), ("4.1", "sizes"), &trace(true))
    }
    let of = |way: &str, key: &str| format!("s/4.1us-sizes/{way}/{key}");
    let mark = |way: &str| Mark::new(way, of(way, "cpu_percent"));
    Experiment {
        id: "vault17-estimate-simulated",
        document: Document::Vault17,
        place: "open questions",
        title: "A better estimate for mixed sizes, simulated",
        question: QUESTION,
        there: THERE,
        here: "Simulated: reads of 512 B to 128 KiB, with the costs of a server without a \
               hypervisor, on a device that takes 4.1 µs for 4 KiB. Shown is the CPU load.",
        leg: Leg::Simulated,
        measure,
        claims: vec![
            Claim::new(
                "One mean for all costs latency: more than 5 % over polling",
                ratio(of("hybrid", "mean_ns"), of("poll", "mean_ns")),
                Expect::AtLeast(1.05),
            ),
            Claim::new(
                "A mean for each size costs less latency than one mean for all",
                ratio(of("hybrid-bucket", "mean_ns"), of("hybrid", "mean_ns")),
                Expect::AtMost(1.0),
            )
            .ours(),
            Claim::new(
                "An estimate that knows the machine stays within 3 % of polling",
                ratio(of("adaptive", "mean_ns"), of("poll", "mean_ns")),
                Expect::AtMost(1.03),
            )
            .ours(),
            Claim::new(
                "An estimate that knows the machine uses less CPU than a mean for each size",
                ratio(of("adaptive", "cpu_percent"), of("hybrid-bucket", "cpu_percent")),
                Expect::AtMost(1.0),
            )
            .ours(),
        ],
        plot: Plot::Bars(Unit::Percent, vec![Series::new("CPU load", WAYS.map(mark))]),
    }
}
