//! Small files that are documents in the records of servers: keys, secrets, and the settings of models.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::MigrationError;
use super::directory_content::{SHARED_NOTES, list};
use crate::bucket_usage::BUCKET_USAGE_DOCUMENT;
use crate::durable;
use crate::error::StoreError;
use crate::keys::KEYS_DOCUMENT;
use crate::limits::MANIFEST_BYTES_MAX;
use crate::records::{JobRecords, MIGRATION_DOCUMENT};
use crate::regular_file;
use crate::secrets::SECRETS_DOCUMENT;
use crate::shared_file::SealingKey;
use crate::state_dir::StateDir;
use crate::versions::is_name;

/// The beginning of the names of the documents of models.
const MODELS_PREFIX: &str = "models/";

/// Texts by the name of the document. Secrets are not sealed.
pub(super) type DocumentTexts = BTreeMap<String, String>;

/// Reads the files of a state directory that are documents.
///
/// # Errors
/// Returns `Io`; `NoSecretsKey` if there are secrets and no key to seal them.
pub(super) fn read_files(home: &StateDir, key: Option<&SealingKey>) -> Result<DocumentTexts, MigrationError> {
    let mut texts = DocumentTexts::new();
    let mut add = |name: String, path: &Path| match regular_file::read_to_string(path, MANIFEST_BYTES_MAX) {
        Ok(text) => {
            texts.insert(name, text);
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StoreError::io(path)(error)),
    };
    add(KEYS_DOCUMENT.to_owned(), home.keys().path())?;
    add(SECRETS_DOCUMENT.to_owned(), home.secrets().path())?;
    for directory in list(&home.models())? {
        let model = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for file in SHARED_NOTES.into_iter().filter(|_| is_name(&model)) {
            add(format!("{MODELS_PREFIX}{model}/{file}"), &directory.join(file))?;
        }
    }
    if texts.contains_key(SECRETS_DOCUMENT) && key.is_none() {
        if !home.secrets().is_empty() {
            return Err(MigrationError::NoSecretsKey);
        }
        texts.remove(SECRETS_DOCUMENT);
    }
    Ok(texts)
}

/// Writes documents to records that have none.
///
/// # Errors
/// Returns `Records`.
pub(super) fn write_documents(
    records: &dyn JobRecords,
    texts: &DocumentTexts,
    key: Option<&SealingKey>,
) -> Result<(), MigrationError> {
    for (name, text) in texts {
        let sealed = key.filter(|_| name == SECRETS_DOCUMENT).map(|key| key.seal(name, text));
        records.replace_document(name, 0, sealed.as_ref().unwrap_or(text))?;
    }
    Ok(())
}

/// Reads the documents of records.
///
/// # Errors
/// Returns `Records`; `NoSecretsKey`; `OtherSecretsKey`; `UnknownDocument`.
pub(super) fn read_documents(
    records: &dyn JobRecords,
    key: Option<&SealingKey>,
) -> Result<DocumentTexts, MigrationError> {
    let mut texts = DocumentTexts::new();
    // Sums over a bucket, which are counted again.
    let is_moved = |name: &String| name != MIGRATION_DOCUMENT && name != BUCKET_USAGE_DOCUMENT;
    for name in records.document_revisions("")?.into_keys().filter(is_moved) {
        let Some(document) = records.document(&name, 0)? else { continue };
        let text = if name == SECRETS_DOCUMENT {
            let key = key.ok_or(MigrationError::NoSecretsKey)?;
            key.open(&name, &document.text).ok_or(MigrationError::OtherSecretsKey)?
        } else {
            document.text
        };
        // An empty document stands for a file that does not exist.
        if !text.is_empty() {
            file_of(&name)?;
            texts.insert(name, text);
        }
    }
    Ok(texts)
}

/// Writes the files that have the documents' texts.
///
/// # Errors
/// Returns `Store`; `UnknownDocument`.
pub(super) fn write_files(home: &StateDir, texts: &DocumentTexts) -> Result<(), MigrationError> {
    for (name, text) in texts {
        let path = home.root().join(file_of(name)?);
        let directory = path.parent().unwrap_or(&path);
        durable::create_directories_below(home.root(), directory).map_err(StoreError::io(directory))?;
        let is_note = name.starts_with(MODELS_PREFIX);
        let replace = if is_note { durable::replace_shared } else { durable::replace };
        replace(&path, text.as_bytes()).map_err(StoreError::io(&path))?;
    }
    Ok(())
}

/// Returns an error if the texts differ.
///
/// # Errors
/// Returns `Differs`, without the texts, which can be secret.
pub(super) fn check(source: &DocumentTexts, target: &DocumentTexts) -> Result<(), MigrationError> {
    let names = source.keys().chain(target.keys());
    let different = names.into_iter().find(|name| source.get(*name) != target.get(*name));
    match different {
        None => Ok(()),
        Some(name) => {
            let describe = |text: Option<&String>| match text {
                Some(text) => format!("{} bytes", text.len()),
                None => "nothing".to_owned(),
            };
            let (expected, found) = (describe(source.get(name)), describe(target.get(name)));
            Err(MigrationError::Differs { what: format!("document {name}"), expected, found })
        }
    }
}

/// Returns the path of a document's file below the state directory.
fn file_of(name: &str) -> Result<PathBuf, MigrationError> {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [KEYS_DOCUMENT] => Ok("keys.json".into()),
        [SECRETS_DOCUMENT] => Ok("secrets.json".into()),
        ["models", model, file] if is_name(model) && SHARED_NOTES.contains(&file) => Ok(name.into()),
        _ => Err(MigrationError::UnknownDocument { name: name.to_owned() }),
    }
}
