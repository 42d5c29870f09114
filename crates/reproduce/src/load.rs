//! The experiments, from their files.

#[cfg(test)]
mod checks;
mod lists;
#[cfg(test)]
mod tests;

use serde::Deserialize as _;
use toml::{Table, Value};

use crate::experiment::{Experiment, Leg};
use lists::Lists;

macro_rules! files {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../experiments/", $name, ".toml")))),*]
    };
}

/// Lists that every file has.
const COMMON: &str = include_str!("../experiments/common.toml");
/// The files, in the order in which their experiments run.
const FILES: [(&str, &str); 74] = files! {
    "fast12-table1" "fast12-projection" "fast12-figure1" "fast12-figure2" "fast12-refill"
    "fast12-figure3" "fast12-figure3-cpus" "fast12-saturation" "fast12-coalescing" "fast12-c-state"
    "fast12-break-even"
    "lkml13-dd" "lkml13-idle" "lkml13-pm-qos" "lkml13-buffered" "lkml13-batch" "lkml13-slice"
    "bates15-split" "bates15-worst" "bates15-msix" "bates15-drivers" "bates15-load" "bates15-mixes"
    "bates15-stalls" "bates15-coalescing"
    "vault17-latency" "vault17-device-time" "vault17-distribution" "vault17-cpu" "vault17-switch"
    "vault17-fixed-sleeps" "vault17-fixed-sleeps-simulated" "vault17-sizes"
    "vault17-sizes-simulated" "vault17-tail-idle" "vault17-tail-loaded" "vault17-tail-sched"
    "vault17-user" "vault17-user-tail" "vault17-user-hybrid" "vault17-short-path" "vault17-hipri"
    "vault17-reaping" "vault17-priority" "vault17-interrupts" "vault17-estimate"
    "vault17-estimate-simulated"
    "aios19-shares" "aios19-user-level" "aios19-submission" "aios19-memory" "aios19-cpu"
    "aios19-read" "aios19-read-levels" "aios19-read-size" "aios19-read-threads" "aios19-poll"
    "aios19-duplicate" "aios19-unmap" "aios19-extents" "aios19-fsync" "aios19-write-levels"
    "aios19-fsync-size" "aios19-fsync-threads" "aios19-rocksdb-readrandom" "aios19-rocksdb-fillsync"
    "fast12-guest-figure1" "lkml13-guest-poll" "lkml13-guest-interrupts" "bates15-guest-drivers"
    "bates15-guest-tail" "vault17-guest-ways" "vault17-guest-sleep" "vault17-guest-user"
};

/// Models of the software SSD.
pub const MODELS: [&str; 7] = ["null", "fast12", "dram-nvme", "nvram", "optane", "zssd", "nand"];
/// Returns all experiments, in the order in which they run.
///
/// # Panics
/// Panics if a file is wrong. They are compiled in, and a test reads all of them.
pub fn experiments() -> Vec<Experiment> {
    let all = FILES.iter().map(|(file, text)| read(file, text));
    all.collect::<Result<Vec<_>, _>>().unwrap_or_else(|wrong| panic!("{wrong}")).concat()
}

/// Returns the experiments that can be done on a device of the user's.
pub fn on_a_device() -> Vec<Experiment> {
    let all = experiments().into_iter().filter(|one| one.on_a_device);
    all.map(|one| Experiment { leg: Leg::Device, ..one }).collect()
}

/// Reads a file: one experiment, or one for each entry of its `for`.
fn read(file: &str, text: &str) -> Result<Vec<Experiment>, String> {
    read_each(file, text).map_err(|wrong| format!("experiments/{file}.toml: {wrong}"))
}

fn read_each(file: &str, text: &str) -> Result<Vec<Experiment>, String> {
    let parse = |text| toml::from_str::<Table>(text).map_err(|wrong| wrong.to_string());
    let mut table = parse(text)?;
    let mut lists = Lists::default();
    lists.add(&parse(COMMON)?)?;
    if let Some(Value::Table(own)) = table.remove("lists") {
        lists.add(&own)?;
    }
    let parameter = table.remove("for");
    let value = Value::Table(table);
    if let Some(Value::Table(parameter)) = parameter {
        let copies = lists.with_each(&parameter)?.into_iter();
        let read = |(entry, lists): (String, Lists)| {
            experiment(&format!("{file}-{entry}"), lists.expand(&value)?)
        };
        return copies.map(read).collect();
    }
    Ok(vec![experiment(file, lists.expand(&value)?)?])
}

fn experiment(id: &str, value: Value) -> Result<Experiment, String> {
    let Value::Table(mut table) = value else { return Err("no table".to_owned()) };
    for (key, value) in table.iter_mut().filter(|(key, _)| *key != "files") {
        fold(value);
        match (key.as_str(), value) {
            ("steps", steps) => *steps = flat(steps),
            ("claims", Value::Array(claims)) => claims.iter_mut().for_each(claim),
            ("plot", plot) => named_figures(plot),
            _ => {}
        }
    }
    table.insert("id".to_owned(), id.into());
    let document = id.split('-').next().unwrap_or_default();
    table.insert("document".to_owned(), document.into());
    let value = Value::Table(table);
    let experiment = Experiment::deserialize(value.clone());
    let experiment = experiment.map_err(|wrong| wrong.to_string())?;
    // Files are compiled in, and tests read all of them.
    #[cfg(test)]
    checks::check(&experiment, &value)?;
    Ok(experiment)
}

/// Makes line breaks in texts spaces.
fn fold(value: &mut Value) {
    match value {
        Value::String(text) if text.contains('\n') => {
            *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        Value::Array(items) => items.iter_mut().for_each(fold),
        Value::Table(table) => table.iter_mut().for_each(|(_, value)| fold(value)),
        _ => {}
    }
}

/// Makes a list of steps from a table of steps. Names in nested tables are appended to the outer
/// table's name.
fn flat(steps: &Value) -> Value {
    fn add(before: &str, steps: &Table, all: &mut Vec<Value>) {
        for (key, value) in steps {
            let divided = !before.is_empty() && !key.is_empty();
            let name = format!("{before}{}{key}", if divided { "/" } else { "" });
            let mut step = Table::from_iter([("name".to_owned(), name.as_str().into())]);
            match value {
                Value::Table(inner) if !inner.contains_key("run") => {
                    add(&name, inner, all);
                    continue;
                }
                Value::Table(keys) => step.extend(keys.clone()),
                run => drop(step.insert("run".to_owned(), run.clone())),
            }
            if let Some(run @ Value::String(_)) = step.get_mut("run") {
                *run = Value::Array(vec![run.clone()]);
            }
            all.push(Value::Table(step));
        }
    }
    let mut all = Vec::new();
    if let Value::Table(steps) = steps {
        add("", steps, &mut all);
    }
    Value::Array(all)
}

/// Moves what a claim expects out of its quantity, and lets a name alone be a figure.
fn claim(claim: &mut Value) {
    named_figures(claim);
    let Value::Table(claim) = claim else { return };
    let Some(Value::Table(here)) = claim.get_mut("here") else { return };
    for key in ["at_most", "at_least", "within"] {
        if let Some(bar) = here.remove(key) {
            let expect = match bar.as_str() {
                Some("there") => format!("{key}_there").into(),
                _ => Value::Table(Table::from_iter([(key.to_owned(), bar)])),
            };
            claim.insert("expect".to_owned(), expect);
            return;
        }
    }
}

/// Makes quantities of names at `here` and `there`.
fn named_figures(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(named_figures),
        Value::Table(table) => {
            for (key, value) in table.iter_mut() {
                if let ("here" | "there", Value::String(name)) = (key.as_str(), &*value) {
                    let name = ("value".to_owned(), Value::from(name.as_str()));
                    *value = Value::Table(Table::from_iter([name]));
                }
                named_figures(value);
            }
        }
        _ => {}
    }
}
