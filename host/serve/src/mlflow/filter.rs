//! Filters of searches: comparisons joined by `and`, such as `metrics.loss < 0.1 and tags."my tag" LIKE 'a%'`.
//!
//! Source: MLflow's search syntax for runs and experiments.

mod token;

use std::borrow::Cow;
use std::cmp::Ordering;

use self::token::{FilterToken, FilterTokens};
use super::error::MlflowError;
use super::text_pattern::matches_like;

/// Characters of a filter, and comparisons in it.
const FILTER_CHARS_MAX: usize = 10_000;
const COMPARISONS_MAX: usize = 100;

/// A field of a run or an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SearchField {
    /// The last value of a metric.
    Metric(String),
    /// A parameter.
    Parameter(String),
    /// A tag.
    Tag(String),
    /// An attribute, from the attributes of the kind of thing.
    Attribute(&'static str),
}

/// The attributes of a kind of thing.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttributeNames {
    /// Texts, by every name that clients use, with the name of the attribute.
    pub(super) texts: &'static [(&'static str, &'static str)],
    /// Numbers, alike.
    pub(super) numbers: &'static [(&'static str, &'static str)],
}

impl AttributeNames {
    fn find(&self, name: &str) -> Option<&'static str> {
        let all = || self.texts.iter().chain(self.numbers);
        all().find(|(known, _)| *known == name).map(|(_, attribute)| *attribute)
    }

    /// Returns whether the values of a field are numbers.
    fn is_number(&self, field: &SearchField) -> bool {
        match field {
            SearchField::Metric(_) => true,
            SearchField::Parameter(_) | SearchField::Tag(_) => false,
            SearchField::Attribute(name) => self.numbers.iter().any(|(_, attribute)| attribute == name),
        }
    }

    /// Returns the field of this kind and name.
    pub(super) fn field(&self, kind: Option<&str>, name: &str) -> Option<SearchField> {
        let lower = kind.map(str::to_ascii_lowercase);
        match lower.as_deref() {
            Some("metric" | "metrics") => Some(SearchField::Metric(name.to_owned())),
            Some("param" | "params" | "parameter" | "parameters") => Some(SearchField::Parameter(name.to_owned())),
            Some("tag" | "tags") => Some(SearchField::Tag(name.to_owned())),
            None | Some("attribute" | "attributes" | "attr" | "run") => self.find(name).map(SearchField::Attribute),
            Some(_) => None,
        }
    }
}

/// Something that is searched.
pub(super) trait SearchSubject {
    /// Returns the value of a field that is text, if it has it.
    fn text(&self, field: &SearchField) -> Option<Cow<'_, str>>;
    /// Returns the value of a field that is a number, if it has it.
    fn number(&self, field: &SearchField) -> Option<f64>;
}

/// A condition on a value.
#[derive(Clone, Debug, PartialEq)]
enum FilterCondition {
    Number(NumberTest, f64),
    Equals(String),
    Differs(String),
    Like(String),
    LikeIgnoringCase(String),
    In(Vec<String>),
    NotIn(Vec<String>),
    IsNull,
    IsNotNull,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberTest {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A parsed filter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SearchFilter {
    comparisons: Vec<(SearchField, FilterCondition)>,
}

impl SearchFilter {
    /// Parses a filter of things with these attributes. An empty one matches everything.
    ///
    /// # Errors
    /// `Filter` with the position and what is expected there.
    pub(super) fn parse(text: &str, names: AttributeNames) -> Result<SearchFilter, MlflowError> {
        if text.chars().count() > FILTER_CHARS_MAX {
            let expected = "at most 10000 characters";
            return Err(MlflowError::Filter { at: FILTER_CHARS_MAX, expected, got: "a longer filter".to_owned() });
        }
        let mut tokens = FilterTokens::new(text);
        let mut comparisons = Vec::new();
        while tokens.peek()?.is_some() {
            if !comparisons.is_empty() {
                tokens.expect_word("and", "AND")?;
            }
            if comparisons.len() == COMPARISONS_MAX {
                return Err(tokens.error("at most 100 comparisons"));
            }
            let field = parse_field(&mut tokens, names)?;
            let condition = parse_condition(&mut tokens, names.is_number(&field))?;
            comparisons.push((field, condition));
        }
        Ok(SearchFilter { comparisons })
    }

    /// Returns whether a subject meets every condition.
    pub(super) fn matches(&self, subject: &impl SearchSubject) -> bool {
        self.comparisons.iter().all(|(field, condition)| matches(subject, field, condition))
    }
}

fn parse_field(tokens: &mut FilterTokens<'_>, names: AttributeNames) -> Result<SearchField, MlflowError> {
    const EXPECTED: &str = "metrics.NAME, params.NAME, tags.NAME or an attribute";
    let unknown = tokens.error(EXPECTED);
    let Some(FilterToken::Word(first)) = tokens.next()? else { return Err(unknown) };
    // The rest of a plain name is part of the word; a quoted one follows.
    let (kind, name) = match first.split_once('.') {
        Some((kind, "")) => match tokens.next()? {
            Some(FilterToken::Quoted(name) | FilterToken::Text(name)) => (Some(kind.to_owned()), name),
            _ => return Err(unknown),
        },
        Some((kind, name)) => (Some(kind.to_owned()), name.to_owned()),
        None => (None, first),
    };
    names.field(kind.as_deref(), &name).ok_or(unknown)
}

fn parse_condition(tokens: &mut FilterTokens<'_>, is_number: bool) -> Result<FilterCondition, MlflowError> {
    const EXPECTED: &str = "=, !=, <, <=, >, >=, LIKE, ILIKE, IN, NOT IN, IS NULL or IS NOT NULL";
    let unknown = tokens.error(EXPECTED);
    match tokens.next()? {
        Some(FilterToken::Operator(operator)) if is_number => {
            let test = match operator {
                "=" => NumberTest::Equal,
                "!=" => NumberTest::NotEqual,
                "<" => NumberTest::Less,
                "<=" => NumberTest::LessOrEqual,
                ">" => NumberTest::Greater,
                _ => NumberTest::GreaterOrEqual,
            };
            Ok(FilterCondition::Number(test, tokens.expect_number()?))
        }
        Some(FilterToken::Operator("=")) => Ok(FilterCondition::Equals(tokens.expect_text()?)),
        Some(FilterToken::Operator("!=")) => Ok(FilterCondition::Differs(tokens.expect_text()?)),
        Some(FilterToken::Word(word)) => match word.to_ascii_lowercase().as_str() {
            "is" => {
                let has = tokens.take_word("not")?;
                tokens.expect_word("null", "NULL")?;
                Ok(if has { FilterCondition::IsNotNull } else { FilterCondition::IsNull })
            }
            _ if is_number => Err(unknown),
            "like" => Ok(FilterCondition::Like(tokens.expect_text()?)),
            "ilike" => Ok(FilterCondition::LikeIgnoringCase(tokens.expect_text()?.to_lowercase())),
            "in" => Ok(FilterCondition::In(tokens.expect_texts()?)),
            "not" => {
                tokens.expect_word("in", "IN")?;
                Ok(FilterCondition::NotIn(tokens.expect_texts()?))
            }
            _ => Err(unknown),
        },
        _ => Err(unknown),
    }
}

fn matches(subject: &impl SearchSubject, field: &SearchField, condition: &FilterCondition) -> bool {
    let text = || subject.text(field);
    let has_value = || subject.text(field).is_some() || subject.number(field).is_some();
    match condition {
        FilterCondition::IsNull => !has_value(),
        FilterCondition::IsNotNull => has_value(),
        FilterCondition::Number(test, wanted) => subject.number(field).is_some_and(|value| {
            let order = value.partial_cmp(wanted);
            match test {
                NumberTest::Equal => order == Some(Ordering::Equal),
                NumberTest::NotEqual => order != Some(Ordering::Equal),
                NumberTest::Less => order == Some(Ordering::Less),
                NumberTest::LessOrEqual => order.is_some_and(Ordering::is_le),
                NumberTest::Greater => order == Some(Ordering::Greater),
                NumberTest::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
            }
        }),
        FilterCondition::Equals(wanted) => text().is_some_and(|text| text == wanted.as_str()),
        FilterCondition::Differs(wanted) => text().is_some_and(|text| text != wanted.as_str()),
        FilterCondition::Like(pattern) => text().is_some_and(|text| matches_like(&text, pattern)),
        FilterCondition::LikeIgnoringCase(pattern) => {
            text().is_some_and(|text| matches_like(&text.to_lowercase(), pattern))
        }
        FilterCondition::In(wanted) => text().is_some_and(|text| wanted.iter().any(|one| text == one.as_str())),
        FilterCondition::NotIn(refused) => text().is_some_and(|text| refused.iter().all(|one| text != one.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: AttributeNames = AttributeNames {
        texts: &[("status", "status"), ("name", "run_name")],
        numbers: &[("start_time", "start_time")],
    };

    /// A run with loss 0.5, lr 0.05, a tag, and status FINISHED, begun at 1000.
    struct TestSubject;

    impl SearchSubject for TestSubject {
        fn text(&self, field: &SearchField) -> Option<Cow<'_, str>> {
            match field {
                SearchField::Parameter(name) if name == "lr" => Some("0.05".into()),
                SearchField::Tag(name) if name == "my tag" => Some("Big one".into()),
                SearchField::Attribute("status") => Some("FINISHED".into()),
                _ => None,
            }
        }

        fn number(&self, field: &SearchField) -> Option<f64> {
            match field {
                SearchField::Metric(name) if name == "loss" => Some(0.5),
                SearchField::Metric(name) if name == "nan" => Some(f64::NAN),
                SearchField::Attribute("start_time") => Some(1000.0),
                _ => None,
            }
        }
    }

    fn check(filter: &str) -> bool {
        SearchFilter::parse(filter, NAMES).unwrap_or_else(|error| panic!("{filter}: {error}")).matches(&TestSubject)
    }

    #[test]
    fn conditions_are_met_or_not() {
        for yes in [
            "",
            "  ",
            "metrics.loss < 0.6",
            "metric.loss <= 5e-1 AND params.lr = '0.05'",
            "metrics.`loss` >= .5 and metrics.loss != 1",
            "metrics.nan != 0",
            "tags.\"my tag\" LIKE 'Big%' and tags.`my tag` ilike 'big _ne'",
            "attributes.status = 'FINISHED' and status IN ('FAILED', \"FINISHED\")",
            "status not in ('FAILED')",
            "start_time > 999",
            "params.other IS NULL and params.lr is not null and metrics.loss IS NOT NULL",
        ] {
            assert!(check(yes), "{yes}");
        }
        for no in [
            "metrics.loss > 0.5",
            "metrics.other != 1",
            "metrics.nan < 1",
            "params.lr = '0.050'",
            "params.other != 'x'",
            "tags.`my tag` LIKE 'big%'",
            "metrics.loss < 0.6 and status = 'FAILED'",
        ] {
            assert!(!check(no), "{no}");
        }
    }

    #[test]
    fn what_cannot_be_parsed_is_refused_with_its_position() {
        for (bad, at) in [
            ("metrics.loss", 13),
            ("metrics.loss <", 15),
            ("metrics.loss < '1'", 16),
            ("metrics.loss LIKE 'a'", 14),
            ("params.lr = 5", 13),
            ("params.lr = 'a", 13),
            ("params.lr < 'a'", 11),
            ("unknown = 'a'", 1),
            ("datasets.name = 'a'", 1),
            ("status = 'a' or status = 'b'", 14),
            ("status IN ('a'", 15),
            ("status IN ()", 12),
            ("status = 'a' and", 17),
            ("(status = 'a')", 1),
            ("metrics.loss < NaN", 16),
            ("status = 'a' ; drop", 14),
        ] {
            match SearchFilter::parse(bad, NAMES) {
                Err(MlflowError::Filter { at: found, .. }) => assert_eq!(found, at, "{bad}"),
                other => panic!("{bad}: {other:?}"),
            }
        }
        let many = vec!["status = 'a'"; 101].join(" and ");
        assert!(SearchFilter::parse(&many, NAMES).is_err());
        assert!(SearchFilter::parse(&" ".repeat(10_001), NAMES).is_err());
    }
}
