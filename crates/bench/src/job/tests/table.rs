//! Checks that the table of keys is correct, and that docs/fio.md agrees with it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::super::keys::fios::{self, Accepts, IGNORED, LEFT_TO_FIO, REFUSED};
use super::super::keys::key::{Applies, Default};
use super::super::keys::table::{FAMILIES, SUBJECTS, built, find};
use super::super::*;

#[test]
fn every_obeyed_key_is_stored_or_refused_for_its_value() {
    for key in built() {
        let error = (key.field.set)(&mut Job::new("a"), "\u{7}").unwrap_err();
        assert_ne!(error, "not implemented", "{}", key.name);
        assert!(!(key.field.takes)(&Job::new("a")).is_empty(), "{}", key.name);
    }
}

#[test]
fn every_key_of_a_family_can_be_reset() {
    for key in FAMILIES.iter().copied().flatten().filter(|key| !key.starts_with("rwmix")) {
        let known = find(key).unwrap();
        let mut job = Job::new("a");
        let value = match *key {
            "bssplit" => "8k/100",
            "hipri" => "1",
            "completion" => "poll",
            "direct" | "buffered" => "1",
            _ => "8k",
        };
        (known.field.set)(&mut job, value).unwrap();
        assert_ne!(job, Job::new("a"), "{key}");
        (known.field.reset)(&mut job, &Job::new("a"));
        assert_eq!(job, Job::new("a"), "{key}");
    }
}

#[test]
fn every_name_is_in_the_table_once() {
    let mut seen = BTreeSet::new();
    let built = built().flat_map(|key| std::iter::once(key.name).chain(key.aliases.to_vec()));
    let ignored = IGNORED.iter().flat_map(|(group, ..)| fios::names(group));
    let refused = REFUSED.iter().flat_map(|(group, _)| fios::names(group));
    for name in built.chain(ignored).chain(refused).chain(fios::names(LEFT_TO_FIO)) {
        assert!(seen.insert(name), "{name}");
    }
    assert!(seen.len() > 350, "{}", seen.len());
}

#[test]
fn a_key_left_to_fio_is_refused_with_the_command_that_runs_it() {
    let file = Origin::File { source: "dir/j.fio".into(), line: 7 };
    for name in fios::names(LEFT_TO_FIO) {
        let mut job = Job::new("a");
        let mut refusal = |origin| job.set(name, Some("1"), origin).unwrap_err().to_string();
        let fio = "fio runs the job with our engine";
        let engine = "--ioengine=external:/usr/local/lib/meantime/libmeantime-fio.so --thread=1 \
                      --device=URI";
        assert_eq!(
            refusal(&file),
            format!(
                "dir/j.fio:7: fio's key {name} is not supported: {fio}: \
                 grep -Ev '^ *(filename|ioengine) *=' dir/j.fio | fio {engine} -"
            )
        );
        let option = name.replace('_', "-");
        assert_eq!(
            refusal(&Origin::CommandLine),
            format!(
                "command line: fio's key --{option} is not supported: {fio}: \
                 fio --name=job {engine} --{name}=1, and the job's other keys"
            )
        );
        assert_eq!(known_key(name), Some(name));
        assert_eq!(job, Job::new("a"));
    }
}

#[test]
fn a_default_is_what_holds_without_the_key() {
    for key in built() {
        if let Default::Is(value) = key.default {
            let mut job = Job::new("a");
            (key.field.set)(&mut job, value).unwrap();
            assert_eq!(job, Job::new("a"), "{}={value}", key.name);
        }
    }
}

#[test]
fn what_a_key_applies_to_is_a_key_or_holds_of_some_job() {
    for key in built() {
        for applies in key.applies {
            match applies {
                Applies::With(other) => assert!(find(other).is_some(), "{other}"),
                Applies::If(condition) => assert!(!condition.needs.is_empty(), "{}", key.name),
            }
        }
        assert!(!key.help.is_empty() && !key.help.ends_with('.'), "{}", key.name);
    }
    assert!(SUBJECTS.iter().all(|subject| !subject.keys.is_empty()));
}

/// Compares the keys' tables in docs/fio.md with the table here.
#[test]
fn the_manual_lists_the_keys_as_they_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fio.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- keys -->\n", "<!-- /keys -->\n");
    let (before, rest) = document.split_once(begin).unwrap();
    let (there, after) = rest.split_once(end).unwrap();
    let table = manual();
    if std::env::var_os("MEANTIME_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{begin}{table}{end}{after}")).unwrap();
        return;
    }
    let package = env!("CARGO_PKG_NAME");
    assert!(
        there == table,
        "docs/fio.md lists other keys than job/keys; rewrite it with\n\
         MEANTIME_BLESS=1 cargo test -p {package} the_manual_lists_the_keys"
    );
}

/// Returns the tables of all keys in the form of docs/fio.md.
fn manual() -> String {
    let code = |names: &mut dyn Iterator<Item = &'static str>| {
        names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let mut text = String::from("\n### Built\n");
    for subject in SUBJECTS {
        let _ = write!(
            text,
            "\n**{}**\n\n| key | value | default | what it says |\n|---|---|---|---|\n",
            subject.name
        );
        for key in subject.keys {
            let default = match key.default {
                Default::None => String::new(),
                Default::Is(value) => format!("`{value}`"),
                Default::Means(words) => words.to_owned(),
            };
            let needs: String = key
                .applies
                .iter()
                .map(|applies| match applies {
                    Applies::With(other) => format!("; needs `{other}`"),
                    Applies::If(condition) => format!("; needs {}", condition.needs),
                })
                .collect();
            let names = code(&mut std::iter::once(key.name).chain(key.aliases.iter().copied()));
            let takes = (key.field.takes)(&Job::new(""));
            let help = key.help.replace("0|1", "0 or 1");
            let _ = writeln!(text, "| {names} | {takes} | {default} | {help}{needs} |");
        }
    }
    text += "\n### Accepted without effect\n\n| key | why |\n|---|---|\n";
    for (group, accepts, why) in IGNORED {
        let only = match accepts {
            Accepts::Only(values) => format!(" (only {})", values.join(" or ")),
            _ => String::new(),
        };
        let _ = writeln!(text, "| {}{only} | {why} |", code(&mut fios::names(group)));
    }
    text += "\n### Refused\n\n| key | why, or what to say instead |\n|---|---|\n";
    for (group, why) in REFUSED {
        let _ = writeln!(text, "| {} | {why} |", code(&mut fios::names(group)));
    }
    text += "\n### Left to fio\n\n";
    text + &code(&mut fios::names(LEFT_TO_FIO)) + "\n\n"
}
