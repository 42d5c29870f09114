//! Parses plans and rules.

use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

use meantime_nvme_spec::status::Status;
use toml::de::{DeTable, DeValue};

use super::names::{opcodes, parse_ns, status_code};
use super::rule::{FAULTS, Fault, FaultRule, When};
use super::{FaultPlan, FaultRules};
use crate::error::SsdError;

/// Limit of a plan's file, in bytes. A real plan has a few lines.
const PLAN_BYTES_MAX: u64 = 1 << 20;

/// Returns the names of all faults.
fn names() -> String {
    FAULTS.map(|(name, _)| name).join(", ")
}

/// A key and its value, one text or several.
struct Pair<'t> {
    key: &'t str,
    values: Vec<String>,
}

impl FaultPlan {
    /// Parses a plan from its TOML text: `seed`, and a `[[fault]]` for each rule. docs/faults.md
    /// lists the keys.
    ///
    /// # Errors
    /// [`SsdError::FaultPlan`], which names the line, the key and the values allowed.
    pub fn parse(text: &str) -> Result<Self, SsdError> {
        parse(text).map_err(SsdError::FaultPlan)
    }

    /// Reads the plan in the file `path`.
    ///
    /// # Errors
    /// [`SsdError::Io`] if the file cannot be read; [`SsdError::FaultPlan`], which names the path,
    /// the line, the key and the values allowed.
    pub fn read(path: &Path) -> Result<Self, SsdError> {
        let failed = |source| SsdError::Io {
            path: path.to_owned(),
            attempted: "reading the fault plan",
            source,
        };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(PLAN_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 == PLAN_BYTES_MAX {
            let problem = format!("{}: has a megabyte; a plan has a few lines", path.display());
            return Err(SsdError::FaultPlan(problem));
        }
        parse(&text)
            .map_err(|problem| SsdError::FaultPlan(format!("{}: {problem}", path.display())))
    }
}

impl FaultRule {
    /// Parses a rule in one line: the fault's name, then conditions as `key=value`, e.g. `status
    /// status=write-fault dnr=true opcode=write lba=0-7 times=1`. The keys are those of a plan.
    ///
    /// # Errors
    /// [`SsdError::FaultPlan`], which names the key.
    pub fn parse_line(line: &str) -> Result<Self, SsdError> {
        parse_line(line).map_err(SsdError::FaultPlan)
    }
}

fn parse_line(line: &str) -> Result<FaultRule, String> {
    let mut words = line.split_whitespace();
    let fault = words.next();
    let fault =
        fault.ok_or_else(|| format!("a rule begins with the name of a fault: {}", names()))?;
    let mut pairs = vec![Pair { key: "fault", values: vec![fault.to_owned()] }];
    for word in words {
        let pair = word.split_once('=');
        let (key, value) = pair.ok_or_else(|| format!("{word:?} is no key=value"))?;
        if pairs.iter().any(|pair| pair.key == key) {
            return Err(format!("`{key}` is given twice"));
        }
        pairs.push(Pair { key, values: vec![value.to_owned()] });
    }
    rule(&pairs).map_err(|(key, problem)| format!("`{key}`: {problem}"))
}

fn parse(text: &str) -> Result<FaultPlan, String> {
    let line = |span: Range<usize>| text[..span.start.min(text.len())].matches('\n').count() + 1;
    let table = DeTable::parse(text).map_err(|error| error.to_string().trim().to_owned())?;
    let mut plan = FaultPlan::NONE;
    for (key, value) in table.get_ref() {
        let at =
            |problem: String| format!("line {}, `{}`: {problem}", line(key.span()), key.get_ref());
        match key.get_ref().as_ref() {
            "seed" => {
                let seed = scalar(value.get_ref()).and_then(|text| text.parse().ok());
                plan.seed = seed.ok_or_else(|| at("a number from 0 to 2^63 - 1".into()))?;
            }
            "fault" => {
                let rules = value.get_ref().as_array();
                let rules = rules.ok_or_else(|| at("write each rule as [[fault]]".into()))?;
                for rule in rules {
                    let table = rule.get_ref().as_table();
                    let table = table.ok_or_else(|| at("write each rule as [[fault]]".into()))?;
                    push(&mut plan.rules, table, &line, line(rule.span()))?;
                }
            }
            _ => return Err(at("there is no such key; a plan has `seed` and [[fault]]".into())),
        }
    }
    Ok(plan)
}

/// Adds the rule in `table`, which begins on line `begin`.
fn push(
    rules: &mut FaultRules,
    table: &DeTable<'_>,
    line: &impl Fn(Range<usize>) -> usize,
    begin: usize,
) -> Result<(), String> {
    let mut pairs = Vec::new();
    for (key, value) in table {
        let values = texts(value.get_ref()).ok_or_else(|| {
            let key_line = line(key.span());
            format!(
                "line {key_line}, `{}`: a text, a number, true or false, or a list of them",
                key.get_ref()
            )
        })?;
        pairs.push(Pair { key: key.get_ref(), values });
    }
    let rule = rule(&pairs).map_err(|(key, problem)| {
        let at = table
            .iter()
            .find(|(k, _)| k.get_ref().as_ref() == key)
            .map_or(begin, |(k, _)| line(k.span()));
        format!("line {at}, `{key}`: {problem}")
    })?;
    rules.push(rule).map_err(|error| format!("line {begin}: {error}"))
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(|number| number.to_string()),
        DeValue::Boolean(yes) => Some(yes.to_string()),
        _ => None,
    }
}

fn texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    match value {
        DeValue::Array(values) => values.iter().map(|value| scalar(value.get_ref())).collect(),
        other => scalar(other).map(|text| vec![text]),
    }
}

/// The wrong key, and the problem.
type Problem = (String, String);

/// The values of a rule's keys.
struct Keys<'a> {
    pairs: &'a [Pair<'a>],
}

impl Keys<'_> {
    fn values(&self, key: &str) -> Option<&[String]> {
        self.pairs.iter().find(|pair| pair.key == key).map(|pair| pair.values.as_slice())
    }

    /// Returns the value of `key`, parsed by `read`, if it is present.
    fn get<T>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Problem> {
        match self.values(key) {
            None => Ok(None),
            Some([one]) => read(one).map(Some).map_err(|problem| (key.to_owned(), problem)),
            Some(_) => Err((key.to_owned(), "one value, not a list".into())),
        }
    }

    fn number(&self, key: &str, least: u64, most: u64) -> Result<Option<u64>, Problem> {
        self.get(key, |text| {
            number(text)
                .filter(|n| (least..=most).contains(n))
                .ok_or_else(|| format!("{text:?} is no number from {least} to {most}"))
        })
    }

    fn flag(&self, key: &str) -> Result<bool, Problem> {
        let flag = self.get(key, |text| match text {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(format!("{text:?} is neither true nor false")),
        })?;
        Ok(flag.unwrap_or(false))
    }

    /// Returns a value that the fault requires, or the problem if it is missing.
    fn needed<T>(&self, key: &str, value: Option<T>, example: &str) -> Result<T, Problem> {
        value.ok_or_else(|| (key.to_owned(), format!("is missing; e.g. {example}")))
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses a range such as `7` or `0-7`.
fn range(text: &str) -> Result<(u64, u64), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let pair = number(first.trim()).zip(number(last.trim()));
    pair.filter(|(first, last)| first <= last)
        .ok_or_else(|| format!("{text:?} is no range of blocks; write 7, or 0-7"))
}

fn rule(pairs: &[Pair<'_>]) -> Result<FaultRule, Problem> {
    const COUNTS: [&str; 6] = ["ppm", "every", "from", "times", "after", "until"];
    let keys = Keys { pairs };
    let name = keys.get("fault", |text| Ok(text.to_owned()))?;
    let name =
        name.ok_or_else(|| ("fault".to_owned(), format!("is missing; there are {}", names())))?;
    let fault = fault(&name, &keys)?;
    let own: &[&str] = match fault {
        Fault::Status(_) => &["status", "sct", "sc", "dnr", "crd"],
        Fault::LateCompletion(_) | Fault::SlowAdmin(_) => &["by"],
        Fault::WrongSqhd(_) => &["sqhd"],
        Fault::CorruptRead(_) | Fault::CorruptWrite(_) => &["bits"],
        _ => &[],
    };
    let which: &[&str] = match fault {
        Fault::NeverReady => &[],
        Fault::SlowAdmin(_) | Fault::StuckAdmin => &["opcode"],
        _ => &["opcode", "nsid", "lba", "queue"],
    };
    if let Some(pair) = pairs.iter().find(|pair| {
        pair.key != "fault" && ![own, which, &COUNTS].iter().any(|set| set.contains(&pair.key))
    }) {
        let known: Vec<&str> = [own, which, &COUNTS].into_iter().flatten().copied().collect();
        let problem = format!("{name} does not have this key; it has {}", known.join(", "));
        return Err((pair.key.to_owned(), problem));
    }
    let when = when(&keys)?;
    let admin = fault.is_admin() || when.is_admin();
    if let Some(set) = when.opcodes
        && set.is_admin() != admin
    {
        let problem = if fault.is_admin() {
            format!("{name} is about admin commands")
        } else {
            "queue 0 has admin commands only".to_owned()
        };
        return Err(("opcode".into(), problem));
    }
    if when.is_admin() && when.queue.is_some_and(|qid| qid != 0) {
        return Err(("queue".into(), "admin commands are on queue 0 only".into()));
    }
    if admin && when.lbas.is_some() {
        return Err(("lba".into(), "admin commands have no blocks".into()));
    }
    if admin && matches!(fault, Fault::CorruptWrite(_) | Fault::TornWrite | Fault::Unfused) {
        return Err(("fault".into(), format!("{name} is about I/O commands")));
    }
    Ok(FaultRule { fault, when })
}

fn fault(name: &str, keys: &Keys<'_>) -> Result<Fault, Problem> {
    let Some((_, fault)) = FAULTS.iter().find(|(known, _)| *known == name) else {
        let problem = format!("no fault is called {name:?}; there are {}", names());
        return Err(("fault".into(), problem));
    };
    let bits =
        |default| keys.number("bits", 1, 4096).map(|bits| bits.map_or(default, |n| n as u32));
    let by = || keys.needed("by", keys.get("by", parse_ns)?, "by = \"3ms\"");
    Ok(match *fault {
        Fault::Status(_) => Fault::Status(status(keys)?),
        Fault::LateCompletion(_) => Fault::LateCompletion(by()?),
        Fault::SlowAdmin(_) => Fault::SlowAdmin(by()?),
        Fault::WrongSqhd(default) => {
            Fault::WrongSqhd(keys.number("sqhd", 0, 0xffff)?.map_or(default, |sqhd| sqhd as u16))
        }
        Fault::CorruptRead(default) => Fault::CorruptRead(bits(default)?),
        Fault::CorruptWrite(default) => Fault::CorruptWrite(bits(default)?),
        plain => plain,
    })
}

fn status(keys: &Keys<'_>) -> Result<Status, Problem> {
    let named = keys.get("status", status_code)?.map(Status::from_code);
    let (sct, sc) = (keys.number("sct", 0, 7)?, keys.number("sc", 0, 255)?);
    let status = match (named, sct, sc) {
        (Some(status), None, None) => status,
        (None, Some(sct), Some(sc)) => Status::new(sct as u8, sc as u8),
        (None, None, None) => {
            keys.needed("status", None, "status = \"write-fault\", or sct = 2 and sc = 0x80")?
        }
        (Some(_), ..) => return Err(("status".into(), "or sct and sc, not both".into())),
        _ => return Err(("sct".into(), "and sc belong together".into())),
    };
    if status.is_success() {
        return Err(("status".into(), "is success, which is no fault".into()));
    }
    let crd = keys.number("crd", 0, 3)?.unwrap_or(0) as u8;
    Ok(status.with_crd(crd).with_dnr_bit(keys.flag("dnr")?))
}

fn when(keys: &Keys<'_>) -> Result<When, Problem> {
    let mut when = When::ALWAYS;
    if let Some(names) = keys.values("opcode") {
        let names = names.iter().flat_map(|text| text.split(',')).map(str::trim);
        when.opcodes = Some(opcodes(names).map_err(|problem| ("opcode".to_owned(), problem))?);
    }
    when.nsid = keys.number("nsid", 1, 0xffff_fffe)?.map(|nsid| nsid as u32);
    when.lbas = match keys.values("lba") {
        Some([first, last]) => {
            Some(range(&format!("{first}-{last}")).map_err(|problem| ("lba".to_owned(), problem))?)
        }
        _ => keys.get("lba", range)?,
    };
    when.queue = keys.number("queue", 0, 0xffff)?.map(|qid| qid as u16);
    when.probability_ppm = keys.number("ppm", 0, 1_000_000)?.unwrap_or(1_000_000) as u32;
    when.every = keys.number("every", 1, u64::MAX)?.unwrap_or(1);
    when.from = keys.number("from", 1, u64::MAX)?.unwrap_or(1);
    when.times = keys.number("times", 0, u64::MAX)?;
    when.after_ns = keys.get("after", parse_ns)?.unwrap_or(0);
    when.until_ns = keys.get("until", parse_ns)?;
    if when.until_ns.is_some_and(|until_ns| until_ns <= when.after_ns) {
        return Err(("until".into(), "is not later than `after`".into()));
    }
    Ok(when)
}

#[cfg(test)]
mod tests;
