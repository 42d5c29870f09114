//! The keys: the one place that knows what each is called, what it takes and what it does.

use super::error::{JobError, Origin, Problem, shown};
use super::{Extent, IODEPTH_MAX, Job, NUMJOBS_MAX, SECTOR_BYTES, SetKey, value};

/// Keys we obey: usual name, fio's synonyms, what it takes.
const OBEYED: &[(&str, &[&str], &str)] = &[
    ("name", &[], "a name"),
    ("rw", &["readwrite"], "read, write, randread, randwrite, rw or randrw"),
    ("bs", &["blocksize"], "a size such as 4k, or read and write sizes such as 4k,8k"),
    ("iodepth", &[], "a number from 1 to 1024"),
    ("numjobs", &[], "a number from 1 to 1024"),
    ("size", &[], "a size such as 1g or 20%"),
    ("offset", &[], "a size such as 1g or 20%"),
    ("runtime", &["timeout"], "a time such as 10 (seconds) or 500ms"),
    ("time_based", &[], "1 or 0"),
    ("ramp_time", &[], "a time such as 2 (seconds) or 500ms"),
    ("rwmixread", &[], "a percentage from 0 to 100"),
    ("rwmixwrite", &[], "a percentage from 0 to 100"),
    ("verify", &[], "crc32c or none"),
    ("cpus_allowed", &[], "a list such as 0-1,3"),
    ("filename", &[], "a device URI such as mem:1G?model=optane"),
    ("loops", &[], "a number"),
    ("completion", &[], "a list such as interrupt,poll,hybrid"),
];

/// Keys that ask for what we do anyway, or for something that has no counterpart here and changes no figure.
const HARMLESS: &[&str] = &[
    "allrandrepeat",
    "buffered",
    "description",
    "direct",
    "fixedbufs",
    "group_reporting",
    "gtod_reduce",
    "invalidate",
    "ioengine",
    "ioscheduler",
    "kb_base",
    "norandommap",
    "randrepeat",
    "registerfiles",
    "stonewall",
    "thread",
    "wait_for_previous",
];

/// Harmless only with this value; otherwise, why not.
const HARMLESS_IF: &[(&str, bool, &str)] = &[
    ("direct", true, "there is no page cache under this I/O; say direct=1 or leave it out"),
    ("buffered", false, "there is no page cache under this I/O; say buffered=0 or leave it out"),
    ("gtod_reduce", false, "latencies are always measured; leave it out"),
];

/// Keys of fio that would change what is measured, with what to say instead.
const REFUSED: &[(&str, &str)] = &[
    ("hipri", "say completion=poll"),
    ("hipri_percentage", "say completion=poll"),
    ("sqthread_poll", "say completion=poll"),
    ("filesize", "say size="),
    ("io_size", "say size= and loops="),
    ("bsrange", "say bs=; one size per direction"),
    ("blocksize_range", "say bs=; one size per direction"),
    ("bssplit", "say bs=; one size per direction"),
];

/// A key that may stand without `=value`.
fn stands_alone(key: &str) -> bool {
    matches!(
        key,
        "time_based" | "thread" | "group_reporting" | "norandommap" | "stonewall" | "wait_for_previous"
    )
}

impl Job {
    /// Sets `key` to `value` (`None`: the key stood alone). The single place that knows the keys.
    ///
    /// `Ok(Some(_))` is a warning to show: the key has no effect, or its value is worth a remark. On the command line
    /// `time-based` is `time_based`.
    pub fn set(
        &mut self,
        key: &str,
        value: Option<&str>,
        origin: &Origin,
    ) -> Result<Option<String>, JobError> {
        let key = match origin {
            Origin::CommandLine => key.replace('-', "_"),
            Origin::File { .. } => key.to_owned(),
        };
        let found =
            OBEYED.iter().find(|(usual, synonyms, _)| *usual == key || synonyms.contains(&key.as_str()));
        let Some(&(usual, _, expected)) = found else { return not_obeyed(&key, value, origin) };
        let fail = |why: String| {
            let value = shown(value.unwrap_or_default());
            JobError::new(origin, Problem::Value { key: origin.key(&key), value, why })
        };
        let text = match value.map(str::trim) {
            Some("") => None,
            None if usual == "time_based" => Some("1"),
            text => text,
        };
        let no_value = Problem::NoValue { key: origin.key(&key), expected };
        let text = text.ok_or_else(|| JobError::new(origin, no_value))?;
        let note = self.store(usual, text).map_err(fail)?;
        self.remember(usual, text, origin);
        Ok(note.map(|note| format!("{origin}: {}={}: {note}", origin.key(&key), shown(text))))
    }

    /// The value into its field.
    fn store(&mut self, key: &str, text: &str) -> Result<Option<&'static str>, value::Why> {
        let mut note = None;
        match key {
            "name" => self.name = job_name(text)?,
            "rw" => self.rw = value::rw(text)?,
            "bs" => {
                let ([read, write], about) = value::block_sizes(text)?;
                (self.bs_read_bytes, self.bs_write_bytes) =
                    (read.unwrap_or(self.bs_read_bytes), write.unwrap_or(self.bs_write_bytes));
                note = about;
            }
            "iodepth" => self.iodepth = value::int(text, 1, u64::from(IODEPTH_MAX))? as u32,
            "numjobs" => self.numjobs = value::int(text, 1, u64::from(NUMJOBS_MAX))? as u32,
            "size" => {
                let (size, about) = aligned(text)?;
                if matches!(size, Extent::Bytes(0) | Extent::Percent(0)) {
                    return Err("must be more than 0".to_owned());
                }
                (self.size, note) = (Some(size), about);
            }
            "offset" => {
                let (offset, about) = aligned(text)?;
                if offset == Extent::Percent(100) {
                    return Err("nothing is left after the whole device".to_owned());
                }
                (self.offset, note) = (offset, about);
            }
            // 0 is fio's "no limit".
            "runtime" => self.runtime = Some(value::time(text)?).filter(|time| !time.is_zero()),
            "time_based" => self.time_based = value::boolean(Some(text))?,
            "ramp_time" => self.ramp_time = value::time(text)?,
            "rwmixread" => self.rwmixread_percent = percent(text)?,
            "rwmixwrite" => self.rwmixread_percent = 100 - percent(text)?,
            "verify" => self.verify = value::verify(text)?,
            "cpus_allowed" => self.cpus_allowed = value::cpus(text)?,
            "filename" => self.filename = Some(printable(text)?),
            "loops" => self.loops = value::int(text, 1, u64::from(u32::MAX))?,
            "completion" => {
                if text.split(',').any(|policy| policy.trim().is_empty()) {
                    return Err("a policy in the list is empty".to_owned());
                }
                self.completion = Some(printable(text)?);
            }
            // Not reached while `OBEYED` and this list agree, which a test sees to.
            _ => return Err("not implemented".to_owned()),
        }
        Ok(note)
    }

    /// Notes that `key` was set. The two mix keys are one setting: the latter replaces the former.
    fn remember(&mut self, key: &'static str, text: &str, origin: &Origin) {
        if key == "name" {
            return;
        }
        let mix = |key: &str| key == "rwmixread" || key == "rwmixwrite";
        self.set_keys.retain(|set| set.key != key && !(mix(key) && mix(set.key)));
        self.set_keys.push(SetKey { key, value: text.to_owned(), origin: origin.clone() });
    }
}

/// The verdict on a key we do not obey: a warning or an error.
fn not_obeyed(key: &str, value: Option<&str>, origin: &Origin) -> Result<Option<String>, JobError> {
    let written = origin.key(key);
    if let Some((_, instead)) = REFUSED.iter().find(|(refused, _)| *refused == key) {
        return Err(JobError::new(origin, Problem::Unsupported { key: written, instead }));
    }
    if !HARMLESS.contains(&key) {
        let nearest = nearest_key(key).map(|near| origin.key(near));
        return Err(JobError::new(origin, Problem::UnknownKey { key: written, nearest }));
    }
    let text = value.map(str::trim).filter(|text| !text.is_empty());
    if text.is_none() && !(value.is_none() && stands_alone(key)) {
        return Err(JobError::new(
            origin,
            Problem::NoValue { key: written, expected: "1 or 0, or as fio has it" },
        ));
    }
    let refuse = |why: String| {
        let value = shown(text.unwrap_or_default());
        JobError::new(origin, Problem::Value { key: written.clone(), value, why })
    };
    if key == "kb_base" && text != Some("1024") {
        return Err(refuse("only 1024, fio's default, is supported".to_owned()));
    }
    if let Some((_, harmless, why)) = HARMLESS_IF.iter().find(|(named, ..)| *named == key)
        && value::boolean(text).map_err(refuse)? != *harmless
    {
        return Err(refuse((*why).to_owned()));
    }
    Ok(Some(match origin {
        Origin::File { source, line } => format!("{source}: line {line}: key {written} has no effect here"),
        Origin::CommandLine => format!("{origin}: {written} has no effect here"),
    }))
}

fn aligned(text: &str) -> Result<(Extent, Option<&'static str>), value::Why> {
    let (extent, note) = value::extent(text)?;
    match extent {
        Extent::Bytes(bytes) if bytes % SECTOR_BYTES != 0 => {
            Err(format!("{bytes} bytes is not a multiple of {SECTOR_BYTES}"))
        }
        _ => Ok((extent, note)),
    }
}

fn percent(text: &str) -> Result<u8, value::Why> {
    let text = text.strip_suffix('%').unwrap_or(text);
    value::int(text, 0, 100).map(|percent| percent as u8)
}

fn printable(text: &str) -> Result<String, value::Why> {
    if text.chars().any(char::is_control) {
        return Err("contains a control character".to_owned());
    }
    Ok(text.to_owned())
}

/// A job's name as given: anything that can be printed on one line.
pub(super) fn job_name(text: &str) -> Result<String, value::Why> {
    match text.trim() {
        "" => Err("a job needs a name".to_owned()),
        "global" => Err("global is not a job".to_owned()),
        name if name.chars().nth(256).is_some() => Err("longer than 256 characters".to_owned()),
        name => printable(name),
    }
}

/// The known key nearest to `key`, if it is near enough to be meant.
fn nearest_key(key: &str) -> Option<&'static str> {
    if key.chars().nth(32).is_some() {
        return None;
    }
    let key = key.to_ascii_lowercase().replace('-', "_");
    let obeyed = OBEYED.iter().flat_map(|(usual, synonyms, _)| std::iter::once(usual).chain(synonyms.iter()));
    let near = obeyed
        .chain(HARMLESS)
        .map(|known| (edit_distance(&key, known), *known))
        .min_by_key(|(far, _)| *far)?;
    let enough = (key.chars().count() / 3).clamp(1, 3);
    Some(near.1).filter(|known| near.0 <= enough && near.0 < known.len())
}

/// Levenshtein's distance, with a swap of neighbours counted as one step.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let replace = rows[i][j] + usize::from(from != to);
            let mut best = replace.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_obeyed_key_is_stored_or_refused_for_its_value() {
        for (key, ..) in OBEYED {
            let error = Job::new("a").store(key, "\u{7}").unwrap_err();
            assert_ne!(error, "not implemented", "{key}");
        }
    }

    #[test]
    fn distances() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("iodpeth", "iodepth"), 1);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(nearest_key("io_depth"), Some("iodepth"));
        assert_eq!(nearest_key("SIZE"), Some("size"));
        assert_eq!(nearest_key("block_size"), Some("blocksize"));
        assert_eq!(nearest_key("x"), None);
        assert_eq!(nearest_key("zonemode"), None);
    }
}
