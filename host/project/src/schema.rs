//! The JSON Schema of the project file. Tests hold it to the parser: both know the same keys, and both take the examples.

/// The schema, draft 2020-12, for editors and for `saggar check --schema`.
pub const SCHEMA: &str = include_str!("../saggar.schema.json");

#[cfg(test)]
mod tests;
