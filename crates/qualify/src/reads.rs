//! Reads of every size around what one command may transfer, and across boundaries.

use std::collections::BTreeSet;

use meantime_block::BlockChannel;
use meantime_nvme_spec::identify::{IdentifyNamespace, cns};

use crate::identify::read;
use crate::notes::{Notes, Outcome, Stop};
use crate::subject::{PAGE, Subject, difference, read_by_pages};

/// The largest read or write that is tried.
const BYTES_MAX: usize = 8 << 20;

/// The sizes to try, in bytes: around a block, one and two pages (PRP1 and PRP2), a list, what one
/// command may transfer, and twice that.
pub(crate) fn sizes_of(subject: &Subject<'_>) -> Vec<usize> {
    let info = subject.info();
    let block = info.block_bytes as usize;
    let most = (info.max_transfer_bytes as usize).min(BYTES_MAX / 2);
    let mut sizes = BTreeSet::new();
    for around in [block, PAGE, 2 * PAGE, 3 * PAGE, 16 * PAGE, most / 2, most, 2 * most] {
        for size in [around.saturating_sub(block), around, around + block] {
            let size = size / block * block;
            if size > 0 && size as u64 <= info.bytes() {
                sizes.insert(size);
            }
        }
    }
    sizes.into_iter().collect()
}

/// Reads each size at the start, the middle and the end, and requires what reads by pages gave.
pub(crate) fn sizes(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let sizes = sizes_of(subject);
    let block = subject.info().block_bytes as usize;
    let most = sizes.last().copied().unwrap_or(block);
    let mut channel = subject.polled(4)?;
    for place in subject.places((most / block) as u64) {
        let expected = read_by_pages(&mut channel, place, most)?;
        for &size in &sizes {
            subject.go_on()?;
            let mut buf = channel.alloc(size)?;
            buf.fill(0xee);
            let buf = channel.read(place, buf)?;
            if let Some(at) = difference(&buf[..size], &expected) {
                notes.deviates(
                    "1.4 §4.3",
                    format!(
                        "a read of {size} bytes at LBA {place} gives other data from byte {at} on \
                         than reads by pages"
                    ),
                );
            }
        }
    }
    notes.fact("sizes", format!("{} from {block} to {most} bytes", sizes.len()));
    notes.undisturbed("polled", &channel.counters().polled);
    Ok(())
}

/// Reads across the namespace's boundaries.
pub(crate) fn boundaries(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let raw: IdentifyNamespace = read(subject, cns::NAMESPACE, subject.device()?.namespace().nsid)?;
    // The atomic boundaries are 0's based, and 0 is none.
    let atomic = |boundary: u16| if boundary == 0 { 0 } else { u64::from(boundary) + 1 };
    let boundaries = [
        ("optimal I/O boundary", u64::from(raw.noiob.get())),
        ("atomic boundary", atomic(raw.nabsn.get())),
        ("atomic boundary, power fail", atomic(raw.nabspf.get())),
    ];
    let block = subject.info().block_bytes as usize;
    let mut channel = subject.polled(4)?;
    let mut tried = false;
    for (name, boundary) in boundaries.into_iter().filter(|(_, boundary)| *boundary > 0) {
        notes.fact(name, format!("{boundary} blocks"));
        for at in [boundary, 2 * boundary].into_iter().filter(|&at| at < subject.info().blocks - 1)
        {
            tried = true;
            let mut expected = read_by_pages(&mut channel, at - 1, block)?;
            expected.extend(read_by_pages(&mut channel, at, block)?);
            let buf = channel.alloc(2 * block)?;
            let buf = channel.read(at - 1, buf)?;
            notes.require(buf[..2 * block] == expected[..], "1.4 §5.15.2.1", || {
                format!("a read across the {name} at LBA {at} gives other data than two reads")
            });
        }
    }
    notes.undisturbed("polled", &channel.counters().polled);
    if tried {
        return Ok(());
    }
    Err(Stop::NotSupported("the namespace has no boundaries".to_owned()))
}
