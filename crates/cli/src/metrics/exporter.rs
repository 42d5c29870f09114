//! `meantime top --prometheus`: the metrics of all processes that can be looked at, on standard
//! output or over HTTP.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use meantime_block::control::metrics::{Kind, Metrics};
use meantime_block::control::{self, Client, Served};

use super::address::Address;
use super::http::Server;
use super::of_process;
use super::text::text;
use crate::failure::Failure;
use crate::output::{end, print};
use crate::signal;
use crate::top::process::{Process, find, shortened};

/// The maximum number of processes. Those with the lowest numbers are shown.
const PROCESSES_MAX: usize = 256;
/// The time for a process to answer, and for all together. A scraper waits for 10 seconds.
const ANSWER_TIME: Duration = Duration::from_secs(1);
const ALL_TIME: Duration = Duration::from_secs(4);

/// Shows the metrics of process `pid` or of all once, or serves them at `listen`.
pub(crate) fn run(pid: Option<u32>, listen: Option<&str>) -> Result<ExitCode, Failure> {
    let Some(listen) = listen else {
        if pid.is_some() {
            find(pid)?;
        } else {
            control::served().map_err(Failure::new)?;
        }
        return end(text(&collect(pid)).as_bytes());
    };
    let address: Address = listen.parse().map_err(Failure::usage)?;
    signal::catch();
    let server = Server::start(&address, move || text(&collect(pid))).map_err(Failure::new)?;
    print(&format!("metrics are served at {} (process {})\n", server.place(), std::process::id()))?;
    while !signal::stopped() {
        signal::pause(Duration::from_secs(1));
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the processes, one after the other.
fn collect(pid: Option<u32>) -> Metrics {
    let own = std::process::id();
    let mut served = match pid {
        Some(pid) => control::served_by(pid).ok().flatten().into_iter().collect(),
        None => control::served_by_all(),
    };
    served.retain(|served| served.pid != own);
    served.truncate(PROCESSES_MAX);
    let mut all = Metrics::default();
    of_process(&mut all);
    let deadline = Instant::now() + ALL_TIME;
    for served in served {
        let time = ANSWER_TIME.min(deadline.saturating_duration_since(Instant::now()));
        let answer = if time.is_zero() { None } else { metrics_of(&served, time) };
        let pid = served.pid.to_string();
        let help = "Whether the process has answered: 0 if it is stopped, or of an older version";
        let up = i32::from(answer.is_some());
        all.add("meantime_process_up", Kind::Gauge, help, &[("pid", &pid)], up);
        let command = shortened(&Process::of(served).command, 100);
        let labels = [("pid", pid.as_str()), ("command", &command)];
        all.add("meantime_process", Kind::Info, "The command of a process", &labels, 1);
        if let Some(answer) = answer {
            all.merge(answer, ("pid", &pid));
        }
    }
    all.add_left_out();
    all
}

fn metrics_of(served: &Served, time: Duration) -> Option<Metrics> {
    let mut client = Client::connect(&served.path).ok()?;
    client.set_timeout(time).ok()?;
    client.metrics().ok()
}
