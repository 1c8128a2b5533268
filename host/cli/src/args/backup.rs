//! Arguments of `saggar backup`, `saggar restore` and `saggar upgrade-check`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The file to write. It must not exist.
    pub(crate) file: PathBuf,
    /// The state directory.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
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
