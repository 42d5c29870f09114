//! fio's values that are lists: ranges and shares of sizes, rates, distributions.

use super::value::{self, Why, block};
use super::{Distribution, Sizes, ZONES_MAX, Zone};

/// The maximum number of sizes of a `bssplit`, as in fio.
const SPLITS_MAX: usize = 64;

type SizesOfBoth = ([Option<Sizes>; 2], Option<&'static str>);

/// Parses `read[,write[,trim]]`: an omitted part equals the one before.
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

/// Parses `bsrange`: `1k-4k[,2k-8k]`.
pub(super) fn block_range(text: &str) -> Result<SizesOfBoth, Why> {
    let mut note = None;
    let sizes = of_both(text, |part| {
        let (from, to) = part
            .split_once(['-', ':'])
            .ok_or_else(|| "expected a range such as 4k-16k; for one size say bs=".to_owned())?;
        let (from, to) = (block(from.trim())?, block(to.trim())?);
        note = note.or(from.note).or(to.note);
        if from.bytes > to.bytes {
            return Err(format!("{}-{} is backwards", from.bytes, to.bytes));
        }
        if to.bytes % from.bytes != 0 {
            return Err(format!(
                "{} is not a multiple of {}, as all sizes of a range are",
                to.bytes, from.bytes
            ));
        }
        Ok(Some(Sizes::Range(from.bytes, to.bytes)))
    })?;
    Ok((sizes, note))
}

/// Parses `bssplit`: `4k/70:16k/30[,…]`. Sizes without a share divide the rest evenly.
pub(super) fn block_split(text: &str) -> Result<SizesOfBoth, Why> {
    let mut note = None;
    let sizes = of_both(text, |part| {
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

/// Fills missing shares evenly; all shares must add up to 100.
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

/// Parses `rate`, `rate_iops`: `read[,write[,trim]]`; an empty place, or 0, is no limit.
pub(super) fn rates(text: &str, max: u64) -> Result<[Option<u64>; 2], Why> {
    of_both(text, |part| match part {
        "" => Ok(None),
        part => Ok(Some(value::int(part, 0, max)?).filter(|rate| *rate > 0)),
    })
}

/// Parses `blockalign`: random places of reads and writes are multiples of these sizes.
pub(super) fn aligns(text: &str) -> Result<[Option<u64>; 2], Why> {
    of_both(text, |part| block(part).map(|size| Some(size.bytes)))
}

/// Parses a number with up to six decimals, in millionths.
pub(super) fn millionths(text: &str) -> Result<u64, Why> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && decimals.is_empty()) || !digits(whole) || !digits(decimals) {
        return Err("not a number".to_owned());
    }
    if decimals.len() > 6 {
        return Err("more than six decimals".to_owned());
    }
    let whole: u64 =
        if whole.is_empty() { 0 } else { whole.parse().map_err(|_| "too large".to_owned())? };
    let decimals: u64 = format!("{decimals:0<6}").parse().unwrap_or(0);
    whole
        .checked_mul(1_000_000)
        .and_then(|ppm| ppm.checked_add(decimals))
        .ok_or_else(|| "too large".to_owned())
}

/// Parses a part of a whole, in millionths.
pub(super) fn part(text: &str) -> Result<u64, Why> {
    match millionths(text)? {
        ppm @ 0..=1_000_000 => Ok(ppm),
        _ => Err("expected a part from 0 to 1".to_owned()),
    }
}

/// Parses `latency_percentile`, in millionths of a percent.
pub(super) fn percentile(text: &str) -> Result<u64, Why> {
    match millionths(text)? {
        ppm @ 1..=100_000_000 => Ok(ppm),
        _ => Err("expected a percentage above 0, up to 100".to_owned()),
    }
}

/// The values of `random_distribution`.
pub(super) const DISTRIBUTIONS: &str =
    "random, zipf:θ, pareto:h, normal:deviation, zoned:… or zoned_abs:…";

/// Parses `random_distribution`.
pub(super) fn distribution(text: &str) -> Result<Distribution, Why> {
    let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
    let figures = |default_ppm: u64| -> Result<(u64, Option<u64>), Why> {
        let Some(rest) = rest else { return Ok((default_ppm, None)) };
        let (figure, center) =
            rest.split_once(':').map_or((rest, None), |(figure, center)| (figure, Some(center)));
        let center_ppm = center.map(millionths).transpose()?;
        if center_ppm.is_some_and(|ppm| ppm > 1_000_000) {
            return Err("the center is a part of the range, from 0 to 1".to_owned());
        }
        Ok((millionths(figure)?, center_ppm))
    };
    match name {
        "random" if rest.is_none() => Ok(Distribution::Uniform),
        "zipf" => {
            let (theta_ppm, center_ppm) = figures(1_100_000)?;
            match theta_ppm {
                0 | 1_000_000 => Err("theta must be more than 0 and not 1.0".to_owned()),
                _ if theta_ppm > 100_000_000 => Err("theta must be 100 at most".to_owned()),
                _ => Ok(Distribution::Zipf { theta_ppm, center_ppm }),
            }
        }
        "pareto" => {
            let (h_ppm, center_ppm) = figures(200_000)?;
            match h_ppm {
                1..1_000_000 => Ok(Distribution::Pareto { h_ppm, center_ppm }),
                _ => Err("the power must be between 0 and 1".to_owned()),
            }
        }
        "normal" => {
            let (deviation_ppm, center_ppm) = figures(0)?;
            match deviation_ppm {
                0..100_000_000 => Ok(Distribution::Normal { deviation_ppm, center_ppm }),
                _ => Err("the deviation is a percentage below 100".to_owned()),
            }
        }
        "zoned" => {
            let zones =
                zones(rest.unwrap_or_default(), |length| match optional_percent(length)? {
                    Some(0) => Err("a zone must not be empty".to_owned()),
                    percent => Ok(percent.map(u64::from)),
                })?;
            if zones.iter().any(|zones| zones.iter().map(|zone| zone.length).sum::<u64>() > 100) {
                return Err("the zones are longer than 100 % together".to_owned());
            }
            Ok(Distribution::Zoned(zones))
        }
        "zoned_abs" => Ok(Distribution::ZonedAbs(zones(rest.unwrap_or_default(), |length| {
            block_length(length).map(Some)
        })?)),
        _ => Err(format!("expected {DISTRIBUTIONS}")),
    }
}

fn block_length(text: &str) -> Result<u64, Why> {
    match value::whole_sectors(value::size(text.trim())?)?.bytes {
        0 => Err("a zone must not be empty".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Parses zones of reads and of writes. `length` returns `None` for an omitted length: those zones
/// share the rest of 100 %.
fn zones(
    text: &str,
    length: impl Fn(&str) -> Result<Option<u64>, Why>,
) -> Result<[Vec<Zone>; 2], Why> {
    let both = of_both(text, |part| {
        let mut zones: Vec<(Option<u8>, Option<u64>)> = Vec::new();
        for zone in part.split(':') {
            if zone.trim().is_empty() {
                return Err("a zone is its share of the accesses and its length: 60/10".to_owned());
            }
            let (access, of) = zone.split_once('/').unwrap_or((zone, ""));
            zones.push((optional_percent(access)?, length(of)?));
        }
        if zones.len() > ZONES_MAX {
            return Err(format!("more than {ZONES_MAX} zones"));
        }
        let shares = filled(zones.iter().map(|(access, _)| *access), "the accesses")?;
        let lengths = lengths(zones.iter().map(|(_, length)| *length).collect())?;
        let zones = lengths.into_iter().zip(shares);
        Ok(zones
            .map(|(length, access_percent)| Zone { access_percent, length })
            .collect::<Vec<_>>())
    })?;
    for zones in &both {
        if zones.iter().try_fold(0u64, |sum, zone| sum.checked_add(zone.length)).is_none() {
            return Err("the zones are too large for 64 bits".to_owned());
        }
    }
    Ok(both)
}

/// Divides the rest of 100 % evenly among the missing lengths; the last one also gets the remainder
/// of the division.
fn lengths(given: Vec<Option<u64>>) -> Result<Vec<u64>, Why> {
    let blanks = given.iter().filter(|length| length.is_none()).count() as u64;
    let sum = given.iter().flatten().fold(0u64, |sum, length| sum.saturating_add(*length));
    let left = 100u64.saturating_sub(sum);
    if blanks > left {
        return Err("nothing is left for the zones without a length".to_owned());
    }
    let mut blanks_left = blanks;
    let fill = |length: Option<u64>| {
        length.unwrap_or_else(|| {
            blanks_left -= 1;
            if blanks_left > 0 { left / blanks } else { left - left / blanks * (blanks - 1) }
        })
    };
    Ok(given.into_iter().map(fill).collect())
}
