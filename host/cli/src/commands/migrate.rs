//! `saggar migrate`: from a state directory to a database and a bucket that servers share, and back.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use saggar_store::migration::{
    self, ContentCount, ContentLeft, MigrationError, MigrationProgress, MigrationReport, SharedStores,
};
use saggar_store::{BlockingObjects, ObjectStorage, RecordError, StateDir, StoreError};
use serde::Serialize;

use super::serve::object_storage::{requests_runtime, store_error};
use super::serve::shared_records::sealing_key;
use crate::args::{DATABASE_URL_VARIABLE, DatabaseUrl, MigrateArgs, MigrationAddress};
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::progress::ProgressDisplay;
use crate::units;

/// The variable with the address of the bucket.
const OBJECTS_VARIABLE: &str = "SAGGAR_OBJECTS";

/// A place that has a whole state.
enum StatePlace {
    Directory(PathBuf),
    Shared(SharedStores),
}

/// The result as JSON.
#[derive(Serialize)]
struct MigrationResult<'a> {
    from: String,
    to: String,
    tables: Vec<TableResult>,
    content: &'a [ContentCount],
    left: &'a [ContentLeft],
}

#[derive(Serialize)]
struct TableResult {
    table: &'static str,
    rows: u64,
    sha256: String,
}

pub(crate) fn migrate(args: &MigrateArgs, output: CliOutput) -> Result<(), CliError> {
    let (from, to) = (StatePlace::parse("--from", &args.from)?, StatePlace::parse("--to", &args.to)?);
    let (from_name, to_name) = (from.name(), to.name());
    let display = RefCell::new(StageDisplay { output, stage: None, bar: None });
    let progress = |progress: MigrationProgress| display.borrow_mut().show(progress);
    let migrated = match (from, to) {
        (StatePlace::Directory(home), StatePlace::Shared(target)) => {
            let home = open_directory(&home)?;
            migration::migrate_to_shared(&home, &target, &progress)
        }
        (StatePlace::Shared(source), StatePlace::Directory(home)) => {
            migration::migrate_to_directory(&source, &home, &progress)
        }
        (StatePlace::Directory(_), StatePlace::Directory(_)) => {
            let error = CliError::invalid("--from and --to are both directories");
            return Err(error.with_hint("`saggar backup` and `saggar restore` copy a state directory"));
        }
        (StatePlace::Shared(_), StatePlace::Shared(_)) => {
            let error = CliError::invalid("--from and --to are both a database and a bucket");
            return Err(error.with_hint("move them to a directory first: `saggar migrate --to DIR`"));
        }
    };
    drop(display);
    let report = migrated.map_err(|error| migration_error(&error))?;
    print_report(&report, (&from_name, &to_name), output);
    Ok(())
}

impl StatePlace {
    fn parse(option: &str, addresses: &[MigrationAddress]) -> Result<StatePlace, CliError> {
        if let [one] = addresses
            && let Some(directory) = one.as_directory()
        {
            return Ok(StatePlace::Directory(directory));
        }
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (database, objects) = match addresses {
            [] => {
                let database = variable(DATABASE_URL_VARIABLE).and_then(|url| url.parse::<DatabaseUrl>().ok());
                (database.filter(|url| url.as_postgres().is_ok()), variable(OBJECTS_VARIABLE))
            }
            [database, objects] => (database.as_database(), objects.as_objects().map(str::to_owned)),
            _ => (None, None),
        };
        let (Some(database), Some(objects)) = (database, objects) else {
            let message =
                format!("{option}: expected a state directory, or postgres://USER@HOST/DATABASE s3://BUCKET/PREFIX");
            let hint = format!(
                "without {option}, {DATABASE_URL_VARIABLE} and {OBJECTS_VARIABLE} name the database and the bucket"
            );
            return Err(CliError::new(exit::USAGE, "usage", message).with_hint(hint));
        };
        Ok(StatePlace::Shared(open_stores(&database, &objects)?))
    }

    fn name(&self) -> String {
        match self {
            StatePlace::Directory(directory) => directory.display().to_string(),
            StatePlace::Shared(stores) => stores.objects.storage().address().to_owned(),
        }
    }
}

/// Returns the stores at these addresses, without sending a request.
///
/// # Errors
/// Fails if an address or an environment variable is not valid.
pub(super) fn open_stores(database: &DatabaseUrl, objects: &str) -> Result<SharedStores, CliError> {
    let objects = ObjectStorage::open(objects).map_err(store_error)?;
    let objects = BlockingObjects::new(objects, requests_runtime()?);
    let database = database.as_postgres().map_err(CliError::invalid)?.to_owned();
    Ok(SharedStores { database, objects, key: sealing_key()? })
}

/// Copies stores that servers use to a new state directory.
///
/// # Errors
/// Fails as `saggar migrate` does.
pub(super) fn export(stores: &SharedStores, home: &Path, output: CliOutput) -> Result<(), CliError> {
    let display = RefCell::new(StageDisplay { output, stage: None, bar: None });
    let exported = migration::export_live(stores, home, &|progress| display.borrow_mut().show(progress));
    exported.map(drop).map_err(|error| migration_error(&error))
}

/// Opens a directory that exists.
fn open_directory(home: &Path) -> Result<StateDir, CliError> {
    if !home.join("saggar.db").exists() {
        return Err(migration_error(&MigrationError::NoState { home: home.to_owned() }));
    }
    StateDir::open(home).map_err(|error| migration_error(&error.into()))
}

/// Shows the stages one after the other.
struct StageDisplay {
    output: CliOutput,
    stage: Option<&'static str>,
    bar: Option<ProgressDisplay>,
}

impl StageDisplay {
    fn show(&mut self, progress: MigrationProgress) {
        let (stage, done, total) = match progress {
            MigrationProgress::Records { is_verification: false, rows } => ("copying rows of the records", rows, 0),
            MigrationProgress::Records { is_verification: true, rows } => ("comparing rows of the records", rows, 0),
            MigrationProgress::Content { is_verification: false, bytes, bytes_total } => {
                ("copying", bytes, bytes_total)
            }
            MigrationProgress::Content { is_verification: true, bytes, bytes_total } => {
                ("comparing", bytes, bytes_total)
            }
        };
        let output = self.output;
        if self.stage != Some(stage) {
            self.stage = Some(stage);
            // The display of the stage before is removed first.
            self.bar = None;
            self.bar = Some(match total {
                0 => ProgressDisplay::for_steps(stage, output),
                total => ProgressDisplay::for_bytes(stage, total, output),
            });
        }
        if let Some(bar) = &mut self.bar {
            bar.set(done, total.max(done), "");
        }
    }
}

fn print_report(report: &MigrationReport, (from, to): (&str, &str), output: CliOutput) {
    let MigrationReport { tables, content, left } = report;
    if output.json {
        let table = |it: &saggar_store::records::TableDigest| TableResult {
            table: it.table,
            rows: it.rows,
            sha256: it.sha256.hex(),
        };
        let tables = tables.iter().map(table).collect();
        output.print_json(&MigrationResult { from: from.to_owned(), to: to.to_owned(), tables, content, left });
        return;
    }
    let rows = tables.iter().filter(|table| table.rows > 0);
    let mut lines: Vec<Vec<String>> =
        rows.map(|it| vec![it.table.to_owned(), format!("{} rows", it.rows), short(&it.sha256.hex())]).collect();
    lines.extend(content.iter().map(|it| {
        let size = format!("{} in {}", units::format_bytes(it.bytes), it.count);
        vec![it.kind.to_owned(), size, short(&it.sha256.hex())]
    }));
    output.print_table(&["COPIED AND COMPARED", "SIZE", "SHA-256"], &lines);
    for left in left {
        output.print_note(&format!("not copied: {}: {}", left.name, left.reason));
    }
    output.print_note(&format!("Everything in {to} was read back, and equals {from}, which was not changed."));
}

fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}

fn migration_error(error: &MigrationError) -> CliError {
    let (exit, code, hint) = match error {
        MigrationError::NoState { .. } => {
            (exit::NOT_FOUND, "no_home", "name a state directory: `saggar doctor` lists those of your servers")
        }
        MigrationError::IsCopy { .. } => (
            exit::CONFLICT,
            "is_copy",
            "`saggar migrate --from postgres://... s3://... --to DIR` copies what the servers share; if that is over, remove \
             keys.json.shared and models/.mirrored from the directory",
        ),
        MigrationError::ActiveJobs { .. } => (
            exit::CONFLICT,
            "active_jobs",
            "start a server with this state, and end it with Ctrl-C or SIGTERM: its jobs save their state and are queued, \
             and queued jobs are copied; `saggar stop JOB` ends one for good",
        ),
        MigrationError::SourceInUse { .. } => (
            exit::CONFLICT,
            "source_in_use",
            "end them with Ctrl-C or SIGTERM first; one that was killed is forgotten after 25 seconds",
        ),
        MigrationError::SourceChanged => {
            (exit::CONFLICT, "source_changed", "end all servers and workers, and repeat the command")
        }
        MigrationError::NotEmpty { .. } => (
            exit::CONFLICT,
            "not_empty",
            "name an empty directory, a new database (`createdb -E UTF8 -T template0 NAME`) and an unused prefix of a bucket",
        ),
        MigrationError::OtherSchema { found, expected, .. } if found < expected => (
            exit::CONFLICT,
            "other_schema",
            "start `saggar serve` of this version once with these records, which upgrades them, and end it",
        ),
        MigrationError::OtherSchema { .. } => (exit::CONFLICT, "other_schema", "use the newer version that wrote them"),
        MigrationError::NoSecretsKey => (
            exit::INVALID,
            "no_secrets_key",
            "set it to the key of the servers: 64 hexadecimal digits; `openssl rand -hex 32` makes a new one",
        ),
        MigrationError::OtherSecretsKey => {
            (exit::INVALID, "other_secrets_key", "set SAGGAR_SECRETS_KEY to the key of the servers")
        }
        MigrationError::Differs { .. } => (
            exit::UNEXPECTED,
            "differs",
            "repeat the command: it replaces what differs. Nothing opens the destination before it is complete",
        ),
        MigrationError::UnknownDocument { .. } => {
            (exit::INVALID, "unknown_document", "use the version that the servers have")
        }
        _ => failure_of_stores(error),
    };
    CliError::new(exit, code, error.to_string()).with_hint(hint)
}

/// Returns the exit code, the code and the hint of a failure of files, objects or records.
fn failure_of_stores(error: &MigrationError) -> (i32, &'static str, &'static str) {
    match error {
        MigrationError::Store(StoreError::IncompleteMigration { .. })
        | MigrationError::Records(RecordError::IncompleteMigration { .. }) => {
            (exit::CONFLICT, "incomplete_migration", "complete it first: the same `saggar migrate` as before continues")
        }
        MigrationError::Store(StoreError::HomeInUse { .. }) => {
            (exit::CONFLICT, "home_in_use", "end the server, and repeat the command")
        }
        MigrationError::Store(StoreError::Remote { .. }) => (
            exit::UNREACHABLE,
            "object_store_unreachable",
            "`saggar doctor` with the same addresses checks both stores",
        ),
        _ => (
            exit::UNEXPECTED,
            "migration",
            "repeat the command: it continues; `saggar doctor` checks the database and the bucket",
        ),
    }
}
