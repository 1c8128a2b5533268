//! Checks the imports between the modules of each crate: no module depends on itself through others.
//!
//! A module and its submodules are one concept, so a module may use its submodules, and a submodule may use what its
//! ancestors define. Any other circle of modules is an error: none of them can be understood or changed without all the
//! others. Modules of tests are not looked at.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert; figures are printed")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use saggar_tests::source_files;
use syn::visit::Visit;

/// The path of a module in its crate, without the crate: `["batching", "batch_queue"]`. The root is empty.
type ModulePath = Vec<String>;

/// The modules of one crate.
#[derive(Default)]
struct CrateModules {
    /// The paths that each module mentions, as written, in a `use` or elsewhere.
    mentions: BTreeMap<ModulePath, BTreeSet<ModulePath>>,
    /// What each module re-exports: the name in this module, and the path of the item.
    reexports: BTreeMap<(ModulePath, String), ModulePath>,
}

/// Collects the paths that the code of one module mentions.
#[derive(Default)]
struct PathCollector {
    mentions: BTreeSet<ModulePath>,
    reexports: Vec<ModulePath>,
    /// The number of modules inside the file around the code that is visited.
    inline_depth: usize,
}

impl PathCollector {
    fn collect_use(&mut self, prefix: &ModulePath, tree: &syn::UseTree, is_public: bool) {
        let joined = |name: &syn::Ident| prefix.iter().cloned().chain([name.to_string()]).collect::<ModulePath>();
        match tree {
            syn::UseTree::Path(path) => self.collect_use(&joined(&path.ident), &path.tree, is_public),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.collect_use(prefix, item, is_public));
            }
            syn::UseTree::Name(name) => self.collect_import(joined(&name.ident), is_public),
            syn::UseTree::Rename(rename) => self.collect_import(joined(&rename.ident), is_public),
            syn::UseTree::Glob(_) => self.collect_import(prefix.clone(), is_public),
        }
    }

    fn collect_import(&mut self, mut path: ModulePath, is_public: bool) {
        path.pop_if(|last| last == "self");
        // A re-export makes a name available and is not a dependency of what the module does.
        if is_public && self.inline_depth == 0 {
            self.reexports.push(path);
        } else {
            self.mention(path);
        }
    }

    /// Adds a path. A module inside the file counts as the file: `super` leads out of it.
    fn mention(&mut self, path: ModulePath) {
        let levels = path.iter().take_while(|name| *name == "super").count();
        if levels > self.inline_depth || self.inline_depth == 0 {
            self.mentions.insert(path[self.inline_depth..].to_vec());
        } else if path[0] == "crate" {
            self.mentions.insert(path);
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

impl<'ast> Visit<'ast> for PathCollector {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.collect_use(&Vec::new(), &item.tree, !matches!(item.vis, syn::Visibility::Inherited));
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            let is_inline = usize::from(item.content.is_some());
            self.inline_depth += is_inline;
            syn::visit::visit_item_mod(self, item);
            self.inline_depth -= is_inline;
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            syn::visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // The path of `pub(in path)` is not a dependency.
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.mention(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        // The arguments of a macro are only tokens: paths in them are identifiers that `::` joins.
        let text = item.tokens.to_string().replace(":: ", "::").replace(" ::", "::");
        for word in text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == ':')) {
            let path: ModulePath = word.split("::").map(str::to_owned).collect();
            if path.len() > 1 && path.iter().all(|name| !name.is_empty() && !name.contains(':')) {
                self.mention(path);
            }
        }
        syn::visit::visit_macro(self, item);
    }
}

impl CrateModules {
    fn read(sources: &Path) -> Self {
        let mut modules = Self::default();
        for path in source_files(&[&sources.to_string_lossy()], &["rs"]) {
            let module = module_path(path.strip_prefix(sources).unwrap());
            if module.iter().any(|name| name == "tests") {
                continue;
            }
            let file = syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let mut collector = PathCollector::default();
            collector.visit_file(&file);
            for item in collector.reexports {
                if let Some(name) = item.last() {
                    modules.reexports.insert((module.clone(), name.clone()), item);
                }
            }
            modules.mentions.insert(module, collector.mentions);
        }
        modules
    }

    /// Returns the path from the crate's root of a path that is written in `module`, or `None` if it leads to another
    /// crate.
    fn path_from_root(&self, module: &ModulePath, path: &[String]) -> Option<ModulePath> {
        let first = path.first()?;
        let joined = |base: &[String], rest: &[String]| Some([base, rest].concat());
        match first.as_str() {
            "crate" => joined(&[], &path[1..]),
            "self" => joined(module, &path[1..]),
            "super" => {
                let levels = path.iter().take_while(|name| *name == "super").count();
                joined(&module[..module.len().saturating_sub(levels)], &path[levels..])
            }
            _ => {
                let submodule = [module.as_slice(), std::slice::from_ref(first)].concat();
                self.mentions.contains_key(&submodule).then(|| [submodule.as_slice(), &path[1..]].concat())
            }
        }
    }

    /// Returns the module that defines the item of this path, which starts at the crate's root.
    fn defining_module(&self, path: &[String], depth: usize) -> ModulePath {
        let longest = (0..=path.len()).rev().find(|&length| self.mentions.contains_key(&path[..length]));
        let (module, rest) = path.split_at(longest.unwrap_or(0));
        let reexport = rest.first().and_then(|name| self.reexports.get(&(module.to_vec(), name.clone())));
        match reexport.and_then(|item| self.path_from_root(&module.to_vec(), item)) {
            // The limit ends re-exports that lead to each other.
            Some(item) if depth < 8 => self.defining_module(&[item.as_slice(), &rest[1..]].concat(), depth + 1),
            _ => module.to_vec(),
        }
    }

    /// Returns the modules that each module depends on: its submodules, and those whose items it mentions, without its
    /// ancestors.
    fn dependencies(&self) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
        let mut dependencies: BTreeMap<ModulePath, BTreeSet<ModulePath>> = BTreeMap::new();
        for (module, mentions) in &self.mentions {
            let paths = mentions.iter().filter_map(|path| self.path_from_root(module, path));
            let used = paths.map(|path| self.defining_module(&path, 0));
            dependencies.entry(module.clone()).or_default().extend(used.filter(|used| !module.starts_with(used)));
            if let Some((_, parent)) = module.split_last() {
                dependencies.entry(parent.to_vec()).or_default().insert(module.clone());
            }
        }
        dependencies
    }
}

fn module_path(file: &Path) -> ModulePath {
    let names = file.with_extension("");
    let mut names: ModulePath = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    names.pop_if(|last| ["lib", "main", "mod"].contains(&last.as_str()));
    names
}

/// Returns a shortest circle through this module, or `None` if it is on no circle.
fn circle(start: &ModulePath, dependencies: &BTreeMap<ModulePath, BTreeSet<ModulePath>>) -> Option<Vec<ModulePath>> {
    let mut queue = VecDeque::from([vec![start.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = queue.pop_front() {
        for next in dependencies.get(way.last()?).into_iter().flatten() {
            let way = [way.as_slice(), std::slice::from_ref(next)].concat();
            if next == start {
                return Some(way);
            }
            if seen.insert(next.clone()) {
                queue.push_back(way);
            }
        }
    }
    None
}

fn circles_of(sources: &Path) -> (usize, Vec<String>) {
    let dependencies = CrateModules::read(sources).dependencies();
    let circles = dependencies.keys().filter(|module| !module.is_empty()).filter_map(|it| circle(it, &dependencies));
    let written = |circle: Vec<ModulePath>| circle.iter().map(|it| it.join("::")).collect::<Vec<_>>().join(" -> ");
    (dependencies.len(), circles.map(written).collect())
}

#[test]
fn modules_do_not_depend_on_themselves_through_others() {
    let mut found = Vec::new();
    let mut total = 0;
    for manifest in source_files(&["host", "plugins"], &["toml"]) {
        let sources = manifest.parent().unwrap().join("src");
        if manifest.file_name().is_some_and(|name| name == "Cargo.toml") && sources.is_dir() {
            let (modules, circles) = circles_of(&sources);
            let name = manifest.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
            println!("{name}: {modules} modules, {} on circles", circles.len());
            total += modules;
            found.extend(circles.into_iter().map(|circle| format!("{name}: {circle}")));
        }
    }
    assert!(total > 500, "{total} modules were found");
    assert!(found.is_empty(), "{} modules are on circles:\n{}", found.len(), found.join("\n"));
}

#[test]
fn a_circle_is_found_through_imports_paths_macros_and_reexports() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("lib.rs", "pub mod first; mod second; mod third; mod parent;\npub use third::Third;");
    write("first.rs", "use crate::second::{self, Second as Other};\n#[cfg(test)]\nmod tests { use crate::parent; }");
    write("second.rs", "fn second() -> usize { vec![crate::Third::new()].len() }\npub struct Second;");
    write(
        "third.rs",
        "use std::fmt;\nmod inline { fn third() { super::super::first::first(); super::Third::new(); } }",
    );
    write("parent.rs", "mod child;\nuse child::Child;\npub struct Parent;");
    write("parent/child.rs", "use super::Parent;\npub struct Child;");
    let (modules, circles) = circles_of(directory.path());
    assert_eq!(modules, 6, "the root, too");
    assert_eq!(circles.len(), 3, "{circles:?}");
    assert_eq!(circles[0], "first -> second -> third -> first");
}
