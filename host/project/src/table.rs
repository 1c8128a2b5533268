//! A table of the file, read key by key. What nobody asked for is unknown, and an error: a mistyped key would otherwise be a
//! setting that silently does nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use crate::name::{is_name, nearest};
use crate::reading::Item;
use crate::report::{Report, Span};

/// A table and the keys that were asked for.
pub(crate) struct Table<'v> {
    path: String,
    shape: String,
    span: Span,
    entries: &'v DeTable<'v>,
    asked: RefCell<Vec<&'static str>>,
    report: &'v Report<'v>,
}

impl<'v> Table<'v> {
    /// The whole file.
    pub(crate) fn root(entries: &'v DeTable<'v>, report: &'v Report<'v>) -> Table<'v> {
        Table { path: String::new(), shape: String::new(), span: 0..0, entries, asked: RefCell::default(), report }
    }

    /// A value that is a table; an empty one where it is not.
    pub(crate) fn of(item: &Item<'v>) -> Table<'v> {
        let DeValue::Table(entries) = item.value else { unreachable!("the caller has looked") };
        Table {
            path: item.path.clone(),
            shape: item.shape.clone(),
            span: item.span.clone(),
            entries,
            asked: RefCell::default(),
            report: item.report,
        }
    }

    fn below(&self, key: &str, shape: &str) -> (String, String) {
        let join = |path: &str, key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        (join(&self.path, key), join(&self.shape, shape))
    }

    /// The value of a key, with its place.
    pub(crate) fn item(&self, key: &'static str) -> Option<Item<'v>> {
        self.asked.borrow_mut().push(key);
        let (_, value) = self.entries.iter().find(|(name, _)| name.get_ref() == key)?;
        let (path, shape) = self.below(key, key);
        Some(Item { path, shape, span: value.span(), value: value.get_ref(), report: self.report })
    }

    /// A key that may be left out.
    pub(crate) fn optional<T>(&self, key: &'static str, read: impl FnOnce(&Item<'v>) -> Option<T>) -> Option<T> {
        read(&self.item(key)?)
    }

    /// A key that must be there; `example` is a line that would do.
    pub(crate) fn required<T>(
        &self,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&Item<'v>) -> Option<T>,
    ) -> Option<T> {
        match self.item(key) {
            Some(item) => read(&item),
            None => {
                let place = if self.path.is_empty() { "the file".to_owned() } else { format!("[{}]", self.path) };
                self.report.mistake(
                    &self.span,
                    format!("{place} has no {key}"),
                    format!("add a line such as {example}"),
                );
                None
            }
        }
    }

    /// Tables under names that the user chooses, such as those of `[task.train]`.
    pub(crate) fn named<T>(&self, key: &'static str, read: impl Fn(&Table<'v>) -> Option<T>) -> BTreeMap<String, T> {
        let Some(item) = self.item(key) else { return BTreeMap::new() };
        let Some(group) = item.table() else { return BTreeMap::new() };
        let mut found = BTreeMap::new();
        for (name, value) in group.entries {
            let text = name.get_ref();
            let (path, shape) = group.below(text, "*");
            let item = Item { path, shape, span: value.span(), value: value.get_ref(), report: self.report };
            if !is_name(text) {
                let message = format!("{text:?} is no name for a {key}");
                let hint = "expected 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit";
                self.report.mistake(&name.span(), message, hint);
            }
            let Some(table) = item.table() else { continue };
            if let Some(value) = read(&table) {
                found.insert(text.to_string(), value);
            }
        }
        found
    }

    /// Every entry, whatever its key, as JSON.
    pub(crate) fn any(&self) -> BTreeMap<String, Value> {
        let entry = |item: Item<'v>, key: &str| Some((key.to_owned(), item.json()?));
        self.entries
            .iter()
            .filter_map(|(name, value)| {
                let (path, shape) = self.below(name.get_ref(), "*");
                let item = Item { path, shape, span: value.span(), value: value.get_ref(), report: self.report };
                entry(item, name.get_ref())
            })
            .collect()
    }

    /// Every entry, whatever its key, with its place.
    pub(crate) fn entries(&self) -> Vec<(String, Item<'v>)> {
        let entry = |(name, value): (&'v toml::Spanned<_>, &'v toml::Spanned<DeValue<'v>>)| {
            let name: &std::borrow::Cow<'_, str> = name.get_ref();
            let (path, shape) = self.below(name, "*");
            let item = Item { path, shape, span: value.span(), value: value.get_ref(), report: self.report };
            (name.to_string(), item)
        };
        self.entries.iter().map(entry).collect()
    }

    /// Where the table stands.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// What users call it.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn report(&self) -> &'v Report<'v> {
        self.report
    }

    /// Tells of every key that was not asked for. To be called when all were.
    pub(crate) fn finish(&self) {
        let asked = self.asked.borrow();
        self.report.took(&self.shape, &asked);
        for name in self.entries.keys() {
            let key: &str = name.get_ref();
            if asked.contains(&key) {
                continue;
            }
            let hint = match nearest(key, asked.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => {
                    let mut known = asked.clone();
                    known.sort_unstable();
                    known.dedup();
                    format!("it takes: {}", known.join(", "))
                }
            };
            let place = if self.path.is_empty() { "the file".to_owned() } else { format!("[{}]", self.path) };
            self.report.mistake(&name.span(), format!("unknown key {key:?} in {place}"), hint);
        }
    }
}
