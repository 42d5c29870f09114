//! Options and texts of `meantime anatomy`.

use clap::Args;

use super::{JsonPath, texts};

/// Options of `anatomy`.
#[derive(Debug, Args)]
pub(crate) struct AnatomyArgs {
    /// Devices to look at, e.g. mem:256M?model=fast12; several are compared
    #[arg(long, value_name = "URI[,URI…]", value_delimiter = ',', default_value = "mem:64M?model=optane", long_help = texts::DEVICE)]
    pub device: Vec<String>,
    /// Ways to wait to compare: interrupt, poll, adaptive, auto, hybrid=2us
    #[arg(long, value_name = "LIST", default_value = "interrupt,poll,hybrid,adaptive", long_help = COMPLETION)]
    pub completion: String,
    /// Direction and order: read, write, randread, randwrite
    #[arg(long, value_name = "KIND", default_value = "randread")]
    pub rw: String,
    /// Sizes of the I/Os to compare; k, m, g are powers of 1024
    #[arg(long, value_name = "BYTES[,BYTES…]", value_delimiter = ',', default_value = "4k")]
    pub bs: Vec<String>,
    /// How long to measure each bar, in seconds or e.g. 500ms; with a second program as long again
    /// [default: 2]
    #[arg(long, value_name = "TIME")]
    pub runtime: Option<String>,
    /// The second program on the same CPU: tsc, walk=BYTES or none
    #[arg(long, value_name = "KIND", default_value = "tsc", long_help = COMPETITOR)]
    pub competitor: String,
    /// The CPU to do I/O on, and to run the second program on [default: the first that is no
    /// software SSD's]
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// Write everything as JSON to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE", long_help = JSON)]
    pub json: Option<JsonPath>,
    /// Draw bars and distributions as an SVG picture to FILE, which is replaced as a whole at the
    /// end
    #[arg(long, value_name = "FILE")]
    pub svg: Option<JsonPath>,
}

/// Options of the second program, which `anatomy` starts by itself.
#[derive(Debug, Args)]
pub(crate) struct CompetitorArgs {
    /// Where to run.
    #[arg(long)]
    pub cpu: usize,
    /// What to do.
    #[arg(long)]
    pub kind: String,
    /// Who has started it.
    #[arg(long)]
    pub parent: i32,
}

/// `anatomy --help`, at the top.
pub(super) const ABOUT: &str = "\
Takes single I/Os apart: how long the host takes to submit one, how long its doorbell takes to be seen, how long the device works, how long the \
waiting thread takes to run again, to find the completion, and to finish. One I/O at a time is in flight.

The device's moments come from a software SSD, which takes time stamps of every command by the clock that the host reads. Another \
device is seen from the host only: there is one part from the doorbell to the completion.

Then the same again with a second program on the same CPU: what it gets of the time an I/O takes, and what the I/O costs the CPU.";

/// `anatomy --completion`.
const COMPLETION: &str = "\
Ways to wait to compare, separated by commas; see `meantime bench --help`, option --completion.";

/// `anatomy --competitor`.
const COMPETITOR: &str = "\
The second program, a process of its own on the same CPU:

  tsc         reads the time stamp counter, and nothing else
  walk=BYTES  walks and writes so much memory in random order, which empties the caches and the TLB for the I/O; e.g. walk=4m
  none        there is none

Either looks at the clock all the time: where two readings are far apart, it did not run.";

/// `anatomy --json`.
const JSON: &str = "\
Write everything as JSON to FILE, which is replaced as a whole at the end, or to standard output (-); the text then goes to \
standard error. Below, OUTPUT has the keys.";

/// `anatomy --help`, at the bottom.
pub(super) const AFTER: &str = "\
THE TIME LINE
  Of each I/O these parts, which add up to the whole, I/O by I/O:

    host submit            from the call of submit until the doorbell is rung, that is until every core sees the store; or until the \
device has seen it, if that is earlier (what the host does while the device is at work is not on the line)
    doorbell to SQE seen   until the device has found the doorbell moved
    queued in the device   until a unit of the device is free; shown if there is any
    service                until just before the completion entry (CQE) is written; never shorter than the model says. With model=null \
it is the software SSD's own work, by its general path: its quickest path takes no stamps
    wake                   until the waiting thread runs again, if it slept and the CQE was there before it ran
    CQE to seen            until the CQE is found
    host completion        until wait has returned

  Clocks are read with LFENCE around, so that nothing moves across a reading. A reading (20 to 30 ns; the report says) is part of what it bounds.

  The typical I/O is the mean of the middle half of I/Os by their total time: its parts add up, and a scheduler that takes the CPU away \
now and then does not show. Mean, ±1 SD and percentiles are those of all I/Os.

THE SECOND PROGRAM
  The times of \"When Poll is Better than Interrupt\" (FAST 2012), of typical I/Os:

    Td        the device is at work: from the doorbell to the CQE written
    Tu        what the second program really got while the I/O was under way
    Ta        total − Td: what does not overlap the device, before (Ta') and after (Ta'')
    Tb        Td − Tu: what of the device's time no program got. Below 0 where the second program runs on until the interrupt has reached the CPU
    Ta + Tb   total − Tu: what the I/O costs the CPU

  it runs: its part of the wall time, in the middle of an I/O or not. Its speed: work done per second against what it does with the CPU for itself, \
which is measured in every round.

OUTPUT
  Bars of typical I/Os on one scale, a table of the parts, host against device with who is to blame for the slowest 1 in 6,000, the distribution of \
the submission latency, and the second program's times. Devices, sizes and policies alternate in turns of a quarter of a second.

  JSON: bars[] with device, completion, bs_bytes, stamped; alone and competing, each with ios, wall_ns, typical (submit_ns, doorbell_ns, queue_ns, \
service_ns, wake_ns, cqe_seen_ns, complete_ns, total_ns), parts (submit, doorbell, queue, service, wake, cqe_seen, complete), total, host and device \
(each mean_ns, stddev_ns, min_ns, p50_ns, p99_ns, max_ns), submit_percentile_ns, slowest (ios, from_ns, mean_ns, host_ns, host_excess_percent: the host's \
part of what they took beyond the mean), overlapped_ios, contradicted_ios (the CPUs' clocks disagreed); fast12 (ta_ns, ta_before_ns, ta_after_ns, td_ns, \
tb_ns, tu_ns, ta_tb_ns, total_ns, share_percent, speed_percent). Beside bars: rw, cpu, clock_read_ns, competitor (kind, alone), interrupted, machine. What a \
device does not tell is null.

EXAMPLES
  Where the time of a 4 KiB random read goes:
    meantime anatomy

  FAST 2012's figure, with a picture:
    meantime anatomy --device 'mem:256M?model=fast12' --bs 512,4k --completion interrupt,poll --svg fast12.svg

  What interrupts cost a neighbour that needs its caches:
    meantime anatomy --device 'mem:256M?model=optane' --competitor walk=1m --json -

EXIT STATUS
  0    everything was measured
  1    an error (one line on standard error)
  2    the command line cannot be obeyed
  130  ended by Ctrl-C; what was measured until then was printed. A second one kills at once.";
