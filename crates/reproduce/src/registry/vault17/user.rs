//! The driver in user space.

use meantime_report::reproduction::Unit;

use super::{READS, add_cost};
use crate::document::Document;
use crate::experiment::{
    Claim, Expect, Experiment, Leg, Mark, Plot, Series, difference, ratio, value,
};
use crate::runner::{Bench, RunError};

pub(super) fn experiments() -> Vec<Experiment> {
    vec![driver(), tail(), per_io(), short_path()]
}

fn driver() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        bench.bench("user", &device, "interrupt,poll", &READS)?;
        for way in ["interrupt", "poll"] {
            add_cost(bench, &format!("user/{way}"));
        }
        let file = bench.scratch("vault17.img");
        let kernel = format!("kernel:{file}?create=64M");
        bench.bench("kernel", &kernel, "interrupt", &READS)?;
        add_cost(bench, "kernel/interrupt");
        bench.input(
            "The kernel's reads are of a file on this machine's disk, which has times of its own: \
             only their CPU time is compared",
        );
        Ok(())
    }
    let mark = |name: &str, of: &str| Mark::new(name, format!("{of}/mean_ns"));
    Experiment {
        id: "vault17-user",
        document: Document::Vault17,
        place: "user-level driver",
        title: "A driver in user space",
        question: "What is left of a read's time if the kernel is not on its way?",
        there: "A driver in user space that polls takes 3.16 µs: 47 % less than the kernel by \
                interrupt, 30 % less than the kernel by polling. It keeps a CPU busy.",
        here: "Our user-space driver on a software SSD with the talk's device times, and the \
               kernel's io_uring on a file of this machine's disk. The virtual disk cannot be \
               polled; the kernel's polling is measured in a virtual machine of our own, in \
               another experiment.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "A polled read in user space takes at most the talk's 3.16 µs",
                value("user/poll/mean_ns"),
                Expect::AtMostThere,
            )
            .there(value("latency/user"))
            .unless("The hypervisor's interruptions are in the mean."),
            Claim::new(
                "In our driver polling takes at least 47 % less than the interrupt (the talk: than \
                 the kernel's, see vault17-guest-user)",
                ratio("user/poll/mean_ns", "user/interrupt/mean_ns"),
                Expect::AtMostThere,
            )
            .ours()
            .there(ratio("latency/user", "latency/interrupt")),
            Claim::new(
                "Polling in user space keeps the CPU busy",
                value("user/poll/cpu_percent"),
                Expect::AtLeast(95.0),
            )
            .there(value("cpu/user")),
            Claim::new(
                "Polling in user space spends more CPU on a read than the kernel by interrupt",
                ratio("user/poll/cost_mean_ns", "kernel/interrupt/cost_mean_ns"),
                Expect::AtLeast(1.0),
            )
            .unless(
                "Each read of a virtual disk leaves the virtual machine, which takes longer than \
                 the whole polled read.",
            ),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![
                Series::new(
                    "latency, user space",
                    [
                        mark("poll", "user/poll").there("latency/user"),
                        mark("interrupt", "user/interrupt"),
                    ],
                ),
                Series::new(
                    "CPU time of a read",
                    [
                        Mark::new("user space, poll", "user/poll/cost_mean_ns"),
                        Mark::new("user space, interrupt", "user/interrupt/cost_mean_ns"),
                        Mark::new("kernel, interrupt", "kernel/interrupt/cost_mean_ns"),
                    ],
                ),
            ],
        ),
    }
}

fn tail() -> Experiment {
    const WAYS: [&str; 3] = ["poll", "adaptive", "auto"];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        bench.bench("alone", &device, "poll", &READS)?;
        let args = [&READS[..], &["--hog", "1"]].concat();
        bench.bench("hog", &device, &WAYS.join(","), &args)
    }
    let mut curves = vec![("poll, alone".to_owned(), "alone/poll".to_owned())];
    curves.extend(WAYS.map(|way| (format!("{way}, loaded"), format!("hog/{way}/1"))));
    Experiment {
        id: "vault17-user-tail",
        document: Document::Vault17,
        place: "user-level driver",
        title: "The tail of a driver in user space",
        question: "Does polling in user space have the same late reads beside other programs?",
        there: "It does: to the scheduler a process that polls is a CPU hog, wherever it polls. \
                The talk proposes that a driver in user space choose between polling and sleeping \
                for each I/O.",
        here: "512 B reads with the talk's device times beside a program that only computes, on \
               the same CPU. `auto` is our driver's choice among interrupt, `adaptive` and polling; \
               it sleeps more when others want the CPU.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "In user space, too, 1 polled read in 6,000 takes longer than 1 ms",
                value("hog/poll/1/tail_ns"),
                Expect::AtLeast(1e6),
            ),
            Claim::new(
                "Most polled reads are as quick beside a program as alone",
                ratio("hog/poll/1/p50_ns", "alone/poll/p50_ns"),
                Expect::AtMost(1.1),
            ),
            Claim::new(
                "A driver that sees that others want the CPU has a shorter tail",
                ratio("hog/auto/1/p999_ns", "hog/poll/1/tail_ns"),
                Expect::AtMost(1.0),
            )
            .ours()
            .unless("A short run may end before `auto` has seen the other program."),
        ],
        plot: Plot::Exceedance(curves),
    }
}

/// Small reads that are polled beside large reads that wait in the way of `LARGE`.
const PER_IO: &str = "[global]\nfilename=DEVICE\nrw=randread\n[small]\nbs=512\nrate_iops=2000\n\
                      completion=poll\n[large]\nbs=128k\ncompletion=LARGE\n";

fn per_io() -> Experiment {
    const LARGE: [&str; 4] = ["poll", "hybrid", "adaptive", "interrupt"];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        for large in LARGE {
            let job = PER_IO.replace("DEVICE", &device).replace("LARGE", large);
            let file = bench.file(&format!("per-io-{large}.fio"), &job)?;
            bench.jobs(large, &file, &[])?;
        }
        Ok(())
    }
    let small = LARGE.map(|large| Mark::new(large, format!("{large}/small/poll/mean_ns")));
    let large = LARGE.map(|large| Mark::new(large, format!("{large}/large/{large}/mean_ns")));
    Experiment {
        id: "vault17-user-hybrid",
        document: Document::Vault17,
        place: "user-level driver",
        title: "Hybrid polling for some of the I/Os",
        question: "What does it gain if a driver in user space polls for short I/Os, and sleeps \
                   for long ones?",
        there: "Proposed only: a driver in user space knows what it asks for, and can choose the \
                way to wait for each I/O.",
        here: "Two threads on one CPU: one reads 512 B 2,000 times a second and polls, the other \
               reads 128 KiB, which take 78 µs, one after the other. The second waits in each of \
               four ways.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "The small reads are quicker if the large ones sleep first than if they poll, too",
                ratio("hybrid/small/poll/mean_ns", "poll/small/poll/mean_ns"),
                Expect::AtMost(1.0),
            )
            .unless(
                "Both threads share a CPU. What the large reads leave is theirs to sleep, too: the \
                 small reads' thread is interrupted when each of these sleeps ends.",
            ),
            Claim::new(
                "Large reads that sleep first use less CPU than large reads that poll",
                ratio("hybrid/large/hybrid/cpu_percent", "poll/large/poll/cpu_percent"),
                Expect::AtMost(0.9),
            ),
            Claim::new(
                "Large reads that sleep first are quicker than by interrupt",
                ratio("hybrid/large/hybrid/mean_ns", "interrupt/large/interrupt/mean_ns"),
                Expect::AtMost(1.0),
            ),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![
                Series::new("512 B, polled", small),
                Series::new("128 KiB, waiting as in the legend", large),
            ],
        ),
    }
}

fn short_path() -> Experiment {
    const SIZES: [(&str, u64); 5] =
        [("0.5", 512), ("4", 4096), ("8", 8192), ("16", 16384), ("64", 65536)];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        let args = ["--bs", "512,4k,8k,16k,64k", "--competitor", "none"];
        bench.anatomy("a", &device, "poll", &args)?;
        for (_, bytes) in SIZES {
            let of = |key: &str| bench.last(&format!("a/poll/{bytes}/typical_{key}_ns"));
            if let Some((submit, complete)) = of("submit").zip(of("complete")) {
                bench.add(format!("{bytes}/software_ns"), submit + complete);
            }
        }
        Ok(())
    }
    let mark = |(kib, bytes): (&str, u64)| Mark::new(kib, format!("{bytes}/software_ns"));
    Experiment {
        id: "vault17-short-path",
        document: Document::Vault17,
        place: "Linux 4.10 against 4.9",
        title: "A short path for short I/Os",
        question: "What does a path of its own gain for I/Os that need none of the general one?",
        there: "Linux 4.10 has a short path for direct I/O of at most 16 KiB, whose pages it notes \
                on the stack: a read takes 0.3 µs less than on Linux 4.9.",
        here: "Our driver has such a path for what the command itself can name, two pages; a \
               longer transfer needs a list of pages in memory. Shown is the software's part of a \
               polled read, before the doorbell and after the completion (`meantime anatomy`).",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "A read on the short path, 4 KiB, has less software than one of 64 KiB",
                ratio("4096/software_ns", "65536/software_ns"),
                Expect::AtMost(1.0),
            )
            .ours(),
            Claim::new(
                "The short path gains at least 0.3 µs",
                difference("65536/software_ns", "4096/software_ns"),
                Expect::AtLeastThere,
            )
            .there(value("short-path/gain"))
            .unless(
                "The whole software of a read takes less here than what Linux 4.10 gained: there \
                 is no 0.3 µs to save.",
            ),
            Claim::new(
                "All of our software for a 4 KiB read takes less than what Linux 4.10 gained",
                value("4096/software_ns"),
                Expect::AtMostThere,
            )
            .ours()
            .there(value("short-path/gain")),
        ],
        plot: Plot::Lines(
            Unit::Time,
            "size of the read, KiB",
            true,
            vec![Series::new("software of a polled read", SIZES.map(mark))],
        ),
    }
}
