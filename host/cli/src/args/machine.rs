//! Arguments of `saggar doctor`.

use std::path::PathBuf;

use clap::Args;

use super::database::{DATABASE_URL_VARIABLE, DatabaseUrl};

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Fail if this device is missing: cpu, gpu, vulkan:0.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Fix what can be fixed without risk: create the state directory, write a configuration.
    #[arg(long)]
    pub(crate) fix: bool,
    /// The state directory to check.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// Also check this database of a server: postgres://USER@HOST:5432/DATABASE.
    #[arg(long, env = DATABASE_URL_VARIABLE, hide_env_values = true, value_name = "URL")]
    pub(crate) database: Option<DatabaseUrl>,
    /// The store of objects to check: s3://BUCKET/PREFIX.
    #[arg(long, env = "SAGGAR_OBJECTS", value_name = "ADDRESS")]
    pub(crate) objects: Option<String>,
    /// Check only one device (doctor starts this).
    #[arg(long, hide = true, value_name = "DEVICE")]
    pub(crate) probe: Option<String>,
}
