//! One meaning a word: the words that were struck out do not come back.

use std::collections::BTreeSet;

use super::{pages, report, sources};

/// Words that had several meanings, or one that only this project knew. What replaced them says
/// what is done: `finish`, `release`, `escalate`, `close_later`, `cost`, `poisoned`.
#[rustfmt::skip]
const STRUCK: &[&str] = &[
    "settle", "settles", "settled", "settling", "unsettle", "unsettled",
    "give_back", "gives_back", "given_back", "giving_back",
    "take_back", "takes_back", "taken_back",
    "vain", "climb", "climbs", "climbed", "doom", "dooms", "doomed", "shelter",
    "regret", "regrets", "regretted", "seam", "pulse", "give_way",
    "spoil", "spoils", "spoilt", "spoiled", "stranger", "strangers",
    "look_over", "carry_out", "familiar", "bearable", "insurance", "insured",
    "short_way", "long_way",
];

/// Deprecated aliases of public names, which go with the next release.
const ALIASES: &[(&str, &str)] = &[
    ("crates/completion/src/waiter/rest.rs", "looked_in_vain"),
    ("crates/ext4/src/space/pool.rs", "give_back"),
    ("crates/hw/src/pci/mod.rs", "GivenBack"),
    ("crates/hw/src/pci/take.rs", "give_back"),
    ("crates/hw/src/pci/take.rs", "will_be_given_back"),
    ("crates/hw/src/transport.rs", "give_back"),
    ("crates/hw/src/user_memory.rs", "is_familiar"),
    ("crates/process/src/cpu.rs", "give_way"),
    ("crates/nvme-spec/src/lib.rs", "SeamError"),
    ("crates/nvme-spec/src/lib.rs", "seam"),
    ("crates/ssd/src/stepped.rs", "settle"),
];

/// The most terms that the glossary may have.
const TERMS_MAX: usize = 40;

const GLOSSARY: &str = "docs/glossary.md";

/// The words of `text`, an identifier or prose, in lower case between underscores.
fn parts(text: &str) -> String {
    let mut parts = String::from("_");
    let mut was_lower = false;
    for c in text.chars() {
        if c.is_uppercase() && was_lower || !c.is_alphanumeric() && !parts.ends_with('_') {
            parts.push('_');
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
        parts.extend(c.to_lowercase().filter(|c| c.is_alphanumeric()));
    }
    parts + "_"
}

/// The first struck word in `text`, if there is one.
fn struck(text: &str) -> Option<&'static str> {
    let parts = parts(text);
    STRUCK.iter().copied().find(|word| parts.contains(&format!("_{word}_")))
}

#[test]
fn words_are_found_in_names_and_prose() {
    for text in
        ["settle", "settle_queued", "SettleTime", "is_settled", "GivenBack", "The short way"]
    {
        assert!(struck(text).is_some(), "{text}");
    }
    for text in ["resettled", "given", "back", "shortway", "a way", "Seams"] {
        assert_eq!(struck(text), None, "{text}");
    }
}

#[test]
fn no_identifier_has_a_struck_word() {
    let (mut wrong, mut aliases) = (Vec::new(), BTreeSet::new());
    for (path, words) in sources().identifiers() {
        for (name, word) in words.iter().filter_map(|name| Some((name, struck(name)?))) {
            if let Some(alias) = ALIASES.iter().find(|alias| **alias == (path, name.as_str())) {
                aliases.insert(alias);
            } else {
                wrong.push(format!("{path}: `{name}` has \"{word}\""));
            }
        }
    }
    let gone = ALIASES.iter().filter(|alias| !aliases.contains(alias));
    wrong.extend(gone.map(|(path, name)| format!("{path} has no alias `{name}` any more")));
    report(&wrong);
}

#[test]
fn no_heading_and_no_term_has_a_struck_word() {
    let mut wrong = Vec::new();
    for (path, page, _) in pages() {
        let headings = page.headings.iter().filter_map(|title| Some((title, struck(title)?)));
        wrong.extend(headings.map(|(title, word)| format!("{path}: {title:?} has \"{word}\"")));
    }
    let lines = sources().texts[GLOSSARY].lines();
    wrong.extend(lines.filter(|line| struck(line).is_some()).map(str::to_owned));
    report(&wrong);
}

#[test]
fn the_glossary_is_short_and_in_order() {
    let rows = sources().texts[GLOSSARY].lines().filter_map(|line| line.strip_prefix("| "));
    let terms: Vec<String> = rows
        .skip(1)
        .map(|row| row.split(" | ").next().unwrap_or_default().to_lowercase())
        .collect();
    assert!(!terms.is_empty() && terms.len() <= TERMS_MAX, "{} terms", terms.len());
    assert!(terms.windows(2).all(|pair| pair[0] < pair[1]), "not in order: {terms:?}");
}
