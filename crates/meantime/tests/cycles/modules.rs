//! The modules of a crate: which file defines what a path names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Macro, UseTree};

/// Names that stand for each other, at most.
const STEPS_MAX: u32 = 32;

/// Names of a path, as `["crate", "queue", "Queue"]`.
type Names = Vec<String>;

/// What a path leads to.
enum Found {
    Module(usize),
    /// Something that is defined in this file.
    Item(usize),
}

/// A module: a file, or a part of one.
#[derive(Default)]
struct Module {
    file: usize,
    parent: usize,
    children: BTreeMap<String, usize>,
    /// What is defined here.
    items: BTreeSet<String>,
    /// What is imported here, under which name.
    imports: BTreeMap<String, Names>,
    /// What all is imported from.
    globs: Vec<Names>,
    /// All paths that stand here.
    paths: Vec<Names>,
}

/// The modules of a crate, but for those of its tests.
#[derive(Default)]
pub(crate) struct Modules {
    files: Vec<PathBuf>,
    all: Vec<Module>,
    /// Where macros are defined that are used by their name alone.
    macros: BTreeMap<String, usize>,
}

impl Modules {
    /// Reads the crate whose library or program is the file `root`.
    pub(crate) fn read(root: &Path) -> Self {
        let mut modules = Self::default();
        modules.add_file(root, 0);
        modules
    }

    /// Its files, without the place of the crate's sources.
    pub(crate) fn files(&self) -> Vec<String> {
        let src = self.files[0].parent().unwrap();
        let name = |file: &PathBuf| file.strip_prefix(src).unwrap().display().to_string();
        self.files.iter().map(name).collect()
    }

    /// Pairs of files, of which the first uses what the second defines: by these paths.
    pub(crate) fn uses(&self) -> BTreeMap<(usize, usize), BTreeSet<String>> {
        let mut all: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (at, module) in self.all.iter().enumerate() {
            for path in &module.paths {
                if let Some(Found::Item(file)) = self.resolve(at, path, 0)
                    && file != module.file
                {
                    all.entry((module.file, file)).or_default().insert(path.join("::"));
                }
            }
        }
        all
    }

    fn add_file(&mut self, path: &Path, parent: usize) -> usize {
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let syntax =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.files.push(path.to_owned());
        let file = self.files.len() - 1;
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let dir = path.parent().unwrap();
        let inside =
            if ["lib", "main", "mod"].contains(&stem) { dir.to_owned() } else { dir.join(stem) };
        self.add(file, parent, &inside, syntax.items)
    }

    /// Adds the module of `items`; files of its children are in directory `inside`.
    fn add(&mut self, file: usize, parent: usize, inside: &Path, items: Vec<Item>) -> usize {
        self.all.push(Module { file, parent, ..Module::default() });
        let at = self.all.len() - 1;
        for mut item in items.into_iter().filter(|item| !is_for_tests(attributes(item))) {
            if let Some(name) = defined(&item) {
                self.all[at].items.insert(name);
            }
            if let Item::Macro(one) = &item
                && let Some(name) = &one.ident
            {
                self.macros.insert(name.to_string(), file);
            }
            if let Item::Mod(module) = &mut item {
                let name = module.ident.to_string();
                let child = match module.content.take() {
                    Some((_, items)) => self.add(file, at, &inside.join(&name), items),
                    None => {
                        let places = [format!("{name}.rs"), format!("{name}/mod.rs")];
                        let places = places.map(|place| inside.join(place));
                        let path = places.iter().find(|path| path.exists());
                        self.add_file(path.unwrap_or(&places[0]), at)
                    }
                };
                self.all[at].children.insert(name, child);
            }
            self.visit_in(at, &item);
        }
        at
    }

    fn visit_in(&mut self, at: usize, item: &Item) {
        let mut reader = Reader { module: &mut self.all[at] };
        reader.visit_item(item);
    }

    /// What `path` names in module `at`; `None` if it is of another crate.
    fn resolve(&self, at: usize, path: &[String], steps: u32) -> Option<Found> {
        let (first, mut rest) = path.split_first()?;
        let mut found = match first.as_str() {
            "crate" => Found::Module(0),
            "self" => Found::Module(at),
            "super" => Found::Module(self.all[at].parent),
            name => self.look_up(at, name, steps)?,
        };
        while let (Found::Module(module), Some((name, after))) = (&found, rest.split_first()) {
            found = match name.as_str() {
                "super" => Found::Module(self.all[*module].parent),
                "self" => Found::Module(*module),
                name => self.look_up(*module, name, steps)?,
            };
            rest = after;
        }
        Some(found)
    }

    /// What `name` is in module `at`; `name!` is a macro.
    fn look_up(&self, at: usize, name: &str, steps: u32) -> Option<Found> {
        let module = &self.all[at];
        if steps > STEPS_MAX {
            return None;
        }
        if let Some(name) = name.strip_suffix('!') {
            return self.of_macro(name);
        }
        if module.items.contains(name) {
            return Some(Found::Item(module.file));
        }
        if let Some(child) = module.children.get(name) {
            return Some(Found::Module(*child));
        }
        if let Some(path) = module.imports.get(name) {
            // One of another crate has the name of that crate.
            let is_own = path.first().is_some_and(|first| first == name);
            return if is_own { self.of_macro(name) } else { self.resolve(at, path, steps + 1) };
        }
        let of_glob = |path: &Names| match self.resolve(at, path, steps + 1)? {
            Found::Module(other) if other != at => self.look_up(other, name, steps + 1),
            _ => None,
        };
        module.globs.iter().find_map(of_glob)
    }

    fn of_macro(&self, name: &str) -> Option<Found> {
        self.macros.get(name).map(|file| Found::Item(*file))
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item is compiled for tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|one| one.path().is_ident("cfg")).any(|one| {
        let syn::Meta::List(list) = &one.meta else { return false };
        // `any(a, all(b, not(c)))`, with spaces; what is not so does not count.
        let condition = list.tokens.to_string().replace(' ', "");
        let wanted = condition.split("not(").enumerate();
        let wanted =
            wanted.map(|(at, part)| if at == 0 { part } else { part.split_once(')').unwrap().1 });
        wanted
            .flat_map(|part| part.split(['(', ')', ',']))
            .any(|name| ["test", "loom"].contains(&name))
    })
}

/// The name that an item defines.
fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::ExternCrate(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Notes the paths and imports of a module.
struct Reader<'a> {
    module: &'a mut Module,
}

impl Reader<'_> {
    fn import(&mut self, tree: &UseTree, prefix: &[String]) {
        let joined = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &joined(&path.ident)),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, prefix));
            }
            UseTree::Name(name) if name.ident == "self" => {
                let last = prefix.last().unwrap().clone();
                self.module.imports.entry(last).or_insert_with(|| prefix.to_vec());
            }
            UseTree::Name(name) => self.name(name.ident.to_string(), joined(&name.ident)),
            UseTree::Rename(name) if name.ident == "self" => {
                self.name(name.rename.to_string(), prefix.to_vec());
            }
            UseTree::Rename(name) => self.name(name.rename.to_string(), joined(&name.ident)),
            UseTree::Glob(_) => self.module.globs.push(prefix.to_vec()),
        }
    }

    fn name(&mut self, name: String, path: Names) {
        self.module.paths.push(path.clone());
        self.module.imports.entry(name).or_insert(path);
    }

    /// Notes the paths among tokens that are not parsed: what a macro is given, or made of.
    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        use proc_macro2::TokenTree::{Group, Ident, Punct};
        let (mut path, mut colons) = (Names::new(), 0);
        for token in tokens {
            match token {
                Ident(name) if colons == 2 => path.push(name.to_string()),
                Punct(point) if point.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                    continue;
                }
                Ident(name) => {
                    self.module.paths.push(std::mem::replace(&mut path, vec![name.to_string()]));
                }
                Punct(point) if point.as_char() == '!' && !path.is_empty() => {
                    let name = path.pop().unwrap();
                    self.module.paths.push(vec![format!("{name}!")]);
                    path.clear();
                }
                Group(group) => self.tokens(group.stream()),
                _ => self.module.paths.push(std::mem::take(&mut path)),
            }
            colons = 0;
        }
        self.module.paths.push(path);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.module.paths.push(path.segments.iter().map(|part| part.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, one: &'ast Macro) {
        self.tokens(one.tokens.clone());
        self.module
            .paths
            .extend(one.path.segments.last().map(|name| vec![format!("{}!", name.ident)]));
    }

    /// `pub(in crate::…)` uses nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    /// Children are modules of their own.
    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}
}
