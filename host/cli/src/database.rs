//! The database that servers have in common.

use std::sync::Arc;

use saggar_store::records::{self, JobRecords};

use crate::args::DatabaseUrl;
use crate::exit::{self, CliError};

/// Opens the records in a database.
///
/// # Errors
/// Returns an error without the password of the database.
pub(crate) fn open_database(database: &DatabaseUrl) -> Result<Arc<dyn JobRecords>, CliError> {
    let url = database.as_postgres().map_err(CliError::invalid)?;
    let hint = "`saggar doctor --database` with the same URL says what is wrong with the database";
    records::open(url).map_err(|error| CliError::new(exit::UNEXPECTED, "database", error.to_string()).with_hint(hint))
}
