//! `saggar data get`: a version as files, in a directory of their own.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use saggar_store::archive;
use saggar_store::limits::UPLOAD_BYTES_MAX;
use serde_json::json;

use crate::args::DataGet;
use crate::client::{Client, segment};
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::partial;
use crate::progress::Progress;

pub(super) fn get(args: &DataGet, client: &Client, output: Output) -> Result<(), Failure> {
    let versions = super::versions(&args.dataset, client)?;
    // Some last one is always there.
    let Some(newest) = versions.last() else { return Ok(()) };
    let name = newest["name"].as_str().unwrap_or_default();
    let dir = args.output.clone().unwrap_or_else(|| PathBuf::from(name));
    refuse_full(&dir)?;
    let (bytes, body) = client.download(&format!("/api/v1/datasets/{}/{}/export", segment(name), newest["version"]))?;
    let part = partial::beside(&dir);
    let written = |error: io::Error| Failure::new(exit::UNEXPECTED, "write", format!("{}: {error}", part.display()));
    std::fs::create_dir_all(&part).map_err(written)?;
    let progress = Progress::of_bytes("fetching", bytes, output);
    let unpacked = archive::unpack_tar(Counted { reader: body, progress }, name, &part, UPLOAD_BYTES_MAX)
        .map_err(|error| Failure::new(exit::UNEXPECTED, "broken_answer", error.to_string()))
        // An empty directory in its place gives way.
        .and_then(|bytes| std::fs::rename(&part, &dir).map(|()| bytes).map_err(written));
    if unpacked.is_err() {
        let _ = std::fs::remove_dir_all(&part);
    }
    let bytes = unpacked?;
    if output.json {
        let (name, version) = (&newest["name"], &newest["version"]);
        output.json(&json!({ "name": name, "version": version, "dir": dir.display().to_string(), "bytes": bytes }));
    } else {
        output.line(&dir.display().to_string());
        output.note(&format!("  {}, {} items", super::reference(newest), newest["items"]));
    }
    Ok(())
}

/// Refuses a directory that holds something: nothing is written over. One that is named by where it is, such as `.`, is
/// refused too: what is fetched takes its place, and nothing can take that one's.
fn refuse_full(dir: &Path) -> Result<(), Failure> {
    if dir.file_name().is_none() {
        let message = format!("{} is no name for a directory of its own", dir.display());
        return Err(Failure::invalid(message).hint("name a directory that is to be made with --output DIR"));
    }
    let empty = match dir.read_dir() {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(_) => false,
    };
    if empty {
        return Ok(());
    }
    Err(Failure::new(exit::CONFLICT, "exists", format!("{} is there already", dir.display()))
        .hint("name another directory with --output DIR"))
}

/// A reader that shows how far it has come.
struct Counted<R> {
    reader: R,
    progress: Progress,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buffer)?;
        self.progress.advance(n as u64);
        Ok(n)
    }
}
