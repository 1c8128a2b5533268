//! What reading a file finds: mistakes, remarks, references to check when everything is read, and which keys were asked for.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::diagnostic::{Diagnostic, line_and_column};
use crate::limits::DIAGNOSTICS_MAX;
use crate::name::nearest_name;

/// Where in the file: bytes.
pub(crate) type SourceSpan = Range<usize>;

/// A table that another names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TableKind {
    Plugin,
    Task,
    Queue,
    Pool,
}

impl TableKind {
    /// The word in the table's header: `plugin` of `[plugin.lenet]`.
    pub(crate) fn header_word(self) -> &'static str {
        match self {
            TableKind::Plugin => "plugin",
            TableKind::Task => "task",
            TableKind::Queue => "queue",
            TableKind::Pool => "pool",
        }
    }
}

/// Collects while a file is read. Interior mutability, so that every table of the tree can hold it.
#[derive(Debug)]
pub(crate) struct ParseReport<'t> {
    text: &'t str,
    errors: RefCell<Vec<(usize, Diagnostic)>>,
    remarks: RefCell<Vec<(usize, Diagnostic)>>,
    references: RefCell<Vec<(TableKind, String, SourceSpan)>>,
    /// The keys that were asked for in each table, `*` standing for names that users choose.
    keys: RefCell<BTreeMap<String, BTreeSet<&'static str>>>,
}

impl<'t> ParseReport<'t> {
    pub(crate) fn new(text: &'t str) -> ParseReport<'t> {
        ParseReport {
            text,
            errors: RefCell::default(),
            remarks: RefCell::default(),
            references: RefCell::default(),
            keys: RefCell::default(),
        }
    }

    fn diagnostic(&self, span: &SourceSpan, message: String, hint: Option<String>) -> (usize, Diagnostic) {
        let (line, column) = line_and_column(self.text, span.start);
        (span.start, Diagnostic { line, column, message, hint })
    }

    /// Something that must be mended.
    pub(crate) fn add_error(&self, span: &SourceSpan, message: impl Into<String>, hint: impl Into<String>) {
        let mut mistakes = self.errors.borrow_mut();
        if mistakes.len() < DIAGNOSTICS_MAX {
            mistakes.push(self.diagnostic(span, message.into(), Some(hint.into())));
        }
    }

    /// Something that the user should know.
    pub(crate) fn add_remark(&self, span: &SourceSpan, message: impl Into<String>) {
        self.remarks.borrow_mut().push(self.diagnostic(span, message.into(), None));
    }

    /// Another table is named here; whether there is one is seen when all are read.
    pub(crate) fn add_reference(&self, kind: TableKind, name: &str, span: &SourceSpan) {
        self.references.borrow_mut().push((kind, name.to_owned(), span.clone()));
    }

    /// A table that takes these keys was read.
    pub(crate) fn record_keys(&self, table: &str, keys: &[&'static str]) {
        self.keys.borrow_mut().entry(table.to_owned()).or_default().extend(keys);
    }

    /// Checks what was referred to against the names that there are.
    pub(crate) fn resolve_references(&self, names: impl Fn(TableKind) -> Vec<String>) {
        for (kind, name, span) in self.references.take() {
            let known = names(kind);
            if known.contains(&name) {
                continue;
            }
            let word = kind.header_word();
            let hint = match nearest_name(&name, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean {near:?}?"),
                None if known.is_empty() => format!("add a table [{word}.{name}]"),
                None => format!("there are: {}; or add a table [{word}.{name}]", known.join(", ")),
            };
            self.add_error(&span, format!("no {word} is called {name:?}"), hint);
        }
    }

    /// The mistakes and the remarks, each in the order of the file.
    pub(crate) fn into_parts(self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        let in_order = |found: RefCell<Vec<(usize, Diagnostic)>>| {
            let mut found = found.into_inner();
            found.sort_by_key(|(offset, _)| *offset);
            found.into_iter().map(|(_, diagnostic)| diagnostic).collect()
        };
        (in_order(self.errors), in_order(self.remarks))
    }

    /// The keys that were asked for in each table.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> BTreeMap<String, BTreeSet<&'static str>> {
        self.keys.borrow().clone()
    }
}
