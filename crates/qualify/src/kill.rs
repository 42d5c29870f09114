//! A process that writes is killed; what it was told to be done is there.

use std::io::{self, BufRead as _, BufReader, Write};
use std::process::Stdio;

use meantime_block::{BlockChannel, Request};
use meantime_nvme::ControllerOptions;
use meantime_random::Rng;

use crate::data::require_at;
use crate::notes::{Notes, Outcome, Stop};
use crate::plan::Plan;
use crate::subject::{Subject, patterns};

/// How often a writer is killed.
const ROUNDS: u64 = 3;
/// Blocks that the writer goes round in.
const BLOCKS: u64 = 4096;
const DEPTH: u16 = 8;

/// Writes blocks with the pattern of `seed`, and prints the LBA of each when the device has it,
/// until the process is killed or its output is closed.
///
/// # Errors
/// Returns what the device or the output says.
pub fn write_until_killed(
    uri: &str,
    seed: u64,
    out: &mut impl Write,
) -> Result<(), Box<dyn std::error::Error>> {
    let stop = std::sync::atomic::AtomicBool::new(false);
    let plan = Plan {
        uri,
        destroy: true,
        reset: true,
        measured: std::time::Duration::ZERO,
        timeout: std::time::Duration::from_nanos(ControllerOptions::default().io_timeout_ns),
        power_cycle: None,
        writer: None,
        stop: &stop,
    };
    let subject = Subject::open(&plan, &uri.parse()?)?;
    let failed = |error: Stop| match error {
        Stop::NotSupported(what) | Stop::NotTested(what) | Stop::Failed(what) => what,
    };
    let mut channel = subject.polled(DEPTH).map_err(failed)?;
    let block = subject.info().block_bytes as usize;
    let blocks = BLOCKS.min(subject.info().blocks);
    let (mut next, mut outstanding) = (0u64, 0);
    loop {
        while outstanding < u64::from(channel.depth()).min(blocks) {
            let lba = next % blocks;
            let mut buf = channel.alloc(block)?;
            buf[..block].copy_from_slice(&patterns(seed, lba, block, block));
            channel
                .enqueue(Request::write(lba, buf).user_data(lba))
                .map_err(|rejected| rejected.error)?;
            (next, outstanding) = (next + 1, outstanding + 1);
        }
        if let Some(done) = channel.wait_done() {
            outstanding -= 1;
            let lba = done.user_data;
            done.into_buf()?;
            writeln!(out, "{lba}")?;
            out.flush()?;
        }
    }
}

/// Has a process write, kills it, attaches the device, and reads what it was told to be done.
pub(crate) fn killed(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let Some(writer) = subject.plan.writer else {
        return Err(Stop::NotTested("no other process can be started".to_owned()));
    };
    if !subject.keeps_data {
        return Err(Stop::NotTested("the device ends with this process".to_owned()));
    }
    if !subject.plan.reset {
        return Err(Stop::NotTested("the controller would be reset".to_owned()));
    }
    let mut random = Rng::new(1);
    let mut all = 0;
    for seed in 0x400..0x400 + ROUNDS {
        subject.detach();
        let done = written(writer.command(seed), 50 + random.below(2000))
            .map_err(|error| Stop::NotTested(format!("the writing process: {error}")))?;
        subject.attach_with(|_| {})?;
        let block = subject.info().block_bytes as usize;
        let mut channel = subject.polled(4)?;
        all += done.len();
        for lba in done {
            let expected = patterns(seed, lba, block, block);
            let what = "after the writer was killed";
            require_at(&mut channel, lba, &expected, "1.4 §7.3.2", what, notes)?;
        }
        subject.go_on()?;
    }
    notes.require(all > 0, "1.4 §9", || "no write was done before the kill".to_owned());
    notes.fact("writes that were done", all.to_string());
    Ok(())
}

/// The LBAs that a process printed: it is killed after `count` of them.
fn written(mut command: std::process::Command, count: u64) -> io::Result<Vec<u64>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let Some(out) = child.stdout.take() else { return Ok(Vec::new()) };
    let mut lines = BufReader::new(out).lines();
    let mut done = Vec::new();
    for line in lines.by_ref().take(count as usize) {
        done.push(line?);
    }
    child.kill()?;
    // A line that was begun when the process was killed does not count.
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    done.extend(rest.iter().take(rest.len().saturating_sub(1)).cloned());
    child.wait()?;
    Ok(done.iter().filter_map(|line| line.parse().ok()).collect())
}
