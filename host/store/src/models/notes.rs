//! Small files beside a model's versions, such as its settings.

use std::io;
use std::path::{Path, PathBuf};

use super::ModelRegistry;
use crate::durable;
use crate::error::{ModelError, StoreError};
use crate::{regular_file, versions};

/// Limit on the bytes of a file beside a model's versions.
pub const NOTE_BYTES_MAX: u64 = 16 << 20;

impl ModelRegistry {
    /// Reads a small file beside a model's versions. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// Returns `BadName`; `Store` if it exists and cannot be read, or has more than [`NOTE_BYTES_MAX`] bytes.
    pub fn read_note(&self, model: &str, file: &str) -> Result<Option<Vec<u8>>, ModelError> {
        let path = self.note_path(model, file)?;
        match regular_file::read(&path, NOTE_BYTES_MAX) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io(&path)(error).into()),
        }
    }

    /// Replaces a small file beside a model's versions, in one durable step. A file that servers have in common is replaced
    /// for all of them.
    ///
    /// # Errors
    /// Returns `BadName`; `Store`; `ChangedElsewhere` or `Records` for a shared file.
    pub fn write_note(&self, model: &str, file: &str, bytes: &[u8]) -> Result<(), ModelError> {
        let path = self.note_path(model, file)?;
        self.replace_shared_note(model, file, bytes)?;
        let directory = path.parent().unwrap_or(Path::new("."));
        durable::create_directories_below(&self.dir, directory).map_err(StoreError::io(directory))?;
        durable::replace_shared(&path, bytes).map_err(StoreError::io(&path))?;
        Ok(())
    }

    fn note_path(&self, model: &str, file: &str) -> Result<PathBuf, ModelError> {
        // The file must be beside the versions, not in one of them or elsewhere.
        let plain = !file.starts_with('.') && Path::new(file).components().count() == 1 && !file.contains('\\');
        if !versions::is_name(model) || !plain {
            let name = if plain { model } else { file };
            return Err(ModelError::BadName { name: name.to_owned() });
        }
        Ok(self.dir.join(model).join(file))
    }
}
