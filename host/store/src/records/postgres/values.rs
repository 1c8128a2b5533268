//! Statements, parameters and rows of PostgreSQL.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::PostgresError;
use crate::records::session::{SqlRow, SqlValue, TransactionResult, column_error};

/// Translates a statement: parameters `?1` become `$1`. Hints of an index are for SQLite and are left out.
pub(super) fn translate(sql: &str) -> String {
    let mut words: Vec<&str> = sql.split_whitespace().collect();
    while let Some(at) = words.iter().position(|word| *word == "INDEXED") {
        words.drain(at..(at + 3).min(words.len()));
    }
    words.join(" ").replace('?', "$")
}

impl ToSql for SqlValue<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match *self {
            SqlValue::Null => Ok(IsNull::Yes),
            SqlValue::Bool(value) if *kind == Type::BOOL => value.to_sql(kind, out),
            // SQLite has no booleans, and rows can come from there.
            SqlValue::Integer(value) if *kind == Type::BOOL => (value != 0).to_sql(kind, out),
            SqlValue::Integer(value) if *kind == Type::INT8 => value.to_sql(kind, out),
            SqlValue::Integer(value) if *kind == Type::INT4 => i32::try_from(value)?.to_sql(kind, out),
            SqlValue::Real(value) if *kind == Type::FLOAT8 => value.to_sql(kind, out),
            // PostgreSQL cannot store NUL in a text, and a plugin's message can contain one.
            SqlValue::Text(text) if *kind == Type::TEXT && text.contains('\0') => {
                text.replace('\0', "\u{fffd}").to_sql(kind, out)
            }
            SqlValue::Text(text) if *kind == Type::TEXT => text.to_sql(kind, out),
            value => Err(format!("{value:.40?} is not a value of {kind}").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl SqlRow for Row {
    fn value(&self, column: usize) -> TransactionResult<SqlValue<'_>> {
        let kind = self.columns().get(column).map(|column| column.type_());
        let value = match kind {
            Some(&Type::BOOL) => self.try_get::<_, Option<bool>>(column).map(|value| value.map(SqlValue::Bool)),
            Some(&Type::INT8) => self.try_get::<_, Option<i64>>(column).map(|value| value.map(SqlValue::Integer)),
            Some(&Type::INT4) => {
                let value = self.try_get::<_, Option<i32>>(column);
                value.map(|value| value.map(|value| SqlValue::Integer(value.into())))
            }
            Some(&Type::FLOAT8) => self.try_get::<_, Option<f64>>(column).map(|value| value.map(SqlValue::Real)),
            Some(&Type::TEXT) => self.try_get::<_, Option<&str>>(column).map(|value| value.map(SqlValue::Text)),
            Some(kind) => return Err(column_error(column, format_args!("unexpected {kind}"))),
            None => return Err(column_error(column, "the row has fewer columns")),
        };
        Ok(value.map_err(PostgresError::from)?.unwrap_or(SqlValue::Null))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_translated() {
        let check = |sql: &str, expected: &str| assert_eq!(translate(sql), expected);
        check("SELECT a FROM b WHERE c = ?1 AND d = ?12", "SELECT a FROM b WHERE c = $1 AND d = $12");
        check("SELECT a FROM b INDEXED BY i   WHERE c = ?1", "SELECT a FROM b WHERE c = $1");
    }
}
