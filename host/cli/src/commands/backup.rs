//! `saggar backup` and `saggar restore`: a state directory in one file.

use std::path::{Path, PathBuf};

use saggar_clock::{Clock, SystemClock};
use saggar_store::StateDir;
use saggar_store::backup::{self, BackupError, BackupSummary};
use serde::Serialize;

use super::migrate;
use crate::args::{BackupArgs, DatabaseUrl, RestoreArgs};
use crate::atomic_file;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::units;

/// The result as JSON.
#[derive(Serialize)]
struct BackupResult {
    file: String,
    home: String,
    files: u64,
    bytes: u64,
}

pub(crate) fn back_up(args: &BackupArgs, output: CliOutput) -> Result<(), CliError> {
    let database = args.stores.database.as_ref().filter(|url| !url.is_empty());
    let objects = args.stores.objects.as_deref().filter(|address| !address.is_empty());
    let (summary, place) = match (database, objects) {
        (Some(database), Some(objects)) => back_up_stores(&args.file, database, objects, output)?,
        (Some(_), None) => {
            let error =
                CliError::new(exit::USAGE, "usage", "--database needs --objects, the bucket of the same servers");
            return Err(error.with_hint("servers that share directories: `pg_dump`, and then copy the directories"));
        }
        (None, _) => back_up_directory(args)?,
    };
    print_result(&args.file, &place, summary, output);
    if !output.json {
        output
            .print_note("It contains secrets, keys and weights in readable form: protect it like the state directory.");
    }
    Ok(())
}

/// Copies a database and a bucket to a state directory beside the file, and that into the file.
fn back_up_stores(
    file: &Path,
    database: &DatabaseUrl,
    objects: &str,
    output: CliOutput,
) -> Result<(BackupSummary, String), CliError> {
    check_is_new(file)?;
    let stores = migrate::open_stores(database, objects)?;
    // A killed command leaves a directory that is marked as incomplete, and that is used again.
    let staging = StagedState(file.with_added_extension("state"));
    migrate::export(&stores, &staging.0, output)?;
    let home =
        StateDir::open(&staging.0).map_err(|error| CliError::new(exit::UNEXPECTED, "home", error.to_string()))?;
    Ok((write_archive(&home, file)?, stores.objects.storage().address().to_owned()))
}

/// A state directory beside the file, which is removed on drop.
struct StagedState(PathBuf);

impl Drop for StagedState {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn back_up_directory(args: &BackupArgs) -> Result<(BackupSummary, String), CliError> {
    if !args.home.join("saggar.db").exists() {
        let message = format!("{} is not a state directory: it has no saggar.db", args.home.display());
        return Err(CliError::new(exit::NOT_FOUND, "no_home", message)
            .with_hint("name it with --home or SAGGAR_HOME; `saggar doctor` lists those of your servers"));
    }
    check_is_new(&args.file)?;
    let home =
        StateDir::open(&args.home).map_err(|error| CliError::new(exit::UNEXPECTED, "home", error.to_string()))?;
    Ok((write_archive(&home, &args.file)?, home.root().display().to_string()))
}

fn check_is_new(file: &Path) -> Result<(), CliError> {
    if !file.exists() {
        return Ok(());
    }
    let message = format!("{} is there already", file.display());
    Err(CliError::new(exit::CONFLICT, "exists", message).with_hint("choose another name"))
}

/// Writes the file under another name first.
fn write_archive(home: &StateDir, file: &Path) -> Result<BackupSummary, CliError> {
    let part = atomic_file::partial_path(file);
    let summary = backup::back_up(home, &part, SystemClock.now_ms()).map_err(|error| backup_error(file, &error))?;
    std::fs::rename(&part, file).map_err(|error| {
        let _ = std::fs::remove_file(&part);
        CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", file.display()))
    })?;
    Ok(summary)
}

pub(crate) fn restore(args: &RestoreArgs, output: CliOutput) -> Result<(), CliError> {
    if !args.file.exists() {
        let message = format!("{} does not exist", args.file.display());
        return Err(CliError::new(exit::NOT_FOUND, "no_file", message));
    }
    let summary = backup::restore(&args.file, &args.home).map_err(|error| backup_error(&args.file, &error))?;
    print_result(&args.file, &args.home.display().to_string(), summary, output);
    if !output.json {
        let home = args.home.display();
        output.print_note(&format!("Next: saggar doctor --home {home} | saggar serve --home {home}"));
    }
    Ok(())
}

fn print_result(file: &Path, home: &str, summary: BackupSummary, output: CliOutput) {
    let BackupSummary { files, bytes } = summary;
    let (file, home) = (file.display().to_string(), home.to_owned());
    if output.json {
        output.print_json(&BackupResult { file, home, files, bytes });
        return;
    }
    output.print_line(&file);
    output.print_note(&format!("  {files} files, {}; state directory {home}", units::format_bytes(bytes)));
}

fn backup_error(file: &Path, error: &BackupError) -> CliError {
    let message = match error {
        BackupError::NotEmpty { .. } | BackupError::Store(_) => error.to_string(),
        _ => format!("{}: {error}", file.display()),
    };
    match error {
        BackupError::NotEmpty { .. } => {
            CliError::new(exit::CONFLICT, "not_empty", message).with_hint("restore to a new directory: --home DIR")
        }
        BackupError::Malformed { .. } | BackupError::OtherFormat { .. } => {
            CliError::new(exit::INVALID, "bad_backup", message).with_hint("nothing was restored")
        }
        _ => CliError::new(exit::UNEXPECTED, "backup", message),
    }
}
