//! The findings of reading a file: mistakes, warnings, references to check after reading, and requested keys.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::diagnostic::{Diagnostic, line_and_column};
use crate::limits::DIAGNOSTICS_MAX;
use crate::name::nearest_name;

/// Names that a hint lists.
const NAMES_SHOWN: usize = 40;

/// A range of bytes in the file.
pub(crate) type SourceSpan = Range<usize>;

/// The kind of a table that can be referenced by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TableKind {
    Plugin,
    Task,
    Queue,
    Pool,
    Pipeline,
}

impl TableKind {
    /// Returns the first word of the table's header, such as `plugin` of `[plugin.lenet]`.
    pub(crate) fn header_word(self) -> &'static str {
        match self {
            TableKind::Plugin => "plugin",
            TableKind::Task => "task",
            TableKind::Queue => "queue",
            TableKind::Pool => "pool",
            TableKind::Pipeline => "pipeline",
        }
    }
}

/// Collects findings while a file is read. It has interior mutability, so that every table can share it.
#[derive(Debug)]
pub(crate) struct ParseReport<'t> {
    text: &'t str,
    errors: RefCell<Vec<(usize, Diagnostic)>>,
    warnings: RefCell<Vec<Diagnostic>>,
    references: RefCell<Vec<(TableKind, String, SourceSpan)>>,
    /// The keys that were requested in each table, with `*` for user-chosen names.
    keys: RefCell<BTreeMap<String, BTreeSet<&'static str>>>,
}

impl<'t> ParseReport<'t> {
    pub(crate) fn new(text: &'t str) -> ParseReport<'t> {
        ParseReport {
            text,
            errors: RefCell::default(),
            warnings: RefCell::default(),
            references: RefCell::default(),
            keys: RefCell::default(),
        }
    }

    fn diagnostic(&self, span: &SourceSpan, message: String, hint: Option<String>) -> (usize, Diagnostic) {
        let (line, column) = line_and_column(self.text, span.start);
        (span.start, Diagnostic { line, column, message, hint })
    }

    /// Adds a mistake.
    pub(crate) fn add_error(&self, span: &SourceSpan, message: impl Into<String>, hint: impl Into<String>) {
        let mut mistakes = self.errors.borrow_mut();
        if mistakes.len() < DIAGNOSTICS_MAX {
            mistakes.push(self.diagnostic(span, message.into(), Some(hint.into())));
        }
    }

    /// Adds a warning about a key that works and should be changed.
    pub(crate) fn add_warning(&self, span: &SourceSpan, message: String) {
        self.warnings.borrow_mut().push(self.diagnostic(span, message, None).1);
    }

    /// Returns the warnings, in the order in which they were added, and removes them.
    pub(crate) fn take_warnings(&self) -> Vec<Diagnostic> {
        self.warnings.take()
    }

    /// Adds a reference to another table, which is resolved after all tables were read.
    pub(crate) fn add_reference(&self, kind: TableKind, name: &str, span: &SourceSpan) {
        self.references.borrow_mut().push((kind, name.to_owned(), span.clone()));
    }

    /// Records that a table with these known keys was read.
    pub(crate) fn record_keys(&self, table: &str, keys: &[&'static str]) {
        self.keys.borrow_mut().entry(table.to_owned()).or_default().extend(keys);
    }

    /// Reports every reference whose name does not exist, or whose task runs no plugin (`notebooks`): steps and sweeps
    /// run the plugin of a task.
    pub(crate) fn resolve_references(&self, names: impl Fn(TableKind) -> Vec<String>, notebooks: &BTreeSet<&str>) {
        // A file can have thousands of tables and references.
        let mut known_names: BTreeMap<TableKind, BTreeSet<String>> = BTreeMap::new();
        for (kind, name, span) in self.references.take() {
            if kind == TableKind::Task && notebooks.contains(name.as_str()) {
                let hint = "name a task with a plugin";
                self.add_error(&span, format!("the task {name:?} is a notebook, which runs no plugin"), hint);
                continue;
            }
            let known = known_names.entry(kind).or_insert_with(|| names(kind).into_iter().collect());
            if known.contains(&name) || self.errors.borrow().len() >= DIAGNOSTICS_MAX {
                continue;
            }
            let word = kind.header_word();
            let hint = match nearest_name(&name, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean {near:?}?"),
                None if known.is_empty() => format!("add a table [{word}.{name}]"),
                None => {
                    let known: Vec<&str> = known.iter().take(NAMES_SHOWN).map(String::as_str).collect();
                    format!("there are: {}; or add a table [{word}.{name}]", known.join(", "))
                }
            };
            self.add_error(&span, format!("no {word} is called {name:?}"), hint);
        }
    }

    /// Returns the mistakes, in the order of the file.
    pub(crate) fn into_mistakes(self) -> Vec<Diagnostic> {
        let mut found = self.errors.into_inner();
        found.sort_by_key(|(offset, _)| *offset);
        found.into_iter().map(|(_, diagnostic)| diagnostic).collect()
    }

    /// Returns the keys that were requested in each table.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> BTreeMap<String, BTreeSet<&'static str>> {
        self.keys.borrow().clone()
    }
}
