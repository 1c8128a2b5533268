//! A table of the file, read key by key. A key that the reader did not request is unknown and an error: otherwise a
//! mistyped key would be silently ignored. Values that contain tables are read here too.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use crate::manifest_value::ManifestValue;
use crate::name::{is_valid_name, nearest_name};
use crate::parse_report::{ParseReport, SourceSpan};

/// A table and the keys that were requested.
pub(crate) struct ManifestTable<'v> {
    path: String,
    schema_path: String,
    span: SourceSpan,
    entries: &'v DeTable<'v>,
    requested_keys: RefCell<Vec<&'static str>>,
    /// Keys that are reported already, because this release does not support them.
    unsupported_keys: RefCell<Vec<&'static str>>,
    report: &'v ParseReport<'v>,
}

impl<'v> ManifestTable<'v> {
    /// Returns the table of the whole file.
    pub(crate) fn root(entries: &'v DeTable<'v>, report: &'v ParseReport<'v>) -> ManifestTable<'v> {
        ManifestTable {
            path: String::new(),
            schema_path: String::new(),
            span: 0..0,
            entries,
            requested_keys: RefCell::default(),
            unsupported_keys: RefCell::default(),
            report,
        }
    }

    fn child_path(&self, key: &str, shape: &str) -> (String, String) {
        let join = |path: &str, key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        (join(&self.path, key), join(&self.schema_path, shape))
    }

    /// Returns the value of a key, with its position.
    pub(crate) fn get(&self, key: &'static str) -> Option<ManifestValue<'v>> {
        self.requested_keys.borrow_mut().push(key);
        let (_, value) = self.entries.iter().find(|(name, _)| name.get_ref() == key)?;
        let (path, shape) = self.child_path(key, key);
        Some(ManifestValue {
            path,
            schema_path: shape,
            span: value.span(),
            value: value.get_ref(),
            report: self.report,
        })
    }

    /// Reads an optional key.
    pub(crate) fn optional<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&ManifestValue<'v>) -> Option<T>,
    ) -> Option<T> {
        read(&self.get(key)?)
    }

    /// Reads a required key; `example` is a valid line for the hint.
    pub(crate) fn required<T>(
        &self,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&ManifestValue<'v>) -> Option<T>,
    ) -> Option<T> {
        match self.get(key) {
            Some(item) => read(&item),
            None => {
                let place = if self.path.is_empty() { "the file".to_owned() } else { format!("[{}]", self.path) };
                self.report.add_error(
                    &self.span,
                    format!("{place} has no {key}"),
                    format!("add a line such as {example}"),
                );
                None
            }
        }
    }

    /// Reads tables with user-chosen names, such as those of `[task.train]`.
    pub(crate) fn named_tables<T>(
        &self,
        key: &'static str,
        read: impl Fn(&ManifestTable<'v>) -> Option<T>,
    ) -> BTreeMap<String, T> {
        let Some(item) = self.get(key) else { return BTreeMap::new() };
        let Some(group) = item.table() else { return BTreeMap::new() };
        let mut found = BTreeMap::new();
        for (name, value) in group.entries {
            let text = name.get_ref();
            let (path, shape) = group.child_path(text, "*");
            let item = ManifestValue {
                path,
                schema_path: shape,
                span: value.span(),
                value: value.get_ref(),
                report: self.report,
            };
            if !is_valid_name(text) {
                let message = format!("invalid {key} name {text:?}");
                let hint = "expected 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit";
                self.report.add_error(&name.span(), message, hint);
            }
            let Some(table) = item.table() else { continue };
            if let Some(value) = read(&table) {
                found.insert(text.to_string(), value);
            }
        }
        found
    }

    /// Reports a key that this release does not support, if the table has it; `hint` says what to do instead.
    pub(crate) fn report_unsupported(&self, key: &'static str, hint: &str) {
        self.unsupported_keys.borrow_mut().push(key);
        if let Some(name) = self.entries.keys().find(|name| name.get_ref() == key) {
            let (path, _) = self.child_path(key, key);
            self.report.add_error(&name.span(), format!("{path}: not supported by this release"), hint);
        }
    }

    /// Reports that a known key has no meaning in this table, if the table has it, at the key's position.
    pub(crate) fn report_if_present(&self, key: &str, reason: &str, hint: &str) {
        if let Some(name) = self.entries.keys().find(|name| name.get_ref() == key) {
            let (path, _) = self.child_path(key, key);
            self.report.add_error(&name.span(), format!("{path}: {reason}"), hint);
        }
    }

    /// Returns every entry, with any key, as JSON.
    pub(crate) fn to_json_map(&self) -> BTreeMap<String, Value> {
        let entry = |item: ManifestValue<'v>, key: &str| Some((key.to_owned(), item.to_json()?));
        self.entries
            .iter()
            .filter_map(|(name, value)| {
                let (path, shape) = self.child_path(name.get_ref(), "*");
                let item = ManifestValue {
                    path,
                    schema_path: shape,
                    span: value.span(),
                    value: value.get_ref(),
                    report: self.report,
                };
                entry(item, name.get_ref())
            })
            .collect()
    }

    /// Returns every entry, with any key, and its position.
    pub(crate) fn entries(&self) -> Vec<(String, ManifestValue<'v>)> {
        let entry = |(name, value): (&'v toml::Spanned<_>, &'v toml::Spanned<DeValue<'v>>)| {
            let name: &std::borrow::Cow<'_, str> = name.get_ref();
            let (path, shape) = self.child_path(name, "*");
            let item = ManifestValue {
                path,
                schema_path: shape,
                span: value.span(),
                value: value.get_ref(),
                report: self.report,
            };
            (name.to_string(), item)
        };
        self.entries.iter().map(entry).collect()
    }

    /// Returns the position of the table.
    pub(crate) fn span(&self) -> SourceSpan {
        self.span.clone()
    }

    pub(crate) fn report(&self) -> &'v ParseReport<'v> {
        self.report
    }

    /// Reports every key that was not requested. Must be called after all known keys were requested.
    pub(crate) fn report_unknown_keys(&self) {
        let asked = self.requested_keys.borrow();
        self.report.record_keys(&self.schema_path, &asked);
        for name in self.entries.keys() {
            let key: &str = name.get_ref();
            if asked.contains(&key) || self.unsupported_keys.borrow().contains(&key) {
                continue;
            }
            let hint = match nearest_name(key, asked.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => {
                    let mut known = asked.clone();
                    known.sort_unstable();
                    known.dedup();
                    format!("known keys: {}", known.join(", "))
                }
            };
            let place = if self.path.is_empty() { "the file".to_owned() } else { format!("[{}]", self.path) };
            self.report.add_error(&name.span(), format!("unknown key {key:?} in {place}"), hint);
        }
    }
}

impl<'v> ManifestValue<'v> {
    /// Returns the value as a table.
    pub(crate) fn table(&self) -> Option<ManifestTable<'v>> {
        let DeValue::Table(entries) = self.value else {
            return self.report_expected_with_example("a table in { }", "{ KEY = VALUE }");
        };
        Some(ManifestTable {
            path: self.path.clone(),
            schema_path: self.schema_path.clone(),
            span: self.span.clone(),
            entries,
            requested_keys: RefCell::default(),
            unsupported_keys: RefCell::default(),
            report: self.report,
        })
    }

    /// Converts the value to JSON for plugins; times become texts.
    pub(crate) fn to_json(&self) -> Option<Value> {
        Some(match self.value {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(time) => Value::String(time.to_string()),
            DeValue::Integer(_) => match self.integer() {
                Some(value) => Value::from(value),
                None => return self.report_expected("a whole number of 64 bits"),
            },
            DeValue::Float(_) => match self.number().and_then(serde_json::Number::from_f64) {
                Some(value) => Value::Number(value),
                None => return self.report_expected("a finite number"),
            },
            DeValue::Array(_) => Value::Array(self.list(ManifestValue::to_json)?),
            DeValue::Table(_) => Value::Object(self.table()?.to_json_map().into_iter().collect()),
        })
    }
}
