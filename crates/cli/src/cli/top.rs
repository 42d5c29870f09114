//! Options and texts of `meantime top`.

use clap::Args;

/// Options of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The process to look at [default: the one there is; of several, a list to choose from]
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Print one table and end, instead of the live view
    #[arg(long)]
    pub once: bool,
    /// With --once: JSON instead of a table
    #[arg(long, requires = "once")]
    pub json: bool,
    /// Have a queue wait by another policy, e.g. 3=hybrid-min or all=adaptive:cpu=30; can be
    /// repeated
    #[arg(long, value_name = "QUEUE=POLICY", long_help = SET)]
    pub set: Vec<String>,
    /// Time between two looks, in seconds [default: 1, with --once 0.5]
    #[arg(long, value_name = "SECONDS")]
    pub interval: Option<f64>,
}

/// `top --help`, at the top.
pub(super) const ABOUT: &str = "\
Shows what the queues of a running process do: IOPS, latency, how they wait and what that costs; and changes how they wait while they run.

It looks at processes that serve a control socket: every `meantime bench` does (unless --no-control), and so does any program that uses the library \
and calls control::serve. Looking disturbs the process little: its I/O threads publish their figures every 50 ms where they have time, and never wait \
for whoever looks.";

/// `top --set`.
const SET: &str = "\
Have a queue wait by another policy from now on: its number as the table shows it, or all. The policies are those of `meantime bench --completion`. \
The queue's own thread makes the change when it next does I/O; the command comes back when it has, or says why not. A queue that does no I/O for two \
seconds is left as it is. Can be repeated; with --once the table comes after the changes.";

/// `top --help`, at the bottom.
pub(super) const AFTER: &str = "\
OUTPUT
  A row for each queue, that is for each channel of a thread to a device, with what happened between two looks:

    queue         its number: every channel of the process has another one
    device        the device, as it was opened
    thread        the thread that uses it
    policy        how its requests are waited for
    IOPS          commands ended per second; idle: none
    mean          mean time of an I/O from submission to having been seen, in µs. Of all or many I/Os where the policy needs their times, else of up to 200 \
samples a second; – where none is taken (interrupt, kernel: devices)
    expected      the device time that the policy goes by, in µs, and how far off the mean is; after ≥, the least that it expects; – if it goes by none
    CPU           CPU time of the thread, in percent of the time that passed, whatever it was for
    CPU per I/O   the same for each command, over all queues of the thread, in µs
    sleeps        sleeps per command, in percent
    overslept     sleeps that found the completion there already, in percent of them
    fallbacks     waits per second that had to be ended otherwise than planned
    in flight     commands under way; – while idle

  The live view shows as many of these columns as there is room for, and below them the chosen queue: its totals, and its IOPS of earlier looks. Yellow is \
an expectation that is off by more than 25 %, more than 5 % overslept, and any fallback.

  With --once --json: pid, command, interval_ns, queues[] with queue, device, thread, thread_id, policy, iops, mean_ns, expected_ns, expected_low_ns, \
cpu_percent, cpu_per_io_ns, sleep_percent, oversleep_percent, fallbacks_per_s, in_flight, and since the queue was made ended, waits, sleeps, \
oversleeps, fallbacks, blocks. What is not known is null.

KEYS
  ↑ ↓ (or k j)  choose a queue
  p or Enter    open the list of policies for it: ↑ ↓ choose, or type any other, e.g. adaptive:cpu=30; Tab puts the chosen one into the line to edit; \
Enter sets, Esc leaves
  q or Ctrl-C   quit

FILES
  $XDG_RUNTIME_DIR/meantime/PID.sock, or /tmp/meantime-UID/PID.sock where there is no such variable. Only the user of the process, and root, can use it.

EXAMPLES
  Look at a run in another terminal:
    meantime bench --rw randread --device 'mem:256M?model=optane' --completion poll --runtime 60
    meantime top

  Have its queues sleep, and see what that does:
    meantime top --set all=adaptive --once

  A figure for a script:
    meantime top --once --json | jq '.queues[] | {queue, iops, cpu_percent}'

EXIT STATUS
  0    shown, or changed
  1    an error (one line on standard error): no such process, or a change that was refused
  2    the command line cannot be obeyed
  130  ended by SIGINT, 143 by SIGTERM";
