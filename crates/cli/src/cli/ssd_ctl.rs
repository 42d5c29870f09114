//! Options and texts of `meantime ssd ctl`.

use std::path::PathBuf;

use clap::Args;

/// Options of `ssd ctl`.
#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    /// The SSD's control socket
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,
    /// What to say, e.g. faults add lost-completion opcode=read times=1
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub words: Vec<String>,
}

/// `ssd ctl --help`, at the top.
pub(super) const ABOUT: &str = "\
Says something to a software SSD that another process runs: injects faults, cuts its power, takes it off the bus, shows its counters and what it has refused.";

/// `ssd ctl --help`, at the bottom.
pub(super) const AFTER: &str = "\
COMMANDS
  faults             the fault rules in force, and how often each has happened
  faults add RULE    inject one more fault: its name, then conditions as key=value; docs/faults.md has them all
  faults clear       inject none any more
  slow TIME          every I/O command takes so much longer, e.g. 2ms; ends with faults clear
  power-cut [SEED]   power fails and comes back: writes that were not flushed are lost, or not, at random
  unplug, plug       the device leaves the bus (registers read all ones), and comes back to it
  counters           what the SSD has counted
  refusals           what it has refused lately, and why

OUTPUT
  What was asked for, a line each; of faults add the rule as it is in force. A rule's line can be given to faults add again.

EXAMPLES
  The next read is never answered:
    meantime ssd ctl ssd.ctl faults add lost-completion opcode=read times=1

  One in a thousand writes to the first MiB fails, to be retried:
    meantime ssd ctl ssd.ctl faults add status status=internal-error opcode=write lba=0-2047 ppm=1000

  How often that has happened:
    meantime ssd ctl ssd.ctl faults

FILES
  The socket has mode 0600: only the user of the process, and root, can use it.

EXIT STATUS
  0    done
  1    an error (one line on standard error): no such SSD, or it says no, and why
  2    the command line cannot be obeyed";
