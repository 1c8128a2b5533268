//! Rules for the fields of records. A field that breaks one is reported with its name and the beginning of its value.

use crate::error::RecordError;
use crate::limits::SPEC_BYTES_MAX;
use crate::versions;

/// Characters of a value in an error.
const VALUE_CHARACTERS_MAX: usize = 80;

/// Returns the error for a field that is not valid.
pub(crate) fn invalid(field: &'static str, value: &str, expected: &'static str) -> RecordError {
    RecordError::Invalid { field, value: value.chars().take(VALUE_CHARACTERS_MAX).collect(), expected }
}

/// Checks the name of a project, a pipeline or a schedule.
pub(crate) fn check_name(field: &'static str, name: &str) -> Result<(), RecordError> {
    if versions::is_name(name) { Ok(()) } else { Err(invalid(field, name, versions::NAME_RULE)) }
}

/// Checks the length of a specification, a plan or their parameters.
pub(crate) fn check_spec_length(field: &'static str, spec: &str) -> Result<(), RecordError> {
    if spec.len() <= SPEC_BYTES_MAX { Ok(()) } else { Err(invalid(field, spec, "must have at most 1 MiB")) }
}

/// Checks a short text that must not be empty.
pub(crate) fn check_short_text(field: &'static str, text: &str) -> Result<(), RecordError> {
    if (1..=255).contains(&text.len()) { Ok(()) } else { Err(invalid(field, text, "must have 1 to 255 bytes")) }
}

/// Checks an idempotency key, if there is one.
pub(crate) fn check_idempotency_key(key: Option<&str>) -> Result<(), RecordError> {
    key.map_or(Ok(()), |key| check_short_text("idempotency key", key))
}
