//! Opens a stored version: verifies every byte and maps the columns.
//!
//! Every opening reads the files in pieces and verifies them. This detects data that the disk has lost since, which a
//! record of an earlier check could not, and leaves no copy in the process. The file that was verified is the one that
//! is mapped, not a file opened again by name.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::manifest::{DatasetManifest, MANIFEST_FILE, ManifestColumn};
use super::map::ColumnBytes;
use super::{ColumnarDataset, LoadedDataset};
use crate::digest::Digest;
use crate::error::{DatasetError, FileProblem, StoreError};
use crate::regular_file;

impl ColumnarDataset {
    /// Opens a version's directory and verifies every byte. It remains readable while this exists, even if the version
    /// is removed.
    ///
    /// # Errors
    /// Returns `NotFound`; `Damaged` naming the file; `Store`.
    pub fn open(dir: &Path) -> Result<ColumnarDataset, DatasetError> {
        ColumnarDataset::open_pinned(dir, None)
    }

    /// Opens a version's directory as [`open`](Self::open) does, and drops `pin` with the dataset.
    pub(super) fn open_pinned(dir: &Path, pin: Option<File>) -> Result<ColumnarDataset, DatasetError> {
        let manifest = DatasetManifest::read(dir)?;
        let columns = manifest.columns.iter().map(|column| open(dir, column)).collect::<Result<_, _>>()?;
        let (digest, fields, splits) = (manifest.digest(), manifest.fields(), manifest.splits());
        Ok(ColumnarDataset(Arc::new(LoadedDataset {
            fields,
            columns,
            splits,
            items: manifest.items,
            digest,
            _pin: pin,
        })))
    }
}

fn open(dir: &Path, column: &ManifestColumn) -> Result<ColumnBytes, DatasetError> {
    let path = dir.join(&column.file);
    let damaged = |problem| DatasetError::Damaged { file: path.clone(), problem };
    let file = match regular_file::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The version was removed after its manifest was read.
            if !dir.join(MANIFEST_FILE).exists() {
                return Err(DatasetError::NotFound { kind: "dataset", name: dir.display().to_string() });
            }
            return Err(damaged(FileProblem::Missing));
        }
        Err(error) => return Err(StoreError::io(&path)(error).into()),
    };
    let (digest, bytes) = Digest::of_reader(&file).map_err(StoreError::io(&path))?;
    if bytes != column.bytes {
        return Err(damaged(FileProblem::WrongSize { expected: column.bytes, found: bytes }));
    }
    if digest != column.sha256 {
        return Err(damaged(FileProblem::WrongDigest { expected: column.sha256, found: digest }));
    }
    Ok(ColumnBytes::map(&file).map_err(StoreError::io(&path))?)
}
