//! One value of the file, read as what it must be. A value that is something else is told with what was expected; the reader
//! gets nothing and goes on, so that one look finds every mistake.

use core::time::Duration;
use std::fmt::Display;

use serde_json::Value;
use toml::de::DeValue;

use crate::name::{is_name, name_like, nearest};
use crate::report::{Kind, Report, Span};
use crate::table::Table;
use crate::units;

/// A value and its place.
#[derive(Clone)]
pub(crate) struct Item<'v> {
    /// What users call it: `task.train.retry`.
    pub(crate) path: String,
    /// The same with `*` for names that users choose: `task.*.retry`.
    pub(crate) shape: String,
    /// Its bytes.
    pub(crate) span: Span,
    pub(crate) value: &'v DeValue<'v>,
    pub(crate) report: &'v Report<'v>,
}

impl<'v> Item<'v> {
    /// Tells what was expected here. Always nothing, so that a reader can end with it.
    pub(crate) fn refuse<T>(&self, expected: impl Display) -> Option<T> {
        self.refuse_for(expected, "`saggar check --schema` shows what every key takes")
    }

    /// The same, with a value that would do.
    fn refuse_such_as<T>(&self, expected: impl Display, value: impl Display) -> Option<T> {
        let key = self.path.rsplit('.').next().unwrap_or_default();
        let key = if key.ends_with(']') { String::new() } else { format!("{key} = ") };
        self.refuse_for(expected, format!("such as {key}{value}"))
    }

    fn refuse_for<T>(&self, expected: impl Display, hint: impl Into<String>) -> Option<T> {
        self.wrong(format!("expected {expected}, got {}", shown(self.value)), hint)
    }

    /// Tells what is wrong and how to mend it. Always nothing, as [`Item::refuse`].
    pub(crate) fn wrong<T>(&self, what: impl Display, hint: impl Into<String>) -> Option<T> {
        self.report.mistake(&self.span, format!("{}: {what}", self.path), hint);
        None
    }

    pub(crate) fn text(&self) -> Option<&'v str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => self.refuse_such_as("a text in quotes", format!("\"{}\"", shown(self.value))),
        }
    }

    pub(crate) fn string(&self) -> Option<String> {
        self.text().map(str::to_owned)
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        match self.value {
            DeValue::Boolean(value) => Some(*value),
            _ => self.refuse_such_as("true or false, without quotes", "true"),
        }
    }

    /// A whole number within bounds.
    pub(crate) fn count(&self, least: u32, most: u32) -> Option<u32> {
        let expected = format!("a whole number from {least} to {most}");
        match self.integer().and_then(|value| u32::try_from(value).ok()) {
            Some(value) if (least..=most).contains(&value) => Some(value),
            Some(value) => self.refuse_such_as(expected, value.clamp(least, most)),
            None => self.refuse_such_as(expected, least),
        }
    }

    pub(crate) fn unsigned(&self) -> Option<u64> {
        match self.integer().and_then(|value| u64::try_from(value).ok()) {
            Some(value) => Some(value),
            None => self.refuse_such_as("a whole number from 0", 0),
        }
    }

    /// A number above 0 and at most `most`.
    pub(crate) fn positive(&self, most: f64) -> Option<f64> {
        match self.number() {
            Some(value) if value > 0.0 && value <= most => Some(value),
            _ if most < f64::INFINITY => {
                self.refuse_such_as(format!("a number above 0 and at most {most}"), 1.0_f64.min(most))
            }
            _ => self.refuse_such_as("a number above 0", 3600),
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

    /// A time with its unit, above 0.
    pub(crate) fn time(&self) -> Option<Duration> {
        let time = self.read_text(units::duration).filter(|time| !time.is_zero());
        let expected = "a time above 0 with its unit, such as 90s, 10m or 1h";
        time.or_else(|| self.refuse_such_as(expected, format!("\"{}s\"", self.bare_number(90))))
    }

    /// A size with its unit, above 0.
    pub(crate) fn size(&self) -> Option<u64> {
        let bytes = self.read_text(units::bytes).filter(|bytes| *bytes > 0);
        let expected = "a size above 0 with its unit, such as 512MiB or 4GiB";
        bytes.or_else(|| self.refuse_such_as(expected, format!("\"{}GiB\"", self.bare_number(4))))
    }

    fn read_text<T, E>(&self, read: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        match self.value {
            DeValue::String(text) => read(text).ok(),
            _ => None,
        }
    }

    /// The number that was given without a unit, or another where there is none above 0.
    fn bare_number(&self, other: u32) -> u32 {
        let given = self.read_text(str::parse).or_else(|| self.integer().and_then(|value| u32::try_from(value).ok()));
        given.filter(|value| *value > 0).unwrap_or(other)
    }

    /// A text that `read` reads; the mistake says `expected`.
    pub(crate) fn unit<T, E>(&self, read: impl FnOnce(&str) -> Result<T, E>, expected: &str) -> Option<T> {
        self.read_text(read).or_else(|| self.refuse(expected))
    }

    /// A name that does as part of a path.
    pub(crate) fn name(&self) -> Option<String> {
        let name = self.text()?;
        match is_name(name) {
            true => Some(name.to_owned()),
            false => {
                let expected = "a name: 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit";
                self.refuse_such_as(expected, format!("\"{}\"", name_like(name)))
            }
        }
    }

    /// The name of another table.
    pub(crate) fn reference(&self, kind: Kind) -> Option<String> {
        let name = self.name()?;
        self.report.refer(kind, &name, &self.span);
        Some(name)
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
        let found = match self.value {
            DeValue::String(text) => choices.iter().find(|(word, _)| word == text).map(|(_, value)| *value),
            _ => None,
        };
        found.or_else(|| {
            let near = match self.value {
                DeValue::String(text) => nearest(text, choices.iter().map(|(word, _)| *word)),
                _ => None,
            };
            let word = near.unwrap_or(choices[0].0);
            self.refuse_such_as(words.join(" or "), format!("\"{word}\""))
        })
    }

    /// Each value of a list, read by `read`; those that cannot be read are told of and left out.
    pub(crate) fn list<T>(&self, read: impl Fn(&Item<'v>) -> Option<T>) -> Option<Vec<T>> {
        Some(self.items()?.iter().filter_map(read).collect())
    }

    /// The values of a list.
    pub(crate) fn items(&self) -> Option<Vec<Item<'v>>> {
        let DeValue::Array(list) = self.value else {
            return self.refuse_such_as("a list in [ ]", format!("[{}]", shown(self.value)));
        };
        let item = |(at, value): (usize, &'v toml::Spanned<DeValue<'v>>)| Item {
            path: format!("{}[{at}]", self.path),
            shape: format!("{}[]", self.shape),
            span: value.span(),
            value: value.get_ref(),
            report: self.report,
        };
        Some(list.iter().enumerate().map(item).collect())
    }

    /// The text where it is one and has a placeholder in it.
    pub(crate) fn placeholders(&self) -> Option<String> {
        match self.value {
            DeValue::String(text) if text.contains("${") => Some(text.to_string()),
            _ => None,
        }
    }

    pub(crate) fn is_table(&self) -> bool {
        matches!(self.value, DeValue::Table(_))
    }

    /// The keys of a table.
    pub(crate) fn table(&self) -> Option<Table<'v>> {
        match self.value {
            DeValue::Table(_) => Some(Table::of(self)),
            _ => self.refuse_such_as("a table in { }", "{ KEY = VALUE }"),
        }
    }

    /// The same as JSON: times as texts, as plugins get them.
    pub(crate) fn json(&self) -> Option<Value> {
        Some(match self.value {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(time) => Value::String(time.to_string()),
            DeValue::Integer(_) => match self.integer() {
                Some(value) => Value::from(value),
                None => return self.refuse("a whole number of 64 bits"),
            },
            DeValue::Float(_) => match self.number().and_then(serde_json::Number::from_f64) {
                Some(value) => Value::Number(value),
                None => return self.refuse("a finite number"),
            },
            DeValue::Array(_) => Value::Array(self.list(Item::json)?),
            DeValue::Table(_) => Value::Object(self.table()?.any().into_iter().collect()),
        })
    }
}

/// A value as a mistake shows it: itself where it is short, else its kind.
fn shown(value: &DeValue<'_>) -> String {
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
