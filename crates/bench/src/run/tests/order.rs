//! The order of turns of a sweep.

use std::cell::RefCell;
use std::fmt::Display;
use std::time::Duration;

use itertools::Itertools as _;
use meantime_report::run::Turn;

use super::*;
use crate::competitor::{Competitors, Kind, Sample};
use crate::job::Sweep;
use crate::run::{Devices, Progress, RunOptions, batches, check, groups, run};

static STOP: AtomicBool = AtomicBool::new(false);

/// No programs.
struct Nobody;

impl Competitors for Nobody {
    fn start(_: usize, _: Kind, _: u32) -> Result<Self, String> {
        Err("there are none".to_owned())
    }
    fn sample(&self) -> Sample {
        Sample::default()
    }
    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn alone(&mut self, _: Duration) -> Sample {
        Sample::default()
    }
    fn pause(&mut self) {}
    fn resume(&mut self) {}
}

/// Records turns, and the last share that was done.
#[derive(Default)]
struct Record {
    turns: RefCell<Vec<String>>,
    done: RefCell<f64>,
    turned: RefCell<usize>,
}

impl Progress for Record {
    fn job(&mut self) {}
    fn filling(&self, _: &str) {}
    fn cell(&self, job: &str, _: &str, policy: Policy) {
        self.turns.borrow_mut().push(format!("{job} {policy}"));
    }
    fn turned(&self, name: &str, turn: &Turn) {
        // A turn may find that all has been written.
        assert!(turn.iops >= 0.0 && name.contains(", mem:1M?inline=1&queues=16, "), "{name}");
        *self.turned.borrow_mut() += 1;
    }
    fn done(&self, share: f64) {
        *self.done.borrow_mut() = share;
    }
    fn error(&self, message: impl Display) {
        panic!("{message}");
    }
    fn warning(&self, message: impl Display) {
        panic!("{message}");
    }
}

/// Runs a sweep of two sizes with two ways to wait, in two rounds. Returns the turns, and the
/// swept values of the results with the numbers of turns.
fn swept(keys: &[(&str, &str)]) -> (Vec<String>, Vec<(String, usize)>) {
    let uri = "mem:1M?inline=1&queues=16".to_owned();
    let mut devices = Devices::open_devices(std::slice::from_ref(&uri), true, false).unwrap();
    let indices = devices.indices(std::slice::from_ref(&uri));
    let all = [&[("completion", "poll,interrupt"), ("runtime", "20ms")], keys].concat();
    let sweep = Sweep::of([("bs", Some("512,4k"))].into_iter()).unwrap();
    let mut jobs = sweep.expand(&[job(&all)]);
    for job in &mut jobs {
        let (key, value) = job.sweep[0].clone();
        job.set(key, Some(&value), &crate::job::Origin::CommandLine).unwrap();
        job.name = value;
    }
    let groups = groups(jobs.into_iter().map(|job| (job, indices.clone())).collect()).unwrap();
    assert_eq!((groups.len(), batches(&groups).count()), (2, 1));
    check(&groups, &devices, false).unwrap();
    let options = RunOptions { rounds: Some(2), floor: false, stop: &STOP, watch: None };
    let mut record = Record::default();
    let outcome = run::<Nobody, _>(&groups, &mut devices, &options, &mut record).unwrap();
    assert_eq!(*record.done.borrow(), 1.0);
    assert_eq!(*record.turned.borrow(), record.turns.borrow().len());
    let results = outcome.results.into_iter().map(|job| job.into_result());
    let results = results.map(|result| {
        assert!(result.read.ios + result.write.ios > 0);
        (format!("{} {}", result.sweep[0].1, result.completion), result.turns.len())
    });
    (record.turns.into_inner().into_iter().dedup().collect(), results.collect())
}

#[test]
fn the_jobs_of_a_sweep_have_turns() {
    let (turns, results) = swept(&[("rw", "randread")]);
    let round = ["512 poll", "512 interrupt", "4k poll", "4k interrupt"];
    assert_eq!(turns, [round, round].concat());
    assert_eq!(results, round.map(|cell| (cell.to_owned(), 2)));
}

#[test]
fn a_sweep_that_checks_its_writes_has_one_job_after_the_other() {
    let (turns, results) = swept(&[("rw", "write"), ("verify", "crc32c"), ("size", "64k")]);
    let cells = ["512 poll", "512 interrupt", "4k poll", "4k interrupt"];
    assert_eq!(turns, cells);
    assert_eq!(results.len(), 4);
}

#[test]
fn the_queues_of_all_jobs_of_a_sweep_count() {
    let uri = "mem:1M?inline=1&queues=8".to_owned();
    let devices = Devices::open_devices(std::slice::from_ref(&uri), true, false).unwrap();
    let indices = devices.indices(std::slice::from_ref(&uri));
    let sweep = Sweep::of([("iodepth", Some("1,2,4"))].into_iter()).unwrap();
    let jobs = sweep.expand(&[job(&[("completion", "poll,interrupt")])]);
    let groups = groups(jobs.into_iter().map(|job| (job, indices.clone())).collect()).unwrap();
    assert!(check(&groups[..2], &devices, false).is_ok());
    let why = check(&groups, &devices, false).unwrap_err().to_string();
    assert!(why.contains("need 9 queue pairs") && why.contains("use a smaller sweep"), "{why}");
}
