//! The records of a server, in its state directory or in a database that other servers use too.

use std::path::Path;
use std::sync::Arc;

use saggar_store::records::{self, DocumentRecords, JobRecords, ServerIdentity};
use saggar_store::server_identity::{is_server_name, server_identity};
use saggar_store::{KeyFile, ObjectStorage, StateDir};

use super::unexpected_error;
use crate::args::{DatabaseArgs, DatabaseUrl};
use crate::database::open_database;
use crate::exit::CliError;

/// The records of a server, and the keys, which the servers of a database have in common.
#[derive(Debug)]
pub(in crate::commands) struct ServerRecords {
    pub(super) records: Arc<dyn JobRecords>,
    pub(super) keys: KeyFile,
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
            return Ok(ServerRecords { records: records::open(home.database()).map_err(unexpected_error)?, keys });
        };
        let records = open_database(database)?;
        let keys = keys.share(Arc::clone(&records) as Arc<dyn DocumentRecords>).map_err(unexpected_error)?;
        Ok(ServerRecords { records, keys })
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
