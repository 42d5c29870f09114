//! Polling for some of the I/Os, other I/Os in the same queue, priorities, interrupts.

use meantime_report::reproduction::Unit;

use super::{READS, made_device};
use crate::document::Document;
use crate::experiment::{
    Claim, Expect, Experiment, Leg, Mark, Plot, Quantity, Series, ratio, value,
};
use crate::runner::{Bench, RunError};

pub(super) fn experiments() -> Vec<Experiment> {
    vec![hipri(), reaping(), priority(), interrupts()]
}

const HIPRI: &str = "[global]\nfilename=DEVICE\nrw=randread\nbs=512\n[urgent]\nrate_iops=5000\n\
                     hipri=1\n[others]\ncompletion=interrupt\n";

fn hipri() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        let file = bench.file("hipri.fio", &HIPRI.replace("DEVICE", &device))?;
        bench.jobs("some", &file, &[])?;
        bench.bench("all", &device, "interrupt,poll", &READS)
    }
    Experiment {
        id: "vault17-hipri",
        document: Document::Vault17,
        place: "RWF_HIPRI",
        title: "Polling for the I/Os that ask for it",
        question: "Does polling pay if only some of the I/Os ask for it?",
        there: "Since Linux 4.6 the flag RWF_HIPRI of preadv2() asks for polling, I/O by I/O; all \
                other I/O goes by interrupt.",
        here: "Two threads on one CPU and one device: one polls for 5,000 reads a second (the key \
               `hipri`), the other reads as fast as it can by interrupt. Our driver has a queue \
               for each way to wait, and each request can choose.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "The polled reads are quicker than the others, by at least the talk's quarter",
                ratio("some/urgent/poll/mean_ns", "some/others/interrupt/mean_ns"),
                Expect::AtMostThere,
            )
            .there(ratio("latency/poll", "latency/interrupt")),
            Claim::new(
                "Both threads together use less CPU than polling for everything does",
                Quantity::SumRatio(
                    "some/urgent/poll/cpu_percent".into(),
                    "some/others/interrupt/cpu_percent".into(),
                    "all/poll/cpu_percent".into(),
                ),
                Expect::AtMost(1.0),
            )
            .ours(),
            Claim::new(
                "The reads by interrupt suffer little: at most a quarter in the median",
                ratio("some/others/interrupt/p50_ns", "all/interrupt/p50_ns"),
                Expect::AtMost(1.25),
            )
            .ours()
            .unless(
                "The thread that polls keeps to the times of its reads, and spins at the end of \
                 each pause, since a sleep ends too late here. The other thread has the rest of \
                 this CPU.",
            ),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![
                Series::new(
                    "at the same time",
                    [
                        Mark::new("polled", "some/urgent/poll/mean_ns"),
                        Mark::new("others", "some/others/interrupt/mean_ns"),
                    ],
                ),
                Series::new(
                    "alone",
                    [
                        Mark::new("polled", "all/poll/mean_ns").there("latency/poll"),
                        Mark::new("interrupt", "all/interrupt/mean_ns").there("latency/interrupt"),
                    ],
                ),
            ],
        ),
    }
}

/// Reads in a queue of their own beside others' writes in another.
const OWN_QUEUE: &str = "[global]\nfilename=DEVICE\n[urgent]\nrw=randread\nbs=512\n\
                         completion=poll\n[low]\nrw=randwrite\nbs=4k\niodepth=15\n\
                         completion=interrupt\n";

fn reaping() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        // So many channels that no I/O waits for another inside the device.
        let device = made_device(bench, "wide", &[(512, 2_600), (4096, 4_700)], 64, 0)?;
        bench.bench("alone", &device, "poll", &READS)?;
        let args = ["--rw", "randrw", "--rwmixread", "10", "--bs", "512,4k", "--iodepth", "16"];
        bench.bench("shared", &device, "poll", &args)?;
        let file = bench.file("own-queue.fio", &OWN_QUEUE.replace("DEVICE", &device))?;
        bench.jobs("own", &file, &[])
    }
    Experiment {
        id: "vault17-reaping",
        document: Document::Vault17,
        place: "kernel implementation, open questions",
        title: "A poller that finishes others' I/Os",
        question: "What does an urgent read pay for the I/Os that share its queue?",
        there: "The poller takes every completion off its queue, also those of less important \
                I/Os, before it finds its own. What that costs was left open.",
        here: "512 B reads that are polled: alone; in one queue with fifteen 4 KiB writes, whose \
               completions the poller takes as well; and in a queue of their own, while another \
               thread on the same CPU does the writes by interrupt. The software SSD takes the \
               talk's times and works on all of them at once.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "In a shared queue a polled read is later: the poller works for others",
                ratio("shared/poll/read/p50_ns", "alone/poll/p50_ns"),
                Expect::AtLeast(1.05),
            ),
            Claim::new(
                "With a queue of its own a polled read is earlier than in a shared one",
                ratio("own/urgent/poll/p50_ns", "shared/poll/read/p50_ns"),
                Expect::AtMost(1.0),
            )
            .unless(
                "Both threads have one CPU here, since the software SSD needs the other: the \
                 writes' interrupts come in between.",
            ),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![Series::new(
                "median of the polled reads",
                [
                    Mark::new("alone", "alone/poll/p50_ns"),
                    Mark::new("shared queue", "shared/poll/read/p50_ns"),
                    Mark::new("own queue", "own/urgent/poll/p50_ns"),
                ],
            )],
        ),
    }
}

/// A thread of polled reads beside four that have many larger ones in flight.
const BULK: &str = "[global]\nfilename=DEVICE\nrw=randread\n[single]\nbs=512\nrate_iops=2000\n\
                    completion=poll\nSINGLE\n[bulk]\nbs=32k\niodepth=8\nnumjobs=4\ngroup_reporting=1\n\
                    completion=interrupt\nOTHERS\n";

fn priority() -> Experiment {
    const CLASSES: [(&str, &str, &str); 2] = [
        ("alike", "prioclass=2\nprio=4", "prioclass=2\nprio=4"),
        ("first", "prioclass=2\nprio=0", "prioclass=3"),
    ];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let points = [(512, 2_600), (4096, 4_700), (32768, 60_000)];
        let device = made_device(bench, "four-inside", &points, 4, 4)?;
        bench.bench("alone", &device, "poll", &READS)?;
        for (name, single, others) in CLASSES {
            let job = BULK.replace("DEVICE", &device);
            let job = job.replace("SINGLE", single).replace("OTHERS", others);
            let file = bench.file(&format!("priority-{name}.fio"), &job)?;
            bench.jobs(name, &file, &[])?;
        }
        Ok(())
    }
    Experiment {
        id: "vault17-priority",
        document: Document::Vault17,
        place: "open questions",
        title: "Priorities in the controller, and polling",
        question: "Does a polled read gain if the controller serves its queue first?",
        there: "Left open: NVMe controllers can serve queues by class (weighted round robin); how \
                that and polling go together was not measured.",
        here: "Polled 512 B reads, 2,000 a second, beside four threads that have eight 32 KiB \
               reads each in flight, on a software SSD that works on four commands at a time. \
               First all queues have the same class and take turns; then the single reads' queue \
               is of the high class, the others' of the low one.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Beside bulk reads of the same class a polled read is later than alone",
                ratio("alike/single/poll/p50_ns", "alone/poll/p50_ns"),
                Expect::AtLeast(1.05),
            ),
            Claim::new(
                "In a class of its own a polled read is earlier than in the bulk reads' class",
                ratio("first/single/poll/p50_ns", "alike/single/poll/p50_ns"),
                Expect::AtMost(0.95),
            )
            .unless(
                "All threads have one CPU here. Whether a thread has it decides more than the \
                 order in the controller.",
            ),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![Series::new(
                "median of the polled reads",
                [
                    Mark::new("alone", "alone/poll/p50_ns"),
                    Mark::new("one class", "alike/single/poll/p50_ns"),
                    Mark::new("high beside low", "first/single/poll/p50_ns"),
                ],
            )],
        ),
    }
}

fn interrupts() -> Experiment {
    const WAYS: [&str; 4] = ["interrupt", "poll", "hybrid", "adaptive"];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        bench.bench("i", &device, &WAYS.join(","), &READS)?;
        for way in WAYS {
            let (switches, ios) = (format!("i/{way}/switches_count"), format!("i/{way}/ios_count"));
            bench.add_ratio(format!("{way}/switches_per_read_count"), &switches, &ios);
        }
        Ok(())
    }
    let mark = |way: &str| Mark::new(way, format!("{way}/switches_per_read_count"));
    Experiment {
        id: "vault17-interrupts",
        document: Document::Vault17,
        place: "kernel implementation, open questions",
        title: "Interrupts that polling makes useless",
        question: "Does a thread that polls still pay for interrupts?",
        there: "The kernel's polling leaves interrupts on: each completion that polling has found \
                also interrupts the CPU, for nothing. The loop ends when the scheduler wants the \
                CPU. Not taking these interrupts was left open.",
        here: "Our driver polls queues that were made without an interrupt, so a device cannot \
               send one. Measured is how often the thread lost or gave up its CPU for each read.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "A read by interrupt switches the CPU about once",
                value("interrupt/switches_per_read_count"),
                Expect::AtLeast(0.9),
            ),
            Claim::new(
                "A polled read gives up the CPU less than once in 100 reads",
                value("poll/switches_per_read_count"),
                Expect::AtMost(0.01),
            ),
            Claim::new(
                "Hybrid polling still switches for its sleep",
                value("hybrid/switches_per_read_count"),
                Expect::AtLeast(0.5),
            )
            .unless(
                "The rule that sleeps half the mean does not sleep once the mean is below what a \
                 timer can do.",
            ),
        ],
        plot: Plot::Bars(Unit::Count, vec![Series::new("switches for each read", WAYS.map(mark))]),
    }
}
