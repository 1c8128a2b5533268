//! `saggar bench`: measures plugins on the devices of this machine, and a running server, and compares measurements.
//!
//! `train` and `infer` need no server: the plugin runs in this process as in a worker, and its results are not stored.
//! Devices are measured in turn; the failure of one is reported and does not stop the others.

mod amdahl;
mod confidence;
mod counter_random;
mod data;
mod dataset_read;
mod device;
mod diff;
mod infer;
mod machine;
mod on_off;
mod profile;
mod saved_result;
mod scale;
mod serve;
mod trace;
mod train;

use std::path::Path;

use saggar_plugin::{PluginEngine, PluginEngineConfig};
use saggar_store::StateDir;

use crate::args::BenchCommand;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::server::ServerAddress;

pub(crate) fn bench(args: &BenchCommand, server: &ServerAddress, output: CliOutput) -> Result<i32, CliError> {
    match args {
        BenchCommand::Train(args) => train::train(args, output),
        BenchCommand::Infer(args) => infer::infer(args, output),
        BenchCommand::Serve(args) => serve::serve(args, server, output),
        BenchCommand::Diff(args) => diff::diff(args, output),
        BenchCommand::Data(args) => dataset_read::data(args, output),
        BenchCommand::Scale(args) => scale::scale(args, &server.client()?, output),
    }
}

/// Opens the state directory. Returns `None` if it does not exist.
fn open_state_dir(path: &Path) -> Result<Option<StateDir>, CliError> {
    let open = || StateDir::open(path).map_err(|error| CliError::invalid(error.to_string()));
    path.is_dir().then(open).transpose()
}

/// Returns an engine for plugins, which caches compiled components in the state directory if there is one.
fn plugin_host(home: Option<&StateDir>) -> Result<PluginEngine, CliError> {
    let cache_dir = home.map(StateDir::cache);
    PluginEngine::new(PluginEngineConfig { cache_dir, ..PluginEngineConfig::default() })
        .map_err(|error| device::plugin_error(&error))
}
