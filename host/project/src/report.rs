//! What reading a file finds: mistakes, remarks, references to check when everything is read, and which keys were asked for.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::diagnostic::{Diagnostic, place};
use crate::limits::DIAGNOSTICS_MAX;
use crate::name::nearest;

/// Where in the file: bytes.
pub(crate) type Span = Range<usize>;

/// A table that another names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Plugin,
    Task,
    Queue,
    Pool,
}

impl Kind {
    /// The word in the table's header: `plugin` of `[plugin.lenet]`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Plugin => "plugin",
            Kind::Task => "task",
            Kind::Queue => "queue",
            Kind::Pool => "pool",
        }
    }
}

/// Collects while a file is read. Interior mutability, so that every table of the tree can hold it.
#[derive(Debug)]
pub(crate) struct Report<'t> {
    text: &'t str,
    mistakes: RefCell<Vec<(usize, Diagnostic)>>,
    remarks: RefCell<Vec<(usize, Diagnostic)>>,
    references: RefCell<Vec<(Kind, String, Span)>>,
    /// The keys that were asked for in each table, `*` standing for names that users choose.
    keys: RefCell<BTreeMap<String, BTreeSet<&'static str>>>,
}

impl<'t> Report<'t> {
    pub(crate) fn new(text: &'t str) -> Report<'t> {
        Report {
            text,
            mistakes: RefCell::default(),
            remarks: RefCell::default(),
            references: RefCell::default(),
            keys: RefCell::default(),
        }
    }

    fn diagnostic(&self, span: &Span, message: String, hint: Option<String>) -> (usize, Diagnostic) {
        let (line, column) = place(self.text, span.start);
        (span.start, Diagnostic { line, column, message, hint })
    }

    /// Something that must be mended.
    pub(crate) fn mistake(&self, span: &Span, message: impl Into<String>, hint: impl Into<String>) {
        let mut mistakes = self.mistakes.borrow_mut();
        if mistakes.len() < DIAGNOSTICS_MAX {
            mistakes.push(self.diagnostic(span, message.into(), Some(hint.into())));
        }
    }

    /// Something that the user should know.
    pub(crate) fn remark(&self, span: &Span, message: impl Into<String>) {
        self.remarks.borrow_mut().push(self.diagnostic(span, message.into(), None));
    }

    /// Another table is named here; whether there is one is seen when all are read.
    pub(crate) fn refer(&self, kind: Kind, name: &str, span: &Span) {
        self.references.borrow_mut().push((kind, name.to_owned(), span.clone()));
    }

    /// A table that takes these keys was read.
    pub(crate) fn took(&self, table: &str, keys: &[&'static str]) {
        self.keys.borrow_mut().entry(table.to_owned()).or_default().extend(keys);
    }

    /// Checks what was referred to against the names that there are.
    pub(crate) fn resolve(&self, names: impl Fn(Kind) -> Vec<String>) {
        for (kind, name, span) in self.references.take() {
            let known = names(kind);
            if known.contains(&name) {
                continue;
            }
            let word = kind.word();
            let hint = match nearest(&name, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean {near:?}?"),
                None if known.is_empty() => format!("add a table [{word}.{name}]"),
                None => format!("there are: {}; or add a table [{word}.{name}]", known.join(", ")),
            };
            self.mistake(&span, format!("no {word} is called {name:?}"), hint);
        }
    }

    /// The mistakes and the remarks, each in the order of the file.
    pub(crate) fn into_parts(self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        let in_order = |found: RefCell<Vec<(usize, Diagnostic)>>| {
            let mut found = found.into_inner();
            found.sort_by_key(|(offset, _)| *offset);
            found.into_iter().map(|(_, diagnostic)| diagnostic).collect()
        };
        (in_order(self.mistakes), in_order(self.remarks))
    }

    /// The keys that were asked for in each table.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> BTreeMap<String, BTreeSet<&'static str>> {
        self.keys.borrow().clone()
    }
}
