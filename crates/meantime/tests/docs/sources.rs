//! The repository's files, and the names that its Rust sources define.
//!
//! The sources are formatted by rustfmt, so the last line of an item has the indentation of its
//! first: no parser is needed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

/// Directories that are not sources.
const NOT_SOURCES: &[&str] = &["target", ".git", "out", "corpus-seed"];

/// The checker itself quotes names, which do not count as definitions.
pub(super) const CHECKER: &str = "crates/meantime/tests/docs/";

pub(super) struct Sources {
    /// Every file and directory, relative to the root of the repository.
    paths: BTreeSet<String>,
    /// The text of each readable file.
    pub(super) texts: BTreeMap<String, String>,
    /// Types, traits, constants, functions, macros.
    items: HashSet<String>,
    /// By type, trait or enum: functions, constants, fields, variants.
    members: BTreeMap<String, HashSet<String>>,
    /// By type: its traits.
    traits: BTreeMap<String, HashSet<String>>,
    /// By file: all identifiers of code, without comments.
    words: BTreeMap<String, HashSet<String>>,
}

impl Sources {
    pub(super) fn read(root: &Path) -> Self {
        let mut sources = Self {
            paths: BTreeSet::new(),
            texts: BTreeMap::new(),
            items: HashSet::new(),
            members: BTreeMap::new(),
            traits: BTreeMap::new(),
            words: BTreeMap::new(),
        };
        sources.walk(root, "");
        let texts = std::mem::take(&mut sources.texts);
        let is_code = |path: &&String| path.ends_with(".rs") && !path.starts_with(CHECKER);
        for path in texts.keys().filter(is_code) {
            sources.index(&texts[path]);
            sources.words.insert(path.clone(), words(&texts[path]));
        }
        for path in texts.keys().filter(|path| path.starts_with("crates/python/python/")) {
            sources.words.insert(path.clone(), words(&texts[path]));
        }
        sources.texts = texts;
        sources
    }

    fn walk(&mut self, dir: &Path, at: &str) {
        for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if NOT_SOURCES.contains(&name.as_str()) {
                continue;
            }
            let path = if at.is_empty() { name } else { format!("{at}/{name}") };
            if entry.file_type().unwrap().is_dir() {
                self.walk(&entry.path(), &path);
            } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
                self.texts.insert(path.clone(), text);
            }
            self.paths.insert(path);
        }
    }

    /// Whether `quote` ends the path of a file or directory. A crate's `src`, and the `.rs` of a
    /// test, may be omitted.
    pub(super) fn has_path(&self, quote: &str) -> bool {
        let quote = quote.trim_end_matches('/');
        self.paths.iter().any(|path| {
            let path = path.strip_suffix(".rs").filter(|_| !quote.ends_with(".rs")).unwrap_or(path);
            is_end_of(quote, path)
        })
    }

    /// Whether there is a module or directory `name` at any depth below the directory `above`.
    pub(super) fn has_below(&self, above: &str, name: &str) -> bool {
        let name = name.trim_end_matches('/');
        let inside = self.paths.iter().filter_map(|path| path.strip_prefix(above));
        inside.into_iter().any(|path| is_end_of(name, path.trim_end_matches(".rs")))
    }

    /// Whether a file whose path ends with `quote` defines the function `name`.
    pub(super) fn file_has(&self, quote: &str, name: &str) -> bool {
        let defines = |text: &str| {
            let before = format!("fn {name}");
            text.match_indices(&before)
                .any(|(at, _)| text[at + before.len()..].starts_with(['(', '<']))
        };
        self.texts.iter().any(|(path, text)| is_end_of(quote, path) && defines(text))
    }

    /// Whether code has the word `name`.
    pub(super) fn has_word(&self, name: &str) -> bool {
        self.words.values().any(|words| words.contains(name))
    }

    /// By file: all identifiers of code, and words of its literals.
    pub(super) fn identifiers(&self) -> impl Iterator<Item = (&str, &HashSet<String>)> {
        self.words.iter().map(|(path, words)| (path.as_str(), words))
    }

    /// Whether there is an item, a variant or a field of this name.
    pub(super) fn has_item(&self, name: &str) -> bool {
        self.items.contains(name) || self.members.values().any(|names| names.contains(name))
    }

    /// Whether the type or trait `owner` has `name`.
    pub(super) fn has_member(&self, owner: &str, name: &str) -> bool {
        let of = |owner: &str| self.members.get(owner).is_some_and(|names| names.contains(name));
        of(owner) || self.traits.get(owner).is_some_and(|traits| traits.iter().any(|one| of(one)))
    }

    /// Whether a module or crate `module` has a file with the word `name`.
    pub(super) fn module_has(&self, module: &str, name: &str) -> bool {
        let module = module.strip_prefix("meantime_").unwrap_or(module).replace('_', "-");
        self.words.iter().any(|(path, words)| {
            let parts = path.split('/').map(|part| part.trim_end_matches(".rs").replace('_', "-"));
            words.contains(name) && parts.into_iter().any(|part| part == module)
        })
    }

    fn index(&mut self, text: &str) {
        // The open items: the indentation of the first line, the type, and whether that is an enum
        // or a struct, whose members have no keyword.
        let mut open: Vec<(usize, String, bool)> = Vec::new();
        let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        while let Some(line) = lines.next() {
            let indent = line.len() - line.trim_start().len();
            while open.last().is_some_and(|(at, ..)| *at >= indent && !line.trim().is_empty()) {
                open.pop();
            }
            let code = unqualified(line.trim_start());
            let (keyword, rest) = code.split_once(' ').unwrap_or((code, ""));
            let name = identifier(rest);
            match keyword {
                "fn" | "const" | "static" | "type" if !name.is_empty() => {
                    self.items.insert(name.clone());
                    if let Some((_, owner, _)) = open.last() {
                        self.members.entry(owner.clone()).or_default().insert(name);
                    }
                }
                "struct" | "enum" | "union" | "trait" if !name.is_empty() => {
                    self.items.insert(name.clone());
                    let members = self.members.entry(name.clone()).or_default();
                    if let Some((_, inside)) = rest.split_once('{') {
                        let parts = inside.trim_end_matches('}').split(',');
                        members.extend(parts.map(|part| identifier(unqualified(part.trim()))));
                    }
                    open.push((indent, name, keyword != "trait"));
                }
                "macro_rules!" => {
                    self.items.insert(name);
                }
                _ if keyword == "impl" || keyword.starts_with("impl<") => {
                    let mut header = code.to_owned();
                    while !header.contains('{') {
                        let Some(more) = lines.next() else { break };
                        header = header + " " + more.trim();
                    }
                    let (of, owner) = implemented(&header);
                    if let Some(of) = of {
                        self.traits.entry(owner.clone()).or_default().insert(of);
                    }
                    open.push((indent, owner, false));
                }
                _ => {
                    let name = identifier(code);
                    if let Some((at, owner, true)) = open.last()
                        && indent == at + 4
                        && !name.is_empty()
                    {
                        self.members.entry(owner.clone()).or_default().insert(name);
                    }
                }
            }
        }
    }
}

/// Whether `path` ends with `quote`, in which a crate's `src` may be omitted.
fn is_end_of(quote: &str, path: &str) -> bool {
    let ends = |path: &str| {
        path.strip_suffix(quote).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    };
    ends(path) || ends(&path.replace("/src/", "/"))
}

/// A line without the qualifiers before `fn` or `struct`.
fn unqualified(mut code: &str) -> &str {
    loop {
        let before = code;
        if let Some(rest) = code.strip_prefix("pub") {
            code = match rest.strip_prefix('(') {
                Some(rest) => rest.split_once(") ").map_or(code, |(_, rest)| rest),
                None => rest.strip_prefix(' ').unwrap_or(code),
            };
        }
        for word in ["unsafe ", "async ", "extern \"C\" ", "default "] {
            code = code.strip_prefix(word).unwrap_or(code);
        }
        code = match code.strip_prefix("const ") {
            Some(rest) if unqualified(rest).starts_with("fn ") => rest,
            _ => code,
        };
        if code == before {
            return code;
        }
    }
}

/// The identifier at the start of `text`.
fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The trait, if any, and the type of an `impl` header, without parameters.
fn implemented(header: &str) -> (Option<String>, String) {
    let mut depth = 0;
    let mut flat = String::new();
    for c in header.replace("->", "").chars() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            '{' => break,
            _ if depth == 0 => flat.push(c),
            _ => {}
        }
    }
    let flat = flat.trim_start_matches("impl").split(" where").next().unwrap_or_default();
    let last = |path: &str| identifier(path.trim().rsplit("::").next().unwrap_or_default());
    match flat.split_once(" for ") {
        Some((of, owner)) => (Some(last(of)), last(owner.trim_start_matches('&'))),
        None => (None, last(flat)),
    }
}

/// All identifiers of `text`, without those of comments.
fn words(text: &str) -> HashSet<String> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}
