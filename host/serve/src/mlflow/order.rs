//! The order of searches: fields, each ascending or descending. What lacks a field, or has NaN, comes last.

use std::cmp::Ordering;

use super::error::MlflowError;
use super::filter::{AttributeNames, SearchField, SearchSubject};

/// The most fields of an order.
const FIELDS_MAX: usize = 10;

/// An order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SearchOrder(Vec<(SearchField, bool)>);

impl SearchOrder {
    /// Parses `metrics.loss ASC` and others of things with these attributes.
    ///
    /// # Errors
    /// `Order` with the text that cannot be parsed.
    pub(super) fn parse(texts: &[String], names: AttributeNames) -> Result<SearchOrder, MlflowError> {
        let wrong = |text: &str| MlflowError::Order { got: text.chars().take(80).collect() };
        if let Some(beyond) = texts.get(FIELDS_MAX) {
            return Err(wrong(beyond));
        }
        let parse = |text: &String| {
            let trimmed = text.trim();
            let (name, word) = trimmed.rsplit_once(char::is_whitespace).unwrap_or((trimmed, ""));
            let (name, is_descending) = match word.to_ascii_lowercase().as_str() {
                "desc" => (name.trim_end(), true),
                "asc" => (name.trim_end(), false),
                _ => (trimmed, false),
            };
            let (kind, name) = match name.split_once('.') {
                Some((kind, name)) => (Some(kind), name),
                None => (None, name),
            };
            let quoted = ['`', '"'].into_iter().find_map(|quote| name.strip_prefix(quote)?.strip_suffix(quote));
            let field = names.field(kind, quoted.unwrap_or(name)).filter(|_| !name.is_empty());
            field.map(|field| (field, is_descending)).ok_or_else(|| wrong(text))
        };
        Ok(SearchOrder(texts.iter().map(parse).collect::<Result<_, _>>()?))
    }

    /// Compares two subjects. Equal ones keep their order.
    pub(super) fn compare<S: SearchSubject>(&self, left: &S, right: &S) -> Ordering {
        let by = |(field, is_descending): &(SearchField, bool)| {
            let directed = |order: Ordering| if *is_descending { order.reverse() } else { order };
            let number = |subject: &S| subject.number(field).filter(|value| !value.is_nan());
            match (number(left), number(right)) {
                (Some(left), Some(right)) => return directed(left.total_cmp(&right)),
                (Some(_), None) => return Ordering::Less,
                (None, Some(_)) => return Ordering::Greater,
                (None, None) => {}
            }
            match (left.text(field), right.text(field)) {
                (Some(left), Some(right)) => directed(left.cmp(&right)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => Ordering::Equal,
            }
        };
        self.0.iter().map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}
