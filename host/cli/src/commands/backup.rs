//! `saggar backup` and `saggar restore`: a state directory in one file.

use std::path::Path;

use saggar_clock::{Clock, SystemClock};
use saggar_store::StateDir;
use saggar_store::backup::{self, BackupError, BackupSummary};
use serde::Serialize;

use crate::args::{BackupArgs, RestoreArgs};
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
    if !args.home.join("saggar.db").exists() {
        let message = format!("{} is not a state directory: it has no saggar.db", args.home.display());
        return Err(CliError::new(exit::NOT_FOUND, "no_home", message)
            .with_hint("name it with --home or SAGGAR_HOME; `saggar doctor` lists those of your servers"));
    }
    if args.file.exists() {
        let message = format!("{} is there already", args.file.display());
        return Err(CliError::new(exit::CONFLICT, "exists", message).with_hint("choose another name"));
    }
    let home =
        StateDir::open(&args.home).map_err(|error| CliError::new(exit::UNEXPECTED, "home", error.to_string()))?;
    let part = atomic_file::partial_path(&args.file);
    let summary =
        backup::back_up(&home, &part, SystemClock.now_ms()).map_err(|error| backup_error(&args.file, &error))?;
    std::fs::rename(&part, &args.file).map_err(|error| {
        let _ = std::fs::remove_file(&part);
        CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", args.file.display()))
    })?;
    print_result(&args.file, home.root(), summary, output);
    if !output.json {
        output
            .print_note("It contains secrets, keys and weights in readable form: protect it like the state directory.");
    }
    Ok(())
}

pub(crate) fn restore(args: &RestoreArgs, output: CliOutput) -> Result<(), CliError> {
    if !args.file.exists() {
        let message = format!("{} does not exist", args.file.display());
        return Err(CliError::new(exit::NOT_FOUND, "no_file", message));
    }
    let summary = backup::restore(&args.file, &args.home).map_err(|error| backup_error(&args.file, &error))?;
    print_result(&args.file, &args.home, summary, output);
    if !output.json {
        let home = args.home.display();
        output.print_note(&format!("Next: saggar doctor --home {home} | saggar serve --home {home}"));
    }
    Ok(())
}

fn print_result(file: &Path, home: &Path, summary: BackupSummary, output: CliOutput) {
    let BackupSummary { files, bytes } = summary;
    let (file, home) = (file.display().to_string(), home.display().to_string());
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
