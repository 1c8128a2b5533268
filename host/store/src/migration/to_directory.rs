//! From a database and a bucket to a state directory.

use std::path::Path;

use super::bucket_content::{self, BucketPart};
use super::content::{ContentLedger, ContentPlan};
use super::to_shared::{RowCounter, check_no_active_jobs};
use super::{
    MigrationError, MigrationProgress, MigrationReport, SharedStores, check_tables, documents, file_copy, live_content,
};
use crate::durable::{self, disk};
use crate::error::StoreError;
use crate::objects::MIGRATION_MARK;
use crate::records::{self, HostState, RecordsDatabase};
use crate::state_dir::StateDir;

/// Copies a database and a bucket, which no server and no worker uses, to the state directory `home`, which does not exist or is
/// empty. The source is not changed.
///
/// # Errors
/// Returns every kind of `MigrationError`. A directory that was written stays marked, and can be given again.
pub fn migrate_to_directory(
    source: &SharedStores,
    home: &Path,
    progress: &dyn Fn(MigrationProgress),
) -> Result<MigrationReport, MigrationError> {
    let database = open_source(source)?;
    check_unused(&database)?;
    check_no_active_jobs(database.records())?;
    let newest = database.records().newest_event_sequence()?;
    let texts = documents::read_documents(database.records(), source.key.as_ref())?;
    let home = create_target(home)?;
    let _lock = home.lock()?;
    let report = copy(source, &database, &home, texts, false, progress)?;
    check_unused(&database)?;
    if database.records().newest_event_sequence()? != newest {
        return Err(MigrationError::SourceChanged);
    }
    complete(&home)?;
    Ok(report)
}

/// Opens the database without changing it.
fn open_source(source: &SharedStores) -> Result<RecordsDatabase, MigrationError> {
    let inspection = records::inspect_database(&source.database)?;
    let (found, expected) = (inspection.schema.unwrap_or(0), inspection.schema_newest);
    if found != expected {
        return Err(MigrationError::OtherSchema { place: inspection.database, found, expected });
    }
    let database = RecordsDatabase::open_url(&source.database)?;
    records::check_is_complete(database.records(), &inspection.database)?;
    source.objects.wait(|objects| async move { objects.check_is_complete().await })?;
    Ok(database)
}

/// Returns an error if a server or a worker was seen lately. Those that end remove their rows.
fn check_unused(database: &RecordsDatabase) -> Result<(), MigrationError> {
    let hosts = database.records().hosts()?;
    let hosts: Vec<String> =
        hosts.into_iter().filter(|host| host.state != HostState::Lost).map(|host| host.name).collect();
    if hosts.is_empty() { Ok(()) } else { Err(MigrationError::SourceInUse { hosts }) }
}

/// Creates the directory and marks it. What an interrupted attempt left is removed.
fn create_target(home: &Path) -> Result<StateDir, MigrationError> {
    let home = std::path::absolute(home).map_err(StoreError::io(home))?;
    let mark = home.join(MIGRATION_MARK);
    let entries = super::directory_content::list(&home)?;
    if let Some(first) = entries.first().filter(|_| !mark.exists()) {
        let what =
            format!("{} has {} files and directories, such as {}", home.display(), entries.len(), first.display());
        return Err(MigrationError::NotEmpty { what });
    }
    durable::create_directories(&home).map_err(StoreError::io(&home))?;
    durable::replace(&mark, b"{}\n").map_err(StoreError::io(&mark))?;
    for path in entries.iter().filter(|path| **path != mark) {
        let removed =
            if path.is_dir() && !path.is_symlink() { disk::remove_tree(path) } else { disk::remove_file(path) };
        removed.map_err(StoreError::io(path))?;
    }
    Ok(StateDir::open_incomplete(home)?)
}

/// Copies a database and a bucket, which servers use meanwhile, to the new state directory `home`. It has the state of one
/// instant: a server that is started with it behaves as one that was killed then.
///
/// # Errors
/// The same as [`migrate_to_directory`].
pub fn export_live(
    source: &SharedStores,
    home: &Path,
    progress: &dyn Fn(MigrationProgress),
) -> Result<MigrationReport, MigrationError> {
    let database = open_source(source)?;
    // Before the versions that they name.
    let texts = documents::read_documents(database.records(), source.key.as_ref())?;
    let home = create_target(home)?;
    let report = copy(source, &database, &home, texts, true, progress)?;
    complete(&home)?;
    Ok(report)
}

fn complete(home: &StateDir) -> Result<(), StoreError> {
    let mark = home.root().join(MIGRATION_MARK);
    disk::remove_file(&mark).map_err(StoreError::io(&mark))?;
    disk::sync_directory(home.root()).map_err(StoreError::io(home.root()))
}

fn copy(
    source: &SharedStores,
    database: &RecordsDatabase,
    home: &StateDir,
    texts: documents::DocumentTexts,
    is_live: bool,
    progress: &dyn Fn(MigrationProgress),
) -> Result<MigrationReport, MigrationError> {
    let (bucket, root) = (&source.objects, home.root());
    let (mut ledger, rows) = (ContentLedger::default(), RowCounter::new(progress));
    let write = |plan: &ContentPlan, ledger: &mut ContentLedger| {
        let (mut bytes, bytes_total) = (0, plan.bytes());
        file_copy::write(bucket, root, plan, is_live, ledger, &mut |more| {
            bytes += more;
            progress(MigrationProgress::Content { is_verification: false, bytes, bytes_total });
        })
    };
    // Before the records, so that a job has a checkpoint of before.
    live_content::copy_checkpoints(bucket, root, &mut ledger, &write)?;
    let target = RecordsDatabase::open_file(&home.database())?;
    let tables = database.copy_to(&target, &|more| rows.add(false, more))?;
    // The lines before the objects that they become.
    let recorded = database.recorded_logs()?;
    let plan = bucket_content::plan(bucket, BucketPart::Rest, &recorded)?;
    let gone = write(&plan, &mut ledger)?;
    live_content::remove_incomplete_versions(root, &gone, &mut ledger)?;
    documents::write_files(home, &texts)?;
    check_tables(&tables, &target.digests(&|more| rows.add(true, more))?)?;
    documents::check(&texts, &documents::read_files(home, source.key.as_ref())?)?;
    let (mut bytes, bytes_total) = (0, ledger.bytes());
    file_copy::verify(root, &ledger, &mut |more| {
        bytes += more;
        progress(MigrationProgress::Content { is_verification: true, bytes, bytes_total });
    })?;
    Ok(MigrationReport { tables, content: ledger.count(), left: plan.left })
}
