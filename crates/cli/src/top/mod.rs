//! `meantime top`: looks at a running process, and changes the policies of its queues.

mod change;
mod choice;
mod histogram;
mod once;
pub(crate) mod process;
mod row;

use std::io::{self, ErrorKind, IsTerminal as _};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use change::Change;
use meantime_block::control::metrics::Metrics;
use meantime_block::control::{Client, ControlError};
use meantime_completion::telemetry::Snapshot;
use process::{Process, shortened};

use crate::cli::TopArgs;
use crate::failure::Failure;
use crate::{metrics, output};

/// Time between the two looks of `--once`, unless `--interval` is given.
const ONCE_INTERVAL: Duration = Duration::from_millis(500);

/// Time between two tables.
const INTERVAL: Duration = Duration::from_secs(1);

/// Moves the cursor to the upper left, and clears the screen from there.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Runs the command.
pub(crate) fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    if args.prometheus {
        return metrics::export(args.pid, args.listen.as_deref());
    }
    let changes = args.set.iter().map(|text| Change::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let interval = args.interval.map(interval).transpose()?;
    let process = process::only(process::find(args.pid)?)?;
    let mut client = process.connect()?;
    for change in &changes {
        let done = change.make(&process, &mut client)?;
        if args.json {
            eprint!("{done}");
        } else {
            output::print(&done)?;
        }
    }
    if args.once || changes.is_empty() {
        show(args, &process, &mut client, interval)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a table, or one each interval until the process ends or the output is closed.
fn show(
    args: &TopArgs,
    process: &Process,
    client: &mut Client,
    interval: Option<Duration>,
) -> Result<(), Failure> {
    let failure = |error| process.failure(&error);
    let interval = interval.unwrap_or(if args.once { ONCE_INTERVAL } else { INTERVAL });
    let mut before = look(args, client).map_err(failure)?;
    // The first table comes soon.
    let mut pause = if args.once { interval } else { interval.min(ONCE_INTERVAL) };
    loop {
        thread::sleep(pause);
        let after = match look(args, client) {
            Ok(after) => after,
            // The existence of the process would not tell: its parent may not have waited for it
            // yet.
            Err(ControlError::Io { source, .. }) if !args.once && is_end(&source) => {
                let pid = process.served.pid;
                return output::print(&format!(
                    "process {pid} has ended, or serves its control socket no more\n"
                ));
            }
            Err(error) => return Err(failure(error)),
        };
        let text = text(args, process, &before, &after);
        if !output::print_while_read(text.as_bytes())? || args.once {
            return Ok(());
        }
        (before, pause) = (after, interval);
    }
}

/// What is seen of a process at one time, its metrics only if they are shown.
type Look = (Snapshot, Option<Metrics>);

fn look(args: &TopArgs, client: &mut Client) -> Result<Look, ControlError> {
    let metrics = args.histogram.then(|| client.metrics()).transpose()?;
    Ok((client.snapshot()?, metrics))
}

/// Returns whether an error of the socket means that its process has ended.
fn is_end(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Returns what happened between two looks, as it is printed.
fn text(args: &TopArgs, process: &Process, before: &Look, after: &Look) -> String {
    let ((before, metrics_before), (after, metrics_after)) = (before, after);
    let rows = row::rows(before, after);
    if args.json {
        let interval_ns = after.now_ns.saturating_sub(before.now_ns);
        return output::json_text(&once::json(process, &rows, interval_ns));
    }
    let mut text = once::text(process, &rows);
    let columns = output::columns();
    if let Some((before, after)) = metrics_before.as_ref().zip(metrics_after.as_ref()) {
        text += &histogram::text(before, after, columns);
    }
    if args.once || !io::stdout().is_terminal() {
        return text;
    }
    // A line that is too long would push those above it out of sight.
    let lines = text.lines().map(|line| shortened(line, columns) + "\n");
    CLEAR.to_owned() + &lines.collect::<String>()
}

fn interval(seconds: f64) -> Result<Duration, Failure> {
    // Channels publish their counters every 50 ms.
    match seconds {
        seconds if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(Failure::usage(format_args!("--interval {seconds}: from 0.1 to 3600 seconds"))),
    }
}
