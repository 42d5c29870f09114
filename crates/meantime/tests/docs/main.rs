//! Checks the documents: the names, files, links, sections, commands and examples that they quote
//! are looked up in the sources.

mod markdown;
mod references;
mod sources;
mod words;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use markdown::Page;
use sources::{CHECKER, Sources};

/// Foreign names: the kernel's, the C library's, NVMe's, Rust's, other programs'.
#[rustfmt::skip]
const FOREIGN: &[&str] = &[
    // Rust, the kernel, the C library.
    "Arc", "Box", "Send", "Sync", "sched_yield", "vfs_rename", "pthread_cancel",
    // Python's exceptions.
    "FileNotFoundError", "OSError", "RuntimeError", "TimeoutError", "ValueError",
    // ext4 and its journal.
    "journal_async_commit", "j_fc_last", "j_last", "s_errno", "s_state",
    // fio's tools; names that stand for any crate, length or time.
    "fiologparser_hist.py", "crates/NAME", "crates/NAME/src/lib.rs", "len_bytes", "t_k",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn sources() -> &'static Sources {
    static SOURCES: OnceLock<Sources> = OnceLock::new();
    SOURCES.get_or_init(|| Sources::read(&root()))
}

/// The checked pages, with their texts.
fn pages() -> Vec<(&'static str, Page, &'static str)> {
    let is_page = |path: &str| match path.strip_prefix("docs/") {
        Some(name) => name.ends_with(".md"),
        None => ["README.md", "ARCHITECTURE.md"].contains(&path),
    };
    let pages = sources().texts.iter().filter(|(path, _)| is_page(path));
    pages.map(|(path, text)| (path.as_str(), Page::parse(text), text.as_str())).collect()
}

/// The page whose quotes are of other programs.
const OTHERS: &str = "docs/interop.md";

/// Fails with all of `wrong` at once.
fn report(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} not true:\n{}\n", wrong.len(), wrong.join("\n"));
}

#[test]
fn quoted_names_exist() {
    let mut wrong = Vec::new();
    for (path, page, _) in pages().into_iter().filter(|(path, ..)| *path != OTHERS) {
        for (line, quote) in &page.quotes {
            for name in braces(quote) {
                if !FOREIGN.contains(&name.as_str()) && !exists(&name) {
                    wrong.push(format!("{path}:{line}: `{name}`"));
                }
            }
        }
    }
    report(&wrong);
}

/// Each row of the page about other programs names a test of ours, if there is anything to test.
#[test]
fn tests_of_what_others_do_exist() {
    let sources = sources();
    let text = &sources.texts[OTHERS];
    let (mut wrong, mut named) = (Vec::new(), 0);
    for row in text.lines().filter(|line| line.starts_with("| ") && line.ends_with(" |")) {
        let last = row.trim_end_matches('|').rsplit(" | ").next().unwrap().trim();
        let Some(quote) = last.strip_prefix('`').and_then(|last| last.strip_suffix('`')) else {
            continue;
        };
        named += 1;
        let is_there = quote.split_once("::").is_some_and(|(name, test)| {
            let (dir, test) = (format!("crates/{name}/"), format!("fn {test}()"));
            let mut files = sources.texts.iter().filter(|(path, _)| path.starts_with(&dir));
            files.any(|(_, text)| text.contains(&test))
        });
        if !is_there {
            wrong.push(format!("{OTHERS}: `{quote}`"));
        }
    }
    assert!(named > 40, "{named}");
    report(&wrong);
}

/// The commands of the page about a first SSD are those of the guest's test.
#[test]
fn commands_of_the_first_ssd_are_tested() {
    let script = &sources().texts["scripts/guest/tests/first-ssd.sh"];
    let script = script.replace('"', "");
    let script = script.replace("$address", "0000:01:00.0").replace("$serial", "SERIAL");
    let pages = pages();
    let (_, page, _) = pages.iter().find(|(path, ..)| *path == "docs/first-ssd.md").unwrap();
    let blocks = page.blocks("sh");
    let commands: Vec<_> = blocks.iter().flat_map(|(_, lines)| lines).collect();
    assert!(commands.len() > 10, "{commands:?}");
    let wrong = commands.iter().filter(|command| !script.contains(**command));
    report(&wrong.map(|command| command.to_string()).collect::<Vec<_>>());
}

/// Functions are in the files that the same table row names.
#[test]
fn functions_are_where_tables_say() {
    let mut wrong = Vec::new();
    for (path, page, text) in pages() {
        for (number, _) in (1..).zip(text.lines()).filter(|(_, line)| line.starts_with('|')) {
            let quotes = page.quotes.iter().filter(|(line, _)| *line == number);
            let (files, names): (Vec<&str>, Vec<&str>) =
                quotes.map(|(_, quote)| quote.as_str()).partition(|quote| quote.ends_with(".rs"));
            let functions = names.into_iter().filter(|name| {
                let is_function = |(_, name): (_, &str)| name.starts_with(char::is_lowercase);
                name.rsplit_once("::").is_some_and(is_function)
            });
            for name in functions.filter(|_| !files.is_empty()) {
                let (_, function) = name.rsplit_once("::").unwrap_or_default();
                if !files.iter().any(|file| sources().file_has(file, function)) {
                    wrong.push(format!("{path}:{number}: `{name}` is not in {files:?}"));
                }
            }
        }
    }
    report(&wrong);
}

/// The page at the start of a crate's documentation, and the directory of its sources.
fn crate_pages() -> impl Iterator<Item = (&'static str, Page)> {
    let roots = ["/src/lib.rs", "/src/main.rs"];
    sources().texts.iter().filter_map(move |(path, text)| {
        let dir = roots.iter().find_map(|root| path.strip_suffix(root))?;
        let is_page = |line: &&str| line.starts_with("//!");
        let page = text.lines().take_while(is_page).map(|line| {
            let line = line.trim_start_matches("//!");
            line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n"
        });
        dir.starts_with("crates/").then(|| (dir, Page::parse(&page.collect::<String>())))
    })
}

/// A crate's picture of its parts names its modules.
#[test]
fn pictures_show_modules() {
    let mut wrong = Vec::new();
    for (dir, page) in crate_pages() {
        for (line, text, _) in page.code.iter().filter(|(.., language)| language == "text") {
            let indent = text.len() - text.trim_start().len();
            let names = text.trim_start().split("  ").next().unwrap_or_default();
            // A line that is indented further continues a description.
            for name in names.split([',', ' ']).filter(|name| !name.is_empty() && indent < 8) {
                let there = [format!("{dir}/src"), "crates".to_owned()];
                if !there.iter().any(|above| sources().has_below(above, name)) {
                    wrong.push(format!("{dir}, line {line}: there is no module {name}"));
                }
            }
        }
        for (line, quote) in &page.quotes {
            if !quote.starts_with('[') && !FOREIGN.contains(&quote.as_str()) && !exists(quote) {
                wrong.push(format!("{dir}, line {line}: `{quote}`"));
            }
        }
    }
    report(&wrong);
}

/// The map in ARCHITECTURE.md has exactly the existing crates.
#[test]
fn the_map_has_every_crate() {
    let (_, map) = sources().texts["ARCHITECTURE.md"].split_once("\n| crate |").unwrap();
    let (map, _) = map.split_once("\n\n").unwrap();
    let rows = map.lines().filter_map(|row| row.strip_prefix("| `")?.split_once('`'));
    let named: BTreeSet<&str> = rows.map(|(name, _)| name).chain(["meantime"]).collect();
    let manifests = sources().texts.keys().filter_map(|path| path.strip_suffix("/Cargo.toml"));
    let there: BTreeSet<&str> = manifests.filter_map(|dir| dir.strip_prefix("crates/")).collect();
    assert_eq!(named, there);
}

/// `a::{b, c}` is two names.
fn braces(quote: &str) -> Vec<String> {
    match quote.split_once("::{") {
        Some((before, inside)) => inside
            .trim_end_matches('}')
            .split(',')
            .map(|name| format!("{before}::{}", name.trim()))
            .collect(),
        None => vec![quote.to_owned()],
    }
}

/// Whether the item named by `quote` exists; other quotes are not checked.
fn exists(quote: &str) -> bool {
    if let Some(is_there) = file_exists(quote) {
        return is_there;
    }
    let name = quote.split(['(', '<', '!']).next().unwrap_or_default();
    let parts: Vec<&str> = name.split("::").collect();
    let is_identifier =
        |part: &&str| part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.chars().all(word);
    if !parts.iter().all(is_identifier) {
        return true;
    }
    let camel = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_uppercase()) && part.contains(char::is_lowercase)
    };
    match parts.as_slice() {
        ["std" | "core" | "libc", ..] => true,
        [one] if camel(one) => sources().has_item(one),
        [one] if one.contains('_') || quote.contains('(') => sources().has_word(one),
        [_] => true,
        [.., owner, name] if camel(owner) => sources().has_member(owner, name),
        [.., module, name] => sources().module_has(module, name),
        [] => true,
    }
}

fn word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether the file named by `quote` exists; `None` if it names no file of the repository.
fn file_exists(quote: &str) -> Option<bool> {
    let is_path = quote.chars().all(|c| word(c) || "/.-".contains(c)) && !quote.starts_with('/');
    let ours = ["crates/", "docs/", "scripts/", "jobs/", "fuzz/", "tests/", "examples/"];
    let (_, extension) = quote.rsplit_once('.').unwrap_or_default();
    let is_file = ["rs", "md", "sh", "py", "fio", "h"].contains(&extension);
    (is_path && (is_file || ours.iter().any(|dir| quote.starts_with(dir))))
        .then(|| sources().has_path(quote))
}

/// The rules of docs/ordering.md name exactly the switches of the crash tests.
#[test]
fn switches_of_rules_exist() {
    let page = &sources().texts["docs/ordering.md"];
    let (_, rules) = page.split_once("\n## Rules\n").unwrap();
    let (rules, _) = rules.split_once("\n## ").unwrap();
    let heads = rules.lines().filter(|line| line.contains(". **"));
    let named: BTreeSet<String> = heads
        .filter_map(|head| head.split_once("** ("))
        .flat_map(|(_, names)| names.split('`').skip(1).step_by(2))
        .filter(|name| !name.ends_with(".rs") && *name != "mmp")
        .map(str::to_owned)
        .collect();
    let broken = &sources().texts["crates/ext4/src/journal/ordered_io/broken.rs"];
    let (_, variants) = broken.split_once("pub enum Rule {").unwrap();
    let (variants, _) = variants.split_once("\n}").unwrap();
    let variants = variants.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let there: BTreeSet<String> = variants
        .map(|line| line.trim_end_matches([',', ' ', '1', '=']))
        .filter(|name| !name.is_empty())
        .map(kebab)
        .collect();
    assert_eq!(named, there);
}

/// `LogFirst` is `log-first`.
fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push(c.to_ascii_lowercase());
    }
    kebab
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    for (path, page, _) in pages() {
        for (line, link) in page.links.iter().filter(|(_, link)| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let base = Path::new(path).parent().unwrap();
            let target = if file.is_empty() { PathBuf::from(path) } else { base.join(file) };
            let target = root().join(target);
            let has_anchor = || {
                let text = std::fs::read_to_string(&target).unwrap_or_default();
                Page::parse(&text).has_anchor(anchor)
            };
            if !target.exists() || !anchor.is_empty() && !has_anchor() {
                wrong.push(format!("{path}:{line}: {link}"));
            }
        }
    }
    report(&wrong);
}

#[test]
fn pages_can_be_read() {
    let mut wrong = Vec::new();
    for (path, page, _) in pages() {
        // Its table and the surrounding texts are generated.
        if path == "docs/fio.md" {
            continue;
        }
        wrong.extend(page.long.iter().map(|line| format!("{path}:{line}: more than 100 columns")));
    }
    report(&wrong);
}

/// The commands quoted by the pages: in code, or between backticks.
fn commands() -> Vec<(String, Vec<String>)> {
    let mut commands = Vec::new();
    for (path, page, _) in pages().into_iter().filter(|(path, ..)| *path != OTHERS) {
        let code = page.code.iter().map(|(line, text, _)| (line, text));
        for (line, text) in code.chain(page.quotes.iter().map(|(line, text)| (line, text))) {
            let text = text.split(" #").next().unwrap_or_default();
            let words = text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            commands.push((format!("{path}:{line}: {text}"), words));
        }
    }
    commands
}

#[test]
fn targets_of_make_exist() {
    let makefile = &sources().texts["Makefile"];
    let is_target = |name: &str| makefile.lines().any(|line| line.starts_with(&format!("{name}:")));
    let mut wrong = Vec::new();
    for (place, words) in commands() {
        if words.first().is_some_and(|word| word == "make") {
            let named = words[1..].iter().filter(|word| !word.contains('='));
            let missing = named.filter(|word| word.chars().all(word_or_dash) && !is_target(word));
            wrong.extend(missing.map(|name| format!("{place}: no target {name}")));
        }
    }
    report(&wrong);
}

fn word_or_dash(c: char) -> bool {
    word(c) || c == '-'
}

#[test]
fn commands_and_options_exist() {
    let sources = sources();
    let cli = &sources.texts["crates/cli/src/cli/mod.rs"];
    let code: String = sources
        .texts
        .iter()
        .filter(|(path, _)| {
            // The options of `bench` are the keys of jobs.
            let of = ["crates/cli/src/", "crates/bench/src/job/keys/"];
            of.iter().any(|folder| path.starts_with(folder)) && path.ends_with(".rs")
        })
        .map(|(_, text)| text.as_str())
        .collect();
    let has = |option: &str| {
        // The keys of jobs have underscores.
        let key = option.replace('-', "_");
        [format!("\"{option}\""), format!("\"{key}\""), format!("{key}:")]
            .iter()
            .any(|name| code.contains(name))
    };
    let (_, variants) = cli.split_once("enum Command {").unwrap();
    let (variants, _) = variants.split_once("\n}").unwrap();
    let is_command = |name: &str| {
        let camel: String = name.split('-').map(capital).collect();
        variants.lines().any(|line| line.trim().starts_with(&format!("{camel}(")))
    };
    let mut wrong = Vec::new();
    for (place, words) in commands() {
        let ours = words.iter().position(|word| word == "meantime" || word.ends_with("/meantime"));
        let Some(at) = ours.filter(|at| words[..*at].iter().all(|word| word == "sudo")) else {
            continue;
        };
        let Some(name) = words.get(at + 1) else { continue };
        if !name.starts_with('-') && name != "help" && !is_command(name) {
            wrong.push(format!("{place}: no command {name}"));
        }
        // Options after `--` belong to another program.
        for option in words[at..].iter().take_while(|word| *word != "--") {
            let Some(option) = option.strip_prefix("--") else { continue };
            let option =
                option.split('=').next().unwrap_or_default().trim_end_matches([',', '.', '`']);
            if !has(option) {
                wrong.push(format!("{place}: no option --{option}"));
            }
        }
    }
    report(&wrong);
}

/// The messages of docs/troubleshooting.md exist in the sources. `…` matches anything.
#[test]
fn messages_exist() {
    let page = &sources().texts["docs/troubleshooting.md"];
    let ours = |path: &str| path.starts_with("crates/") || path.starts_with("scripts/");
    let texts = sources().texts.iter().filter(|(path, _)| ours(path));
    // A literal may continue on the next line, after a backslash.
    let texts: Vec<String> =
        texts.map(|(_, text)| text.split("\\\n").map(str::trim_start).collect()).collect();
    let mut wrong = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let message = row.split(" | ").next().unwrap_or_default();
        let quotes =
            message.split('`').skip(1).step_by(2).filter(|quote| !quote.contains("meantime"));
        for part in quotes.flat_map(|quote| quote.split('…')).filter(|part| part.len() > 5) {
            if !texts.iter().any(|text| text.contains(part.trim())) {
                wrong.push(format!("{message}: {part:?}"));
            }
        }
    }
    report(&wrong);
}

/// The targets of quoted cargo commands exist: crates, tests, benchmarks, examples.
#[test]
fn targets_of_cargo_exist() {
    let mut wrong = Vec::new();
    for (place, words) in commands() {
        let Some(at) = words.iter().position(|word| word == "cargo") else { continue };
        let value = |option: &str| {
            let pairs = words[at..].windows(2);
            pairs.filter(|pair| pair[0] == option).map(|pair| pair[1].as_str()).next()
        };
        let package = value("-p").unwrap_or("meantime");
        let dir = format!("crates/{}", package.strip_prefix("meantime-").unwrap_or(package));
        let targets = [("--test", "tests"), ("--bench", "benches"), ("--example", "examples")];
        let named = targets
            .iter()
            .filter_map(|(option, kind)| value(option).map(|name| format!("{dir}/{kind}/{name}")));
        let missing = named.chain([dir.clone()]).find(|path| !sources().has_path(path));
        wrong.extend(missing.map(|path| format!("{place}: there is no {path}")));
    }
    report(&wrong);
}

/// Parameters and models of device URIs, and names of policies, are known.
#[test]
fn uris_and_policies_exist() {
    let (uris, policies) = (
        &sources().texts["crates/block/src/uri.rs"],
        &sources().texts["crates/completion/src/policy.rs"],
    );
    let is_quoted = |text: &str, name: &str| text.contains(&format!("\"{name}\""));
    let is_model = |name: &str| sources().has_path(&format!("models/{name}.toml"));
    let mut wrong = Vec::new();
    for (place, words) in commands() {
        let schemes = ["mem:", "file:", "vfio:", "vfio-user:", "kernel:"];
        for uri in words
            .iter()
            .flat_map(|word| word.split(['\'', '"', ',']))
            .filter(|uri| schemes.iter().any(|scheme| uri.starts_with(scheme)))
        {
            let (_, query) = uri.split_once('?').unwrap_or_default();
            for pair in query.split('&').filter(|pair| pair.contains('=')) {
                let (key, value) = pair.split_once('=').unwrap_or_default();
                let value = value.split([':', '`', ')']).next().unwrap_or_default();
                let is_name = value.starts_with(char::is_lowercase) && !value.contains('.');
                if !is_quoted(uris, key) || key == "model" && is_name && !is_model(value) {
                    wrong.push(format!("{place}: {pair}"));
                }
            }
        }
        let named = words.windows(2).filter(|pair| pair[0] == "--completion");
        for policy in named.flat_map(|pair| pair[1].split(',')) {
            let name: String = policy.chars().take_while(|c| word_or_dash(*c)).collect();
            if !is_quoted(policies, &name) {
                wrong.push(format!("{place}: policy {name}"));
            }
        }
    }
    report(&wrong);
}

fn capital(part: &str) -> String {
    let mut chars = part.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

/// Each example is part of a compiled file: of a program, or of a documentation test.
#[test]
fn examples_are_compiled() {
    let compiled: Vec<String> = sources()
        .texts
        .iter()
        .filter(|(path, _)| {
            path.starts_with("crates/") && (path.ends_with(".rs") || path.ends_with(".c"))
        })
        .map(|(_, text)| example(text.lines()))
        .collect();
    let mut wrong = Vec::new();
    for (path, page, _) in pages() {
        for (line, block) in page.blocks("rust").into_iter().chain(page.blocks("c")) {
            let block = example(block.into_iter());
            if !compiled.iter().any(|text| text.contains(&block)) {
                wrong.push(format!("{path}:{line}: is in no example, and in no documentation"));
            }
        }
    }
    report(&wrong);
}

/// Lines without indentation, comment marks, and hidden documentation lines.
fn example<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let strip = |line: &'a str| {
        let line = line.trim();
        line.strip_prefix("//!").or(line.strip_prefix("///")).unwrap_or(line).trim()
    };
    let shown = lines.map(strip).filter(|line| !line.is_empty() && !line.starts_with("# "));
    shown.map(|line| line.to_owned() + "\n").collect()
}
