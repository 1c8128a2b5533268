//! The content of a dataset version's `manifest.json`.

use std::fs;
use std::io;
use std::path::Path;

use saggar_clock::UnixMillis;
use saggar_tensor::Descriptor;
use serde::{Deserialize, Serialize};

use super::{DatasetField, DatasetSplit};
use crate::digest::{Digest, Sha256Hasher};
use crate::error::{DatasetError, FileProblem, StoreError};
use crate::limits::MANIFEST_BYTES_MAX;
use crate::regular_file;
use crate::versions::ManifestSource;

pub(super) const MANIFEST_FILE: &str = "manifest.json";
pub(crate) const FORMAT: u64 = 1;

/// A field and the file of its column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ManifestColumn {
    pub(super) name: String,
    #[serde(with = "crate::tensor_text")]
    pub(super) item: Descriptor,
    pub(super) classes: Vec<String>,
    pub(super) file: String,
    pub(super) bytes: u64,
    pub(super) sha256: Digest,
}

/// The name, first item, and end (exclusive) of a split.
pub(super) type SplitRange = (String, u64, u64);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DatasetManifest {
    pub(super) format: u64,
    pub(super) items: u64,
    pub(super) columns: Vec<ManifestColumn>,
    pub(super) splits: Vec<SplitRange>,
    pub(super) description: String,
    /// Messages about the import, which do not change the digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    pub(super) created_ms: UnixMillis,
    /// Identifier of the upload that it was imported from.
    pub(super) source: Option<Digest>,
}

impl DatasetManifest {
    /// Returns the digest over the content, which does not include times.
    pub(super) fn digest(&self) -> Digest {
        let mut hasher = Sha256Hasher::new();
        hasher.update_u64(self.items);
        hasher.update_u64(self.columns.len() as u64);
        for column in &self.columns {
            hasher.update_field(column.name.as_bytes());
            hasher.update_field(column.item.to_string().as_bytes());
            hasher.update_u64(column.classes.len() as u64);
            column.classes.iter().for_each(|class| hasher.update_field(class.as_bytes()));
            hasher.update(column.sha256.bytes());
        }
        for (name, start, end) in &self.splits {
            hasher.update_field(name.as_bytes());
            hasher.update_u64(*start);
            hasher.update_u64(*end);
        }
        hasher.finish()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("strings and numbers can always be written")
    }

    /// Reads and validates a version's manifest. Afterwards, file names are plain names, and columns and splits match
    /// the number of items.
    pub(super) fn read(dir: &Path) -> Result<DatasetManifest, DatasetError> {
        let file = dir.join(MANIFEST_FILE);
        let damaged = |problem| DatasetError::Damaged { file: file.clone(), problem };
        if !dir.is_dir() {
            let name = dir.display().to_string();
            return Err(DatasetError::NotFound { kind: "dataset", name });
        }
        let text = match fs::metadata(&file) {
            Ok(meta) if meta.len() <= MANIFEST_BYTES_MAX => regular_file::read(&file, MANIFEST_BYTES_MAX),
            Ok(meta) => {
                let reason = format!("it has {} bytes", meta.len());
                return Err(damaged(FileProblem::Unreadable { reason }));
            }
            Err(error) => Err(error),
        };
        let text = match text {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(FileProblem::Missing));
            }
            Err(error) => return Err(StoreError::io(&file)(error).into()),
        };
        DatasetManifest::decode(&file, &text)
    }

    /// Reads and validates a version's manifest, wherever it is, as [`read`](Self::read) does.
    pub(super) fn read_from(source: &ManifestSource) -> Result<DatasetManifest, DatasetError> {
        match source {
            ManifestSource::Directory(dir) => DatasetManifest::read(dir),
            ManifestSource::Text { path, text } => DatasetManifest::decode(path, text.as_bytes()),
        }
    }

    /// Validates the content of a manifest's file.
    fn decode(file: &Path, text: &[u8]) -> Result<DatasetManifest, DatasetError> {
        let damaged = |problem| DatasetError::Damaged { file: file.to_owned(), problem };
        let unreadable = |reason: String| damaged(FileProblem::Unreadable { reason });
        let manifest: DatasetManifest = serde_json::from_slice(text).map_err(|error| unreadable(error.to_string()))?;
        if manifest.format != FORMAT {
            let (found, expected) = (manifest.format, FORMAT);
            return Err(damaged(FileProblem::OtherFormat { found, expected }));
        }
        manifest.validate().map_err(unreadable)?;
        Ok(manifest)
    }

    fn validate(&self) -> Result<(), String> {
        for column in &self.columns {
            let expected = (column.item.bytes() as u64).checked_mul(self.items);
            if expected != Some(column.bytes) {
                return Err(format!("column {} does not hold {} items", column.name, self.items));
            }
            if column.file != file_name(&column.name) {
                return Err(format!("column {} lies in `{}`", column.name, column.file));
            }
        }
        match self.splits.iter().find(|(_, start, end)| start > end || *end > self.items) {
            Some((name, start, end)) => Err(format!("split {name} is {start}..{end} of {} items", self.items)),
            None => Ok(()),
        }
    }

    pub(super) fn fields(&self) -> Vec<DatasetField> {
        let field = |column: &ManifestColumn| DatasetField {
            name: column.name.clone(),
            item: column.item.clone(),
            classes: column.classes.clone(),
        };
        self.columns.iter().map(field).collect()
    }

    pub(super) fn splits(&self) -> Vec<DatasetSplit> {
        let split = |(name, start, end): &SplitRange| DatasetSplit { name: name.clone(), items: *start..*end };
        self.splits.iter().map(split).collect()
    }
}

/// Returns the file name of a column. Import checks field names, so this contains no path separators.
pub(super) fn file_name(field: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    format!("{}.bin", field.replace(|c| !plain(c), "_"))
}
