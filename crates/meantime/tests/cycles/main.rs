//! Files of a crate that use each other: in a circle at most four, and in `ext4` in an order.

mod modules;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use itertools::Itertools as _;
use modules::Modules;
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

/// The most files that may use each other in a circle.
const FILES_MAX: usize = 4;

/// The circles of more than `most` files in the crate whose library or program is `root`: the files
/// of each, and which of them use each other.
fn circles(root: &Path, most: usize) -> Vec<String> {
    let modules = Modules::read(root);
    let (files, uses) = (modules.files(), modules.uses());
    let graph: DiGraphMap<usize, ()> = uses.keys().copied().collect();
    let shown = |circle: Vec<usize>| {
        let inside = |file: &usize| circle.contains(file);
        let uses = uses.iter().filter(|((from, to), _)| inside(from) && inside(to));
        let uses = uses.map(|((from, to), paths)| {
            format!("\n  {} uses {}: {}", files[*from], files[*to], paths.iter().join(" "))
        });
        format!("{} files: {}", circle.len(), uses.collect::<String>())
    };
    tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > most).map(shown).collect()
}

/// The libraries and programs of this repository's crates.
fn roots() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let crates = std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path());
    let roots = crates.flat_map(|dir| ["lib.rs", "main.rs"].map(|name| dir.join("src").join(name)));
    let mut roots: Vec<_> = roots.filter(|root| root.exists()).collect();
    roots.sort();
    roots
}

#[test]
fn no_more_than_four_files_use_each_other_in_a_circle() {
    let roots = roots();
    assert!(roots.len() > 20, "{}", roots.len());
    let mut large = Vec::new();
    for root in &roots {
        let name = root.parent().unwrap().parent().unwrap().file_name().unwrap().display();
        let circles = circles(root, FILES_MAX);
        large.extend(circles.into_iter().map(|circle| format!("{name}: a circle of {circle}")));
    }
    assert!(large.is_empty(), "{}", large.join("\n"));
}

/// The parts of `ext4` (folders and files of its `src`), each of which uses only earlier ones.
const EXT4_PARTS: &[&str] = &[
    "error",
    "errno",
    "options",
    "counters",
    "bounded",
    "numbers",
    "worker",
    "cache",
    "space",
    "io",
    "journal",
    "mmp",
    "alloc",
    "ops",
    "inode",
    "file",
    "fs",
    "by_inode",
    "by_path",
    "path_content",
    "setattr",
    "flags",
    "fiemap",
    "copy",
    "trim",
    "background",
    "by_name",
    "walk",
    "block",
    "asynchronous",
    "mkfs",
];

/// The uses of an earlier part, a folder or file of `src`, by which `root`'s crate breaks `order`;
/// and the parts that it has.
fn uses_upwards(root: &Path, order: &[&str]) -> (Vec<String>, BTreeSet<String>) {
    let modules = Modules::read(root);
    let files = modules.files();
    let part = |file: usize| files[file].split('/').next().unwrap().trim_end_matches(".rs");
    let rank = |file: usize| order.iter().position(|name| *name == part(file));
    let is_upwards = |(from, to): &(usize, usize)| rank(*from) < rank(*to);
    let uses = modules.uses().into_iter().filter(|(pair, _)| pair.0 != 0 && is_upwards(pair));
    let shown = |((from, to), paths): ((usize, usize), BTreeSet<String>)| {
        format!("{} uses {}: {}", files[from], files[to], paths.iter().join(" "))
    };
    // The first file is the root, which hands on what its parts define.
    (uses.map(shown).collect(), (1..files.len()).map(|file| part(file).to_owned()).collect())
}

#[test]
fn a_part_of_ext4_uses_only_those_before_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (wrong, parts) = uses_upwards(&crates.join("ext4/src/lib.rs"), EXT4_PARTS);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(parts, EXT4_PARTS.iter().map(|part| (*part).to_owned()).collect());
}

/// A directory with these files.
fn written(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

/// The circles of a crate of these files.
fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    circles(&written(files).path().join("lib.rs"), 1)
}

#[test]
fn uses_of_later_parts_are_seen() {
    let dir = written(&[
        ("lib.rs", "mod a;\nmod b;\npub use b::inner::B;\n"),
        ("a.rs", "pub struct A;\nfn f(_: &crate::B) {}\n"),
        ("b/mod.rs", "pub mod inner;\n"),
        ("b/inner.rs", "pub struct B(pub super::super::a::A);\n"),
    ]);
    let uses = |order: &[&str]| uses_upwards(&dir.path().join("lib.rs"), order).0;
    assert_eq!(uses(&["a", "b"]), ["a.rs uses b/inner.rs: crate::B"]);
    assert_eq!(uses(&["b", "a"]), ["b/inner.rs uses a.rs: super::super::a::A"]);
}

#[test]
fn circles_are_seen_through_other_names() {
    let root = ("lib.rs", "mod a;\nmod b;\npub use b::B;\n");
    let b = ("b.rs", "pub struct B(pub crate::a::A);\n");
    let by_re_export = circles_of(&[root, ("a.rs", "use crate::B as Other;\npub struct A;\n"), b]);
    assert_eq!(
        by_re_export,
        ["2 files: \n  a.rs uses b.rs: crate::B\n  b.rs uses a.rs: crate::a::A"]
    );
    let by_super = circles_of(&[root, ("a.rs", "pub struct A;\nfn f(_: &super::B) {}\n"), b]);
    assert_eq!(by_super, ["2 files: \n  a.rs uses b.rs: super::B\n  b.rs uses a.rs: crate::a::A"]);
    let by_glob = [("a.rs", "use super::*;\npub struct A;\nfn f() { g!(B::new()) }\n"), root, b];
    assert!(circles_of(&by_glob)[0].contains("a.rs uses b.rs: B::new"));
    // A root that hands on what its parts define, which use what it defines.
    let by_root = [
        ("lib.rs", "mod a;\npub use a::A;\npub struct Error;\n"),
        ("a.rs", "use super::Error;\npub struct A(Error);\n"),
    ];
    assert_eq!(circles_of(&by_root).len(), 1);
}

#[test]
fn no_circle_is_seen_where_there_is_none() {
    let none = [
        ("lib.rs", "mod a;\nmod b;\n#[cfg(all(test, not(loom)))]\nmod tests;\npub use b::B;\n"),
        ("tests.rs", "use super::B;\npub(crate) const HELPER: u8 = 0;\n"),
        ("a.rs", "use std::fmt::Debug;\nmod inner { pub struct A; }\npub use inner::A;\n"),
        ("b.rs", "use crate::a::A;\npub struct B(A);\n#[cfg(test)]\nmod tests { use crate::B; }\n"),
    ];
    assert_eq!(circles_of(&none), Vec::<String>::new());
}
