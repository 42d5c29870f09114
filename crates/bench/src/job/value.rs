//! fio's value types: int with suffix, time, bool, percent, and CPU list.
//!
//! Sizes follow fio 3.x with its default `kb_base=1024`: `k` and `kb` are 1024 bytes, while `kib`
//! is **1000** (fio keeps old scripts' meaning, opposite to SI and IEC). For `ki` fio's manual says
//! 1000 and its parser takes 1024; we follow the parser. Both deserve a warning, so sizes come with
//! an optional note.

use std::collections::BTreeSet;
use std::time::Duration;

use meantime_ext4::{CommitOverlap, Overlap};
use meantime_hw::SchedClass;
use meantime_hw::sched::ParseSchedClassError;

use super::error::{Why, shown};
use super::{
    BS_MAX_BYTES, CPU_MAX, Extent, Hint, LogName, PM_QOS_MAX_US, Rw, SECTOR_BYTES, SETTINGS_MAX,
    Verify,
};
use crate::competitor::Kind;

/// A size, with a note if it was written ambiguously.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub bytes: u64,
    pub note: Option<&'static str>,
}

const NOTE_KIB: &str = "as in fio (kb_base=1024), the suffixes kib, mib, gib … are powers of 1000; \
                        write k, m, g for 1024";
const NOTE_KI: &str =
    "ki, mi, gi … are taken as powers of 1024, as fio does (its manual says 1000); write k, m, g";

/// Splits leading digits (decimal, or hexadecimal after `0x`) from what follows.
fn number_and_suffix(text: &str) -> Result<(u64, &str), Why> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = hex.map_or((text, 10), |digits| (digits, 16));
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (digits, suffix) = digits.split_at(end);
    if digits.is_empty() {
        return Err(
            if text.starts_with('-') { "must not be negative" } else { "not a number" }.to_owned()
        );
    }
    let number =
        u64::from_str_radix(digits, radix).map_err(|_| "too large for 64 bits".to_owned())?;
    if suffix.starts_with('.') {
        return Err("not a whole number; use a smaller unit, as 1500ms for 1.5 s".to_owned());
    }
    Ok((number, suffix))
}

/// The values of `overlap`.
pub(super) const OVERLAPS: &str =
    "all, none, or a list of preload, pool, lazy-insert and lazy-unmap";

/// Parses `all`, `none` or a list of `words`.
fn chosen<'a>(text: &'a str, words: &[&'a str], expected: &str) -> Result<Vec<&'a str>, Why> {
    match text {
        "all" => Ok(words.to_vec()),
        "none" => Ok(Vec::new()),
        _ => each_once(text, |word| match words.contains(&word) {
            true => Ok(word),
            false => Err(format!("there is no {word:?}; expected {expected}")),
        }),
    }
}

/// Parses steps of the read path.
pub(super) fn overlap(text: &str) -> Result<Overlap, Why> {
    let steps = chosen(text, &["preload", "pool", "lazy-insert", "lazy-unmap"], OVERLAPS)?;
    let has = |step| steps.contains(&step);
    Ok(Overlap {
        preload: has("preload"),
        pool: has("pool"),
        lazy_insert: has("lazy-insert"),
        lazy_unmap: has("lazy-unmap"),
    })
}

/// The values of `commit_overlap`.
pub(super) const COMMIT_OVERLAPS: &str = "all, none, or a list of direct, data and prepare";

/// Parses waits of a commit.
pub(super) fn commit_overlap(text: &str) -> Result<CommitOverlap, Why> {
    let waits = chosen(text, &["direct", "data", "prepare"], COMMIT_OVERLAPS)?;
    let has = |wait| waits.contains(&wait);
    Ok(CommitOverlap { data: has("data"), prepare: has("prepare"), caller_commits: has("direct") })
}

/// Parses the size of a page cache.
pub(super) fn cache_bytes(text: &str) -> Result<usize, Why> {
    match usize::try_from(size(text)?.bytes) {
        Ok(bytes) if bytes >= 1 << 20 => Ok(bytes),
        _ => Err("a page cache has at least 1m".to_owned()),
    }
}

/// Parses fio's `fadvise_hint`.
pub(super) fn hint(text: &str) -> Result<Hint, Why> {
    match text {
        "0" | "none" => Ok(Hint::None),
        "1" => Ok(Hint::ByPattern),
        "random" => Ok(Hint::Random),
        "sequential" => Ok(Hint::Sequential),
        _ => Err("expected 0 (none), 1 (by rw), random or sequential".to_owned()),
    }
}

/// Parses a whole number within `min..=max`. fio's size suffixes are allowed (`loops=1k`).
pub(super) fn int(text: &str, min: u64, max: u64) -> Result<u64, Why> {
    let number = size(text)?.bytes;
    if number < min || number > max {
        return Err(format!("out of range, expected {min} to {max}"));
    }
    Ok(number)
}

/// Parses a size in bytes.
pub(super) fn size(text: &str) -> Result<Size, Why> {
    let (number, suffix) = number_and_suffix(text)?;
    let lower = suffix.to_ascii_lowercase();
    let mut rest = lower.as_str();
    let power = match rest.chars().next() {
        Some(letter @ ('k' | 'm' | 'g' | 't' | 'p')) => {
            rest = &rest[1..];
            "kmgtp".find(letter).map_or(0, |at| at as u32 + 1)
        }
        _ => 0,
    };
    let (base, note) = match (power, rest) {
        (0, "" | "b") => (1, None),
        (1.., "" | "b") => (1024u64, None),
        (1.., "ib") => (1000, Some(NOTE_KIB)),
        (1.., "i") => (1024, Some(NOTE_KI)),
        _ => {
            return Err(format!("unknown suffix {:?}, expected one of k m g t p", shown(suffix)));
        }
    };
    let factor = base.checked_pow(power);
    let bytes =
        factor.and_then(|factor| number.checked_mul(factor)).ok_or("too large for 64 bits")?;
    Ok(Size { bytes, note })
}

/// Parses a size in bytes, or a percentage.
pub(super) fn extent(text: &str) -> Result<(Extent, Option<&'static str>), Why> {
    if let Some(percent) = text.strip_suffix('%') {
        let (percent, rest) = number_and_suffix(percent)?;
        return match u8::try_from(percent) {
            Ok(percent @ 0..=100) if rest.is_empty() => Ok((Extent::Percent(percent), None)),
            _ => Err("a percentage is a whole number from 0 to 100".to_owned()),
        };
    }
    let size = whole_sectors(size(text)?)?;
    Ok((Extent::Bytes(size.bytes), size.note))
}

/// Checks that a size is a multiple of a sector.
pub(super) fn whole_sectors(size: Size) -> Result<Size, Why> {
    match size.bytes % SECTOR_BYTES {
        0 => Ok(size),
        _ => Err(format!("{} bytes is not a multiple of {SECTOR_BYTES}", size.bytes)),
    }
}

/// Parses a block size.
pub(super) fn block(text: &str) -> Result<Size, Why> {
    let size = size(text)?;
    if size.bytes == 0 {
        return Err("a block must not be empty".to_owned());
    }
    let hint = match size.note {
        Some(_) => " (a suffix such as kib means 1000; write k for 1024)",
        None => "",
    };
    let size = whole_sectors(size).map_err(|why| why + hint)?;
    if size.bytes > BS_MAX_BYTES {
        return Err(format!("{} bytes is more than {BS_MAX_BYTES} (1g)", size.bytes));
    }
    Ok(size)
}

/// Parses a time. A number without a unit is in units of `default_us`.
pub(super) fn time_in(text: &str, default_us: u64) -> Result<Duration, Why> {
    let (number, suffix) = number_and_suffix(text)?;
    let unit_us: u64 = match suffix.to_ascii_lowercase().as_str() {
        "" => default_us,
        "us" | "usec" => 1,
        "ms" | "msec" => 1_000,
        "s" | "sec" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => {
            return Err(format!(
                "unknown unit {:?}, expected us, ms, s, m (minutes), h or d",
                shown(suffix)
            ));
        }
    };
    // The limit is ten years in µs. A longer time is a mistake, and sums of times cannot overflow.
    let us = number
        .checked_mul(unit_us)
        .filter(|us| *us <= 3650 * 86_400_000_000)
        .ok_or("longer than ten years")?;
    Ok(Duration::from_micros(us))
}

/// Parses fio's bool.
pub(super) fn boolean(text: &str) -> Result<bool, Why> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err("expected 1 or 0".to_owned()),
    }
}

/// Parses a whole percentage.
pub(super) fn percent(text: &str) -> Result<u8, Why> {
    int(text.strip_suffix('%').unwrap_or(text), 0, 100).map(|percent| percent as u8)
}

/// Parses text that can be printed on one line.
pub(super) fn printable(text: &str) -> Result<String, Why> {
    if text.chars().any(char::is_control) {
        return Err("contains a control character".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses a job's name, which is any text that can be printed on one line.
pub(super) fn job_name(text: &str) -> Result<String, Why> {
    match text.trim() {
        "" => Err("a job needs a name".to_owned()),
        "global" => Err("global is not a job".to_owned()),
        name if name.chars().nth(256).is_some() => Err("longer than 256 characters".to_owned()),
        name => printable(name),
    }
}

/// Parses the first part of a log's name. If there is none, it is the job's name.
pub(super) fn log_name(text: &str) -> Result<Option<LogName>, Why> {
    let named = || printable(text).map(LogName::Named);
    Ok(Some(if text.is_empty() { LogName::OfJob } else { named()? }))
}

/// Checks `completion`, a list that is parsed when the whole job is known.
pub(super) fn policies(text: &str) -> Result<String, Why> {
    if text.split(',').any(|policy| policy.trim().is_empty()) {
        return Err("a policy in the list is empty".to_owned());
    }
    printable(text)
}

/// The values of `rw`.
pub(super) const RW_KINDS: &str =
    "read, write, randread, randwrite, rw, randrw, trim, randtrim, trimwrite or randtrimwrite";

/// Parses `rw`.
pub(super) fn rw(text: &str) -> Result<Rw, Why> {
    let found = Rw::WORDS.iter().find(|(word, _)| *word == text);
    found.map(|(_, rw)| *rw).ok_or_else(|| match text.contains(':') {
        true => "a number after it is left to fio, with our engine; leave it out".to_owned(),
        false => format!("expected {RW_KINDS}"),
    })
}

/// The values of `verify`.
pub(super) const METHODS: &str = "crc32c, crc64, md5, sha256, meta, pattern, pattern_hdr or none";

/// Parses `verify`.
pub(super) fn verify(text: &str) -> Result<Verify, Why> {
    match text {
        "none" | "0" => Ok(Verify::None),
        "meta" => Ok(Verify::Meta),
        "crc32c" | "crc32c-intel" => Ok(Verify::Crc32c),
        "crc64" => Ok(Verify::Crc64),
        "md5" => Ok(Verify::Md5),
        "sha256" => Ok(Verify::Sha256),
        "pattern" => Ok(Verify::Pattern),
        "pattern_hdr" => Ok(Verify::PatternHdr),
        "crc7" | "crc16" | "crc32" | "xxhash" | "sha512" | "sha1" | "sha3-224" | "sha3-256"
        | "sha3-384" | "sha3-512" | "null" => {
            Err("fio's method is not supported; say crc32c, crc64, md5, sha256, meta or pattern"
                .to_owned())
        }
        _ => Err(format!("expected {METHODS}")),
    }
}

/// Parses `bs`: `read[,write[,trim]]`. A size also applies to those after it, unless a comma ends
/// the list. Returns `None` where the list leaves a size unchanged.
pub(super) fn block_sizes(text: &str) -> Result<([Option<u64>; 2], Option<&'static str>), Why> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() > 3 || parts.iter().all(|part| part.is_empty()) {
        return Err("expected read[,write[,trim]] sizes".to_owned());
    }
    let mut sizes = [None; 3];
    let mut note = None;
    for (at, part) in parts.iter().enumerate().filter(|(_, part)| !part.is_empty()) {
        let size = block(part)?;
        note = note.or(size.note);
        // The last size applies to the following ones. With a trailing comma it is not the last.
        let upto = if at + 1 == parts.len() { sizes.len() } else { at + 1 };
        sizes[at..upto].fill(Some(size.bytes));
    }
    Ok(([sizes[0], sizes[1]], note))
}

/// Parses `competitor`: `none`, `tsc` or `walk=8m`. A size alone is that of a working set.
pub(super) fn competitor(text: &str) -> Result<Option<Kind>, Why> {
    match text {
        "none" => Ok(None),
        _ if text.starts_with(|c: char| c.is_ascii_digit()) => {
            format!("walk={text}").parse().map(Some)
        }
        _ => text.parse().map(Some),
    }
}

/// Parses `sched`: `other,rr:1,fifo:1,slice:1ms`.
pub(super) fn scheds(text: &str) -> Result<Vec<SchedClass>, Why> {
    each_once(text, |part| part.parse().map_err(|error: ParseSchedClassError| error.to_string()))
}

/// Parses `pm_qos`: `none,0,20`, in µs.
pub(super) fn pm_qos_us(text: &str) -> Result<Vec<Option<u32>>, Why> {
    each_once(text, |part| match part {
        "none" => Ok(None),
        part => {
            let limit = time_in(part, 1)?.as_micros();
            let limit = u32::try_from(limit).ok().filter(|us| *us <= PM_QOS_MAX_US);
            limit.map(Some).ok_or_else(|| {
                "longer than the kernel's longest limit, 2,000 s; say none".to_owned()
            })
        }
    })
}

/// Parses a list of values to compare, each once.
fn each_once<'t, T: PartialEq>(
    text: &'t str,
    one: impl Fn(&'t str) -> Result<T, Why>,
) -> Result<Vec<T>, Why> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim) {
        let value = one(part)?;
        if all.contains(&value) {
            return Err(format!("{} is listed twice", shown(part)));
        }
        if all.len() == SETTINGS_MAX {
            return Err(format!("more than {SETTINGS_MAX} values"));
        }
        all.push(value);
    }
    Ok(all)
}

/// Parses `cpus_allowed`: `0-1,3`, as an ascending list with each once.
pub(super) fn cpus(text: &str) -> Result<Vec<u32>, Why> {
    let mut numbers = BTreeSet::new();
    for part in text.split(',').map(str::trim) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |digits: &str| {
            let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = digits.parse::<u32>().ok().filter(|number| plain && *number <= CPU_MAX);
            number.ok_or_else(|| {
                let part = shown(part);
                format!("{part:?} is not a CPU number up to {CPU_MAX} or a range such as 0-3")
            })
        };
        let (from, to) = (number(from.trim())?, number(to.trim())?);
        if from > to {
            return Err(format!("{from}-{to} is backwards"));
        }
        numbers.extend(from..=to);
    }
    Ok(numbers.into_iter().collect())
}
