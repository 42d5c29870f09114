//! Power is cut: what was flushed is there, and atomic writes are there as a whole or not at all.

use std::process::Command;
use std::time::{Duration, Instant};

use meantime_block::Request;
use meantime_nvme_spec::identify::{IdentifyController, IdentifyNamespace, cns};

use crate::data::{request_done, require_at, write};
use crate::identify::read;
use crate::notes::{Notes, Outcome, Stop};
use crate::subject::{Subject, patterns, read_by_pages};

/// How long the device may take to come back.
const BACK: Duration = Duration::from_secs(60);
/// Atomic units that are overwritten without a flush.
const UNITS: u64 = 64;

/// Writes and flushes, overwrites a part without a flush, has power cut, and reads.
pub(crate) fn cycle(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let Some(command) = subject.plan.power_cycle else {
        return Err(Stop::NotTested("needs a power cut: --power-cycle COMMAND".to_owned()));
    };
    if !subject.keeps_data {
        return Err(Stop::NotTested("the device ends with this process".to_owned()));
    }
    let nsid = subject.device()?.namespace().nsid;
    let controller: IdentifyController = read(subject, cns::CONTROLLER, 0)?;
    let namespace: IdentifyNamespace = read(subject, cns::NAMESPACE, nsid)?;
    // A unit that divides the boundary never crosses it.
    let boundary = u64::from(namespace.nabspf.get()) + 1;
    let most = (u64::from(controller.awupf.get()) + 1)
        .min(u64::from(subject.info().max_transfer_bytes / subject.info().block_bytes));
    let unit = if boundary > 1 { most.min(boundary) } else { most };
    let unit = if boundary > 1 && boundary % unit != 0 { 1 } else { unit };
    let block = subject.info().block_bytes as usize;
    let units = UNITS.min(subject.info().blocks / unit / 2).max(1);
    let bytes = (units * unit) as usize * block;
    let (old, new) = (patterns(0x500, 0, bytes, block), patterns(0x501, 0, bytes, block));
    let kept_lba = units * unit;
    let kept = patterns(0x502, kept_lba, bytes, block);
    let mut channel = subject.polled(8)?;
    write(&mut channel, 0, &old, false)?;
    for (at, piece) in kept.chunks(unit as usize * block).enumerate() {
        write(&mut channel, kept_lba + at as u64 * unit, piece, false)?;
    }
    request_done(&mut channel, Request::flush())?;
    for (at, piece) in new.chunks(unit as usize * block).enumerate() {
        write(&mut channel, at as u64 * unit, piece, false)?;
    }
    drop(channel);
    let status = Command::new("sh").args(["-c", command]).status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(Stop::NotTested(format!("{command}: {status}"))),
        Err(error) => return Err(Stop::NotTested(format!("{command}: {error}"))),
    }
    let start = Instant::now();
    while let Err(error) = subject.attach_with(|_| {}) {
        if start.elapsed() > BACK || subject.plan.stopped() {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut channel = subject.polled(8)?;
    let what = "flushed, then power was cut";
    require_at(&mut channel, kept_lba, &kept, "1.4 §6.8", what, notes)?;
    let seen = read_by_pages(&mut channel, 0, bytes)?;
    let (mut lost, mut torn) = (0, 0);
    let pieces = seen.chunks(unit as usize * block);
    let both = old.chunks(unit as usize * block).zip(new.chunks(unit as usize * block));
    for (seen, (old, new)) in pieces.zip(both) {
        lost += u64::from(seen == old);
        torn += u64::from(seen != old && seen != new);
    }
    notes.require(torn == 0, "1.4 §6.4.2", || {
        format!("{torn} of {units} writes of {unit} blocks (AWUPF) are there in part")
    });
    let has_cache = subject.info().volatile_write_cache;
    notes.require(lost == 0 || has_cache, "1.4 §5.21.1.6", || {
        format!("{lost} writes that were done are lost, although there is no volatile write cache")
    });
    notes.fact("unflushed writes lost", format!("{lost} of {units}"));
    Ok(())
}
