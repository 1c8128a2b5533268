//! Writes files of a state directory, and compares what is there with what was written.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::MigrationError;
use super::content::{ContentKind, ContentLedger, ContentPlan, ContentSource};
use super::object_copy::check;
use crate::digest::{Digest, Sha256Hasher};
use crate::durable::{self, disk};
use crate::error::StoreError;
use crate::objects::BlockingObjects;

/// The permissions of files of models, less the umask: the directory of models can be anywhere.
const MODEL_FILE_MODE: u32 = 0o666;

/// Writes the files of a plan below `root`, and records each in the ledger. Files of the ledger are not written again. Returns the
/// files whose objects were removed meanwhile, of which nothing is left, if `is_live`.
///
/// # Errors
/// Returns any error of the files and the store.
pub(super) fn write(
    bucket: &BlockingObjects,
    root: &Path,
    plan: &ContentPlan,
    is_live: bool,
    ledger: &mut ContentLedger,
    done: &mut dyn FnMut(u64),
) -> Result<Vec<String>, StoreError> {
    let (mut directories, mut gone): (BTreeSet<PathBuf>, Vec<String>) = (BTreeSet::new(), Vec::new());
    for item in plan.items.iter().filter(|item| !ledger.0.contains_key(&item.target)).collect::<Vec<_>>() {
        let path = root.join(&item.target);
        let directory = path.parent().unwrap_or(root);
        if !directories.contains(directory) {
            durable::create_directories_below(root, directory).map_err(StoreError::io(directory))?;
            directories.extend(directory.ancestors().take_while(|it| it.starts_with(root)).map(Path::to_owned));
        }
        let mode = if item.kind == ContentKind::Models { MODEL_FILE_MODE } else { durable::PRIVATE_FILE_MODE };
        let file = disk::create_file(&path, mode).map_err(StoreError::io(&path))?;
        let written = write_pieces(bucket, &file, &path, &item.pieces, done);
        match written {
            Ok(written) => {
                disk::sync(&file, &path).map_err(StoreError::io(&path))?;
                ledger.0.insert(item.target.clone(), (item.kind, written.0, written.1));
            }
            Err(StoreError::NotFound { .. }) if is_live => {
                disk::remove_file(&path).map_err(StoreError::io(&path))?;
                gone.push(item.target.clone());
            }
            Err(error) => return Err(error),
        }
    }
    directories.iter().try_for_each(|directory| disk::sync_directory(directory).map_err(StoreError::io(directory)))?;
    Ok(gone)
}

/// Writes the pieces of one file, and returns its bytes and its digest.
fn write_pieces(
    bucket: &BlockingObjects,
    file: &File,
    path: &Path,
    pieces: &[ContentSource],
    done: &mut dyn FnMut(u64),
) -> Result<(u64, Digest), StoreError> {
    let (mut hasher, mut bytes) = (Sha256Hasher::new(), 0);
    for piece in pieces {
        let content = piece.read(bucket)?;
        hasher.update(&content);
        bytes += content.len() as u64;
        disk::write(file, path, &content).map_err(StoreError::io(path))?;
        done(content.len() as u64);
    }
    Ok((bytes, hasher.finish()))
}

/// Reads every file and compares it with the ledger.
///
/// # Errors
/// Returns `Differs`; `Store`.
pub(super) fn verify(root: &Path, ledger: &ContentLedger, done: &mut dyn FnMut(u64)) -> Result<(), MigrationError> {
    for (target, (_, bytes, sha256)) in &ledger.0 {
        let path = root.join(target);
        let found = match Digest::of_file(&path) {
            Ok((sha256, bytes)) => Some((bytes, sha256)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(StoreError::io(&path)(error).into()),
        };
        check(&format!("file {}", path.display()), (*bytes, *sha256), found)?;
        done(*bytes);
    }
    Ok(())
}
