//! Arguments of `saggar doctor` and `saggar worker`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Fail where this device is missing: cpu, gpu, vulkan:0.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Mend what can be mended without a risk: make the state directory, write a configuration.
    #[arg(long)]
    pub(crate) fix: bool,
    /// The state directory to look at.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// Look at one device alone (doctor starts this).
    #[arg(long, hide = true, value_name = "DEVICE")]
    pub(crate) probe: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The state directory.
    #[arg(long)]
    pub(crate) home: PathBuf,
    /// The directory of model versions.
    #[arg(long)]
    pub(crate) models: PathBuf,
    /// Bytes that may be stored together.
    #[arg(long)]
    pub(crate) storage_quota: Option<u64>,
}
