//! The files beside a model's versions that all servers of a database have in common: its configuration, and its desired
//! state with aliases and traffic.
//!
//! A document of the records is the truth, and the file is a copy. A change replaces the document only at the revision that
//! this server has copied, so of two servers that change it at the same time, one is refused. An empty document means that
//! there is no file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ModelRegistry;
use crate::durable::{self, disk};
use crate::error::{ModelError, RecordError, StoreError};
use crate::records::{DocumentRecords, RecordedDocument};
use crate::versions;

/// The files that are shared.
const SHARED_FILES: [&str; 2] = ["model.json", "serving.json"];
/// The beginning of the documents' names.
const PREFIX: &str = "models/";

/// The shared files of all models.
#[derive(Debug)]
pub(super) struct SharedNotes {
    records: Arc<dyn DocumentRecords>,
    /// The revision of each document that was copied to its file.
    copied: Mutex<BTreeMap<String, u64>>,
}

impl SharedNotes {
    /// Returns the document of a file, or `None` for a file that is not shared.
    fn document_name(model: &str, file: &str) -> Option<String> {
        SHARED_FILES.contains(&file).then(|| format!("{PREFIX}{model}/{file}"))
    }
}

fn records_error(error: RecordError) -> ModelError {
    ModelError::Records(Box::new(error))
}

impl ModelRegistry {
    /// Makes the configuration and the desired state of each model documents of these records.
    #[must_use]
    pub fn with_shared_notes(self, records: Arc<dyn DocumentRecords>) -> ModelRegistry {
        ModelRegistry { shared_notes: Some(Arc::new(SharedNotes { records, copied: Mutex::default() })), ..self }
    }

    /// Returns whether other servers can change the configuration and the desired state of a model.
    pub fn shares_notes(&self) -> bool {
        self.shared_notes.is_some()
    }

    /// Copies the documents that other servers have changed to their files, and makes files that nobody has shared yet
    /// documents. Returns whether a file has changed. Does nothing if they are not shared.
    ///
    /// # Errors
    /// Returns `Records`; `Store`.
    pub fn synchronize_notes(&self) -> Result<bool, ModelError> {
        let Some(shared) = &self.shared_notes else { return Ok(false) };
        let revisions = shared.records.document_revisions(PREFIX).map_err(records_error)?;
        let mut is_changed = false;
        for (name, revision) in &revisions {
            if shared.copied.lock().get(name).is_none_or(|copied| copied < revision) {
                is_changed |= self.copy_document(shared, name)?;
            }
        }
        for model in self.names()? {
            for file in SHARED_FILES {
                let Some(name) = SharedNotes::document_name(&model, file) else { continue };
                if revisions.contains_key(&name) || shared.copied.lock().contains_key(&name) {
                    continue;
                }
                let Some(bytes) = self.read_note(&model, file)? else { continue };
                let text = String::from_utf8_lossy(&bytes);
                if shared.records.replace_document(&name, 0, &text).map_err(records_error)? {
                    shared.copied.lock().insert(name, 1);
                }
            }
        }
        Ok(is_changed)
    }

    /// Copies one document to its file, and returns whether the file has changed.
    ///
    /// # Errors
    /// The same as [`ModelRegistry::synchronize_notes`].
    pub fn refresh_note(&self, model: &str, file: &str) -> Result<bool, ModelError> {
        match (&self.shared_notes, SharedNotes::document_name(model, file)) {
            (Some(shared), Some(name)) => self.copy_document(shared, &name),
            _ => Ok(false),
        }
    }

    /// Replaces the document of a file, if it is shared. Returns whether it is.
    ///
    /// # Errors
    /// Returns `ChangedElsewhere` if another server was faster; `Records`.
    pub(super) fn replace_shared_note(&self, model: &str, file: &str, bytes: &[u8]) -> Result<bool, ModelError> {
        let (Some(shared), Some(name)) = (&self.shared_notes, SharedNotes::document_name(model, file)) else {
            return Ok(false);
        };
        let revision = shared.copied.lock().get(&name).copied().unwrap_or(0);
        let text = String::from_utf8_lossy(bytes);
        if !shared.records.replace_document(&name, revision, &text).map_err(records_error)? {
            return Err(ModelError::ChangedElsewhere { model: model.to_owned() });
        }
        shared.copied.lock().insert(name, revision + 1);
        Ok(true)
    }

    /// Removes the shared files of a model for all servers.
    pub(super) fn remove_shared_notes(&self, model: &str) -> Result<(), ModelError> {
        for file in SHARED_FILES {
            self.refresh_note(model, file)?;
            if self.shares_notes() && self.read_note(model, file)?.is_some() {
                self.replace_shared_note(model, file, b"")?;
            }
        }
        Ok(())
    }

    fn copy_document(&self, shared: &SharedNotes, name: &str) -> Result<bool, ModelError> {
        let Some((model, file)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('/')) else {
            return Ok(false);
        };
        if !versions::is_name(model) || !SHARED_FILES.contains(&file) {
            return Ok(false);
        }
        let after = shared.copied.lock().get(name).copied().unwrap_or(0);
        let Some(newest) = shared.records.document(name, after).map_err(records_error)? else { return Ok(false) };
        let is_changed = self.write_copy(&self.dir.join(model).join(file), &newest)?;
        shared.copied.lock().insert(name.to_owned(), newest.revision);
        Ok(is_changed)
    }

    fn write_copy(&self, path: &Path, newest: &RecordedDocument) -> Result<bool, ModelError> {
        let directory = path.parent().unwrap_or(path);
        if newest.text.is_empty() {
            let is_removed = path.exists();
            if is_removed {
                disk::remove_file(path).map_err(StoreError::io(path))?;
            }
            return Ok(is_removed);
        }
        if disk::read(path).is_ok_and(|it| it == newest.text.as_bytes()) {
            return Ok(false);
        }
        durable::create_directories_below(&self.dir, directory).map_err(StoreError::io(directory))?;
        durable::replace_shared(path, newest.text.as_bytes()).map_err(StoreError::io(path))?;
        Ok(true)
    }
}
