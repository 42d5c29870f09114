//! The measurements, each without and with the limit on idling, in turns.

use std::time::Duration;

use indicatif::ProgressBar;
use meantime_completion::calibrate::{self, Times};
use meantime_hw::{Clock, HwError, PmQos, SleepMethod, Sleeper, pm_qos};
use serde_json::{Value, json};

use super::{GROUPS, Limit};
use crate::cli::CalibrateArgs;
use crate::failure::{Context as _, Failure};
use crate::output::progress_bar;

/// Times for which the sleeper's CPU is idle before it is woken.
const IDLES_US: [u64; 3] = [20, 100, 1_000];

/// Lengths of sleeps by `nanosleep`.
const SLEEPS_US: [u64; 8] = [1, 2, 5, 10, 20, 50, 100, 1_000];

/// Lengths at which the kinds of sleep are compared: about a fast SSD's time, and about flash's.
const COMPARED_US: [u64; 2] = [10, 100];

/// Number of alternations without and with the limit on idling within a measurement.
const ROUNDS: usize = 4;

/// One measurement: its subject, its parameters, and its times.
pub(super) struct Row {
    /// The kind of measurement.
    pub group: &'static str,
    /// Its name.
    pub name: String,
    /// The parameters, a JSON object.
    pub parameters: Value,
    /// The times.
    pub times: Times,
    /// The times while no CPU may enter a C-state with an exit latency. `None` if that is not
    /// possible, or makes no difference.
    pub held: Option<Times>,
}

/// Measures a number of samples of a time.
type Measurement<'a> = &'a dyn Fn(usize) -> Result<Times, HwError>;

struct Measuring<'a> {
    limit: &'a Limit,
    quick: bool,
    progress: ProgressBar,
    rows: Vec<Row>,
}

impl Measuring<'_> {
    /// Returns the number of samples, fewer with `--quick`.
    fn scaled(&self, count: u64) -> usize {
        if self.quick { (count / 10).max(20) as usize } else { count as usize }
    }

    /// Takes `count` samples in all, without the limit and, if it is available, with it, in turns.
    fn both(&self, count: usize, once: Measurement<'_>) -> Result<(Times, Option<Times>), Failure> {
        let rounds = if self.limit.can_be_held() { ROUNDS } else { 1 };
        let each = count.div_ceil(rounds);
        let (mut free, mut held) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            free.push(once(each).map_err(Failure::new)?);
            if self.limit.can_be_held() {
                let what = format_args!("cannot hold {} any more", pm_qos::CPU_DMA_LATENCY);
                let _held = PmQos::hold(0).context(what)?;
                held.push(once(each).map_err(Failure::new)?);
            }
        }
        Ok((Times::merged(free), self.limit.can_be_held().then(|| Times::merged(held))))
    }

    fn add(
        &mut self,
        group: &'static str,
        name: String,
        parameters: Value,
        count: usize,
        once: Measurement<'_>,
    ) -> Result<(), Failure> {
        self.progress.set_message(name.clone());
        let (times, held) = self.both(count, once)?;
        self.rows.push(Row { group, name, parameters, times, held });
        self.progress.inc(1);
        Ok(())
    }

    fn clocks(&mut self) {
        let best = Clock::real();
        let mut clocks = vec![best.clone()];
        if best.name() != Clock::monotonic().name() {
            clocks.push(Clock::monotonic());
        }
        for clock in clocks {
            let name = clock.name();
            self.rows.push(Row {
                group: "clock_read",
                name: format!("read the clock, {name}"),
                parameters: json!({ "clock": name }),
                times: calibrate::clock_read(&clock),
                held: None,
            });
        }
        self.progress.inc(1);
    }

    fn wakes(&mut self, peer: Option<usize>) -> Result<(), Failure> {
        type Wake = fn(Option<usize>, Duration, usize) -> Result<Times, HwError>;
        let ways: [(&str, &str, Wake); 2] = [
            ("eventfd_wake", "eventfd", calibrate::eventfd_wake),
            ("futex_wake", "futex", calibrate::futex_wake),
        ];
        for (group, way, wake) in ways {
            for idle_us in IDLES_US {
                // Half a second of idleness at most.
                let count = self.scaled((500_000 / idle_us).min(5_000));
                let name = format!("wake by {way}, idle for {}", label(idle_us));
                let idle = Duration::from_micros(idle_us);
                let once = |count| wake(peer, idle, count);
                self.add(group, name, json!({ "idle_us": idle_us }), count, &once)?;
            }
        }
        Ok(())
    }

    fn sleeps(&mut self) -> Result<(), Failure> {
        let clock = Clock::real();
        for sleep_us in SLEEPS_US {
            let count = self.scaled((500_000 / (sleep_us + 60)).min(5_000));
            let name = format!("oversleep of nanosleep {}", label(sleep_us));
            let once = |count| Ok(calibrate::oversleep(&clock, sleep_us * 1_000, count));
            self.add("oversleep", name, json!({ "sleep_us": sleep_us }), count, &once)?;
        }
        for method in SleepMethod::available() {
            let Some(sleeper) = Sleeper::new(method).map_err(Failure::new)? else { continue };
            for sleep_us in COMPARED_US {
                let count = self.scaled(250_000 / (sleep_us + 60));
                let (ns, said) =
                    (sleep_us * 1_000, format!("{} {}", in_words(method), label(sleep_us)));
                let parameters = json!({ "way": method.as_str(), "sleep_us": sleep_us });
                if method != SleepMethod::Nanosleep {
                    let once = |count| Ok(calibrate::oversleep_of(&sleeper, &clock, ns, count));
                    let name = format!("oversleep of {said}");
                    self.add("oversleep_by_way", name, parameters.clone(), count, &once)?;
                }
                let once = |count| Ok(calibrate::sleep_cpu_ns(&sleeper, ns, count));
                self.add("sleep_cpu", format!("CPU time of {said}"), parameters, count, &once)?;
            }
        }
        // Rows are grouped by kind, in the order of `--json`.
        self.rows.sort_by_key(|row| GROUPS.iter().position(|group| *group == row.group));
        Ok(())
    }
}

fn in_words(method: SleepMethod) -> String {
    match method {
        SleepMethod::EventFd => "an eventfd that times out,".to_owned(),
        SleepMethod::Futex => "a futex that times out,".to_owned(),
        SleepMethod::User => "a wait in user mode,".to_owned(),
        method => method.to_string(),
    }
}

/// Runs all measurements. Those that need two CPUs are left out without a `peer`.
pub(super) fn measure(
    args: &CalibrateArgs,
    peer: Option<usize>,
    limit: &Limit,
) -> Result<Vec<Row>, Failure> {
    let methods = SleepMethod::available().len();
    let steps = 2 + 2 * IDLES_US.len() + SLEEPS_US.len() + COMPARED_US.len() * (2 * methods - 1);
    let progress = progress_bar(Some(steps as u64), "{bar:25} {percent:>3} %  {wide_msg}");
    let mut measuring = Measuring { limit, quick: args.quick, progress, rows: Vec::new() };
    if peer.is_some() {
        let name = "cache line, there and back".to_owned();
        let once = |_| calibrate::cacheline_rtt(peer);
        measuring.add("cacheline_rtt", name, json!({}), ROUNDS, &once)?;
    }
    measuring.clocks();
    if peer.is_some() {
        measuring.wakes(peer)?;
    }
    measuring.sleeps()?;
    measuring.progress.finish_and_clear();
    Ok(measuring.rows)
}

/// Formats a round time.
pub(super) fn label(us: u64) -> String {
    if us < 1_000 { format!("{us} µs") } else { format!("{} ms", us / 1_000) }
}
