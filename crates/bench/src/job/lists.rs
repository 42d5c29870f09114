//! Parses fio's values that are lists: shares of sizes, and rates.

use super::Sizes;
use super::error::Why;
use super::value::{self, block};

/// The maximum number of sizes of a `bssplit`, as in fio.
const SPLITS_MAX: usize = 64;

type SizesOfBoth = ([Option<Sizes>; 2], Option<&'static str>);

/// Parses `read[,write[,trim]]`. An omitted part equals the one before.
pub(super) fn of_both<T: Clone>(
    text: &str,
    mut parse: impl FnMut(&str) -> Result<T, Why>,
) -> Result<[T; 2], Why> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() > 3 {
        return Err("expected read[,write[,trim]]".to_owned());
    }
    let mut parsed = parts.iter().map(|part| parse(part)).collect::<Result<Vec<T>, Why>>()?;
    parsed.truncate(2);
    let read = parsed.remove(0);
    let write = parsed.pop().unwrap_or_else(|| read.clone());
    Ok([read, write])
}

/// Parses `bssplit`: `4k/70:16k/30[,…]`. Sizes without a share divide the rest evenly. An empty
/// place has blocks of `bs`.
pub(super) fn block_split(text: &str) -> Result<SizesOfBoth, Why> {
    let mut note = None;
    let sizes = of_both(text, |part| {
        if part.is_empty() && text != part {
            return Ok(None);
        }
        let mut shares: Vec<(u64, Option<u8>)> = Vec::new();
        for share in part.split(':') {
            let (size, percent) = share.split_once('/').unwrap_or((share, ""));
            let size = block(size.trim())?;
            note = note.or(size.note);
            shares.push((size.bytes, optional_percent(percent)?));
        }
        if shares.len() > SPLITS_MAX {
            return Err(format!("more than {SPLITS_MAX} sizes"));
        }
        let percents = filled(shares.iter().map(|(_, percent)| *percent), "the shares")?;
        Ok(Some(Sizes::Split(shares.iter().map(|(bytes, _)| *bytes).zip(percents).collect())))
    })?;
    Ok((sizes, note))
}

fn optional_percent(text: &str) -> Result<Option<u8>, Why> {
    let text = text.trim();
    let digits = text.strip_suffix('%').unwrap_or(text);
    match digits {
        "" => Ok(None),
        digits => digits
            .parse::<u8>()
            .ok()
            .filter(|percent| *percent <= 100 && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .map(Some)
            .ok_or_else(|| "a share is a whole percentage from 0 to 100".to_owned()),
    }
}

/// Fills missing shares evenly. All shares must add up to 100.
fn filled(shares: impl Iterator<Item = Option<u8>>, what: &str) -> Result<Vec<u8>, Why> {
    let shares: Vec<Option<u8>> = shares.collect();
    let given: u32 = shares.iter().flatten().map(|percent| u32::from(*percent)).sum();
    let blanks = shares.iter().filter(|share| share.is_none()).count() as u32;
    if given > 100 || given < 100 && blanks == 0 {
        return Err(format!("{what} are {given} % together, not 100 %"));
    }
    let (each, mut over) = match blanks {
        0 => (0, 0),
        _ => ((100 - given) / blanks, (100 - given) % blanks),
    };
    let fill = |share: Option<u8>| {
        share.unwrap_or_else(|| {
            let one_more = u32::from(over > 0);
            over -= one_more;
            (each + one_more) as u8
        })
    };
    Ok(shares.into_iter().map(fill).collect())
}

/// Parses `rate` and `rate_iops`: `read[,write[,trim]]`. An empty place, or 0, is no limit.
pub(super) fn rates(text: &str, max: u64) -> Result<[Option<u64>; 2], Why> {
    of_both(text, |part| match part {
        "" => Ok(None),
        part => Ok(Some(value::int(part, 0, max)?).filter(|rate| *rate > 0)),
    })
}
