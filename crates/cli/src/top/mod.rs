//! `meantime top`: looks at a running process, and changes the policies of its queues.

mod app;
mod change;
mod choice;
mod live;
mod once;
pub(crate) mod process;
mod row;
mod short;
mod view;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use change::Change;
use meantime_block::control::{Client, ControlError};
use meantime_completion::telemetry::Snapshot;
use short::Short;

use crate::cli::TopArgs;
use crate::failure::Failure;
use crate::{metrics, output};

/// Time between the two looks of `--once`, unless `--interval` is given.
const ONCE_INTERVAL: Duration = Duration::from_millis(500);

/// Time between two looks of the live view.
const LIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    if args.prometheus {
        return metrics::export(args.pid, args.listen.as_deref());
    }
    let changes = args.set.iter().map(|text| Change::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let interval = args.interval.map(interval).transpose()?;
    let process = process::only(process::find(args.pid)?)?;
    if !args.once && changes.is_empty() {
        return live::run(process, interval.unwrap_or(LIVE_INTERVAL));
    }
    let mut client = process.connect()?;
    for change in &changes {
        let done = change.make(&process, &mut client)?;
        if args.json {
            eprint!("{done}");
        } else {
            output::print(&done)?;
        }
    }
    if args.once {
        let mut look = || Look::take(&mut client).map_err(|error| process.failure(&error));
        let before = look()?;
        thread::sleep(interval.unwrap_or(ONCE_INTERVAL));
        let after = look()?;
        let (rows, short) = (row::rows(&before.queues, &after.queues), after.short_rates(&before));
        let text = if args.json {
            output::json_text(&once::json(&process, &rows, after.interval_ns(&before), short))
        } else {
            once::text(&process, &rows, short)
        };
        output::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is seen of a process at one time.
struct Look {
    queues: Snapshot,
    short: Option<Short>,
}

impl Look {
    fn take(client: &mut Client) -> Result<Self, ControlError> {
        let queues = client.snapshot()?;
        // (A process of an older version has no metrics.)
        let metrics = client.metrics().ok();
        Ok(Self { queues, short: metrics.as_ref().and_then(Short::of) })
    }

    fn interval_ns(&self, before: &Self) -> u64 {
        self.queues.now_ns.saturating_sub(before.queues.now_ns)
    }

    fn short_rates(&self, before: &Self) -> Option<Short> {
        let (now, then) = self.short.zip(before.short)?;
        Some(now.rates(&then, self.interval_ns(before)))
    }
}

fn interval(seconds: f64) -> Result<Duration, Failure> {
    // Channels publish their counters every 50 ms.
    match seconds {
        seconds if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(Failure::usage(format_args!("--interval {seconds}: from 0.1 to 3600 seconds"))),
    }
}
