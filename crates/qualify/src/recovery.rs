//! Resets, aborts and re-attachment in the midst of I/O.

use std::time::Instant;

use meantime_nvme::AdminQueries as _;
use meantime_nvme_spec::identify::cns;

use crate::notes::{Notes, Outcome, Stop};
use crate::reads;
use crate::subject::{Subject, read_scattered};

const ROUNDS: u32 = 5;
const DEPTH: u16 = 32;
/// Few enough that a device which does end what it is told to abort gets on.
const DEPTH_ABORTED: u16 = 8;

/// Resets the controller while reads are in flight. The driver repeats them.
pub(crate) fn reset(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let controller = subject.device()?.controller().clone();
    let before = controller.smart()?.power_cycles.get();
    let mut channel = subject.polled(DEPTH)?;
    let (blocks, expected) = subject.content(&mut channel)?;
    let mut longest_ms = 0;
    for _ in 0..ROUNDS {
        let mut is_due = true;
        let mut disturb = || {
            if std::mem::take(&mut is_due) {
                let start = Instant::now();
                controller.reset_now();
                longest_ms = longest_ms.max(start.elapsed().as_millis());
            }
        };
        let lbas = (0..u64::from(4 * DEPTH)).map(|at| at * 7 % blocks);
        read_scattered(&mut channel, lbas, &expected, notes, &mut disturb)?;
        subject.go_on()?;
    }
    notes.fact("longest reset", format!("{longest_ms} ms"));
    notes.fact("reads repeated", channel.counters().polled.requeued.to_string());
    let after = controller.smart()?.power_cycles.get();
    notes.require(before == after, "1.4 §5.14.1.2", || {
        format!("Power Cycles went from {before} to {after} by a Controller Reset")
    });
    Ok(())
}

/// Gives commands a deadline of little more than what one takes alone, so that the driver aborts
/// many of them.
pub(crate) fn abort(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let timeout_ns = subject.read_ns.map_or(10_000, |read_ns| (read_ns * 3 / 2).max(1_000));
    subject.attach_with(|options| {
        options.io_timeout_ns = timeout_ns;
        options.retries = u8::MAX;
    })?;
    let outcome = aborted(subject, notes);
    let back = subject.attach_with(|_| {});
    outcome.and(back.map(drop))
}

fn aborted(subject: &Subject<'_>, notes: &mut Notes) -> Outcome {
    let mut channel = subject.polled(DEPTH_ABORTED)?;
    let (blocks, expected) = subject.content(&mut channel)?;
    for _ in 0..ROUNDS {
        let lbas = (0..u64::from(8 * DEPTH)).map(|at| at * 7 % blocks);
        read_scattered(&mut channel, lbas, &expected, notes, &mut || {})?;
        subject.go_on()?;
    }
    let counters = channel.counters().polled;
    notes.fact("aborts", counters.aborts.to_string());
    notes.require(counters.recreations == 0, "1.4 §5.1", || {
        format!(
            "{} of {} aborted commands did not end within a second, neither aborted nor done",
            counters.recreations, counters.aborts
        )
    });
    notes.require(counters.strays == 0, "1.4 §5.1", || {
        format!("{} commands were completed twice after an Abort", counters.strays)
    });
    Ok(())
}

/// Detaches the device and attaches it, and requires the same controller and the same data.
pub(crate) fn attach(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let state = |subject: &Subject<'_>| -> Outcome<(Vec<u8>, Vec<u8>)> {
        let (_, data) = subject.content(&mut subject.polled(4)?)?;
        Ok((subject.device()?.controller().identify_data(cns::CONTROLLER, 0)?, data))
    };
    let before = state(subject)?;
    let mut longest_ms = 0;
    for _ in 0..3 {
        longest_ms = longest_ms.max(subject.attach_with(|_| {})?.as_millis());
        let after = state(subject)?;
        // Serial number, model, and what the controller can do, up to the volatile fields.
        notes.require(before.0[4..64] == after.0[4..64], "1.4 §5.15.2.2", || {
            "serial number or model changed when the controller was attached anew".to_owned()
        });
        notes.require(before.1 == after.1 || !subject.keeps_data, "1.4 §7.3.2", || {
            "data changed when the controller was attached anew".to_owned()
        });
        subject.go_on()?;
    }
    notes.fact("longest time to attach", format!("{longest_ms} ms"));
    Ok(())
}

/// Reads all sizes with SGL descriptors instead of PRP lists.
pub(crate) fn sgl(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    if subject.is_fabric {
        return Err(Stop::NotTested("all commands over a network have SGLs".to_owned()));
    }
    if subject.device()?.controller().info().sgls & 3 == 0 {
        return Err(Stop::NotSupported("the controller supports no SGLs (SGLS)".to_owned()));
    }
    subject.attach_with(|options| options.sgl = true)?;
    let outcome = reads::sizes(subject, notes);
    let back = subject.attach_with(|_| {});
    outcome.and(back.map(drop))
}
