//! References to documents in the sources' comments.

use super::markdown::Page;
use super::{CHECKER, report, sources, word};

/// Comments refer to existing sections, rules and pages.
#[test]
fn references_lead_somewhere() {
    let mut wrong = Vec::new();
    for (path, text) in &sources().texts {
        if path != "CHANGELOG.md" && !path.starts_with(CHECKER) {
            let text = joined(text);
            wrong.extend(references(&text).into_iter().map(|what| format!("{path}: {what}")));
        }
    }
    report(&wrong);
}

/// The broken references of `text`.
fn references(text: &str) -> Vec<String> {
    let (architecture, ordering) =
        (&sources().texts["ARCHITECTURE.md"], &sources().texts["docs/ordering.md"]);
    let mut wrong = Vec::new();
    if text.contains("DESIGN §") {
        wrong.push("DESIGN is no page".to_owned());
    }
    for (at, name) in text.match_indices("ARCHITECTURE.md §") {
        let rest = &text[at + name.len()..];
        let number = first_number(rest);
        if !Page::parse(architecture).has_section(&number) {
            wrong.push(format!("ARCHITECTURE.md has no §{number}"));
        }
        let rule = rest[number.len()..].strip_prefix(", rule ").map(first_number);
        if let Some(rule) = rule.filter(|rule| !has_rule(architecture, rule)) {
            wrong.push(format!("ARCHITECTURE.md has no rule {rule}"));
        }
    }
    for (at, _) in text.match_indices("of `docs/ordering.md`") {
        let before = text[..at].rsplit("rule").next().unwrap_or_default();
        let numbers = before.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
        for rule in numbers.filter(|rule| before.len() < 30 && !has_rule(ordering, rule)) {
            wrong.push(format!("docs/ordering.md has no rule {rule}"));
        }
    }
    for (at, _) in text.match_indices("docs/") {
        let is_part = |c: char| word(c) || "/.-".contains(c);
        let name: String = text[at..].chars().take_while(|c| is_part(*c)).collect();
        let name = name.trim_end_matches('.');
        let is_whole = !text[..at].ends_with(is_part);
        if is_whole && name.ends_with(".md") && !sources().texts.contains_key(name) {
            wrong.push(format!("there is no {name}"));
        }
    }
    wrong
}

fn first_number(text: &str) -> String {
    text.chars().take_while(char::is_ascii_digit).collect()
}

/// Whether a list in `page` has a rule of this number.
fn has_rule(page: &str, number: &str) -> bool {
    page.lines().any(|line| line.starts_with(&format!("{number}. **")))
}

/// A source's text with line ends and comment marks replaced by one space.
fn joined(text: &str) -> String {
    let marks = ["//!", "///", "//", "#"];
    let mut joined = String::new();
    for line in text.lines().map(str::trim) {
        let mark = marks.iter().find_map(|mark| line.strip_prefix(mark));
        joined.push_str(mark.unwrap_or(line).trim());
        joined.push(' ');
    }
    joined
}
