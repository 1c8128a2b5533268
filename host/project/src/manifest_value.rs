//! A value of the file, read as the type that its key expects. A value of another type is reported with what was
//! expected; the reader gets `None` and continues, so that one pass finds every mistake.

use core::time::Duration;
use std::fmt::Display;

use toml::de::DeValue;

use crate::name::{is_valid_name, nearest_name, sanitize_name};
use crate::parse_report::{ParseReport, SourceSpan, TableKind};
use crate::units;

/// A value and its position.
#[derive(Clone)]
pub(crate) struct ManifestValue<'v> {
    /// Its path as users write it, such as `task.train.retry`.
    pub(crate) path: String,
    /// The same path with `*` for user-chosen names, such as `task.*.retry`.
    pub(crate) schema_path: String,
    /// Its byte range in the file.
    pub(crate) span: SourceSpan,
    pub(crate) value: &'v DeValue<'v>,
    pub(crate) report: &'v ParseReport<'v>,
}

impl<'v> ManifestValue<'v> {
    /// Reports what was expected here. Always returns `None`, so that a reader can end with it.
    pub(crate) fn report_expected<T>(&self, expected: impl Display) -> Option<T> {
        self.report_expected_with_hint(expected, "`saggar check --schema` shows what every key takes")
    }

    /// Reports what was expected here, with a valid value in the hint.
    pub(crate) fn report_expected_with_example<T>(&self, expected: impl Display, value: impl Display) -> Option<T> {
        let key = self.path.rsplit('.').next().unwrap_or_default();
        let key = if key.ends_with(']') { String::new() } else { format!("{key} = ") };
        self.report_expected_with_hint(expected, format!("such as {key}{value}"))
    }

    fn report_expected_with_hint<T>(&self, expected: impl Display, hint: impl Into<String>) -> Option<T> {
        self.report_error(format!("expected {expected}, got {}", format_value(self.value)), hint)
    }

    /// Reports what is wrong and how to fix it. Always returns `None`, like [`ManifestValue::report_expected`].
    pub(crate) fn report_error<T>(&self, what: impl Display, hint: impl Into<String>) -> Option<T> {
        self.report.add_error(&self.span, format!("{}: {what}", self.path), hint);
        None
    }

    pub(crate) fn text(&self) -> Option<&'v str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => self.report_expected_with_example("a text in quotes", format!("\"{}\"", format_value(self.value))),
        }
    }

    pub(crate) fn string(&self) -> Option<String> {
        self.text().map(str::to_owned)
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        match self.value {
            DeValue::Boolean(value) => Some(*value),
            _ => self.report_expected_with_example("true or false, without quotes", "true"),
        }
    }

    /// Reads a whole number from `least` to `most`.
    pub(crate) fn bounded_count(&self, least: u32, most: u32) -> Option<u32> {
        let expected = format!("a whole number from {least} to {most}");
        match self.integer().and_then(|value| u32::try_from(value).ok()) {
            Some(value) if (least..=most).contains(&value) => Some(value),
            Some(value) => self.report_expected_with_example(expected, value.clamp(least, most)),
            None => self.report_expected_with_example(expected, least),
        }
    }

    pub(crate) fn unsigned(&self) -> Option<u64> {
        match self.integer().and_then(|value| u64::try_from(value).ok()) {
            Some(value) => Some(value),
            None => self.report_expected_with_example("a whole number from 0", 0),
        }
    }

    /// Reads a number above 0 and at most `most`.
    pub(crate) fn positive(&self, most: f64) -> Option<f64> {
        match self.number() {
            Some(value) if value > 0.0 && value <= most => Some(value),
            _ if most < f64::INFINITY => {
                self.report_expected_with_example(format!("a number above 0 and at most {most}"), 1.0_f64.min(most))
            }
            _ => self.report_expected_with_example("a number above 0", 3600),
        }
    }

    pub(crate) fn integer(&self) -> Option<i64> {
        match self.value {
            DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix()).ok(),
            _ => None,
        }
    }

    pub(crate) fn number(&self) -> Option<f64> {
        match self.value {
            DeValue::Float(digits) => digits.as_str().parse().ok(),
            _ => self.integer().map(|value| value as f64),
        }
    }

    /// Reads a time with a unit, above 0.
    pub(crate) fn duration(&self) -> Option<Duration> {
        let time = self.parse_text(units::parse_duration).filter(|time| !time.is_zero());
        let expected = "a time above 0 with its unit, such as 90s, 10m or 1h";
        time.or_else(|| self.report_expected_with_example(expected, format!("\"{}s\"", self.number_without_unit(90))))
    }

    /// Reads a size with a unit, above 0, in bytes.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        let bytes = self.parse_text(units::parse_bytes).filter(|bytes| *bytes > 0);
        let expected = "a size above 0 with its unit, such as 512MiB or 4GiB";
        bytes.or_else(|| self.report_expected_with_example(expected, format!("\"{}GiB\"", self.number_without_unit(4))))
    }

    fn parse_text<T, E>(&self, read: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        match self.value {
            DeValue::String(text) => read(text).ok(),
            _ => None,
        }
    }

    /// Returns the number that was given without a unit, or `other` if there is no number above 0.
    fn number_without_unit(&self, other: u32) -> u32 {
        let given = self.parse_text(str::parse).or_else(|| self.integer().and_then(|value| u32::try_from(value).ok()));
        given.filter(|value| *value > 0).unwrap_or(other)
    }

    /// Parses a text with `read`; a mistake is reported with `expected`.
    pub(crate) fn parse_text_or_report<T, E>(
        &self,
        read: impl FnOnce(&str) -> Result<T, E>,
        expected: &str,
    ) -> Option<T> {
        self.parse_text(read).or_else(|| self.report_expected(expected))
    }

    /// Reads a name that is valid as part of a path.
    pub(crate) fn name(&self) -> Option<String> {
        let name = self.text()?;
        match is_valid_name(name) {
            true => Some(name.to_owned()),
            false => {
                let expected = "a name: 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit";
                self.report_expected_with_example(expected, format!("\"{}\"", sanitize_name(name)))
            }
        }
    }

    /// Reads the name of another table and records the reference.
    pub(crate) fn table_reference(&self, kind: TableKind) -> Option<String> {
        let name = self.name()?;
        self.report.add_reference(kind, &name, &self.span);
        Some(name)
    }

    /// Reads one of a few words.
    pub(crate) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
        let found = match self.value {
            DeValue::String(text) => choices.iter().find(|(word, _)| word == text).map(|(_, value)| *value),
            _ => None,
        };
        found.or_else(|| {
            let near = match self.value {
                DeValue::String(text) => nearest_name(text, choices.iter().map(|(word, _)| *word)),
                _ => None,
            };
            let word = near.unwrap_or(choices[0].0);
            self.report_expected_with_example(words.join(" or "), format!("\"{word}\""))
        })
    }

    /// Reads each value of a list with `read`. Invalid values are reported and left out.
    pub(crate) fn list<T>(&self, read: impl Fn(&ManifestValue<'v>) -> Option<T>) -> Option<Vec<T>> {
        Some(self.items()?.iter().filter_map(read).collect())
    }

    /// Returns the values of a list.
    pub(crate) fn items(&self) -> Option<Vec<ManifestValue<'v>>> {
        let DeValue::Array(list) = self.value else {
            return self.report_expected_with_example("a list in [ ]", format!("[{}]", format_value(self.value)));
        };
        let item = |(at, value): (usize, &'v toml::Spanned<DeValue<'v>>)| ManifestValue {
            path: format!("{}[{at}]", self.path),
            schema_path: format!("{}[]", self.schema_path),
            span: value.span(),
            value: value.get_ref(),
            report: self.report,
        };
        Some(list.iter().enumerate().map(item).collect())
    }

    pub(crate) fn is_table(&self) -> bool {
        matches!(self.value, DeValue::Table(_))
    }
}

/// Formats a value for a message: the value itself if it is short, else its kind.
fn format_value(value: &DeValue<'_>) -> String {
    const LETTERS_MAX: usize = 60;
    let text = match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(digits) => digits.to_string(),
        DeValue::Float(digits) => digits.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    };
    if text.chars().count() > LETTERS_MAX { "a long text".to_owned() } else { text }
}
