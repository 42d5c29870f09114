//! Keys for how a job waits, its CPUs, its competitors, and its priority.

use super::super::{HOGS_MAX, value};
use super::key::{Key, flag, key};
use super::kind::{By, FLAG, Field, Opt, field, int};

pub(super) const WAITING: &[Key] = &[
    key(
        "completion",
        field!(completion, Opt(By("a list such as interrupt,poll,hybrid", value::policies))),
        "Ways to wait to compare",
    )
    .means("`interrupt,poll,adaptive`"),
    flag("hipri", field!(hipri, FLAG), "The same as completion=poll"),
    key(
        "competitor",
        field!(
            competitor,
            By("tsc, walk=8m (a working set of so much) or none", value::competitor)
        ),
        "Have a second program want the same CPU: tsc (does nothing but read the clock), or \
         walk=8m (walks a working set of that size); shown is which share of its lone speed it \
         keeps",
    )
    .is("none")
    .listed("KIND"),
];

pub(super) const CPU: &[Key] = &[
    key(
        "cpus_allowed",
        field!(cpus_allowed, By("a list such as 0-1,3", value::cpus)),
        "CPUs for the job's threads, e.g. 0-1,3",
    )
    .means("all but the software SSDs'")
    .listed("LIST"),
    key(
        "hog",
        field!(hogs, int(0, HOGS_MAX as u64)),
        "Start this number of programs that only use the CPU, on the same one; shown is which \
         share of it they keep",
    )
    .is("0")
    .listed("N"),
    key(
        "sched",
        field!(
            scheds,
            By("a list of other, rr:N, fifo:N and slice:T, such as other,rr:1", value::scheds)
        ),
        "Scheduling classes of the job's threads to compare: other, rr:N, fifo:N (N from 1 to 99), \
         slice:T (e.g. slice:1ms)",
    )
    .means("as they are")
    .listed("LIST"),
    key(
        "pm_qos",
        field!(
            pm_qos_us,
            By("a list of times in microseconds and none, such as none,0", value::pm_qos_us)
        ),
        "Hold /dev/cpu_dma_latency at this number of microseconds, so that idle CPUs wake up in \
         time; a list, in which none is no limit, is compared; without a value 0",
    )
    .means("as it is")
    .alone("0")
    .listed("LIST"),
];

pub(super) const PRIORITY: &[Key] = &[
    key("prio", field!(prio, Opt(int(0, 7))), "Level of the threads' I/O priority; 0 is first"),
    key(
        "prioclass",
        field!(
            prioclass,
            Opt(By("0 (none), 1 (real time), 2 (best effort) or 3 (idle)", |text| {
                value::int(text, 0, 3).map(|class| class as u8)
            }))
        ),
        "Class of the threads' I/O priority",
    ),
];
