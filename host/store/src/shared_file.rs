//! Small files that are replaced as a whole, and that servers with the same records have in common.
//!
//! Without shared records, the file is the truth. With them, a document of the records is, and the file is a copy of it:
//! everything on this machine reads the file, so that keys are checked while the database cannot be reached. A change
//! replaces the document and then the file. Other servers copy the document at their next [`SharedFile::refresh`].

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use crate::durable;
use crate::error::{RecordError, StoreError};
use crate::limits::MANIFEST_BYTES_MAX;
use crate::records::{DocumentRecords, RecordedDocument};
use crate::regular_file;

mod sealing_key;

pub use sealing_key::SealingKey;

/// A file that servers can have in common. Clones share the file.
#[derive(Clone, Debug)]
pub struct SharedFile {
    path: PathBuf,
    document: Option<Arc<SharedDocument>>,
}

/// The document that the file is a copy of.
#[derive(Debug)]
struct SharedDocument {
    name: String,
    records: Arc<dyn DocumentRecords>,
    /// The key that the document is sealed with, if it is.
    key: Option<SealingKey>,
    /// The revision that this process has copied to the file, or 0. Changed only while the file's lock is held.
    copied: AtomicU64,
}

/// The reason why a file cannot be shared, refreshed or changed.
#[derive(Debug, Error)]
pub enum SharedFileError {
    /// An error of the file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the records.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// The document is sealed with another key.
    #[error(
        "{document}: the servers of the database seal it with another key; set SAGGAR_SECRETS_KEY to that of the others"
    )]
    OtherKey {
        /// The name of the document.
        document: String,
    },
    /// The file is a copy, and the records are not known.
    #[error(
        "{} is a copy of what the servers of a database have in common: set SAGGAR_DATABASE_URL to that database, or \
         change it through a server",
        path.display()
    )]
    IsCopy {
        /// The file.
        path: PathBuf,
    },
}

impl SharedDocument {
    /// Returns the document if its revision is higher than `after`.
    fn read(&self, after: u64) -> Result<Option<RecordedDocument>, SharedFileError> {
        let document = self.records.document(&self.name, after)?;
        let (Some(document), Some(key)) = (&document, &self.key) else { return Ok(document) };
        let text = key.open(&self.name, &document.text);
        let text = text.ok_or_else(|| SharedFileError::OtherKey { document: self.name.clone() })?;
        Ok(Some(RecordedDocument { revision: document.revision, text }))
    }

    /// Replaces the document if it has this revision. Returns whether it did.
    fn replace(&self, revision: u64, text: &str) -> Result<bool, SharedFileError> {
        match &self.key {
            Some(key) => Ok(self.records.replace_document(&self.name, revision, &key.seal(&self.name, text))?),
            None => Ok(self.records.replace_document(&self.name, revision, text)?),
        }
    }
}

impl SharedFile {
    /// Returns the file at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> SharedFile {
        SharedFile { path: path.into(), document: None }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file a copy of the document `name`. If nobody has created the document, the file becomes it. Otherwise a
    /// file with another content, which was this server's alone, is renamed: `.before-sharing` is added to its name.
    ///
    /// # Errors
    /// Returns `Store`; `Records`.
    pub fn share(self, name: &str, records: Arc<dyn DocumentRecords>) -> Result<SharedFile, SharedFileError> {
        self.share_document(SharedDocument { name: name.to_owned(), records, key: None, copied: AtomicU64::new(0) })
    }

    /// Makes the file a copy of a document as [`share`](Self::share) does. The document is sealed with `key`, the file is not.
    ///
    /// # Errors
    /// The same; `OtherKey`.
    pub fn share_sealed(
        self,
        name: &str,
        records: Arc<dyn DocumentRecords>,
        key: SealingKey,
    ) -> Result<SharedFile, SharedFileError> {
        self.share_document(SharedDocument {
            name: name.to_owned(),
            records,
            key: Some(key),
            copied: AtomicU64::new(0),
        })
    }

    fn share_document(mut self, document: SharedDocument) -> Result<SharedFile, SharedFileError> {
        let _lock = durable::lock_for_update(&self.path)?;
        let own = self.read_text()?.filter(|_| !self.is_copy());
        if let Some(own) = own
            && !document.replace(0, &own)?
            && document.read(0)?.is_none_or(|document| document.text != own)
        {
            let aside = self.path.with_added_extension("before-sharing");
            std::fs::rename(&self.path, &aside).map_err(StoreError::io(&self.path))?;
            let (file, aside) = (self.path.display(), aside.display());
            tracing::warn!(%file, %aside, "the servers of the database have other contents of this file; this server's were renamed");
        }
        durable::replace(&self.copy_marker(), b"").map_err(StoreError::io(&self.path))?;
        if let Some(newest) = document.read(0)? {
            self.copy_document(&document, &newest)?;
        }
        self.document = Some(Arc::new(document));
        Ok(self)
    }

    /// Returns whether the file is a copy of a document.
    pub fn is_shared(&self) -> bool {
        self.document.is_some()
    }

    /// Makes the file the truth again, with the content that it has.
    ///
    /// # Errors
    /// Returns `Store`.
    pub fn stop_sharing(&self) -> Result<(), SharedFileError> {
        let marker = self.copy_marker();
        match std::fs::remove_file(&marker) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(StoreError::io(&marker)(error).into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Copies the document to the file if another server has changed it. Does nothing if the file is not shared.
    ///
    /// # Errors
    /// Returns `Store`; `Records`.
    pub fn refresh(&self) -> Result<(), SharedFileError> {
        let Some(shared) = &self.document else { return Ok(()) };
        // The file is not locked while the database is asked, so that a change does not wait for this.
        let Some(newer) = shared.read(shared.copied.load(Ordering::Acquire))? else {
            return Ok(());
        };
        let _lock = durable::lock_for_update(&self.path)?;
        Ok(self.copy_document(shared, &newer)?)
    }

    /// Changes the content. `change` gets the current one, or `None` without any, and returns the new one; it is called
    /// again if another server was faster.
    ///
    /// # Errors
    /// Returns what `change` returned; `Store`; `Records`; `IsCopy`.
    pub fn update<T, E: From<SharedFileError>>(
        &self,
        mut change: impl FnMut(Option<&str>) -> Result<(String, T), E>,
    ) -> Result<T, E> {
        let store = |error: StoreError| E::from(error.into());
        let _lock = durable::lock_for_update(&self.path).map_err(store)?;
        if self.document.is_none() && self.is_copy() {
            return Err(SharedFileError::IsCopy { path: self.path.clone() }.into());
        }
        loop {
            let (revision, current) = match &self.document {
                None => (0, self.read_text().map_err(store)?),
                Some(shared) => match shared.read(0)? {
                    Some(document) => (document.revision, Some(document.text)),
                    None => (0, None),
                },
            };
            let (text, value) = change(current.as_deref())?;
            let Some(shared) = &self.document else {
                durable::replace(&self.path, text.as_bytes()).map_err(StoreError::io(&self.path)).map_err(store)?;
                return Ok(value);
            };
            if shared.replace(revision, &text)? {
                self.copy_document(shared, &RecordedDocument { revision: revision + 1, text }).map_err(store)?;
                return Ok(value);
            }
        }
    }

    /// Returns the content, or `None` if the file does not exist.
    ///
    /// # Errors
    /// Returns `Io`, also if the file is larger than a manifest can be, or is not text.
    pub fn read_text(&self) -> Result<Option<String>, StoreError> {
        match regular_file::read_to_string(&self.path, MANIFEST_BYTES_MAX) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => Ok(Some(read.map_err(StoreError::io(&self.path))?)),
        }
    }

    /// Replaces the file with a revision of the document, unless it has a newer one. The caller holds the file's lock.
    fn copy_document(&self, shared: &SharedDocument, newest: &RecordedDocument) -> Result<(), StoreError> {
        if newest.revision <= shared.copied.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.read_text().ok().flatten().as_deref() != Some(&newest.text) {
            durable::replace(&self.path, newest.text.as_bytes()).map_err(StoreError::io(&self.path))?;
        }
        shared.copied.store(newest.revision, Ordering::Release);
        Ok(())
    }

    /// The file that says that this one is a copy.
    fn copy_marker(&self) -> PathBuf {
        self.path.with_added_extension("shared")
    }

    fn is_copy(&self) -> bool {
        self.copy_marker().exists()
    }
}

#[cfg(test)]
mod tests;
