//! fio's spelling of `bench`'s options: `_` as well as `-`, and every key of a job file.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{ArgAction, Args as _, Command};

use super::bench::{BenchArgs, OTHER_KEYS};
use crate::job;

/// Converts the words of a command line to the options that clap defines. `--time_based` becomes
/// `--time-based`. A key of fio's without an option of its own, such as `--ioengine=libaio` or
/// `--ioengine libaio`, becomes `--job-key=ioengine=libaio`. Other words stay as they are.
pub(super) fn as_options(words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_none_or(|command| command != "bench") {
        return words;
    }
    // Maps an option's name to whether a separate word may be its value.
    let mut own: BTreeMap<String, bool> = BTreeMap::new();
    for arg in BenchArgs::augment_args(Command::new("bench")).get_arguments() {
        let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        let takes = takes && !arg.is_require_equals_set();
        own.extend(arg.get_long().map(|long| (long.to_owned(), takes)));
    }
    let mut options = Vec::with_capacity(words.len());
    let mut words = words.into_iter().peekable();
    options.extend(words.by_ref().take(2));
    while let Some(word) = words.next() {
        let Some(text) = word.to_str().and_then(|text| text.strip_prefix("--")) else {
            options.push(word);
            continue;
        };
        if text.is_empty() {
            options.push(word);
            options.extend(words);
            break;
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let usual = name.replace('_', "-");
        let mut truth = || {
            // fio's `--direct 1`: 0 and 1 are not names of job files.
            let next = words.peek().and_then(|next| next.to_str())?;
            matches!(next, "0" | "1").then(|| next.to_owned()).inspect(|_| drop(words.next()))
        };
        // `--block-size` is a slip for fio's `blocksize`.
        let known = job::known_key(name).or_else(|| job::known_key(&name.replace('-', "")));
        let (name, value) = match (own.get(&usual), known) {
            (Some(true), _) => {
                options.push(option(&usual, value));
                // Its value may begin with a dash, or look like an option.
                continue;
            }
            (Some(false), Some(_)) => (usual, value.or_else(&mut truth)),
            (Some(false), None) => (usual, value),
            (None, Some(key)) if job::may_stand_alone(key) => {
                let value = value.or_else(&mut truth);
                (OTHER_KEYS.to_owned(), Some(join(key, value)))
            }
            (None, Some(key)) => {
                let value = value.or_else(|| Some(words.next()?.to_string_lossy().into_owned()));
                (OTHER_KEYS.to_owned(), Some(join(key, value)))
            }
            (None, None) => {
                options.push(word);
                continue;
            }
        };
        options.push(option(&name, value));
    }
    options
}

fn join(key: &str, value: Option<String>) -> String {
    value.map_or_else(|| key.to_owned(), |value| format!("{key}={value}"))
}

fn option(name: &str, value: Option<String>) -> OsString {
    format!("--{}", join(name, value)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &str) -> String {
        let words = format!("meantime {words}").split(' ').map(OsString::from).collect();
        let words: Vec<String> =
            as_options(words).into_iter().map(|word| word.into_string().unwrap()).collect();
        words[1..].join(" ")
    }

    #[test]
    fn fios_spelling_becomes_ours() {
        for (fios, ours) in [
            ("bench --time_based --ramp_time 1", "bench --time-based --ramp-time 1"),
            ("bench --cpus_allowed=0 j.fio", "bench --cpus-allowed=0 j.fio"),
            ("bench --direct 1 --direct j.fio", "bench --direct=1 --direct j.fio"),
            ("bench --ioengine libaio --rw=read", "bench --job-key=ioengine=libaio --rw=read"),
            ("bench --group_reporting a.fio", "bench --job-key=group_reporting a.fio"),
            ("bench --thread 1 --end_fsync=0", "bench --job-key=thread=1 --job-key=end_fsync=0"),
            ("bench --filename=file:a_b.img", "bench --job-key=filename=file:a_b.img"),
            ("bench --hugepage-size=2m", "bench --job-key=hugepage-size=2m"),
            ("bench --block-size 8k --rw=read", "bench --job-key=blocksize=8k --rw=read"),
            ("bench --zonesize 1m", "bench --job-key=zonesize=1m"),
            ("bench --floor --no_control --rounds 1", "bench --floor --no-control --rounds 1"),
            // Unknown options, and other words, stay unchanged.
            ("bench --frob_nicate 1", "bench --frob_nicate 1"),
            ("bench -- --time_based", "bench -- --time_based"),
            ("info --time_based", "info --time_based"),
        ] {
            assert_eq!(options(fios), ours, "{fios}");
        }
    }
}
