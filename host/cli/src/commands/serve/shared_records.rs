//! The records of a server, in its state directory or in a database that other servers use too.

use std::path::Path;
use std::sync::Arc;

use saggar_clock::Clock;
use saggar_jobs::launcher::SECRETS_KEY_VARIABLE;
use saggar_serve::AuditLog;
use saggar_serve::limits::AUDIT_FLUSH_TIME_MAX;
use saggar_store::records::{self, AuditRecords, DocumentRecords, JobRecords, ServerIdentity};
use saggar_store::server_identity::{is_server_name, server_identity};
use saggar_store::{DatasetStore, KeyFile, ObjectStorage, SealingKey, SecretStore, StateDir, UploadStore};

use super::unexpected_error;
use crate::args::{DatabaseArgs, DatabaseUrl};
use crate::database::open_database;
use crate::exit::CliError;

/// The records of a server, and the keys and secrets, which the servers of a database have in common.
#[derive(Debug)]
pub(in crate::commands) struct ServerRecords {
    pub(super) records: Arc<dyn JobRecords>,
    pub(super) keys: KeyFile,
    pub(super) secrets: SecretStore,
}

/// Returns the key that seals secrets in a database, if it is set.
///
/// # Errors
/// Fails if it is not one.
pub(in crate::commands) fn sealing_key() -> Result<Option<SealingKey>, CliError> {
    let Some(key) = std::env::var(SECRETS_KEY_VARIABLE).ok().filter(|key| !key.is_empty()) else { return Ok(None) };
    let key = SealingKey::parse(&key).ok_or_else(|| {
        let message = format!("{SECRETS_KEY_VARIABLE}: expected 64 hexadecimal digits");
        CliError::invalid(message).with_hint("`openssl rand -hex 32` makes a key; all servers need the same one")
    })?;
    Ok(Some(key))
}

/// Makes the secrets those of all servers of the database, if a key is set to seal them.
fn share_secrets(secrets: SecretStore, records: &Arc<dyn JobRecords>) -> Result<SecretStore, CliError> {
    let Some(key) = sealing_key()? else {
        secrets.stop_sharing().map_err(unexpected_error)?;
        return Ok(secrets);
    };
    secrets.share(Arc::clone(records) as Arc<dyn DocumentRecords>, key).map_err(unexpected_error)
}

impl ServerRecords {
    /// Opens the records.
    ///
    /// # Errors
    /// Returns an error without the password of the database.
    pub(in crate::commands) fn open(args: &DatabaseArgs, home: &StateDir) -> Result<ServerRecords, CliError> {
        let keys = home.keys();
        let Some(database) = args.database.as_ref().filter(|url| !url.is_empty()) else {
            keys.stop_sharing().map_err(unexpected_error)?;
            let secrets = home.secrets();
            secrets.stop_sharing().map_err(unexpected_error)?;
            return Ok(ServerRecords {
                records: records::open(home.database()).map_err(unexpected_error)?,
                keys,
                secrets,
            });
        };
        let records = open_database(database)?;
        let keys = keys.share(Arc::clone(&records) as Arc<dyn DocumentRecords>).map_err(unexpected_error)?;
        let secrets = share_secrets(home.secrets(), &records)?;
        Ok(ServerRecords { records, keys, secrets })
    }
}

/// Returns which server this is. A server whose records are in its state directory has an empty identity.
///
/// # Errors
/// Returns an error if the name is not valid, or a file of the state directory cannot be read or written.
pub(super) fn identify_server(
    args: &DatabaseArgs,
    home: &StateDir,
    models_dir: &Path,
    objects: &ObjectStorage,
) -> Result<ServerIdentity, CliError> {
    if args.database.as_ref().is_none_or(DatabaseUrl::is_empty) {
        return Ok(ServerIdentity::default());
    }
    if let Some(name) = args.name.as_deref().filter(|name| !is_server_name(name)) {
        let message = format!("--name {name:.80}: expected up to 64 letters, digits, `.`, `_` and `-`");
        return Err(CliError::invalid(message));
    }
    let server = server_identity(home, models_dir, objects, args.name.as_deref()).map_err(unexpected_error)?;
    tracing::info!(
        server = server.name,
        storage = server.storage,
        "the records are in a database that other servers can use"
    );
    Ok(server)
}

/// Returns the state directory, which counts the bytes of a bucket that several servers use.
pub(super) fn count_bucket(home: &StateDir, records: &Arc<dyn JobRecords>) -> StateDir {
    match home.bucket().is_some() && records.is_shared() {
        true => home.clone().with_bucket_usage(Arc::default()),
        false => home.clone(),
    }
}

/// Opens the audit log, whose lines the servers of a database have in common.
///
/// # Errors
/// Returns an error if the system cannot start a thread.
pub(super) fn open_audit_log(
    home: &StateDir,
    records: &Arc<dyn JobRecords>,
    server: &str,
    clock: &Arc<dyn Clock>,
) -> Result<AuditLog, CliError> {
    let audit = AuditLog::new(home.audit_log(), Arc::clone(clock));
    if !records.is_shared() {
        return Ok(audit);
    }
    audit.share(Arc::clone(records) as Arc<dyn AuditRecords>, server).map_err(unexpected_error)
}

/// Opens the uploads of datasets, whose chunks servers with one database and one bucket have in common.
pub(super) fn open_uploads(home: &StateDir, records: &Arc<dyn JobRecords>, datasets: DatasetStore) -> UploadStore {
    let uploads = UploadStore::new(home.uploads(), datasets);
    match home.bucket().filter(|_| records.is_shared()) {
        Some(bucket) => uploads.with_bucket(bucket.clone()),
        None => uploads,
    }
}

/// Waits until the database has the lines of the audit log, for a few seconds at most.
pub(super) async fn flush_audit_log(audit: AuditLog) {
    if let Err(error) = tokio::task::spawn_blocking(move || audit.flush(AUDIT_FLUSH_TIME_MAX)).await {
        tracing::error!(%error, "the last lines of the audit log may be missing in the database");
    }
}
