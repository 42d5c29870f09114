//! What is written is read back: of all sizes, after Flush and FUA, across resets.

use meantime_block::{BlockChannel, NvmeChannel, Request};

use crate::notes::{Notes, Outcome, Stop};
use crate::reads::sizes_of;
use crate::subject::{Subject, difference, patterns, read_by_pages};

/// The most bytes of a place that the patterns are written to.
const PATTERN_BYTES: u64 = 4 << 20;

/// Writes `data` at `lba` by one request.
pub(crate) fn write(channel: &mut NvmeChannel, lba: u64, data: &[u8], fua: bool) -> Outcome {
    let mut buf = channel.alloc(data.len())?;
    buf[..data.len()].copy_from_slice(data);
    let request = Request::write(lba, buf);
    request_done(channel, if fua { request.fua() } else { request })
}

/// Sends a request, and waits for it.
pub(crate) fn request_done(channel: &mut NvmeChannel, request: Request) -> Outcome {
    let ticket = channel.submit(request).map_err(|rejected| Stop::from(rejected.error))?;
    channel.wait(ticket).result.map_err(|error| Stop::Failed(error.to_string()))
}

/// Requires `expected` at `lba`.
pub(crate) fn require_at(
    channel: &mut NvmeChannel,
    lba: u64,
    expected: &[u8],
    section: &'static str,
    what: &str,
    notes: &mut Notes,
) -> Outcome {
    let seen = read_by_pages(channel, lba, expected.len())?;
    if let Some(at) = difference(&seen, expected) {
        notes.deviates(section, format!("{what}: LBA {lba} has other data from byte {at} on"));
    }
    Ok(())
}

/// Writes each size at the start, the middle and the end, a block from either side; reads all back.
pub(crate) fn sizes(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let block = subject.info().block_bytes as usize;
    let sizes = sizes_of(subject);
    let most = sizes.last().copied().unwrap_or(block);
    let around = (most / block) as u64 + 2;
    let mut channel = subject.polled(4)?;
    let mut seed = 1;
    for place in subject.places(around.min(subject.info().blocks)) {
        for &size in
            sizes.iter().filter(|&&size| (size / block) as u64 + 2 <= subject.info().blocks)
        {
            subject.go_on()?;
            seed += 2;
            let whole = size + 2 * block;
            let mut expected = patterns(seed, place, whole, block);
            for (at, piece) in expected.chunks(most.max(block)).enumerate() {
                write(&mut channel, place + (at * most / block) as u64, piece, false)?;
            }
            let inner = patterns(seed + 1, place + 1, size, block);
            write(&mut channel, place + 1, &inner, false)?;
            expected[block..block + size].copy_from_slice(&inner);
            let what = format!("after a write of {size} bytes at LBA {}", place + 1);
            require_at(&mut channel, place, &expected, "1.4 §6.15", &what, notes)?;
        }
    }
    notes.fact("sizes", format!("{} from {block} to {most} bytes", sizes.len()));
    notes.undisturbed("polled", &channel.counters().polled);
    Ok(())
}

/// Flush, and writes with FUA, are done, and what was written is there.
pub(crate) fn flush(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let block = subject.info().block_bytes as usize;
    let mut channel = subject.polled(4)?;
    for (at, place) in subject.places(8.min(subject.info().blocks)).into_iter().enumerate() {
        for fua in [false, true] {
            let bytes = block * 8.min(subject.info().blocks as usize);
            let data = patterns(0x100 + 2 * at as u64 + u64::from(fua), place, bytes, block);
            write(&mut channel, place, &data, fua)?;
            if !fua {
                request_done(&mut channel, Request::flush())?;
            }
            let what = if fua { "after a write with FUA" } else { "after a write and a flush" };
            require_at(&mut channel, place, &data, "1.4 §6.8", what, notes)?;
        }
    }
    notes.undisturbed("polled", &channel.counters().polled);
    Ok(())
}

/// Blocks of zeroes, of ones, of alternating bits, and at random, are there after a reset and after
/// the device was attached anew.
pub(crate) fn patterns_kept(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let block = subject.info().block_bytes as usize;
    let bytes = PATTERN_BYTES.min(subject.info().bytes()) as usize / block * block;
    let places = subject.places((bytes / block) as u64);
    let contents: Vec<Vec<u8>> = places
        .iter()
        .map(|&place| {
            let mut data = patterns(0x200, place, bytes, block);
            for (at, piece) in data.chunks_exact_mut(block).enumerate() {
                match at % 8 {
                    0 => piece.fill(0),
                    1 => piece.fill(0xff),
                    2 => piece.fill(0x55),
                    3 => piece.fill(0xaa),
                    _ => {}
                }
            }
            data
        })
        .collect();
    let mut channel = subject.polled(4)?;
    for (&place, data) in places.iter().zip(&contents) {
        write(&mut channel, place, data, false)?;
    }
    let kept = |channel: &mut NvmeChannel, what: &str, notes: &mut Notes| -> Outcome {
        for (&place, data) in places.iter().zip(&contents) {
            require_at(channel, place, data, "1.4 §7.3.2", what, notes)?;
        }
        Ok(())
    };
    kept(&mut channel, "after the write", notes)?;
    if !subject.plan.reset {
        return Ok(());
    }
    subject.device()?.controller().reset_now();
    kept(&mut channel, "after a Controller Reset", notes)?;
    drop(channel);
    if subject.keeps_data {
        subject.attach_with(|_| {})?;
        kept(&mut subject.polled(4)?, "after the device was attached anew", notes)?;
    }
    Ok(())
}
