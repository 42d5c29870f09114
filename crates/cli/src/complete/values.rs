//! Candidates for the values of options and arguments.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap_complete::engine::{PathCompleter, ValueCompleter};
use clap_complete::{ArgValueCompleter, CompletionCandidate as Candidate};
use meantime_block::{Uri, UriParameter};
use meantime_hw::mountinfo;
use meantime_hw::pci::{self, Sysfs};
use meantime_mount::Words;

use super::image;
use crate::location::{Location, SCHEMES};

/// The values of a parameter that can be listed.
fn values_of(parameter: &UriParameter) -> &'static [&'static str] {
    if parameter.name == "model" { meantime_ssd::Model::names() } else { parameter.values }
}

/// Those of `words` that begin with `value`.
fn beginning<'a>(value: &str, words: impl IntoIterator<Item = &'a str>) -> Vec<Candidate> {
    let words = words.into_iter().filter(|word| word.starts_with(value));
    words.enumerate().map(|(at, word)| Candidate::new(word).display_order(Some(at))).collect()
}

/// The same of words with their help.
fn explained(
    value: &str,
    words: impl IntoIterator<Item = (String, &'static str)>,
) -> Vec<Candidate> {
    let words = words.into_iter().filter(|(word, _)| word.starts_with(value)).enumerate();
    let candidate = |(at, (word, help)): (usize, (String, &'static str))| {
        Candidate::new(word).help(Some(help.into())).display_order(Some(at))
    };
    words.map(candidate).collect()
}

fn prefixed(prefix: impl Into<OsString>, found: Vec<Candidate>) -> Vec<Candidate> {
    let prefix = prefix.into();
    found.into_iter().map(|one| one.add_prefix(prefix.clone())).collect()
}

/// Completes the last of several words with `separator` between them.
fn last_of(
    value: &str,
    separator: char,
    complete: impl Fn(&str) -> Vec<Candidate>,
) -> Vec<Candidate> {
    let (before, last) = value.split_at(value.rfind(separator).map_or(0, |at| at + 1));
    prefixed(before, complete(last))
}

fn text(value: &OsStr) -> &str {
    // Only paths complete a value that is not UTF-8.
    value.to_str().unwrap_or("\0")
}

/// Device URIs.
pub(super) fn devices(value: &OsStr) -> Vec<Candidate> {
    let value = text(value);
    let Some((scheme, rest)) =
        SCHEMES.iter().find_map(|(scheme, _)| Some((*scheme, value.strip_prefix(scheme)?)))
    else {
        return explained(value, SCHEMES.map(|(scheme, help)| (scheme.to_owned(), help)));
    };
    if let Some((target, query)) = rest.split_once('?') {
        return prefixed(format!("{scheme}{target}?"), query_of(scheme, query));
    }
    let digit = |last: char| last.is_ascii_digit();
    let found = match scheme {
        // A bare number is a size, too, and hardly ever meant.
        "mem:" if meantime_block::parse_bytes(rest).is_some() && !rest.ends_with(digit) => {
            beginning(rest, [rest, &format!("{rest}?model=")])
        }
        "mem:" => beginning(rest, ["64M", "256M", "1G"]),
        "vfio:" => controllers(OsStr::new(rest)),
        "nvme+tcp://" => Vec::new(),
        _ => PathCompleter::any().complete(OsStr::new(rest)),
    };
    prefixed(scheme, found)
}

/// The last parameter of a URI.
fn query_of(scheme: &str, query: &str) -> Vec<Candidate> {
    let known = || UriParameter::of(scheme.trim_end_matches([':', '/']));
    last_of(query, '&', |last| match last.split_once('=') {
        Some((key, value)) => {
            let values = known().find(|one| one.name == key).map_or(&[][..], values_of);
            prefixed(format!("{key}="), beginning(value, values.iter().copied()))
        }
        None => explained(last, known().map(|one| (format!("{}=", one.name), one.help))),
    })
}

/// Places in file systems: `DEVICE:/PATH`. Only regular image files are looked into.
pub(super) fn locations(value: &OsStr) -> Vec<Candidate> {
    let inside = Location::parse(value).ok().filter(|location| location.path.is_some());
    let Some(location) = inside else {
        // A file's name is followed by a path in it.
        return devices(value).into_iter().map(with_root).collect();
    };
    let Some(file) = file_of(&location.device) else { return Vec::new() };
    let (dir, prefix) = image::split(location.path());
    let before: OsString = value.to_owned();
    let before = OsStr::from_bytes(&before.as_bytes()[..before.len() - prefix.len()]).to_owned();
    let names = image::names(&file, dir, prefix);
    prefixed(before, names.into_iter().map(Candidate::new).collect())
}

fn with_root(candidate: Candidate) -> Candidate {
    let value = candidate.get_value().to_str().map(str::to_owned);
    let is_image = |value: &String| file_of(value).is_some_and(|file| file.is_file());
    match value.filter(is_image) {
        Some(value) => Candidate::new(format!("{value}:/")),
        None => candidate,
    }
}

/// The file that is a device's medium.
fn file_of(device: &str) -> Option<PathBuf> {
    match device.parse() {
        Ok(Uri::File { path, .. } | Uri::Kernel { path, .. }) => Some(path),
        _ => None,
    }
}

/// Completes one of `words`.
pub(super) fn one_of(words: &'static [&'static str]) -> ArgValueCompleter {
    ArgValueCompleter::new(|value: &OsStr| beginning(text(value), words.iter().copied()))
}

/// Ways to wait, separated by commas.
pub(super) fn policies(value: &OsStr) -> Vec<Candidate> {
    let goals = ["latency=", "cpu=", "p99=", "p99.9="];
    last_of(text(value), ',', |last| match last.strip_prefix("adaptive:") {
        Some(goal) => prefixed("adaptive:", beginning(goal, goals)),
        None => {
            let own = ["interrupt", "poll", "adaptive", "hybrid", "hybrid="];
            beginning(last, own.into_iter().chain(meantime_completion::rule::names()))
        }
    })
}

/// PCI addresses of NVMe controllers.
pub(super) fn controllers(value: &OsStr) -> Vec<Candidate> {
    let found: Vec<String> =
        pci::addresses(&Sysfs::default()).iter().map(ToString::to_string).collect();
    beginning(text(value), found.iter().map(String::as_str))
}

/// Directories at which something of ours is mounted.
pub(super) fn mounts(value: &OsStr) -> Vec<Candidate> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let ours = mountinfo::parse(&text).filter(|entry| entry.kind == crate::mount::KIND);
    let dirs = ours.map(|entry| entry.dir.into_os_string());
    dirs.filter(|dir| dir.as_bytes().starts_with(value.as_bytes())).map(Candidate::new).collect()
}

/// Options of mounts.
pub(super) fn mount_options(value: &OsStr) -> Vec<Candidate> {
    last_of(text(value), ',', |last| match last.strip_prefix("policy=") {
        Some(policy) => prefixed("policy=", policies(OsStr::new(policy))),
        None => beginning(last, Words::KNOWN.split(", ")),
    })
}

/// Processes that `top` can look at.
pub(super) fn processes(value: &OsStr) -> Vec<Candidate> {
    // Processes are found by name alone: a press of Tab neither connects nor removes anything.
    let served = meantime_block::control::served_names();
    let pids: Vec<String> = served.iter().map(u32::to_string).collect();
    beginning(text(value), pids.iter().map(String::as_str))
}

/// Directions and orders of a job.
pub(super) const DIRECTIONS: &[&str] =
    &["read", "write", "randread", "randwrite", "rw", "randrw", "trim", "randtrim", "trimwrite"];

/// Features of new file systems.
pub(super) fn features(value: &OsStr) -> Vec<Candidate> {
    let known = crate::cli::FEATURES.map(|(name, _)| name);
    match text(value).strip_prefix('^') {
        Some(name) => prefixed("^", beginning(name, known)),
        None => beginning(text(value), known),
    }
}

/// Users of this machine.
pub(super) fn users(value: &OsStr) -> Vec<Candidate> {
    let text_of = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    beginning(text(value), text_of.lines().filter_map(|line| line.split(':').next()))
}

/// Completes the words of a list, each by its place in it.
pub(super) struct ByPlace(pub fn(usize, &OsStr) -> Vec<Candidate>);

impl ValueCompleter for ByPlace {
    fn complete(&self, value: &OsStr) -> Vec<Candidate> {
        self.complete_at(0, value)
    }

    fn complete_at(&self, index: usize, value: &OsStr) -> Vec<Candidate> {
        (self.0)(index, value)
    }
}

/// A program, then its arguments, of which paths are offered.
pub(super) fn programs(index: usize, value: &OsStr) -> Vec<Candidate> {
    if index > 0 || value.as_bytes().contains(&b'/') {
        return PathCompleter::any().complete(value);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).filter_map(|dir| std::fs::read_dir(dir).ok());
    let names = dirs.flatten().filter_map(|entry| Some(entry.ok()?.file_name()));
    let names = names.filter(|name| name.as_bytes().starts_with(value.as_bytes()));
    names.collect::<BTreeSet<_>>().into_iter().map(Candidate::new).collect()
}

/// Returns the candidates for the words of `ssd ctl`.
pub(super) fn requests(index: usize, value: &OsStr) -> Vec<Candidate> {
    let known: &[&str] = match index {
        0 => &["faults", "slow", "power-cut", "unplug", "plug", "counters", "refusals"],
        1 => &["add", "clear"],
        _ => &[],
    };
    beginning(text(value), known.iter().copied())
}

#[cfg(test)]
mod tests {
    use meantime_bench::job::{Job, Origin};

    use super::*;

    fn offered(found: Vec<Candidate>) -> Vec<String> {
        found.iter().map(|one| one.get_value().to_str().unwrap().to_owned()).collect()
    }

    fn of(complete: impl Fn(&OsStr) -> Vec<Candidate>, value: &str) -> String {
        offered(complete(OsStr::new(value))).join(" ")
    }

    #[test]
    fn uris_are_completed_part_by_part() {
        assert_eq!(of(devices, "vf"), "vfio: vfio-user:");
        assert_eq!(of(devices, "mem:2"), "mem:256M");
        assert_eq!(of(devices, "mem:2G"), "mem:2G mem:2G?model=");
        assert_eq!(
            of(devices, "mem:2G?model=n"),
            "mem:2G?model=null mem:2G?model=nvram mem:2G?model=nand"
        );
        assert_eq!(of(devices, "mem:2G?model=nand&vw"), "mem:2G?model=nand&vwc=");
        assert_eq!(of(devices, "kernel:x?engine=p"), "kernel:x?engine=preadv2");
        assert_eq!(of(devices, "disk.img"), "");
        assert_eq!(of(policies, "poll,adaptive:l"), "poll,adaptive:latency=");
        assert_eq!(of(mount_options, "ro,policy=po"), "ro,policy=poll");
        assert_eq!(of(features, "^or"), "^orphan_file");
    }

    /// Every parameter that is offered is one, with each of its values.
    #[test]
    fn what_is_offered_is_understood() {
        for (scheme, target) in [
            ("mem:", "64M"),
            ("file:", "x"),
            ("kernel:", "x"),
            ("vfio:", "0000:01:00.0"),
            ("vfio-user:", "/x"),
            ("nvme+tcp://", "192.0.2.7/nqn.2026-01.io.x:y"),
        ] {
            assert!(SCHEMES.iter().any(|(known, _)| *known == scheme));
            let parameters = offered(devices(OsStr::new(&format!("{scheme}{target}?"))));
            let known = UriParameter::of(scheme.trim_end_matches([':', '/']));
            assert_eq!(parameters.len(), known.count(), "{scheme}");
            for parameter in parameters {
                let error = parameter.parse::<Uri>().unwrap_err();
                assert!(!error.what.contains("unknown parameter"), "{parameter}");
                for uri in offered(devices(OsStr::new(&parameter))) {
                    uri.parse::<Uri>().unwrap_or_else(|error| panic!("{uri}: {error}"));
                }
            }
        }
        let _ = meantime_baselines::register();
        for policy in offered(policies(OsStr::new(""))).iter().filter(|one| !one.ends_with('=')) {
            assert!(policy.parse::<meantime_completion::Policy>().is_ok(), "{policy}");
        }
        for option in offered(mount_options(OsStr::new(""))) {
            let error = meantime_mount::Words::default().obey(&option).err();
            assert!(error.is_none_or(|error| !error.is_unknown), "{option}");
        }
        for kind in DIRECTIONS {
            let mut job = Job::default();
            assert!(job.set("rw", Some(kind), &Origin::CommandLine).is_ok(), "{kind}");
        }
    }
}
