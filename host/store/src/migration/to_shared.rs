//! From a state directory to a database and a bucket.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::bucket_content::list_all;
use super::content::ContentLedger;
use super::directory_content::DirectoryContent;
use super::{MigrationError, MigrationProgress, MigrationReport, SharedStores, check_tables, documents, object_copy};
use crate::error::StoreError;
use crate::objects::{BlockingObjects, MIGRATION_MARK};
use crate::records::{self, JobRecords, MIGRATION_DOCUMENT, RecordsDatabase};
use crate::state_dir::StateDir;
use crate::state_formats;

/// Most names in a message.
pub(super) const NAMES_LISTED_MAX: usize = 5;

/// The text of the mark of an incomplete destination.
#[derive(Serialize, Deserialize)]
struct MigrationMark {
    /// The state directory.
    source: String,
    /// The bucket that belongs to the database.
    bucket: String,
}

/// Copies the state directory `home`, which no server uses, to a database and a bucket without any data. The state directory
/// is not changed.
///
/// # Errors
/// Returns every kind of `MigrationError`. A destination that was written stays marked, and can be given again.
pub fn migrate_to_shared(
    home: &StateDir,
    target: &SharedStores,
    progress: &dyn Fn(MigrationProgress),
) -> Result<MigrationReport, MigrationError> {
    let _lock = check_source(home)?;
    // Opening the file itself could change it.
    let copy = tempfile::tempdir().map_err(StoreError::io(std::env::temp_dir()))?;
    for suffix in ["", "-wal"] {
        let name = format!("saggar.db{suffix}");
        let from = home.root().join(&name);
        if from.exists() {
            std::fs::copy(&from, copy.path().join(&name)).map_err(StoreError::io(&from))?;
        }
    }
    let source = RecordsDatabase::open_file(&copy.path().join("saggar.db"))?;
    check_no_active_jobs(source.records())?;
    let texts = documents::read_files(home, target.key.as_ref())?;
    let content = DirectoryContent::read(home)?;
    let database = open_target(home, target)?;
    let existing = list_all(&target.objects)?.into_iter().map(|object| (object.name, object.size)).collect();
    let rows = RowCounter::new(progress);
    let tables = source.copy_to(&database, &|more| rows.add(false, more))?;
    documents::write_documents(database.records(), &texts, target.key.as_ref())?;
    let ledger = copy_content(&content, &target.objects, &existing, progress)?;
    check_tables(&tables, &database.digests(&|more| rows.add(true, more))?)?;
    documents::check(&texts, &documents::read_documents(database.records(), target.key.as_ref())?)?;
    let (bytes_total, mut bytes) = (ledger.bytes(), 0);
    object_copy::verify(&target.objects, &ledger, &mut |more| {
        bytes += more;
        progress(MigrationProgress::Content { is_verification: true, bytes, bytes_total });
    })?;
    // The database's mark is last: it names the bucket, so that an attempt that ends in between can be repeated.
    target.objects.wait(|objects| async move { objects.delete(MIGRATION_MARK).await })?;
    database.set_migration_mark(None)?;
    Ok(MigrationReport { tables, content: ledger.count(), left: content.plan.left })
}

/// Counts the rows that were copied, and those that were compared.
pub(super) struct RowCounter<'a> {
    rows: [std::cell::Cell<u64>; 2],
    progress: &'a dyn Fn(MigrationProgress),
}

impl<'a> RowCounter<'a> {
    pub(super) fn new(progress: &'a dyn Fn(MigrationProgress)) -> RowCounter<'a> {
        RowCounter { rows: Default::default(), progress }
    }

    pub(super) fn add(&self, is_verification: bool, more: u64) {
        let count = &self.rows[usize::from(is_verification)];
        count.set(count.get() + more);
        (self.progress)(MigrationProgress::Records { is_verification, rows: count.get() });
    }
}

fn check_source(home: &StateDir) -> Result<crate::state_dir::StateDirLock, MigrationError> {
    let root = home.root();
    if !home.database().is_file() {
        return Err(MigrationError::NoState { home: root.to_owned() });
    }
    let lock = home.lock()?;
    for (path, what) in [("keys.json.shared", "their database"), ("models/.mirrored", "their bucket")] {
        if root.join(path).exists() {
            return Err(MigrationError::IsCopy { home: root.to_owned(), what });
        }
    }
    let (place, expected) = (home.database().display().to_string(), records::schema_version() as i64);
    let found = state_formats::records_schema(&home.database()).map_err(StoreError::io(home.database()))?;
    if found != Some(records::schema_version()) {
        let found = found.and_then(|found| i64::try_from(found).ok()).unwrap_or(0);
        return Err(MigrationError::OtherSchema { place, found, expected });
    }
    Ok(lock)
}

/// Returns an error if jobs are active.
pub(super) fn check_no_active_jobs(records: &dyn JobRecords) -> Result<(), MigrationError> {
    let active = records.jobs_left_active()?;
    if active.is_empty() {
        return Ok(());
    }
    let jobs = active.iter().take(NAMES_LISTED_MAX).map(|job| format!("{} ({})", job.name, job.state)).collect();
    Err(MigrationError::ActiveJobs { count: active.len(), jobs })
}

/// Opens the destination, which has no data or is that of an interrupted attempt, and marks it.
fn open_target(home: &StateDir, target: &SharedStores) -> Result<RecordsDatabase, MigrationError> {
    let inspection = records::inspect_database(&target.database)?;
    if let Some(found) = inspection.schema.filter(|schema| *schema != inspection.schema_newest) {
        let (place, expected) = (inspection.database, inspection.schema_newest);
        return Err(MigrationError::OtherSchema { place, found, expected });
    }
    let database = RecordsDatabase::open_url(&target.database)?;
    let bucket = target.objects.storage().address().to_owned();
    let document = database.records().document(MIGRATION_DOCUMENT, 0)?;
    let mark: Option<MigrationMark> = document.and_then(|document| serde_json::from_str(&document.text).ok());
    let objects = list_all(&target.objects)?;
    let is_bucket_marked = objects.iter().any(|object| object.name == MIGRATION_MARK);
    if mark.is_none() {
        let tables = database.tables_with_rows()?;
        if !tables.is_empty() {
            let rows: Vec<String> = tables.iter().map(|(table, rows)| format!("{table} {rows}")).collect();
            let what = format!("{} has rows in the tables {}", inspection.database, rows.join(", "));
            return Err(MigrationError::NotEmpty { what });
        }
    }
    let is_own = is_bucket_marked || mark.is_some_and(|mark| mark.bucket == bucket);
    if let Some(first) = objects.first().filter(|_| !is_own) {
        let what = format!("{bucket} has {} objects, such as {}", objects.len(), first.name);
        return Err(MigrationError::NotEmpty { what });
    }
    let mark = MigrationMark { source: home.root().display().to_string(), bucket };
    let text = serde_json::to_string(&mark).expect("a mark is plain data");
    database.set_migration_mark(Some(&text))?;
    target.objects.wait(|objects| async move { objects.replace(MIGRATION_MARK, text.into_bytes().into()).await })?;
    Ok(database)
}

fn copy_content(
    content: &DirectoryContent,
    bucket: &BlockingObjects,
    existing: &BTreeMap<String, u64>,
    progress: &dyn Fn(MigrationProgress),
) -> Result<ContentLedger, MigrationError> {
    let (mut ledger, mut bytes, bytes_total) = (ContentLedger::default(), 0, content.plan.bytes());
    let mut done = |more| {
        bytes += more;
        progress(MigrationProgress::Content { is_verification: false, bytes: bytes.min(bytes_total), bytes_total });
    };
    object_copy::write(bucket, &content.plan, existing, &mut ledger, &mut done)?;
    // An index makes a version visible, so it is written after the parts.
    object_copy::write(bucket, &content.indexes(&ledger), existing, &mut ledger, &mut done)?;
    Ok(ledger)
}
