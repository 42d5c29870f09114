//! Allow block drivers to poll for I/O instead of sleeping.

use meantime_report::reproduction::Unit;
use serde_json::Value;

use crate::document::Document;
use crate::experiment::{
    Claim, Expect, Experiment, Leg, Mark, Plot, Series, difference, ratio, value,
};
use crate::runner::{Bench, RunError};

/// The experiments.
pub(super) fn experiments() -> Vec<Experiment> {
    vec![dd(), idle(), pm_qos(), buffered(), batch(), slice()]
}

const WAYS: [&str; 2] = ["interrupt", "poll"];

fn dd() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let args = ["--rw", "read", "--bs", "512"];
        bench.bench("ssd", &bench.device("fast12"), "interrupt,poll", &args)?;
        let file = bench.scratch("lkml13-dd.img");
        let disk = format!("kernel:{file}?create=64M&lba=512&engine=preadv2");
        bench.bench("disk", &disk, "interrupt", &args)?;
        match bench.bench("disk", &disk, "poll", &args) {
            Err(RunError::Failed { message, .. }) if message.contains("cannot wait by poll") => {
                bench.leave_out(format!("The kernel's own polling: {message}"));
                Ok(())
            }
            other => other,
        }
    }
    let mark = |name: &str, device: &str| Mark::new(name, format!("{device}/{name}/mean_ns"));
    Experiment {
        id: "lkml13-dd",
        document: Document::Lkml13,
        place: "RFC",
        title: "dd with blocks of 512 bytes",
        question: "How much sooner is a small direct read back if the caller polls instead of \
                   sleeping?",
        there: "`dd iflag=direct bs=512` on a prototype of an NVMe SSD (Chatham): 8.0 µs for each \
                read without the patch, 5.5 µs with it. Both ways go through the kernel's block \
                layer.",
        here: "512 B reads in order, one at a time, as dd does them. First by our driver, on a \
               software SSD with the times of such a prototype (FAST 2012's: 1.5 µs at 512 B). \
               Beside it by the kernel's driver, preadv2 with O_DIRECT on a file of this machine's \
               disk. These are two devices: each is compared with itself only.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Polling shortens a read at least as much as in the RFC",
                ratio("ssd/poll/mean_ns", "ssd/interrupt/mean_ns"),
                Expect::AtMostThere,
            )
            .there(ratio("dd/poll", "dd/interrupt")),
            Claim::new(
                "It saves at least the RFC's 2.5 µs for each read",
                difference("ssd/interrupt/mean_ns", "ssd/poll/mean_ns"),
                Expect::AtLeastThere,
            )
            .there(difference("dd/interrupt", "dd/poll"))
            .unless("A machine that goes idle and back in less than 2.5 µs has less to save."),
            Claim::new(
                "In the kernel, too, polling shortens a read",
                ratio("disk/poll/mean_ns", "disk/interrupt/mean_ns"),
                Expect::AtMost(1.0),
            )
            .there(ratio("dd/poll", "dd/interrupt"))
            .unless(
                "The kernel polls only on queues that a driver sets aside for it. A virtual disk \
                 has none as a rule. lkml13-guest-poll has the kernel's polling.",
            ),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![
                Series::new(
                    "software SSD, our driver",
                    WAYS.map(|way| mark(way, "ssd").there(format!("dd/{way}"))),
                ),
                Series::new("this disk, the kernel", WAYS.map(|way| mark(way, "disk"))),
            ],
        ),
    }
}

/// Times for which a CPU is idle before it is woken, in µs.
const IDLE: [(&str, u64); 3] = [("20 µs idle", 20), ("100 µs idle", 100), ("1 ms idle", 1000)];

/// Adds the medians of wake-ups, by the time that the CPU was idle.
fn add_wakes(bench: &mut Bench<'_>, rows: &Value, name: &str) {
    for row in rows.as_array().into_iter().flatten() {
        let (idle_us, ns) = (row["idle_us"].as_u64(), row["median_ns"].as_f64());
        if let Some((idle_us, ns)) = idle_us.zip(ns) {
            bench.add(format!("{name}/{idle_us}/p50_ns"), ns);
        }
    }
}

fn idle() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let report = bench.json(&["calibrate", "--quick"])?;
        add_wakes(bench, &report["futex_wake"], "futex");
        add_wakes(bench, &report["eventfd_wake"], "eventfd");
        if let Some(ns) = bench.last("futex/20/p50_ns") {
            // From idle to the thread, and back.
            bench.add("switches_per_second", 2e9 / ns);
        }
        Ok(())
    }
    let series = |(title, us): (&str, u64)| {
        let futex = Mark::new("futex", format!("futex/{us}/p50_ns"));
        let eventfd = Mark::new("eventfd", format!("eventfd/{us}/p50_ns"));
        Series::new(title, [futex, eventfd].map(|mark| mark.there("reply/idle-and-back")))
    };
    Experiment {
        id: "lkml13-idle",
        document: Document::Lkml13,
        place: "reply",
        title: "Going idle and coming back",
        question: "How long does a CPU that went idle need until a thread runs on it again?",
        there: "Inferred, not measured: a Xeon at 3.4 GHz does 2 M context switches per second, so \
                that going idle and coming back must take less than 1 µs. A saving of 2.5 µs would \
                then be the exit from a deep idle state.",
        here: "Measured: a thread sleeps on a futex, or on an eventfd (the form that an interrupt \
               has here), while its CPU is idle. A thread on another CPU wakes it. Shown is the \
               time from the wake-up call until the sleeper runs, as medians (`meantime \
               calibrate`). Two switches belong to each: to the thread, and back to idle. The rate \
               of switches is computed from that.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "After 20 µs of idleness a thread runs again in less than 1 µs",
                value("futex/20/p50_ns"),
                Expect::AtMostThere,
            )
            .there(value("reply/idle-and-back"))
            .unless(
                "An idle CPU of a virtual machine is halted by the hypervisor, and an interrupt \
                 from another CPU goes through it, too.",
            ),
            Claim::new(
                "The longer a CPU was idle, the longer it takes to come back",
                ratio("futex/1000/p50_ns", "futex/20/p50_ns"),
                Expect::AtLeast(1.1),
            )
            .ours()
            .unless("A machine whose idle states are switched off comes back in the same time."),
        ],
        plot: Plot::Bars(Unit::Time, IDLE.map(series).to_vec()),
    }
}

/// Pauses before each read.
const PAUSES: [(&str, &str, &[&str]); 2] =
    [("reads in turn", "dd", &[]), ("1 ms between reads", "pause", &["--thinktime", "1ms"])];

fn pm_qos() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let report = bench.json(&["calibrate", "--quick"])?;
        add_wakes(bench, &report["eventfd_wake"], "wake/free");
        add_wakes(bench, &report["pm_qos"]["eventfd_wake"], "wake/held");
        if report["pm_qos"]["held"].as_bool() != Some(true) {
            let why = report["pm_qos"]["refused"].as_str().unwrap_or("it cannot be held");
            bench.leave_out(format!("PM QoS at 0: {why}"));
            return Ok(());
        }
        let device = bench.device("fast12");
        for (_, name, pause) in PAUSES {
            let args = [&["--rw", "read", "--bs", "512", "--pm-qos=none,0"], pause].concat();
            bench.bench(name, &device, "interrupt,poll", &args)?;
            let of = |key: &str| bench.last(&format!("{name}/{key}/p50_ns"));
            if let Some((free, poll)) = of("interrupt/none").zip(of("poll/none")) {
                let held = of("interrupt/0").unwrap_or(free);
                let share = (free - held) / (free - poll) * 100.0;
                bench.add(format!("{name}/idle_state_percent"), share);
            }
        }
        Ok(())
    }
    let wake = |title: &str, name: &str| {
        let mark = |(title, limit)| Mark::new(title, format!("wake/{limit}/{name}/p50_ns"));
        Series::new(title, [("as it is", "free"), ("PM QoS 0", "held")].map(mark))
    };
    let read = |(title, name, _): (&str, &str, _)| {
        let marks = [
            ("as it is", "interrupt/none"),
            ("PM QoS 0", "interrupt/0"),
            ("poll, as it is", "poll/none"),
        ];
        let mark = |(title, way)| Mark::new(title, format!("{name}/{way}/p50_ns"));
        Series::new(title, marks.map(mark))
    };
    Experiment {
        id: "lkml13-pm-qos",
        document: Document::Lkml13,
        place: "reply",
        title: "Polling, or a lower PM QoS value",
        question: "Is what polling saves mostly the exit from an idle state, so that a PM QoS \
                   limit would do as well?",
        there: "Asked in the reply; the thread holds no answer and no number. The RFC's 2.5 µs are \
                more than a switch to idle and back takes, so that a lower PM QoS value or a \
                better idle governor might save most of it.",
        here: "PM QoS at 0 (/dev/cpu_dma_latency) forbids every idle state that takes time to \
               leave. With and without it, in turns: wake-ups by an eventfd on a CPU that was idle \
               for 20 µs and 1 ms, and 512 B reads on a software SSD by interrupt and by polling, \
               one after the other or 1 ms apart. All figures are medians.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Half or more of what polling saves is the idle state: PM QoS at 0 brings a read \
                 by interrupt half of the way to polling",
                value("dd/idle_state_percent"),
                Expect::AtLeast(50.0),
            )
            .unless(
                "Reads in turn leave the CPU idle for a few microseconds only, too short for a \
                 deep state. What polling saves then is the way through the scheduler and, on a \
                 virtual machine, the hypervisor.",
            ),
            Claim::new(
                "With 1 ms of idleness before each read, PM QoS at 0 makes a read by interrupt \
                 quicker",
                ratio("pause/interrupt/0/p50_ns", "pause/interrupt/none/p50_ns"),
                Expect::AtMost(0.95),
            )
            .unless(
                "The CPU may not have been in a deep state: the governor chose a shallow one, or \
                 the hypervisor chooses.",
            ),
            Claim::new(
                "Polling is quicker than an interrupt under PM QoS at 0",
                ratio("dd/poll/none/p50_ns", "dd/interrupt/0/p50_ns"),
                Expect::AtMost(1.0),
            ),
        ],
        plot: Plot::Bars(
            Unit::Time,
            [wake("wake, 20 µs idle", "20"), wake("wake, 1 ms idle", "1000")]
                .into_iter()
                .chain(PAUSES.map(read))
                .collect(),
        ),
    }
}

/// Reads of a file: their name, and how they are done. The file is 16 MiB.
const READS: [(&str, &str, &[&str]); 3] = [
    ("direct", "direct", &["--direct=1"]),
    ("buffered, not cached", "missed", &["--direct=0", "--cache", "1m"]),
    ("buffered, cached", "cached", &["--direct=0", "--cache", "64m", "--size", "256k"]),
];

fn buffered() -> Experiment {
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let text = "Every I/O opens a gap.\n".repeat((16 << 20) / 23);
        let data = bench.file("lkml13-data", &text)?;
        let image = bench.scratch("lkml13-ext4.img");
        bench.text(&["fs", "mkfs", "--force", &format!("file:{image}?create=64M")])?;
        bench.text(&["fs", "put", &data, &format!("file:{image}:/data")])?;
        let file = format!("file:{image}?model=fast12:/data");
        for (_, name, how) in READS {
            let args = [&["--rw", "randread", "--bs", "4k"], how].concat();
            bench.bench(name, &file, "interrupt,poll", &args)?;
        }
        Ok(())
    }
    let series = |(title, name, _): (&str, &str, _)| {
        Series::new(title, WAYS.map(|way| Mark::new(way, format!("{name}/{way}/p50_ns"))))
    };
    let of = |name: &str| ratio(format!("{name}/poll/p50_ns"), format!("{name}/interrupt/p50_ns"));
    Experiment {
        id: "lkml13-buffered",
        document: Document::Lkml13,
        place: "RFC",
        title: "Polling where one would sleep",
        question: "Do buffered reads of a file gain from polling as direct ones do?",
        there: "The poll is in `io_wait`, where any caller would otherwise go to sleep. Buffered \
                reads come by there as direct reads do; a read that the page cache answers does \
                not.",
        here: "4 KiB random reads of a 16 MiB file in ext4 by our file layer, on a software SSD: \
               past its page cache, through a cache of 1 MiB in which nearly nothing is found, and \
               through one that holds all of the part that is read. Shown are medians.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new("A direct read is faster by polling", of("direct"), Expect::AtMost(0.9)),
            Claim::new(
                "So is a buffered read that the cache does not have",
                of("missed"),
                Expect::AtMost(0.9),
            )
            .ours(),
            Claim::new(
                "A read from the cache does not wait, and takes the same time either way",
                of("cached"),
                Expect::Within(0.8, 1.25),
            )
            .ours(),
        ],
        plot: Plot::Bars(Unit::Time, READS.map(series).to_vec()),
    }
}

fn batch() -> Experiment {
    const COUNTS: [&str; 3] = ["1", "4", "8"];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("fast12");
        for count in COUNTS {
            let depth = ["--iodepth", count, "--iodepth_batch", count];
            let wait = ["--iodepth_batch_complete_min", count];
            let args = [&["--rw", "randread", "--bs", "512"][..], &depth, &wait].concat();
            bench.bench(count, &device, "interrupt,poll", &args)?;
            for way in WAYS {
                let of = |key: &str| bench.last(&format!("{count}/{way}/{key}"));
                if let Some((rate, cpu)) = of("rate_iops").zip(of("cpu_percent")) {
                    bench.add(format!("{count}/{way}/each_mean_ns"), 1e9 / rate);
                    bench.add(format!("{count}/{way}/cost_mean_ns"), cpu / 100.0 * 1e9 / rate);
                }
            }
        }
        Ok(())
    }
    let line = |title: &str, way: &str, key: &str| {
        let mark = |count| Mark::new(count, format!("{count}/{way}/{key}_mean_ns"));
        Series::new(title, COUNTS.map(mark))
    };
    let eight = |way: &str, key: &str| {
        ratio(format!("8/{way}/{key}_mean_ns"), format!("1/{way}/{key}_mean_ns"))
    };
    Experiment {
        id: "lkml13-batch",
        document: Document::Lkml13,
        place: "RFC",
        title: "Several I/Os before one wait",
        question: "What does an I/O cost if several are submitted before the caller waits once?",
        there: "The caller waits in `io_wait` after it has submitted what it has to submit, so \
                that one wait, and one poll, is for several I/Os. There is no figure.",
        here: "512 B random reads: 1, 4 or 8 are submitted at once, and the next ones when all of \
               them are done. Shown are the time of an I/O (the time of a round, over the number \
               of its I/Os), and the CPU that it costs its thread.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "By interrupt an I/O of eight takes half the time of a single one at most",
                eight("interrupt", "each"),
                Expect::AtMost(0.5),
            ),
            Claim::new(
                "By interrupt an I/O of eight costs half the CPU of a single one at most",
                eight("interrupt", "cost"),
                Expect::AtMost(0.5),
            ),
            Claim::new(
                "By polling, too, an I/O of eight costs less CPU",
                eight("poll", "cost"),
                Expect::AtMost(0.8),
            ),
        ],
        plot: Plot::Lines(
            Unit::Time,
            "I/Os submitted before one wait",
            true,
            vec![
                line("interrupt, time", "interrupt", "each"),
                line("interrupt, CPU", "interrupt", "cost"),
                line("poll, time", "poll", "each"),
                line("poll, CPU", "poll", "cost"),
            ],
        ),
    }
}

fn slice() -> Experiment {
    /// How much longer each read takes, in ms and for the fault plan.
    const STALLS: [(&str, &str); 4] =
        [("0.2", "200us"), ("1", "1ms"), ("3", "3ms"), ("10", "10ms")];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        for (name, by) in STALLS {
            let plan = format!(
                "[[fault]]\nfault = \"late-completion\"\nby = \"{by}\"\nopcode = \"read\"\n"
            );
            let plan = bench.file(&format!("lkml13-{by}.toml"), &plan)?;
            let device = format!("mem:256M?model=fast12&faults={plan}");
            let args = ["--rw", "randread", "--bs", "512"];
            bench.bench(name, &device, "interrupt,poll", &args)?;
        }
        Ok(())
    }
    let line = |way: &'static str| {
        let mark = |(ms, _)| Mark::new(ms, format!("{ms}/{way}/cpu_percent"));
        Series::new(way, STALLS.map(mark))
    };
    Experiment {
        id: "lkml13-slice",
        document: Document::Lkml13,
        place: "RFC",
        title: "Back to sleep after a slice",
        question: "Does a poller stop burning CPU when the device takes unusually long?",
        there: "Polling ends when the driver cannot poll, or when the task has used up its time \
                slice. The task then sleeps until the interrupt, as without the patch.",
        here: "512 B random reads on a software SSD that delays every completion by 0.2 to 10 ms \
               (by fault injection). Our slice is a budget for each wait: it polls for 1 ms, then \
               sleeps until the interrupt.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Within its slice a poller uses its CPU: three quarters or more at 0.2 ms",
                value("0.2/poll/cpu_percent"),
                Expect::AtLeast(75.0),
            )
            .unless("Other programs had the CPU."),
            Claim::new(
                "Behind a device that takes 10 ms a poller uses less than a fifth of its CPU",
                value("10/poll/cpu_percent"),
                Expect::AtMost(20.0),
            ),
            Claim::new(
                "Behind it the median read takes as long by polling as by interrupt",
                ratio("10/poll/p50_ns", "10/interrupt/p50_ns"),
                Expect::Within(0.9, 1.1),
            )
            .ours(),
        ],
        plot: Plot::Lines(
            Unit::Percent,
            "delay of each completion, ms",
            true,
            WAYS.map(line).to_vec(),
        ),
    }
}
