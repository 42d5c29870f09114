//! Latencies, device times and CPU load by way to wait.

use meantime_report::reproduction::Unit;

use super::{READS, THERE, WAKES_LATE, add_cost, made_device};
use crate::document::Document;
use crate::experiment::{
    Claim, Expect, Experiment, Leg, Mark, Plot, Series, difference, ratio, value,
};
use crate::runner::{Bench, RunError};

pub(super) fn experiments() -> Vec<Experiment> {
    vec![table(), device_time(), distribution(), cpu(), switch()]
}

fn table() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        bench.bench("t", &device, "interrupt,poll,hybrid,adaptive", &READS)
    }
    let mark = |name: &str, way: &str| {
        Mark::new(name, format!("t/{way}/mean_ns")).deviation(format!("t/{way}/sd_ns"))
    };
    Experiment {
        id: "vault17-latency",
        document: Document::Vault17,
        place: "latency table",
        title: "Latency by way to wait",
        question: "How long does a small read take, by interrupt, by polling, and by polling after \
                   a sleep?",
        there: THERE,
        here: "The same reads by our user-space driver on a software SSD with the talk's device \
               times. `hybrid` is the kernel's own rule, which the talk calls adaptive hybrid \
               polling: it sleeps for half the mean device time, then polls. `adaptive` is ours: \
               it sleeps only where the sleep ends in time. The whiskers are one standard \
               deviation.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Polling is quicker than the interrupt, by at least the talk's quarter",
                ratio("t/poll/mean_ns", "t/interrupt/mean_ns"),
                Expect::AtMostThere,
            )
            .there(ratio("latency/poll", "latency/interrupt")),
            Claim::new(
                "One thread does more reads a second by polling, by at least the talk's third",
                ratio("t/poll/rate_iops", "t/interrupt/rate_iops"),
                Expect::AtLeastThere,
            )
            .there(ratio("iops/poll", "iops/interrupt")),
            Claim::new(
                "Sleeping for half the mean device time is as quick as polling all the time",
                ratio("t/hybrid/mean_ns", "t/poll/mean_ns"),
                Expect::AtMost(1.05),
            )
            .there(ratio("latency/hybrid", "latency/poll"))
            .unless(WAKES_LATE),
            Claim::new(
                "A rule that knows how late a sleep ends is as quick as polling",
                ratio("t/adaptive/mean_ns", "t/poll/mean_ns"),
                Expect::AtMost(1.05),
            )
            .ours(),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![Series::new(
                "512 B",
                [
                    mark("interrupt", "interrupt").there("latency/interrupt"),
                    mark("poll", "poll").there("latency/poll"),
                    mark("hybrid (half the mean)", "hybrid").there("latency/hybrid"),
                    mark("adaptive (ours)", "adaptive"),
                ],
            )],
        ),
    }
}

/// Names on the axis, in µs, and the device's time for a read, in ns.
const TIMES: [(&str, u64); 6] = [
    ("2.6", 2_600),
    ("10", 10_000),
    ("30", 30_000),
    ("100", 100_000),
    ("1000", 1_000_000),
    ("8000", 8_000_000),
];

fn device_time() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        for (us, ns) in TIMES {
            let device = made_device(bench, &format!("time-{us}us"), &[(512, ns)], 4, 0)?;
            bench.bench(us, &device, "interrupt,poll", &READS)?;
            let of = |way: &str| bench.last(&format!("{us}/{way}/p50_ns"));
            if let Some((poll, interrupt)) = of("poll").zip(of("interrupt")) {
                bench.add(format!("{us}/gain_percent"), (1.0 - poll / interrupt) * 100.0);
            }
        }
        Ok(())
    }
    let gain = TIMES.map(|(us, _)| Mark::new(us, format!("{us}/gain_percent")));
    Experiment {
        id: "vault17-device-time",
        document: Document::Vault17,
        place: "motivation",
        title: "Gain of polling by device time",
        question: "For which devices does polling make sense?",
        there: "Polling saves the same few microseconds with every device. For an SSD that answers \
                in microseconds that is a quarter of the latency; for a disk it is nothing.",
        here: "512 B random reads on software SSDs that take from 2.6 µs to 8 ms, which is a \
               disk's time. The gain is what polling saves of the interrupt's median latency. Our \
               driver sleeps between looks once it has polled for 1 ms.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "With the talk's device polling gains at least what it gained there",
                ratio("2.6/poll/p50_ns", "2.6/interrupt/p50_ns"),
                Expect::AtMostThere,
            )
            .there(ratio("latency/poll", "latency/interrupt")),
            Claim::new(
                "The gain shrinks as the device gets slower",
                difference("100/gain_percent", "2.6/gain_percent"),
                Expect::AtMost(0.0),
            ),
            Claim::new(
                "A disk of 8 ms gains nothing",
                value("8000/gain_percent"),
                Expect::AtMost(2.0),
            ),
        ],
        plot: Plot::Lines(
            Unit::Percent,
            "device time, µs",
            true,
            vec![Series::new("saved by polling", gain)],
        ),
    }
}

fn distribution() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        bench.bench("d", &device, "interrupt,poll,hybrid,adaptive", &READS)
    }
    let curve = |way: &str| (way.to_owned(), format!("d/{way}"));
    Experiment {
        id: "vault17-distribution",
        document: Document::Vault17,
        place: "latency distributions",
        title: "Distribution of latencies",
        question: "Is polling quicker in the mean only, or for nearly every read?",
        there: THERE,
        here: "The same reads on a software SSD with the talk's device times: the share of reads \
               that took no longer than a time.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "99 % of the polled reads are back before half of the interrupt-driven ones",
                ratio("d/poll/p99_ns", "d/interrupt/p50_ns"),
                Expect::AtMost(1.0),
            ),
            Claim::new(
                "The whole distribution moves: the median gains at least as much as the talk's mean",
                ratio("d/poll/p50_ns", "d/interrupt/p50_ns"),
                Expect::AtMostThere,
            )
            .there(ratio("latency/poll", "latency/interrupt")),
            Claim::new(
                "With half the mean as the sleep the median is polling's",
                ratio("d/hybrid/p50_ns", "d/poll/p50_ns"),
                Expect::AtMost(1.05),
            )
            .there(ratio("latency/hybrid", "latency/poll"))
            .unless(WAKES_LATE),
        ],
        plot: Plot::Distribution(["interrupt", "poll", "hybrid", "adaptive"].map(curve).to_vec()),
    }
}

fn cpu() -> Experiment {
    const WAYS: [&str; 7] =
        ["interrupt", "poll", "hybrid", "hybrid=2us", "hybrid=3us", "hybrid=4us", "adaptive"];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        bench.bench("c", &device, &WAYS.join(","), &READS)?;
        for way in WAYS {
            add_cost(bench, &format!("c/{way}"));
        }
        Ok(())
    }
    let mark = |way: &str| {
        let name = match way {
            "hybrid" => "half the mean",
            "adaptive" => "adaptive (ours)",
            way => way.strip_prefix("hybrid=").unwrap_or(way),
        };
        let mark = Mark::new(name, format!("c/{way}/cpu_percent"));
        match way {
            "interrupt" | "poll" | "hybrid" => mark.there(format!("cpu/{way}")),
            _ => mark,
        }
    };
    Experiment {
        id: "vault17-cpu",
        document: Document::Vault17,
        place: "CPU load",
        title: "CPU load by way to wait",
        question: "How much of a CPU does each way to wait use?",
        there: THERE,
        here: "User and system time of the reading thread over the time that passed, with the \
               talk's device times. A thread by interrupt reads less often on this machine, since \
               its wake-ups take longer. So the CPU time of one read is compared as well.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "The interrupt uses at most a third of what polling uses",
                ratio("c/interrupt/cpu_percent", "c/poll/cpu_percent"),
                Expect::AtMostThere,
            )
            .there(ratio("cpu/interrupt", "cpu/poll"))
            .unless(
                "On a virtual machine going to sleep and waking up leave it for the hypervisor, \
                 and the kernel counts some of that as the thread's time.",
            ),
            Claim::new(
                "Sleeping for half the mean uses little more than half of polling's CPU",
                ratio("c/hybrid/cpu_percent", "c/poll/cpu_percent"),
                Expect::AtMostThere,
            )
            .there(ratio("cpu/hybrid", "cpu/poll"))
            .unless(WAKES_LATE),
            Claim::new(
                "A read by interrupt costs less CPU time than a polled one",
                ratio("c/interrupt/cost_mean_ns", "c/poll/cost_mean_ns"),
                Expect::AtMost(1.0),
            )
            .unless(
                "The device answers in less time than a sleep and a wake-up cost on a virtual \
                 machine: polling is then the cheaper way, too.",
            ),
        ],
        plot: Plot::Bars(Unit::Percent, vec![Series::new("of one CPU", WAYS.map(mark))]),
    }
}

fn switch() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        for (name, hog, suffix) in [("idle", &[][..], ""), ("busy", &["--hog", "1"][..], "/1")] {
            let args = [&READS[..], hog].concat();
            bench.bench(name, &device, "interrupt,poll", &args)?;
            let of = |way: &str| bench.last(&format!("{name}/{way}{suffix}/p50_ns"));
            if let Some((interrupt, poll)) = of("interrupt").zip(of("poll")) {
                bench.add(format!("{name}/switch_ns"), interrupt - poll);
            }
        }
        Ok(())
    }
    Experiment {
        id: "vault17-switch",
        document: Document::Vault17,
        place: "switch cost",
        title: "What switching away and back costs",
        question: "How much later is a read because its thread gave the CPU away meanwhile?",
        there: "Switching to another context and back costs 0.5 to 2 µs. That is all that polling \
                can save.",
        here: "The median latency by interrupt less that by polling. First the CPU has nothing \
               else to do, so that it goes idle and is woken up; then a program that only computes \
               wants the same CPU, so that the thread is switched in without a wake-up of the CPU.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "An interrupt costs at least the 0.5 µs of a switch",
                value("idle/switch_ns"),
                Expect::AtLeastThere,
            )
            .there(value("switch/low")),
            Claim::new(
                "An interrupt costs no more than 2 µs if the CPU is idle",
                value("idle/switch_ns"),
                Expect::AtMostThere,
            )
            .there(value("switch/high"))
            .unless(
                "An idle CPU of a virtual machine has been given back to the hypervisor; it takes \
                 13 to 20 µs until it runs again.",
            ),
            Claim::new(
                "An interrupt costs no more than 2 µs if the CPU runs a program",
                value("busy/switch_ns"),
                Expect::AtMostThere,
            )
            .there(value("switch/high"))
            .unless(
                "Between CPUs of a virtual machine a signal goes through the hypervisor, which \
                 takes longer than the switch itself.",
            ),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![Series::new(
                "interrupt less poll",
                [
                    Mark::new("idle CPU", "idle/switch_ns").there("switch/high"),
                    Mark::new("busy CPU", "busy/switch_ns").there("switch/high"),
                ],
            )],
        ),
    }
}
