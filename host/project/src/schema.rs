//! The JSON Schema of the project file. Tests check that it has the parser's keys and that both accept the examples.

/// The schema, draft 2020-12, for editors and `saggar check --schema`.
pub const SCHEMA: &str = include_str!("../saggar.schema.json");

#[cfg(test)]
mod tests;
