//! `saggar data export`: writes a version as files into a new directory.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use saggar_store::limits::UPLOAD_BYTES_MAX;
use serde::Serialize;

use crate::args::DataExportArgs;
use crate::atomic_file;
use crate::client::{ApiClient, encode_path_segment};
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::progress::ProgressDisplay;

/// A version in a directory as JSON.
#[derive(Serialize)]
struct ExportedVersion<'a> {
    name: &'a str,
    version: u64,
    dir: String,
    bytes: u64,
}

pub(super) fn export(args: &DataExportArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let versions = super::find_versions(&args.dataset, client)?;
    // `find_versions` returns at least one.
    let Some(newest) = versions.last() else { return Ok(()) };
    let name = newest.name.as_str();
    let dir = args.output.clone().unwrap_or_else(|| PathBuf::from(name));
    check_destination(&dir)?;
    let (bytes, body) =
        client.download(&format!("/api/v1/datasets/{}/{}/export", encode_path_segment(name), newest.version))?;
    let part = atomic_file::partial_path(&dir);
    let written = |error: io::Error| CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", part.display()));
    std::fs::create_dir_all(&part).map_err(written)?;
    let progress = ProgressDisplay::for_bytes("fetching", bytes, output);
    let unpacked =
        saggar_store::archive::unpack_tar(ProgressReader { reader: body, progress }, name, &part, UPLOAD_BYTES_MAX)
            .map_err(|error| CliError::new(exit::UNEXPECTED, "broken_answer", error.to_string()))
            // The rename replaces an empty directory.
            .and_then(|bytes| std::fs::rename(&part, &dir).map(|()| bytes).map_err(written));
    if unpacked.is_err() {
        let _ = std::fs::remove_dir_all(&part);
    }
    let bytes = unpacked?;
    if output.json {
        let dir = dir.display().to_string();
        output.print_json(&ExportedVersion { name: &newest.name, version: newest.version, dir, bytes });
    } else {
        output.print_line(&dir.display().to_string());
        output.print_note(&format!("  {}, {} items", super::version_reference(newest), newest.items));
    }
    Ok(())
}

/// Rejects a directory that is not empty, so that nothing is overwritten. A relative location such as `.` is rejected
/// too, because the result is renamed to the destination, and such a path cannot be the target of a rename.
fn check_destination(dir: &Path) -> Result<(), CliError> {
    if dir.file_name().is_none() {
        let message = format!("{} cannot be the name of a new directory", dir.display());
        return Err(CliError::invalid(message).with_hint("name the directory to create with --output DIR"));
    }
    let empty = match dir.read_dir() {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(_) => false,
    };
    if empty {
        return Ok(());
    }
    Err(CliError::new(exit::CONFLICT, "exists", format!("{} is there already", dir.display()))
        .with_hint("name another directory with --output DIR"))
}

/// A reader that reports progress.
struct ProgressReader<R> {
    reader: R,
    progress: ProgressDisplay,
}

impl<R: Read> Read for ProgressReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buffer)?;
        self.progress.advance(n as u64);
        Ok(n)
    }
}
