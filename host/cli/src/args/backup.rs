//! Arguments of `saggar backup`, `saggar restore` and `saggar upgrade-check`.

use std::path::PathBuf;

use clap::Args;

use super::database::{DATABASE_URL_VARIABLE, DatabaseUrl};

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The file to write. It must not exist.
    pub(crate) file: PathBuf,
    /// The state directory.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    #[command(flatten)]
    pub(crate) stores: BackupStoresArgs,
}

/// The stores that several servers share.
#[derive(Debug, Args)]
pub(crate) struct BackupStoresArgs {
    /// Copy this database and the bucket of --objects, which several servers share, instead of a state directory.
    #[arg(long, env = DATABASE_URL_VARIABLE, hide_env_values = true, value_name = "URL")]
    pub(crate) database: Option<DatabaseUrl>,
    /// The bucket of the servers of --database.
    #[arg(long, env = "SAGGAR_OBJECTS", value_name = "ADDRESS")]
    pub(crate) objects: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The file that `saggar backup` wrote.
    pub(crate) file: PathBuf,
    /// The state directory to create. It must not exist, or be empty.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeCheckArgs {
    /// The state directory.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
}
