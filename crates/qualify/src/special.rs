//! The optional commands: Write Zeroes, Deallocate, Compare, Compare and Write, Write Uncorrectable.

use meantime_block::{BlockChannel, IoErrorKind, NvmeChannel, Request, RequestError};
use meantime_nvme::CommandError;
use meantime_nvme_spec::identify::{IdentifyNamespace, cns, dlfeat};
use meantime_nvme_spec::status::StatusCode;

use crate::data::{request_done, require_at, write};
use crate::identify::read;
use crate::notes::{Notes, Outcome, Stop};
use crate::subject::{Subject, patterns, read_by_pages};

/// Blocks of a place; the inner half of them is what the command is about.
const BLOCKS: u64 = 32;

/// Writes a pattern at each place, and has `act` do something to the inner half. `expect` is given
/// the half's data before and after, and makes of the former what is required, which is then read
/// once more, with the pattern around it.
fn around(
    subject: &Subject<'_>,
    seed: u64,
    section: &'static str,
    notes: &mut Notes,
    act: impl Fn(&mut NvmeChannel, u64, u64) -> Outcome,
    mut expect: impl FnMut(&mut [u8], &[u8]),
) -> Outcome {
    let block = subject.info().block_bytes as usize;
    let blocks = BLOCKS.min(subject.info().blocks);
    let (first, inner) = (blocks / 4, blocks / 2);
    let half = first as usize * block..(first + inner) as usize * block;
    let mut channel = subject.polled(4)?;
    for place in subject.places(blocks) {
        let mut data = patterns(seed, place, blocks as usize * block, block);
        write(&mut channel, place, &data, false)?;
        act(&mut channel, place + first, inner)?;
        let seen = read_by_pages(&mut channel, place + first, half.len())?;
        expect(&mut data[half.clone()], &seen);
        require_at(&mut channel, place, &data, section, "after the command", notes)?;
    }
    notes.undisturbed("polled", &channel.counters().polled);
    Ok(())
}

/// Write Zeroes makes zeroes, and nothing else.
pub(crate) fn write_zeroes(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let act = |channel: &mut NvmeChannel, lba, blocks| {
        request_done(channel, Request::write_zeroes(lba, blocks))
    };
    around(subject, 0x300, "1.4 §6.17", notes, act, |data, _| data.fill(0))
}

/// A deallocated block reads as DLFEAT says. The command is advice, so a block may also stay what it
/// was. Its neighbours do.
pub(crate) fn deallocate(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let section = "1.4 §6.7.1.1";
    let nsid = subject.device()?.namespace().nsid;
    let raw: IdentifyNamespace = read(subject, cns::NAMESPACE, nsid)?;
    let (value, words) = match raw.dlfeat & 7 {
        dlfeat::READ_ZEROES => (Some(0), "zeroes"),
        2 => (Some(0xff), "ones"),
        _ => (None, "what is not reported"),
    };
    notes.fact("deallocated blocks read as", words);
    let block = subject.info().block_bytes as usize;
    let (mut kept, mut wrong) = (0, 0);
    let act = |channel: &mut NvmeChannel, lba, blocks| {
        request_done(channel, Request::deallocate(lba, blocks))
    };
    around(subject, 0x310, section, notes, act, |data, seen| {
        for (data, seen) in data.chunks(block).zip(seen.chunks(block)) {
            let is_kept = seen == data;
            kept += usize::from(is_kept);
            let is_as_said = value.is_none_or(|value| seen.iter().all(|&byte| byte == value));
            wrong += usize::from(!is_kept && !is_as_said);
        }
        // What it reads as now, it reads as again.
        data.copy_from_slice(seen);
    })?;
    notes.fact("blocks that stayed what they were", kept.to_string());
    notes.require(wrong == 0, section, || {
        format!("{wrong} deallocated blocks read neither as before nor as {words} (DLFEAT)")
    });
    Ok(())
}

/// Compare tells equal data from other data, and changes nothing.
pub(crate) fn compare(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let section = "1.4 §6.6";
    let block = subject.info().block_bytes as usize;
    let mut channel = subject.polled(4)?;
    for place in subject.places(4.min(subject.info().blocks)) {
        let data = patterns(0x320, place, block * 4.min(subject.info().blocks as usize), block);
        write(&mut channel, place, &data, false)?;
        for is_equal in [true, false] {
            let mut buf = channel.alloc(data.len())?;
            buf[..data.len()].copy_from_slice(&data);
            if !is_equal {
                buf[data.len() - 1] ^= 1;
            }
            let ticket = channel
                .submit(Request::compare(place, buf))
                .map_err(|rejected| Stop::from(rejected.error))?;
            match (channel.wait(ticket).result, is_equal) {
                (Ok(()), true) => {}
                (Err(error), false) if error.kind == IoErrorKind::Miscompare => {}
                (Ok(()), false) => {
                    notes.deviates(section, "data with one other bit compare as equal".to_owned());
                }
                (Err(error), true) if error.kind == IoErrorKind::Miscompare => {
                    notes.deviates(section, "equal data compare as different".to_owned());
                }
                (Err(error), _) => return Err(Stop::Failed(error.to_string())),
            }
        }
        require_at(&mut channel, place, &data, section, "after Compare", notes)?;
    }
    Ok(())
}

/// A fused Compare and Write writes only if the comparison holds.
pub(crate) fn compare_and_write(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let section = "1.4 §6.2";
    let most = subject.info().compare_write_blocks as usize;
    if most == 0 {
        return Err(Stop::NotSupported("FUSES or ONCS does not have it".to_owned()));
    }
    notes.fact("most blocks", most.to_string());
    let block = subject.info().block_bytes as usize;
    let mut channel = subject.polled(4)?;
    let blocks = most.min(8).min(subject.info().blocks as usize);
    for place in subject.places(blocks as u64) {
        let old = patterns(0x330, place, blocks * block, block);
        let new = patterns(0x331, place, blocks * block, block);
        for is_equal in [true, false] {
            write(&mut channel, place, &old, false)?;
            let mut buf = channel.alloc(2 * blocks * block)?;
            buf[..old.len()].copy_from_slice(&old);
            buf[old.len()..2 * old.len()].copy_from_slice(&new);
            if !is_equal {
                buf[0] ^= 1;
            }
            match channel.compare_and_write(place, buf) {
                Ok((_, written)) => notes.require(written == is_equal, section, || {
                    format!("a comparison that is {is_equal} was answered by {written}")
                }),
                Err(RequestError::Failed(error)) if error.kind == IoErrorKind::Unfused => {
                    notes.deviates(section, error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
            let expected = if is_equal { &new } else { &old };
            let what = format!("after a comparison that is {is_equal}");
            require_at(&mut channel, place, expected, section, &what, notes)?;
        }
    }
    Ok(())
}

/// A block written by Write Uncorrectable cannot be read until it is written.
pub(crate) fn uncorrectable(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let section = "1.4 §6.16";
    let block = subject.info().block_bytes as usize;
    let mut channel = subject.polled(4)?;
    let page = read_by_pages(&mut channel, 0, block)?;
    request_done(&mut channel, Request::write_uncorrectable(0, 1))?;
    let buf = channel.alloc(block)?;
    match channel.read(0, buf) {
        Err(RequestError::Failed(error))
            if matches!(error.kind, IoErrorKind::Command(CommandError::Status(status))
                if status.is(StatusCode::UnrecoveredReadError)) => {}
        Err(RequestError::Failed(error)) => {
            notes.deviates(section, format!("a read of the block fails by another status: {error}"))
        }
        Err(error) => return Err(error.into()),
        Ok(_) => notes.deviates(section, "the block can be read".to_owned()),
    }
    write(&mut channel, 0, &page, false)?;
    require_at(&mut channel, 0, &page, section, "after it was written again", notes)
}
