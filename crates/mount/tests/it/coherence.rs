//! Processes that use one file at the same time, some by the shared-memory path and some by
//! the FUSE path: each finds what the others have written (`programs/coherence.c`).
//!
//! `MEANTIME_COHERENCE_SECONDS=600` for longer than some seconds, `MEANTIME_COHERENCE_SEED` for
//! other operations.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use meantime_mount::Options;
use meantime_testkit::{e2fs, setting};

use crate::programs::source;
use crate::served::{DataCalls, Served};
use crate::way::Way::{self, Fuse, SharedMemory};

/// The ways of the processes that share a file.
const WAYS: [&[Way]; 4] = [
    &[SharedMemory, Fuse],
    &[SharedMemory, SharedMemory],
    &[SharedMemory, SharedMemory, Fuse, Fuse],
    &[Fuse; 2],
];
/// Room for what the processes share.
const SHARED_BYTES: u64 = 1 << 20;

/// Returns the compiled program, or `None` without a compiler.
fn compiled(served: &Served) -> Option<PathBuf> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    if !e2fs::has(&compiler) {
        return None;
    }
    let program = served.beside("coherence");
    let args = ["-O1", "-pthread", "-Wall", "-Wextra", "-Werror", "-o"];
    e2fs::run(
        &compiler,
        &[&args[..], &[program.to_str().unwrap(), &source("coherence.c")]].concat(),
    );
    Some(program)
}

/// A run of processes that share a file.
struct Run<'a> {
    served: &'a Served,
    program: &'a Path,
    seconds: u64,
    seed: u64,
}

impl Run<'_> {
    /// Starts a process that goes `way`, the one of `count` with `index`.
    fn start(&self, mode: &str, file: &Path, way: Way, [index, count]: [usize; 2]) -> Child {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", &(self.seconds + 120).to_string()]).stdin(Stdio::null());
        self.served.lead(&mut command, way);
        command.arg(self.program).arg(mode).arg(file).arg(self.served.beside("shared"));
        let numbers = [index as u64, count as u64, self.seconds, self.seed];
        command.args(numbers.map(|number| number.to_string())).spawn().unwrap()
    }

    /// Runs a process for each of `ways` to its end. Each process is told that there are `count`.
    #[track_caller]
    fn end(&self, mode: &str, file: &Path, ways: &[Way], count: usize) {
        let shared = File::create(self.served.beside("shared")).unwrap();
        shared.set_len(SHARED_BYTES).unwrap();
        let ways_by_index = ways.iter().enumerate();
        let mut running: Vec<_> = ways_by_index
            .map(|(index, way)| self.start(mode, file, *way, [index, count]))
            .collect();
        let mut failed = None;
        while !running.is_empty() && failed.is_none() {
            running.retain_mut(|process| {
                let status = process.try_wait().unwrap();
                failed = failed.or(status.filter(|status| !status.success()));
                status.is_none()
            });
            std::thread::sleep(Duration::from_millis(5));
        }
        // Ends the processes that wait for one that has failed. `timeout` passes the signal on.
        for process in &mut running {
            let _ = Command::new("kill").arg(process.id().to_string()).status();
            let _ = process.wait();
        }
        assert!(failed.is_none(), "{mode} by {ways:?}, seed {}: {failed:?}", self.seed);
    }
}

#[test]
fn processes_by_both_ways_find_each_others_bytes() {
    let seconds = setting("MEANTIME_COHERENCE_SECONDS").unwrap_or(5);
    let first = setting("MEANTIME_COHERENCE_SEED").unwrap_or(1);
    let Some(served) = Served::by(Fuse, "256M", &Options::default()) else { return };
    let Some(program) = compiled(&served) else { return };
    let begun = Instant::now();
    let mut all_calls = BTreeMap::<String, DataCalls>::new();
    for round in 0.. {
        if round >= WAYS.len() as u64 && begun.elapsed() >= Duration::from_secs(seconds) {
            println!("{round} rounds from seed {first}");
            break;
        }
        let seconds = if seconds > 60 { 5 } else { 1 };
        let run = Run { served: &served, program: &program, seconds, seed: first + round };
        let ways = WAYS[round as usize % WAYS.len()];
        for mode in ["locked", "slots", "append"] {
            let before = served.data_calls();
            let file = served.dir().join(mode);
            run.end(mode, &file, ways, ways.len());
            let calls = served.data_calls().since(before);
            assert!(calls.short == 0 || ways.contains(&SharedMemory), "{mode} by {ways:?}");
            all_calls.entry(format!("{mode} by {ways:?}")).or_default().add(calls);
            if mode == "append" {
                run.end("check", &file, &[Fuse], ways.len());
                run.end("check", &file, &[SharedMemory], ways.len());
            }
            served.used(move |_| std::fs::remove_file(file).unwrap());
        }
    }
    assert!(all_calls.values().any(|calls| calls.short > 0));
    for (what, calls) in all_calls {
        println!("{what}: {:.1} % short, {calls:?}", calls.share());
    }
    served.end();
}
