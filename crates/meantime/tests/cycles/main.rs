//! Files that use each other in a circle: inside a crate at most four.

mod modules;

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

/// The circles of a crate of these files, shortened to which use which.
fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    circles(&dir.path().join("lib.rs"), 1)
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
