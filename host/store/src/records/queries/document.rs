//! Transactions on documents.

use std::collections::BTreeMap;

use crate::error::RecordError;
use crate::limits::DOCUMENT_BYTES_MAX;
use crate::records::session::{RecordsEngine, SqlSession, TransactionResult, params};
use crate::records::{DocumentRecords, RecordedDocument, field_rules};

impl<E: RecordsEngine> DocumentRecords for E {
    fn document(&self, name: &str, after: u64) -> Result<Option<RecordedDocument>, RecordError> {
        self.read(|tx| get(tx, name, after))
    }

    fn document_revisions(&self, prefix: &str) -> Result<BTreeMap<String, u64>, RecordError> {
        let sql = "SELECT name, revision FROM documents WHERE substr(name, 1, ?2) = ?1";
        let length = prefix.chars().count() as i64;
        self.read(|tx| tx.query_all(sql, params![prefix, length], |row| Ok((row.get(0)?, row.get(1)?))))
            .map(BTreeMap::from_iter)
    }

    fn replace_document(&self, name: &str, revision: u64, text: &str) -> Result<bool, RecordError> {
        name.split('/').try_for_each(|part| field_rules::check_name("document", part))?;
        if text.len() as u64 > DOCUMENT_BYTES_MAX || text.contains('\0') {
            let (field, expected) = ("document", "must be a text of at most 16 MiB without the character NUL");
            return Err(RecordError::Invalid { field, value: name.to_owned(), expected });
        }
        self.write(|tx| replace(tx, name, revision, text))
    }
}

fn get(tx: &dyn SqlSession, name: &str, after: u64) -> TransactionResult<Option<RecordedDocument>> {
    let sql = "SELECT revision, content FROM documents WHERE name = ?1 AND revision > ?2";
    tx.query_optional(sql, params![name, after], |row| {
        Ok(RecordedDocument { revision: row.get(0)?, text: row.get(1)? })
    })
}

fn replace(tx: &dyn SqlSession, name: &str, revision: u64, text: &str) -> TransactionResult<bool> {
    let changed = match revision {
        0 => tx.execute(
            "INSERT INTO documents (name, revision, content) VALUES (?1, 1, ?2) ON CONFLICT (name) DO NOTHING",
            params![name, text],
        )?,
        revision => tx.execute(
            "UPDATE documents SET revision = revision + 1, content = ?3 WHERE name = ?1 AND revision = ?2",
            params![name, revision, text],
        )?,
    };
    Ok(changed == 1)
}
