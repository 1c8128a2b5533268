//! `promote`: the condition under which a published version of a model serves without a user's command.
//!
//! ```text
//! condition = clause ("and" clause)*
//! clause    = METRIC OPERATOR (NUMBER | "serving" (("+" | "-") NUMBER)?)
//! OPERATOR  = ">=" | "<=" | ">" | "<" | "=="
//! ```
//!
//! `serving` is the value of the same metric of the version that serves. `validation/accuracy >= serving - 0.005`
//! accepts a version that is at most half a percent less accurate.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Limit on the clauses of a condition.
const CLAUSES_MAX: usize = 16;
/// Limit on the characters of a condition.
const CONDITION_CHARS_MAX: usize = 1000;

/// A condition on the metrics of a version.
#[derive(Clone, Debug, PartialEq)]
pub struct PromotionCondition {
    clauses: Vec<PromotionClause>,
}

/// One comparison.
#[derive(Clone, Debug, PartialEq)]
struct PromotionClause {
    metric: String,
    operator: MetricOperator,
    bound: MetricBound,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricOperator {
    AtLeast,
    AtMost,
    Above,
    Below,
    Equal,
}

/// What a metric is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum MetricBound {
    Number(f64),
    /// The serving version's value plus this number.
    Serving(f64),
}

/// The reason for which a condition cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("character {at}: expected {expected}, found {found}")]
pub struct PromotionParseError {
    /// The position in the condition, from 1.
    pub at: usize,
    /// What was expected there.
    pub expected: &'static str,
    /// What was found.
    pub found: String,
}

impl MetricOperator {
    const ALL: [(&'static str, MetricOperator); 5] = [
        (">=", MetricOperator::AtLeast),
        ("<=", MetricOperator::AtMost),
        ("==", MetricOperator::Equal),
        (">", MetricOperator::Above),
        ("<", MetricOperator::Below),
    ];

    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            MetricOperator::AtLeast => value >= bound,
            MetricOperator::AtMost => value <= bound,
            MetricOperator::Above => value > bound,
            MetricOperator::Below => value < bound,
            MetricOperator::Equal => value == bound,
        }
    }
}

impl PromotionCondition {
    /// Checks the metrics of a version. `serving` are those of the version that serves; without one, comparisons with it
    /// hold.
    ///
    /// # Errors
    /// Returns the first clause that does not hold, with the values, as text. A metric that either version lacks does
    /// not meet its clause.
    pub fn check(
        &self,
        metrics: &BTreeMap<String, f64>,
        serving: Option<&BTreeMap<String, f64>>,
    ) -> Result<(), String> {
        self.clauses.iter().try_for_each(|clause| clause.check(metrics, serving))
    }
}

impl PromotionClause {
    fn check(&self, metrics: &BTreeMap<String, f64>, serving: Option<&BTreeMap<String, f64>>) -> Result<(), String> {
        let metric = &self.metric;
        let (bound, source) = match (self.bound, serving) {
            (MetricBound::Number(bound), _) => (bound, String::new()),
            (MetricBound::Serving(_), None) => return Ok(()),
            (MetricBound::Serving(offset), Some(serving)) => match serving.get(metric) {
                Some(value) => (value + offset, format!(", and the serving version has {value}")),
                None => return Err(format!("`{self}` cannot be checked: the serving version has no metric {metric}")),
            },
        };
        match metrics.get(metric) {
            None => Err(format!("`{self}` cannot be checked: it has no metric {metric}")),
            Some(value) if self.operator.holds(*value, bound) => Ok(()),
            Some(value) => Err(format!("`{self}` does not hold: it has {value}{source}")),
        }
    }
}

impl fmt::Display for PromotionClause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = MetricOperator::ALL.iter().find(|(_, it)| *it == self.operator).map_or("", |(text, _)| *text);
        write!(f, "{} {operator} ", self.metric)?;
        match self.bound {
            MetricBound::Number(number) => write!(f, "{number}"),
            MetricBound::Serving(0.0) => f.write_str("serving"),
            MetricBound::Serving(offset) if offset < 0.0 => write!(f, "serving - {}", -offset),
            MetricBound::Serving(offset) => write!(f, "serving + {offset}"),
        }
    }
}

impl fmt::Display for PromotionCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, clause) in self.clauses.iter().enumerate() {
            let and = if at > 0 { " and " } else { "" };
            write!(f, "{and}{clause}")?;
        }
        Ok(())
    }
}

impl FromStr for PromotionCondition {
    type Err = PromotionParseError;

    fn from_str(text: &str) -> Result<PromotionCondition, PromotionParseError> {
        let mut tokens = ConditionTokens { text, at: 0 };
        if text.chars().count() > CONDITION_CHARS_MAX {
            let found = format!("{} characters", text.chars().count());
            return Err(PromotionParseError { at: 1, expected: "at most 1000 characters", found });
        }
        let mut clauses = vec![tokens.clause()?];
        while !tokens.is_at_end() {
            if !tokens.take_word("and") {
                return Err(tokens.unexpected("`and` or the end"));
            }
            if clauses.len() == CLAUSES_MAX {
                return Err(tokens.unexpected("at most 16 comparisons"));
            }
            clauses.push(tokens.clause()?);
        }
        Ok(PromotionCondition { clauses })
    }
}

/// The text of a condition, and the position in bytes up to which it was read.
struct ConditionTokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> ConditionTokens<'a> {
    fn clause(&mut self) -> Result<PromotionClause, PromotionParseError> {
        let metric = self.take_while(|c| c.is_ascii_alphanumeric() || "_/.-@:".contains(c));
        if !metric.starts_with(|c: char| c.is_ascii_alphabetic()) {
            self.at -= metric.len();
            return Err(self.unexpected("the name of a metric such as validation/accuracy"));
        }
        let operator = self.operator()?;
        let bound = if self.take_word("serving") {
            let sign = if self.take("+") {
                Some(1.0)
            } else if self.take("-") {
                Some(-1.0)
            } else {
                None
            };
            MetricBound::Serving(sign.map(|sign| Ok(sign * self.number()?)).transpose()?.unwrap_or(0.0))
        } else {
            MetricBound::Number(self.number()?)
        };
        Ok(PromotionClause { metric: metric.to_owned(), operator, bound })
    }

    fn operator(&mut self) -> Result<MetricOperator, PromotionParseError> {
        let found = MetricOperator::ALL.iter().find(|(text, _)| self.take(text));
        found.map(|(_, operator)| *operator).ok_or_else(|| self.unexpected("one of >=, <=, >, < and =="))
    }

    fn number(&mut self) -> Result<f64, PromotionParseError> {
        self.skip_spaces();
        let start = self.at;
        let text = self.take_while(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        let is_decimal = text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() && is_decimal => Ok(number),
            _ => {
                self.at = start;
                Err(self.unexpected("a number, or `serving` and a difference such as serving - 0.005"))
            }
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_spaces(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_spaces();
        self.rest().is_empty()
    }

    /// Takes this text if it comes next.
    fn take(&mut self, text: &str) -> bool {
        self.skip_spaces();
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    /// Takes this word if it comes next and ends there.
    fn take_word(&mut self, word: &str) -> bool {
        self.skip_spaces();
        let continues = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let found = self.rest().strip_prefix(word).is_some_and(|rest| !continues(rest));
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        self.skip_spaces();
        let rest = self.rest();
        let prefix = &rest[..rest.find(|c| !belongs(c)).unwrap_or(rest.len())];
        self.at += prefix.len();
        prefix
    }

    /// Returns the error for what comes next.
    fn unexpected(&mut self, expected: &'static str) -> PromotionParseError {
        self.skip_spaces();
        let word: String = self.rest().split_whitespace().next().unwrap_or_default().chars().take(40).collect();
        let found = if word.is_empty() { "the end".to_owned() } else { format!("`{word}`") };
        PromotionParseError { at: self.text[..self.at].chars().count() + 1, expected, found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(values: &[(&str, f64)]) -> BTreeMap<String, f64> {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    fn check(condition: &str, own: &[(&str, f64)], serving: Option<&[(&str, f64)]>) -> Result<(), String> {
        condition.parse::<PromotionCondition>().unwrap().check(&metrics(own), serving.map(metrics).as_ref())
    }

    #[test]
    fn a_condition_compares_with_numbers_and_with_the_serving_version() {
        let relative = "validation/accuracy >= serving - 0.005";
        let good = [("validation/accuracy", 0.97)];
        assert_eq!(check(relative, &good, None), Ok(()));
        assert_eq!(check(relative, &good, Some(&[("validation/accuracy", 0.974)])), Ok(()));
        let worse = check(relative, &good, Some(&[("validation/accuracy", 0.98)])).unwrap_err();
        assert_eq!(
            worse,
            "`validation/accuracy >= serving - 0.005` does not hold: it has 0.97, and the serving version has 0.98"
        );
        let lacks = check(relative, &[("loss", 1.0)], Some(&good)).unwrap_err();
        assert!(lacks.contains("it has no metric validation/accuracy"), "{lacks}");
        let lacks = check(relative, &good, Some(&[])).unwrap_err();
        assert!(lacks.contains("the serving version has no metric"), "{lacks}");
        let both = "accuracy>0.9 and loss<serving+0.1";
        assert_eq!(check(both, &[("accuracy", 0.91), ("loss", 0.5)], Some(&[("loss", 0.45)])), Ok(()));
        assert!(check(both, &[("accuracy", 0.9), ("loss", 0.5)], None).unwrap_err().contains("`accuracy > 0.9`"));
        assert!(check(both, &[("accuracy", 0.91), ("loss", 0.6)], Some(&[("loss", 0.45)])).is_err());
        assert!(check("loss <= 1e-3", &[("loss", f64::NAN)], None).is_err(), "NaN meets no bound");
        assert_eq!(check("steps == 100", &[("steps", 100.0)], None), Ok(()));
    }

    #[test]
    fn conditions_print_as_they_are_parsed() {
        for text in ["a >= serving - 0.005", "a/b < 3 and c == serving and d <= serving + 2", "x.y > -1.5"] {
            let condition: PromotionCondition = text.parse().unwrap();
            assert_eq!(condition.to_string(), text);
            assert_eq!(condition.to_string().parse::<PromotionCondition>().unwrap(), condition);
        }
    }

    #[test]
    fn errors_name_the_position_and_what_is_expected() {
        for (text, at, expected, found) in [
            ("", 1, "the name of a metric", "the end"),
            ("0.9 < accuracy", 1, "the name of a metric", "`0.9`"),
            ("accuracy", 9, "one of >=", "the end"),
            ("accuracy = 0.9", 10, "one of >=", "`=`"),
            ("accuracy >= ", 13, "a number", "the end"),
            ("accuracy >= best", 13, "a number", "`best`"),
            ("accuracy >= nan", 13, "a number", "`nan`"),
            ("accuracy >= 1e999", 13, "a number", "`1e999`"),
            ("accuracy >= serving -", 22, "a number", "the end"),
            ("accuracy >= serving * 2", 21, "`and` or the end", "`*`"),
            ("a > 1 or b > 1", 7, "`and` or the end", "`or`"),
            ("a > 1 and", 10, "the name of a metric", "the end"),
            ("\u{e9} > 1", 1, "the name of a metric", "`\u{e9}`"),
        ] {
            let error = text.parse::<PromotionCondition>().unwrap_err();
            let is_expected = error.expected.starts_with(expected);
            assert!((error.at, error.found.as_str(), is_expected) == (at, found, true), "{text:?}: {error}");
        }
        assert!("a > 1 and ".repeat(17).trim_end_matches("and ").parse::<PromotionCondition>().is_err());
        assert!("a".repeat(2000).parse::<PromotionCondition>().is_err());
    }
}
