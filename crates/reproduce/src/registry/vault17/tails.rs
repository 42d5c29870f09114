//! The slowest I/Os, with and without programs that want the same CPU.

use meantime_report::reproduction::Unit;

use super::READS;
use crate::document::Document;
use crate::experiment::{Claim, Expect, Experiment, Leg, Mark, Plot, Series, ratio, value};
use crate::runner::{Bench, RunError};

pub(super) fn experiments() -> Vec<Experiment> {
    vec![idle(), loaded(), scheduler()]
}

/// How many times the usual time the cells have: 1 I/O in 6,000 must be one of several.
const LONGER: f64 = 4.0;

/// Adds 1 in how many I/Os polling is the later way, `NAME_count`: where the curve of the polled
/// I/Os first lies above that of the interrupt-driven ones. If it never does, all that there were
/// of either.
fn add_crossing(bench: &mut Bench<'_>, name: &str, poll: &str, interrupt: &str) {
    let count = |way: &str| bench.last(&format!("{way}/ios_count"));
    let fewer = count(poll).zip(count(interrupt)).map(|(poll, other)| poll.min(other));
    let curves = bench.curve(poll).zip(bench.curve(interrupt));
    let Some((fewer, (poll, interrupt))) = fewer.zip(curves) else { return };
    let share = |curve: &[(f64, f64)], time: f64| {
        let before = curve.iter().take_while(|(ns, _)| *ns <= time).last();
        let end = curve.last().is_some_and(|(ns, _)| time > *ns * 1.03);
        before.map_or(1.0, |(_, share)| if end { 0.0 } else { *share })
    };
    let later = |(ns, _): &&(f64, f64)| share(poll, *ns) > share(interrupt, *ns);
    let crossing = poll.iter().find(later).map(|(_, share)| 1.0 / share);
    if crossing.is_none_or(|crossing| crossing >= fewer) {
        bench.leave_out("The curves do not cross: 1 in N is one of all reads that there were.");
    }
    bench.add(format!("{name}_count"), crossing.unwrap_or(fewer).min(fewer));
}

fn idle() -> Experiment {
    const WAYS: [&str; 4] = ["interrupt", "poll", "hybrid", "adaptive"];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        bench.take_longer(LONGER);
        bench.bench("t", &device, &WAYS.join(","), &READS)?;
        add_crossing(bench, "later_one_in", "t/poll", "t/interrupt");
        Ok(())
    }
    Experiment {
        id: "vault17-tail-idle",
        document: Document::Vault17,
        place: "exceedance plots",
        title: "The slowest reads on an idle machine",
        question: "Is a polled read faster even among the slowest few?",
        there: "On an idle machine about 1 polled read in 6,000 is later than the read by \
                interrupt of the same rank: the scheduler sees a CPU hog and now and then runs \
                something else.",
        here: "512 B reads with the talk's device times, and nothing else on the CPU: the share of \
               reads that took longer than a time. Where the curve of polling crosses that of the \
               interrupt, polling becomes the later way.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "Of 100 reads the slowest is quicker by polling",
                ratio("t/poll/p99_ns", "t/interrupt/p99_ns"),
                Expect::AtMost(1.0),
            ),
            Claim::new(
                "At most 1 polled read in 6,000 is later than by interrupt",
                value("later_one_in_count"),
                Expect::AtLeastThere,
            )
            .there(value("tail/one-in-idle"))
            .unless(
                "The hypervisor takes the CPU away at times. A thread that polls has many more \
                 reads in the same time, but is also always there to be hit.",
            ),
            Claim::new(
                "The slowest 1 in 6,000 is later by polling",
                ratio("t/poll/tail_ns", "t/interrupt/tail_ns"),
                Expect::AtLeast(1.0),
            )
            .unless(
                "Nothing else wants this CPU, and by interrupt the hypervisor adds a tail of its \
                 own.",
            ),
        ],
        plot: Plot::Exceedance(WAYS.map(|way| (way.to_owned(), format!("t/{way}"))).to_vec()),
    }
}

fn loaded() -> Experiment {
    const WAYS: [&str; 4] = ["interrupt", "poll", "hybrid", "adaptive"];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        bench.take_longer(LONGER);
        bench.bench("idle", &device, "poll", &READS)?;
        let args = [&READS[..], &["--hog", "1"]].concat();
        bench.bench("hog", &device, &WAYS.join(","), &args)?;
        add_crossing(bench, "later_one_in", "hog/poll/1", "hog/interrupt/1");
        Ok(())
    }
    let mut curves = vec![("poll, alone".to_owned(), "idle/poll".to_owned())];
    curves.extend(WAYS.map(|way| (format!("{way}, loaded"), format!("hog/{way}/1"))));
    Experiment {
        id: "vault17-tail-loaded",
        document: Document::Vault17,
        place: "exceedance plots",
        title: "The slowest reads beside a program that computes",
        question: "What becomes of the slowest reads when other programs want the CPU, too?",
        there: "With CPU-bound programs on the CPUs 1 polled read in 5,000 is very late: polling \
                uses up its time slice, and the scheduler gives the CPU to somebody else in the \
                middle of a read. Interrupts do not suffer so, and hybrid polling does not, \
                because a thread that sleeps is preferred when it wakes up.",
        here: "512 B reads with the talk's device times beside one program that only computes, on \
               the same CPU. Polling by itself is there to compare with.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "At least 1 polled read in 5,000 is later than by interrupt",
                value("later_one_in_count"),
                Expect::AtMostThere,
            )
            .there(value("tail/one-in-loaded"))
            .unless(
                "By interrupt reads are late as well: newer kernels (EEVDF, since Linux 6.6) do \
                 not always prefer a thread that wakes up.",
            ),
            Claim::new(
                "The slowest polled read in 6,000 loses the CPU: it takes longer than 1 ms",
                value("hog/poll/1/tail_ns"),
                Expect::AtLeast(1e6),
            ),
            Claim::new(
                "The slowest polled read in 6,000 is later beside a program than alone",
                ratio("hog/poll/1/tail_ns", "idle/poll/tail_ns"),
                Expect::AtLeast(1.0),
            ),
            Claim::new(
                "By interrupt the slowest read in 1,000 is below 1 ms, beside a program",
                value("hog/interrupt/1/p999_ns"),
                Expect::AtMost(1e6),
            )
            .unless(
                "The scheduler of newer kernels (EEVDF, since Linux 6.6) does not always prefer a \
                 thread that wakes up: it may wait for the end of the other's time slice.",
            ),
            Claim::new(
                "Hybrid polling needs no cure: its slowest read in 1,000 is below 1 ms",
                value("hog/hybrid/1/p999_ns"),
                Expect::AtMost(1e6),
            )
            .unless(
                "It sleeps, but then polls: beside another program it is a hog for part of the \
                 time, and may wait for the end of the other's time slice.",
            ),
        ],
        plot: Plot::Exceedance(curves),
    }
}

fn scheduler() -> Experiment {
    const CLASSES: [(&str, &str); 3] =
        [("as usual", "other"), ("SCHED_RR", "rr:1"), ("slice of 100 µs", "slice:100us")];
    fn measure(bench: &mut Bench<'_>) -> Result<(), RunError> {
        let device = bench.device("dram-nvme");
        bench.take_longer(LONGER);
        for (name, class) in CLASSES {
            let args = [&READS[..], &["--hog", "1", "--sched", class]].concat();
            match bench.bench("s", &device, "interrupt,poll,hybrid", &args) {
                // Not everybody may have a real-time class.
                Err(RunError::Failed { message, .. }) if class != "other" => {
                    bench.leave_out(format!("{name}: {message}"));
                }
                other => other?,
            }
        }
        Ok(())
    }
    let tail = |way: &str, class: &str| format!("s/{way}/{class}/1/tail_ns");
    let series = |way: &'static str| {
        let mark = |(name, class): (&str, &str)| Mark::new(name, tail(way, class));
        Series::new(way, CLASSES.map(mark))
    };
    Experiment {
        id: "vault17-tail-sched",
        document: Document::Vault17,
        place: "exceedance plots, open questions",
        title: "What the scheduler can do about it",
        question: "Does a real-time class cure the late reads of a thread that polls?",
        there: "With SCHED_RR a polling thread keeps its CPU, and its tail is again that of an \
                idle machine; hybrid polling needs no cure. Left open: a scheduler that knows about \
                polling.",
        here: "The same reads beside one program on the same CPU, in three scheduling classes: the \
               usual one; SCHED_RR; and the usual one with a time slice of 100 µs, by which a \
               thread can ask the scheduler of newer kernels for short turns. Shown is the slowest \
               read in 6,000.",
        leg: Leg::Machine,
        measure,
        claims: vec![
            Claim::new(
                "With SCHED_RR the slowest polled read in 6,000 takes at most a tenth of the time",
                ratio(tail("poll", "rr:1"), tail("poll", "other")),
                Expect::AtMost(0.1),
            )
            .unless(
                "The kernel takes 5 % of the CPU away from real-time classes for the others, and \
                 the hypervisor takes it from all.",
            ),
            Claim::new(
                "With SCHED_RR the slowest polled read in 6,000 is below 1 ms",
                value(tail("poll", "rr:1")),
                Expect::AtMost(1e6),
            )
            .unless("The hypervisor takes the CPU from all classes alike."),
            Claim::new(
                "Without SCHED_RR the slowest read in 1,000 is sooner back by hybrid polling",
                // (By hybrid polling there are too few reads beside a program for 1 in 6,000.)
                ratio("s/hybrid/other/1/p999_ns", "s/poll/other/1/p999_ns"),
                Expect::AtMost(1.0),
            )
            .ours()
            .unless(
                "Newer kernels (EEVDF, since Linux 6.6) do not always prefer a thread that wakes \
                 up: each sleep may last until the end of the other's time slice. A polling \
                 thread loses the CPU once a slice, which is one of many more than 1,000 reads.",
            ),
            Claim::new(
                "A shorter time slice makes the late polled reads less late",
                ratio(tail("poll", "slice:100us"), tail("poll", "other")),
                Expect::AtMost(0.9),
            )
            .ours()
            .unless(
                "The slice bounds how long this thread runs, not how long the other one does once \
                 it has its turn.",
            ),
        ],
        plot: Plot::Bars(Unit::Time, ["interrupt", "poll", "hybrid"].map(series).to_vec()),
    }
}
