//! The records of a server, in its state directory or in a database that other servers use too.

use std::path::Path;
use std::sync::Arc;

use saggar_store::StateDir;
use saggar_store::records::{self, JobRecords, ServerIdentity};
use saggar_store::server_identity::{is_server_name, server_identity};

use super::unexpected_error;
use crate::args::DatabaseArgs;
use crate::exit::CliError;

/// Opens the records, and returns which server this is. A server whose records are in its state directory has an empty identity.
///
/// # Errors
/// Returns an error without the password of the database.
pub(super) fn open_records(
    args: &DatabaseArgs,
    home: &StateDir,
    models_dir: &Path,
) -> Result<(Arc<dyn JobRecords>, ServerIdentity), CliError> {
    let Some(database) = args.database.as_ref().filter(|url| !url.is_empty()) else {
        return Ok((records::open(home.database()).map_err(unexpected_error)?, ServerIdentity::default()));
    };
    let url = database.as_postgres().map_err(CliError::invalid)?;
    if let Some(name) = args.name.as_deref().filter(|name| !is_server_name(name)) {
        let message = format!("--name {name:.80}: expected up to 64 letters, digits, `.`, `_` and `-`");
        return Err(CliError::invalid(message));
    }
    let server = server_identity(home, models_dir, args.name.as_deref()).map_err(unexpected_error)?;
    let hint = "`saggar doctor --database` with the same URL says what is wrong with the database";
    let records = records::open(url).map_err(|error| unexpected_error(error).with_hint(hint))?;
    tracing::info!(
        server = server.name,
        storage = server.storage,
        "the records are in a database that other servers can use"
    );
    Ok((records, server))
}
