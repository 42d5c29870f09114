//! Options and texts of `meantime waits`.

use std::path::PathBuf;

use clap::Args;

use super::{HtmlPath, JsonPath};

/// Options of `waits`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitsArgs {
    /// Ways to wait to compare [default:
    /// interrupt,poll,hybrid,hybrid-bucket,hybrid-min,ehp,pas,dpas,adaptive,auto]
    #[arg(long, value_name = "LIST", long_help = POLICIES)]
    pub policies: Option<String>,
    /// Device times, in µs or e.g. 500ns [default: 2,4.1,7.3,10,20,50,100]
    #[arg(long, value_name = "LIST", long_help = TIMES)]
    pub times: Option<String>,
    /// Shapes: constant, lognormal, bimodal, programs, sizes, depth4, mix7030 [default: all]
    #[arg(long, value_name = "LIST", long_help = SHAPES)]
    pub shapes: Option<String>,
    /// Only cells whose names contain one of these words, e.g. 10us-,sizes
    #[arg(long, value_name = "WORD[,WORD…]")]
    pub filter: Option<String>,
    /// How long to measure each way to wait in each cell, in seconds or e.g. 500ms [default: 1]
    #[arg(long, value_name = "TIME")]
    pub runtime: Option<String>,
    /// Three device times, three shapes, four ways to wait, a quarter of a second each: half a
    /// minute
    #[arg(long, long_help = QUICK)]
    pub quick: bool,
    /// A second, short pass with a program that competes for the CPU: tsc or walk=BYTES
    #[arg(long, value_name = "KIND", num_args = 0..=1, default_missing_value = "tsc", long_help = COMPETITOR)]
    pub competitor: Option<String>,
    /// Measure nothing; simulate, with the wake costs of: bare-metal (the default), this-machine
    #[arg(
        long, value_name = "WHOSE", num_args = 0..=1, default_missing_value = "bare-metal", require_equals = true,
        conflicts_with_all = ["runtime", "competitor", "traces"], long_help = SIMULATE
    )]
    pub simulate: Option<String>,
    /// With --simulate: the device times that an earlier --traces wrote to DIR
    #[arg(long, value_name = "DIR", requires = "simulate")]
    pub replay: Option<PathBuf>,
    /// Write the device times of each cell and this machine's wake costs to DIR
    #[arg(long, value_name = "DIR", long_help = TRACES)]
    pub traces: Option<PathBuf>,
    /// Write everything as JSON to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE", long_help = JSON)]
    pub json: Option<JsonPath>,
    /// Write a page with the latency/CPU plane of each cell to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE", long_help = HTML)]
    pub html: Option<HtmlPath>,
}

/// `waits --help`, at the top.
pub(super) const ABOUT: &str = "\
Compares ways to wait over a grid of device times and shapes: which is how late, at what CPU, and by how much it misses the best there is.

Each cell of the grid is a software SSD with a service-time model of its own, and a job. In each cell the ways to wait have short turns one after the \
other (A B C A B C …), so that all of them see the same weather; classic polling (poll) takes part twice, which shows what a difference is worth. \
The cache-line time between the CPUs is probed around each turn, and turns in which it jumped are repeated.";

/// `waits --policies`.
const POLICIES: &str = "\
Ways to wait to compare, separated by commas; see `meantime bench --help`, option --completion, for all there are. poll is always measured: it is what \
the others are held against.";

/// `waits --times`.
const TIMES: &str = "\
Device times of the grid: how long a 4 KiB read takes that nothing delays. A bare number is µs; 100ns to 100ms.";

/// `waits --shapes`.
const SHAPES: &str = "\
Shapes of the grid:

  constant   4 KiB reads that all take the same time
  lognormal  4 KiB reads, log-normal with sigma 0.25
  bimodal    4 KiB reads, of which one in ten takes ten times as long
  programs   4 KiB reads with 2 % writes, each of which starts a program of 600 µs on one of four channels: reads of that channel stall behind it
  sizes      reads of 512 B (20 %), 4 KiB (40 %), 16 KiB (20 %), 64 KiB and 128 KiB (10 % each); 128 KiB take eight times as long as 4 KiB
  depth4     as lognormal, with four in flight
  mix7030    4 KiB, 70 % reads and 30 % writes, which take twice as long; log-normal with sigma 0.1";

/// `waits --quick`.
const QUICK: &str = "\
Device times 4.1, 10 and 50 µs; constant, lognormal and bimodal; interrupt, poll, hybrid and adaptive; 250 ms each. Each of the other options overrides its part.";

/// `waits --competitor`.
const COMPETITOR: &str = "\
After each cell, a second, short pass beside a program that competes for the same CPU: what it keeps of its lone speed, and the latencies beside it.

  tsc         reads the time stamp counter, and nothing else (the default)
  walk=BYTES  walks and writes so much memory in random order, e.g. walk=1m";

/// `waits --traces`.
const TRACES: &str = "\
Write to DIR, which is created if it is not there:

  CELL.trace  what each I/O was, and how long the device took by its own stamps, with classic polling, a line an I/O: read or write, bytes, ns
  wake.csv    how late sleeps, and waits for an interrupt, ended here: asked for, late; in ns";

/// `waits --simulate`.
const SIMULATE: &str = "\
Measure nothing; everything in a simulator, which runs the ways to wait as they are in virtual time, on a device and a machine that are made up. The \
figures are the same every time, and nothing on the machine disturbs them. They are those of 30,000 I/Os a cell and of the ways that --policies names; \
the simulated figures in docs/benchmarks.md are those of `cargo run --release -p meantime --example grid`, which has other shapes and another seed, and so other figures.

  bare-metal    a server without a hypervisor: waking up takes 1.5 to 3 µs (the default)
  this-machine  wake costs as measured here and now

Device times are made up by the cell's model, 30,000 I/Os, unless --replay has them.";

/// `waits --json`.
const JSON: &str = "\
Write everything as JSON to FILE, which is replaced as a whole at the end, or to standard output (-); the text then goes to \
standard error. Below, OUTPUT has the keys.";

/// `waits --html`.
const HTML: &str = "\
Write the results as one HTML page, which loads nothing, to FILE, or to standard output (-): a summary, and for each cell the latency/CPU plane with \
a point a way to wait, and a table.";

/// `waits --help`, at the bottom.
pub(super) const AFTER: &str = "\
OUTPUT
  A table a cell: mean latency, also over that of poll; p50, p99, p99.9, the slowest 1 in 6,000, the maximum; IOPS; CPU of the waiting thread, and IOPS per CPU-percent; how \
often a sleep ended after the completion had come, of its sleeps and of all I/Os (warm-ups included); what a competing program kept. Then a row a way to wait for all cells, and a \
line that says in how many cells it is at most 1.03 × poll (kept: in all of them; missed: not, which is a finding and no error), and which ways it dominates or is dominated by.

  One way dominates another in a cell if it is not worse in mean latency and in CPU, and better in one of them, by more than the two runs of poll differ there (1 % at least).

  Two references are reckoned from each cell's device times and this machine's wake costs, for one I/O at a time: the informed policy knows both distributions, but neither this I/O's time nor \
this sleep's cost, and spends the least CPU that keeps the mean within 1.03 × poll, or for adaptive:GOAL that goal: the best that can be reached. The oracle knows this I/O's time, too: a bound that cannot be reached.

  Near the wake-up cost of the machine (see `meantime calibrate`) no way that sleeps can win; a grid shows where that ends.

  JSON: cells[] with name, device_time_ns, shape, model, turns_repeated, turns_disturbed, cacheline_rtt_ns, poll (mean_ns, cpu_percent, mean_spread, cpu_spread_percent), references \
(informed and oracle, each mean_ns, cpu_percent, reachable) and ways[], each with completion, ios, errors, mean_ns, p50_ns, p99_ns, p99_9_ns, slowest_1_in_6000_ns, max_ns, iops, cpu_percent, iops_per_cpu_percent, mean_over_poll, mean_over_poll_by_turns, \
informed (with the goal of an adaptive:GOAL), cpu_over_informed, mean_above_oracle_ns, cpu_above_oracle_percent, sleeps, oversleeps, overslept_sleeps_percent, overslept_ios_percent, fallbacks, interrupt_waits, competing \
(share_percent, mean_ns, p99_9_ns). summary[] by way: cells, mean_over_poll and cpu_over_informed (median, worst, worst_cell), cells_within_1_03, cells_within_1_03_by_turns, cells_dominating, cells_dominated, dominates, \
dominated_by, and medians. Beside them runtime_ms, competitor, simulated, meantime (the machine). What is not known is null.

EXAMPLES
  A first look:
    meantime waits --quick

  The whole grid, as a page (about a quarter of an hour):
    meantime waits --html waits.html --json waits.json

  What the same would be on bare metal, without measuring anything:
    meantime waits --simulate --html simulated.html

  Two ways to wait where sizes are mixed, with a competing program:
    meantime waits --shapes sizes --policies hybrid,adaptive --competitor

EXIT STATUS
  0  measured, whatever came out: also if ways missed the goal
  1  a device or a file failed, or I/Os did
  2  the command line cannot be obeyed
  130, 143  ended by Ctrl-C or SIGTERM; the cells measured until then are reported";
