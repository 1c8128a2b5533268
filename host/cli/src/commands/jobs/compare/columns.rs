//! Columns of a comparison: which there are, their values, and conditions on them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use saggar_rest::jobs::JobDocument;
use serde_json::Value;

use crate::exit::CliError;

/// The prefix of a tag's column.
const TAG_PREFIX: &str = "tag.";
/// Columns that every job has.
const JOB_COLUMNS: [&str; 4] = ["state", "note", "gpu-sec", "wall-sec"];

/// Returns the value of a column for a job whose flattened specification is `fields`; `None` if the job has none. A name
/// without a prefix is a parameter first, then a field of the specification, then a metric.
pub(super) fn column_value(job: &JobDocument, fields: &BTreeMap<String, Value>, column: &str) -> Option<Value> {
    if let Some(name) = column.strip_prefix(TAG_PREFIX) {
        return job.tags.get(name).map(|value| value.as_str().into());
    }
    match column {
        "state" => return Some(job.state.as_str().into()),
        "note" => return Some(job.note.as_str()).filter(|note| !note.is_empty()).map(Value::from),
        "gpu-sec" => return Some(job.gpu_seconds.into()),
        "wall-sec" => return Some(job.wall_seconds.into()),
        _ => {}
    }
    let field = fields.get(&format!("parameters.{column}")).or_else(|| fields.get(column));
    field.cloned().or_else(|| job.metrics.get(column).map(|value| Value::from(*value)))
}

/// Returns the names of all columns of some jobs.
fn known_columns(jobs: &[(JobDocument, BTreeMap<String, Value>)]) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = JOB_COLUMNS.iter().map(|name| (*name).to_owned()).collect();
    for (job, fields) in jobs {
        known.extend(fields.keys().map(|name| name.strip_prefix("parameters.").unwrap_or(name).to_owned()));
        known.extend(job.metrics.keys().cloned());
        known.extend(job.tags.keys().map(|name| format!("{TAG_PREFIX}{name}")));
    }
    known
}

/// Checks that at least one job has the column.
///
/// # Errors
/// Returns `invalid` with the existing columns.
pub(super) fn check_column(
    option: &str,
    column: &str,
    jobs: &[(JobDocument, BTreeMap<String, Value>)],
) -> Result<(), CliError> {
    let known = known_columns(jobs);
    if known.contains(column) || jobs.iter().any(|(_, fields)| fields.contains_key(column)) {
        return Ok(());
    }
    let known: Vec<String> = known.into_iter().collect();
    Err(CliError::invalid(format!("{option} {column}: no job has it"))
        .with_hint(format!("there are: {}", known.join(", "))))
}

/// Compares two values: numbers by size, other values by their text, missing ones last.
pub(super) fn compare_values(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a.filter(|a| !a.is_null()), b.filter(|b| !b.is_null())) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            _ => super::format_value(Some(a)).cmp(&super::format_value(Some(b))),
        },
    }
}

/// A condition on a column, such as `lr<0.1`.
#[derive(Debug, PartialEq)]
pub(super) struct ColumnCondition {
    pub(super) column: String,
    operator: &'static str,
    value: String,
}

impl ColumnCondition {
    /// Operators; those that begin with another one come first.
    const OPERATORS: [&'static str; 6] = ["<=", ">=", "!=", "<", ">", "="];

    /// Parses a condition.
    ///
    /// # Errors
    /// Returns `invalid` if it has no column or no operator.
    pub(super) fn parse(text: &str) -> Result<ColumnCondition, CliError> {
        let at = text.find(['<', '>', '!', '=']);
        let parsed = at.and_then(|at| {
            let (column, rest) = text.split_at(at);
            let operator = ColumnCondition::OPERATORS.into_iter().find(|operator| rest.starts_with(operator))?;
            let value = rest[operator.len()..].trim().to_owned();
            let column = column.trim().to_owned();
            (!column.is_empty()).then_some(ColumnCondition { column, operator, value })
        });
        parsed.ok_or_else(|| {
            CliError::invalid(format!("--filter {text}: expected a column, an operator and a value"))
                .with_hint("such as lr<0.1, validation/accuracy>=0.9 or state=SUCCEEDED")
        })
    }

    /// Returns whether the condition holds. A missing value only differs from others.
    pub(super) fn holds(&self, value: Option<&Value>) -> bool {
        let Some(value) = value.filter(|value| !value.is_null()) else { return self.operator == "!=" };
        let order = match (value.as_f64(), self.value.parse::<f64>()) {
            (Some(a), Ok(b)) => a.partial_cmp(&b),
            _ => Some(super::format_value(Some(value)).as_str().cmp(self.value.as_str())),
        };
        match self.operator {
            "<=" => order.is_some_and(Ordering::is_le),
            ">=" => order.is_some_and(Ordering::is_ge),
            "<" => order.is_some_and(Ordering::is_lt),
            ">" => order.is_some_and(Ordering::is_gt),
            "=" => order.is_some_and(Ordering::is_eq),
            _ => order.is_none_or(Ordering::is_ne),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_compare_numbers_as_numbers_and_other_values_as_text() {
        let holds = |text: &str, value: Value| ColumnCondition::parse(text).unwrap().holds(Some(&value));
        assert!(holds("lr<0.1", json!(0.05)) && !holds("lr<0.1", json!(0.1)) && holds("lr<=0.1", json!(0.1)));
        assert!(holds("n>9", json!(10)) && holds("n >= 10", json!(10)) && holds("n=1e1", json!(10)));
        assert!(holds("state=SUCCEEDED", json!("SUCCEEDED")) && holds("tag.kind!=test", json!("base")));
        assert!(holds("note=a=b", json!("a=b")), "the value can contain operators");
        let missing = |text: &str| ColumnCondition::parse(text).unwrap().holds(None);
        assert!(!missing("lr<0.1") && missing("lr!=0.1"));
        for wrong in ["", "lr", "=3", "<"] {
            assert!(ColumnCondition::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn columns_are_parameters_then_fields_then_metrics() {
        let job = JobDocument {
            state: "FAILED".to_owned(),
            metrics: [("loss".to_owned(), Some(0.5)), ("nan".to_owned(), None)].into(),
            tags: [("kind".to_owned(), "base".to_owned())].into(),
            ..JobDocument::default()
        };
        let fields = BTreeMap::from([("parameters.seed".to_owned(), json!(1)), ("seed".to_owned(), json!(2))]);
        let value = |column: &str| column_value(&job, &fields, column);
        assert_eq!((value("seed"), value("loss"), value("nan")), (Some(json!(1)), Some(json!(0.5)), Some(Value::Null)));
        assert_eq!((value("tag.kind"), value("state")), (Some(json!("base")), Some(json!("FAILED"))));
        assert_eq!((value("note"), value("lr")), (None, None));
        let jobs = [(job, fields)];
        assert!(check_column("--sort", "loss", &jobs).is_ok());
        let error = check_column("--sort", "los", &jobs).unwrap_err();
        assert!(error.message.contains("--sort los") && error.hint.unwrap().contains("loss, nan"));
    }

    #[test]
    fn missing_values_are_sorted_last() {
        let mut values = [None, Some(json!(10)), Some(json!(9)), Some(Value::Null), Some(json!(9.5))];
        values.sort_by(|a, b| compare_values(a.as_ref(), b.as_ref()));
        assert_eq!(values[..3], [Some(json!(9)), Some(json!(9.5)), Some(json!(10))]);
    }
}
